import asyncio

import pytest

from pinnace.controllers.runtime import WorkQueue
from tests.clock import FakeClock


async def taken(queue: WorkQueue) -> list[str]:
    """All keys that are in the queue now."""
    return [await queue.get() for _ in range(len(queue))]


async def test_key_is_queued_once_however_often_it_is_added() -> None:
    queue = WorkQueue()
    for key in ("a", "b", "a", "a"):
        queue.add(key)
    assert await taken(queue) == ["a", "b"]


async def test_key_added_during_its_sync_is_queued_afterwards() -> None:
    queue = WorkQueue()
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    queue.add("a")
    assert len(queue) == 0
    queue.done("a")
    assert await taken(queue) == ["a"]
    queue.done("a")
    assert len(queue) == 0


async def test_waiting_worker_is_woken() -> None:
    queue = WorkQueue()
    waiting = asyncio.ensure_future(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    async with asyncio.timeout(1):
        assert await waiting == "a"


async def test_delayed_key_is_queued_at_its_earliest_time() -> None:
    clock = FakeClock()
    queue = WorkQueue(clock=clock)
    running = asyncio.ensure_future(queue.run())
    queue.add_after("late", 10.0)
    queue.add_after("a", 5.0)
    queue.add_after("a", 2.0)
    queue.add_after("a", 8.0)
    await clock.advance(1.9)
    assert len(queue) == 0
    await clock.advance(0.2)
    assert await taken(queue) == ["a"]
    queue.done("a")
    await clock.advance(7.8)
    assert len(queue) == 0  # its later times are dropped
    await clock.advance(0.2)
    assert await taken(queue) == ["late"]
    running.cancel()


async def test_delayed_key_can_be_added_earlier() -> None:
    queue = WorkQueue(clock=FakeClock())
    queue.add_after("a", 5.0)
    queue.add("a")
    queue.add_after("b", 0.0)
    assert await taken(queue) == ["a", "b"]


async def test_backoff_of_each_key_doubles_until_it_is_forgotten() -> None:
    queue = WorkQueue(clock=FakeClock())
    assert [queue.add_rate_limited("a") for _ in range(4)] == pytest.approx([0.005, 0.01, 0.02, 0.04])
    assert queue.add_rate_limited("b") == pytest.approx(0.005)
    for _ in range(100):
        last = queue.add_rate_limited("a")
    assert last == 1000.0
    queue.forget("a")
    assert queue.failures("a") == 0
    assert queue.add_rate_limited("a") == pytest.approx(0.005)
