import asyncio

from pinnace.kubelet.workqueue import DelayQueue
from tests.clock import FakeClock


async def test_due_keys_are_returned_together_in_order() -> None:
    queue = DelayQueue(FakeClock())
    for key in "abc":
        queue.add(key)
    assert await queue.take(2) == ["a", "b"]
    assert await queue.take(2) == ["c"]


async def test_key_is_queued_once_at_its_earliest_time() -> None:
    clock = FakeClock(0.0)
    queue = DelayQueue(clock)
    queue.add_at("a", 5.0)
    queue.add_at("a", 9.0)
    queue.add_at("a", 2.0)
    queue.add_at("b", 3.0)
    assert len(queue) == 2
    await clock.advance(10.0)
    assert await queue.take(9) == ["a", "b"]
    assert len(queue) == 0


async def test_immediate_key_overrides_a_later_time() -> None:
    queue = DelayQueue(FakeClock(0.0))
    queue.add_at("a", 5.0)
    queue.add("a")
    queue.add_at("a", 5.0)
    assert await queue.take(9) == ["a"]
    assert len(queue) == 0


async def test_discarded_key_is_not_returned() -> None:
    clock = FakeClock(0.0)
    queue = DelayQueue(clock)
    queue.add("a")
    queue.add_at("b", 1.0)
    queue.add_at("c", 2.0)
    queue.discard("a")
    queue.discard("b")
    await clock.advance(3.0)
    assert await queue.take(9) == ["c"]


async def test_waiting_consumer_is_woken_by_time_and_by_an_earlier_key() -> None:
    clock = FakeClock(0.0)
    queue = DelayQueue(clock)
    async with asyncio.timeout(5):
        waiting = asyncio.create_task(queue.take(9))
        await clock.advance(0.0)
        queue.add_at("late", 100.0)
        await clock.advance(50.0)
        assert not waiting.done()
        queue.add_at("soon", 60.0)
        await clock.advance(10.0)
        assert await waiting == ["soon"]
        assert (await asyncio.gather(queue.take(9), clock.advance(40.0)))[0] == ["late"]
