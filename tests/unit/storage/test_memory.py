"""What MemoryStorage does with the clock it is given; the rest is in tests/contract."""

import asyncio

import pytest

from pinnace.apiserver.storage.interface import KeyChange, LeaseNotFound
from tests.clock import FakeClock
from tests.contract.steps import put
from tests.storage.memory import SIGN_OF_LIFE, MemoryStorage


async def test_lease_runs_out_by_the_clock() -> None:
    clock = FakeClock()
    storage = MemoryStorage(clock)
    lease = await storage.grant_lease(2)
    await put(storage, "a", lease=lease)
    await clock.advance(1.9)
    assert await storage.get("a") is not None
    await clock.advance(0.1)
    assert await storage.get("a") is None
    with pytest.raises(LeaseNotFound):
        await storage.renew_lease(lease)


async def test_renewal_starts_the_time_again() -> None:
    clock = FakeClock()
    storage = MemoryStorage(clock)
    lease = await storage.grant_lease(2)
    await put(storage, "a", lease=lease)
    for _ in range(5):
        await clock.advance(1.5)
        assert await storage.renew_lease(lease) == 2
    assert await storage.get("a") is not None


async def test_watch_that_waits_sees_a_lease_run_out() -> None:
    clock = FakeClock()
    storage = MemoryStorage(clock)
    last = await put(storage, "a", lease=await storage.grant_lease(2))
    watch = storage.watch(last + 1)
    assert not (await anext(watch)).changes
    told = asyncio.ensure_future(_first_changes(watch))
    await clock.advance(1.9)
    assert not told.done()
    await clock.advance(0.1)
    assert await told == [KeyChange("a", None, 0, last + 1)]
    await watch.aclose()


async def test_quiet_watch_gives_a_sign_of_life_by_the_clock() -> None:
    clock = FakeClock()
    watch = MemoryStorage(clock).watch(2)
    await anext(watch)
    sign = asyncio.ensure_future(anext(watch))
    await clock.advance(SIGN_OF_LIFE - 0.1)
    assert not sign.done()
    await clock.advance(0.1)
    assert (await sign).revision == 1
    await watch.aclose()


async def _first_changes(watch: object) -> list[KeyChange]:
    async for batch in watch:
        if batch.changes:
            return list(batch.changes)
    raise AssertionError("the watch ended")
