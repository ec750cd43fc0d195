import asyncio
from collections.abc import Iterator

import pytest

from pinnace.api.resources import PODS
from pinnace.apiserver.cacher.event_history import EncodedResponse
from pinnace.apiserver.cacher.store import RevisionExpired, SelectionPredicate, ShuttingDown, SlowWatcher
from pinnace.apiserver.cacher.watcher import CacheWatcher, SendBuffer, SharedResponse, uncharged_response
from pinnace.apiserver.flow import send_budget as flow
from pinnace.apiserver.flow.send_budget import LARGE, SendBudget, SendPool

ALL_PODS = SelectionPredicate.parse(PODS, "", "", "")


class Hub:
    """Remembers who joined and left."""

    def __init__(self) -> None:
        self.live: list[CacheWatcher] = []
        self.left = 0
        self.delivered_events = 0

    def start_watcher(self, watcher: CacheWatcher) -> None:
        self.live.append(watcher)

    def remove_watcher(self, watcher: CacheWatcher) -> None:
        self.left += 1


def watcher_of(
    *past: EncodedResponse, hub: Hub | None = None, buffer: SendBuffer | None = None, budget: SendBudget | None = None
) -> CacheWatcher:
    return CacheWatcher(hub or Hub(), ALL_PODS, 3, iter(past), buffer=buffer, budget=budget)


async def test_first_the_past_then_what_happens() -> None:
    hub = Hub()
    watcher = watcher_of(EncodedResponse(b"one", 0), EncodedResponse(b"", 4), EncodedResponse(b"two", 5), hub=hub)
    assert await anext(watcher) == b"one"
    assert watcher.delivered == 3, "a part of the initial state is no revision to resume from"
    assert await anext(watcher) == b"two"
    assert watcher.delivered == 5
    assert hub.live == []
    reading = asyncio.ensure_future(anext(watcher))
    await asyncio.wait((reading,), timeout=0.01)
    assert hub.live == [watcher]
    assert not reading.done()
    watcher.enqueue_response(uncharged_response(EncodedResponse(b"three", 6)))
    assert await reading == b"three"
    assert watcher.delivered == 6


async def test_others_run_while_the_past_is_read() -> None:
    ran = asyncio.Event()
    asyncio.get_running_loop().call_soon(ran.set)
    watcher = watcher_of(EncodedResponse(b"one", 4))
    await anext(watcher)
    assert ran.is_set()


async def test_read_that_is_cancelled_loses_nothing() -> None:
    watcher = watcher_of(EncodedResponse(b"one", 4))
    for expected in (b"one", b"two"):
        for _ in range(3):
            reading = asyncio.ensure_future(anext(watcher))
            await asyncio.sleep(0)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
        if expected == b"two":
            watcher.enqueue_response(uncharged_response(EncodedResponse(b"two", 5)))
        assert await anext(watcher) == expected


async def test_on_overflow_it_says_where_to_resume() -> None:
    hub = Hub()
    watcher = watcher_of(EncodedResponse(b"one", 4), hub=hub, buffer=SendBuffer(max_bytes=5))
    await anext(watcher)
    for revision in range(5, 10):
        watcher.enqueue_response(uncharged_response(EncodedResponse(b"xxx", revision)))
    assert hub.left
    with pytest.raises(SlowWatcher) as caught:
        await anext(watcher)
    assert caught.value.resume == 4
    with pytest.raises(StopAsyncIteration):
        await anext(watcher)


async def test_at_the_end_the_reader_still_gets_what_waits() -> None:
    watcher = watcher_of()
    await asyncio.wait((reading := asyncio.ensure_future(anext(watcher)),), timeout=0.01)
    watcher.enqueue_response(uncharged_response(EncodedResponse(b"last", 9)))
    watcher.end(ShuttingDown())
    assert await reading == b"last"
    with pytest.raises(ShuttingDown):
        await anext(watcher)


async def test_end_interrupts_the_past() -> None:
    watcher = watcher_of(EncodedResponse(b"one", 0), EncodedResponse(b"two", 4))
    await anext(watcher)
    watcher.end(ShuttingDown())
    with pytest.raises(ShuttingDown):
        await anext(watcher)


async def test_only_the_first_error_counts() -> None:
    watcher = watcher_of()
    watcher.end(RevisionExpired(7))
    watcher.end(ShuttingDown())
    with pytest.raises(RevisionExpired):
        await anext(watcher)


async def test_past_that_expires_ends_it() -> None:
    def past() -> Iterator[EncodedResponse]:
        yield EncodedResponse(b"one", 4)
        raise RevisionExpired(7)

    hub = Hub()
    watcher = CacheWatcher(hub, ALL_PODS, 3, past())
    await anext(watcher)
    with pytest.raises(RevisionExpired):
        await anext(watcher)
    with pytest.raises(StopAsyncIteration):
        await anext(watcher)
    assert hub.live == [], "it must not go on as if it had caught up"


async def test_closing_wakes_the_reader() -> None:
    hub = Hub()
    watcher = watcher_of(hub=hub)
    reading = asyncio.ensure_future(anext(watcher))
    await asyncio.wait((reading,), timeout=0.01)
    watcher.close()
    with pytest.raises(StopAsyncIteration):
        await reading
    assert [response async for response in watcher] == []
    assert hub.left == 1


async def pending(watcher: CacheWatcher) -> "asyncio.Future[bytes]":
    """A read that has begun."""
    reading = asyncio.ensure_future(anext(watcher))
    await asyncio.wait((reading,), timeout=0.01)
    return reading


class TestRoom:
    """What its flow has for all that is not taken yet."""

    @pytest.mark.parametrize(("size", "charged"), [(LARGE - 1, 0), (LARGE, LARGE)])
    @pytest.mark.parametrize("closed", [False, True])
    async def test_handed_over_events_are_charged_until_taken(self, size: int, charged: int, closed: bool) -> None:
        budget = SendBudget(SendPool())
        watcher = watcher_of(EncodedResponse(b"x" * size, 4), budget=budget)
        await anext(watcher)
        assert budget.unsent_bytes == charged
        if closed:
            watcher.close()
        else:
            (await pending(watcher)).cancel()
        assert budget.unsent_bytes == 0

    async def test_without_it_only_small_responses_are_handed_over(self, monkeypatch: pytest.MonkeyPatch) -> None:
        budget = SendBudget(SendPool())
        watcher = watcher_of(budget=budget)
        reading = await pending(watcher)
        budget.charge(flow.MAX_UNSENT_BYTES)
        for revision, size in enumerate((100, 200, LARGE), 4):
            watcher.enqueue_response(uncharged_response(EncodedResponse(b"x" * size, revision)))
        assert len(await reading) == 300
        reading = await pending(watcher)
        assert not reading.done()
        watcher.end(ShuttingDown())
        await asyncio.sleep(0.01)
        assert not reading.done()
        budget.charge(-flow.MAX_UNSENT_BYTES)
        assert len(await reading) == LARGE
        with pytest.raises(ShuttingDown):
            await anext(watcher)
        assert budget.unsent_bytes == 0

    async def test_without_it_the_past_waits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nothing is kept for it meanwhile but a position."""
        budget = SendBudget(SendPool())
        budget.charge(flow.MAX_UNSENT_BYTES)
        asked = False

        def past() -> Iterator[EncodedResponse]:
            nonlocal asked
            asked = True
            yield EncodedResponse(b"one", 4)

        watcher = CacheWatcher(Hub(), ALL_PODS, 3, past(), budget=budget)
        reading = await pending(watcher)
        assert not asked
        budget.charge(-flow.MAX_UNSENT_BYTES)
        assert await reading == b"one"

    async def test_buffered_events_do_not_block_other_watches(self) -> None:
        """Not even a large response of a flow that has all that may wait."""
        budget = SendBudget(SendPool())
        watchers = [watcher_of(budget=budget) for _ in range(3)]
        for watcher in watchers:
            (await pending(watcher)).cancel()
            for revision in range(20):
                watcher.enqueue_response(SharedResponse(EncodedResponse(b"x" * (1 << 20), revision + 4), budget, 1))
        budget.add_buffered(flow.MAX_WAITING)
        async with asyncio.timeout(5):
            for revision in range(20):
                for watcher in watchers:
                    await anext(watcher)
                    assert watcher.delivered == revision + 4
        assert budget.waiting == flow.MAX_WAITING

    @pytest.mark.parametrize("live", [False, True])
    async def test_watch_receives_events_after_a_long_wait(self, live: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(flow, "SEND_TIMEOUT", 0.02)
        budget = SendBudget(SendPool())
        watcher = watcher_of(budget=budget) if live else watcher_of(EncodedResponse(b"one", 4), budget=budget)
        reading = await pending(watcher) if live else None
        budget.charge(flow.MAX_UNSENT_BYTES)
        watcher.enqueue_response(SharedResponse(EncodedResponse(b"x" * LARGE, 4), budget, 1))
        with pytest.raises(SlowWatcher) as caught:
            await (reading or anext(watcher))
        assert caught.value.resume == 3
        assert (budget.waiting, budget.watches) == (0, {})

    async def test_ended_watch_that_does_not_read_can_be_ended_again(self) -> None:
        """It hears why it was ended at first."""
        budget = SendBudget(SendPool())
        watcher = watcher_of(budget=budget)
        (await pending(watcher)).cancel()
        for revision in (4, 5):
            watcher.enqueue_response(SharedResponse(EncodedResponse(b"x" * 100, revision), budget, 1))
        watcher.end(ShuttingDown())
        assert len(await anext(watcher)) == 200
        watcher = watcher_of(budget=budget)
        (await pending(watcher)).cancel()
        watcher.enqueue_response(SharedResponse(EncodedResponse(b"x" * 100, 4), budget, 1))
        watcher.end(RevisionExpired(7))
        budget.add_buffered(flow.MAX_WAITING)
        budget.enforce_limit()
        assert budget.waiting == flow.MAX_WAITING
        with pytest.raises(RevisionExpired):
            await anext(watcher)

    async def test_waiting_watch_ends_immediately(self) -> None:
        budget = SendBudget(SendPool())
        budget.charge(flow.MAX_UNSENT_BYTES)
        watcher = watcher_of(EncodedResponse(b"one", 4), budget=budget)
        reading = await pending(watcher)
        watcher.end_overflowed()
        async with asyncio.timeout(1):
            with pytest.raises(SlowWatcher) as caught:
                await reading
        assert caught.value.resume == 3
