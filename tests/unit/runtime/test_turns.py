"""Long work is divided into slices, so that other tasks can run."""

import asyncio

from pinnace.runtime.tasks import SLICE, YIELDS, apply_in_slices
from tests.clock import FakeClock


async def turns_meanwhile(seconds: float, items: int) -> int:
    """The number of times another task ran during the work on these items. Each item takes `seconds`."""
    clock, turns = FakeClock(), 0

    async def other_task() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def work(item: int) -> int:
        clock.stall(seconds)
        return -item

    other = asyncio.create_task(other_task())
    assert await apply_in_slices(work, range(items), clock) == [-item for item in range(items)]
    other.cancel()
    return turns


async def test_long_work_yields_after_each_slice() -> None:
    assert await turns_meanwhile(SLICE * 1.5, items=10) == 10 * YIELDS
    assert await turns_meanwhile(SLICE * 0.6, items=10) == 5 * YIELDS


async def test_short_work_does_not_yield() -> None:
    assert await turns_meanwhile(SLICE / 100, items=50) == 0


async def test_cancellation_is_handled_between_items() -> None:
    clock, done = FakeClock(), list[int]()

    def work(item: int) -> None:
        clock.stall(SLICE * 2)
        done.append(item)

    working = asyncio.create_task(apply_in_slices(work, range(100), clock))
    await asyncio.sleep(0)
    working.cancel()
    await asyncio.wait((working,))
    assert working.cancelled() and len(done) == 1
