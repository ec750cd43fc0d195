import asyncio

import pytest

from pinnace.client.workqueue import DelayingQueue, RateLimitingQueue
from tests.clock import FakeClock


async def taken(queue: RateLimitingQueue) -> list[str]:
    """All keys that are in the queue now."""
    return [await queue.get() for _ in range(len(queue))]


async def test_key_is_queued_once_however_often_it_is_added() -> None:
    queue = RateLimitingQueue()
    for key in ("a", "b", "a", "a"):
        queue.add(key)
    assert await taken(queue) == ["a", "b"]


async def test_key_added_during_its_sync_is_queued_afterwards() -> None:
    queue = RateLimitingQueue()
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
    queue = RateLimitingQueue()
    waiting = asyncio.ensure_future(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    async with asyncio.timeout(1):
        assert await waiting == "a"


async def test_delayed_key_is_queued_at_its_earliest_time() -> None:
    clock = FakeClock()
    queue = RateLimitingQueue(clock=clock)
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
    queue = RateLimitingQueue(clock=FakeClock())
    queue.add_after("a", 5.0)
    queue.add("a")
    queue.add_after("b", 0.0)
    assert await taken(queue) == ["a", "b"]


async def test_backoff_of_each_key_doubles_until_it_is_forgotten() -> None:
    queue = RateLimitingQueue(clock=FakeClock())
    assert [queue.add_rate_limited("a") for _ in range(4)] == pytest.approx([0.005, 0.01, 0.02, 0.04])
    assert queue.add_rate_limited("b") == pytest.approx(0.005)
    for _ in range(100):
        last = queue.add_rate_limited("a")
    assert last == 1000.0
    queue.forget("a")
    assert queue.num_requeues("a") == 0
    assert queue.add_rate_limited("a") == pytest.approx(0.005)


async def test_delaying_queue_returns_due_keys_together_in_order() -> None:
    queue = DelayingQueue(FakeClock())
    for key in "abc":
        queue.add(key)
    assert await queue.get_batch(2) == ["a", "b"]
    assert await queue.get_batch(2) == ["c"]


async def test_delaying_queue_returns_key_once_at_its_earliest_time() -> None:
    clock = FakeClock(0.0)
    queue = DelayingQueue(clock)
    queue.add_at("a", 5.0)
    queue.add_at("a", 9.0)
    queue.add_at("a", 2.0)
    queue.add_at("b", 3.0)
    assert len(queue) == 2
    await clock.advance(10.0)
    assert await queue.get_batch(9) == ["a", "b"]
    assert len(queue) == 0


async def test_delaying_queue_add_overrides_a_later_time() -> None:
    queue = DelayingQueue(FakeClock(0.0))
    queue.add_at("a", 5.0)
    queue.add("a")
    queue.add_at("a", 5.0)
    assert await queue.get_batch(9) == ["a"]
    assert len(queue) == 0


async def test_delaying_queue_does_not_return_discarded_key() -> None:
    clock = FakeClock(0.0)
    queue = DelayingQueue(clock)
    queue.add("a")
    queue.add_at("b", 1.0)
    queue.add_at("c", 2.0)
    queue.discard("a")
    queue.discard("b")
    await clock.advance(3.0)
    assert await queue.get_batch(9) == ["c"]


async def test_delaying_queue_wakes_consumer_by_time_and_by_an_earlier_key() -> None:
    clock = FakeClock(0.0)
    queue = DelayingQueue(clock)
    async with asyncio.timeout(5):
        waiting = asyncio.create_task(queue.get_batch(9))
        await clock.advance(0.0)
        queue.add_at("late", 100.0)
        await clock.advance(50.0)
        assert not waiting.done()
        queue.add_at("soon", 60.0)
        await clock.advance(10.0)
        assert await waiting == ["soon"]
        assert (await asyncio.gather(queue.get_batch(9), clock.advance(40.0)))[0] == ["late"]
