"""The pace of refusals, on a fake clock."""

import asyncio
from collections.abc import Sequence

import pytest

from pinnace.runtime import grpc_server
from pinnace.runtime.grpc_server import BURST, MAX_DELAY, MAX_WAITING_BYTES, RATE, RefusalPacer
from tests.clock import FakeClock


async def delays(paced: RefusalPacer, clock: FakeClock, callers: Sequence[str], size: int = 0) -> list[float]:
    """The delay of each caller when all are refused at once."""
    waiting = [asyncio.ensure_future(paced.wait(caller, size)) for caller in callers]
    await asyncio.sleep(0)
    await clock.advance(2 * MAX_DELAY)
    return [await item for item in waiting]


async def test_refusals_beyond_the_burst_are_delayed_to_the_rate() -> None:
    clock = FakeClock()
    result = await delays(RefusalPacer(clock), clock, ["a"] * (BURST + 201))
    assert result[: BURST + 1] == [0.0] * (BURST + 1)
    assert result[-1] == max(result) and abs(result[-1] - 200 / RATE) < 1e-6


async def test_callers_are_delayed_independently() -> None:
    clock = FakeClock()
    *_, latter = await delays(RefusalPacer(clock), clock, [*["a"] * 500, "b"])
    assert latter == 0.0


async def test_delay_is_bounded_by_the_maximum_and_the_deadline() -> None:
    clock, paced = FakeClock(), RefusalPacer(FakeClock())
    assert max(await delays(RefusalPacer(clock), clock, ["a"] * 3000)) == MAX_DELAY
    for _ in range(BURST + 1000):
        await paced.wait("a", remaining=0.1)
    assert paced.waiting == 0


async def test_delayed_refusals_are_limited_by_bytes_and_count(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    large = await delays(RefusalPacer(clock), clock, ["a"] * (BURST + 5), MAX_WAITING_BYTES // 2)
    assert sum(item > 0 for item in large) == 2, "two messages of half the size fill the limit"
    monkeypatch.setattr(grpc_server, "MAX_WAITING", 3)
    many = await delays(RefusalPacer(clock), clock, ["a"] * (BURST + 20))
    assert sum(item > 0 for item in many) == 3


async def test_cancelled_call_stops_waiting() -> None:
    paced = RefusalPacer(FakeClock())
    for _ in range(BURST + 1):
        await paced.wait("a")
    waiting = asyncio.ensure_future(paced.wait("a"))
    await asyncio.sleep(0)
    assert paced.waiting == 1
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert paced.waiting == 0
