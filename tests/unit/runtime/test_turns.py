"""Work that takes long lets others have their turn."""

import asyncio

from pinnace.runtime.tasks import PORTION, TURNS, in_turns
from tests.clock import FakeClock


async def turns_meanwhile(seconds: float, items: int) -> int:
    """How often somebody else had a turn while so many items were worked on, each for so long."""
    clock, turns = FakeClock(), 0

    async def somebody() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def work(item: int) -> int:
        clock.stall(seconds)
        return -item

    other = asyncio.create_task(somebody())
    assert await in_turns(work, range(items), clock) == [-item for item in range(items)]
    other.cancel()
    return turns


async def test_others_have_their_turns_after_each_portion() -> None:
    assert await turns_meanwhile(PORTION * 1.5, items=10) == 10 * TURNS
    assert await turns_meanwhile(PORTION * 0.6, items=10) == 5 * TURNS


async def test_what_is_done_quickly_waits_for_nobody() -> None:
    assert await turns_meanwhile(PORTION / 100, items=50) == 0


async def test_who_gives_up_is_heard_between_two_items() -> None:
    clock, done = FakeClock(), list[int]()

    def work(item: int) -> None:
        clock.stall(PORTION * 2)
        done.append(item)

    working = asyncio.create_task(in_turns(work, range(100), clock))
    await asyncio.sleep(0)
    working.cancel()
    await asyncio.wait((working,))
    assert working.cancelled() and len(done) == 1
