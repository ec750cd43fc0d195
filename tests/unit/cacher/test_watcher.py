import asyncio
from collections.abc import Iterator

import pytest

from apiserver.cacher.errors import Expired, ShuttingDown, SlowWatcher
from apiserver.cacher.outbox import Outbox, Told
from apiserver.cacher.selection import Selection
from apiserver.cacher.watcher import Watcher
from pinnace.api.resources import PODS

ALL_PODS = Selection.parse(PODS, "", "", "")


class Hub:
    """Remembers who joined and left."""

    def __init__(self) -> None:
        self.live: list[Watcher] = []
        self.left = 0
        self.told = 0

    def join(self, watcher: Watcher) -> None:
        self.live.append(watcher)

    def leave(self, watcher: Watcher) -> None:
        self.left += 1


def watcher_of(*past: Told, hub: Hub | None = None, outbox: Outbox | None = None) -> Watcher:
    return Watcher(hub or Hub(), ALL_PODS, 3, iter(past), outbox=outbox)


async def test_first_the_past_then_what_happens() -> None:
    hub = Hub()
    watcher = watcher_of(Told(b"one", 0), Told(b"", 4), Told(b"two", 5), hub=hub)
    assert await anext(watcher) == b"one"
    assert watcher.delivered == 3, "a part of the initial state is no revision to resume from"
    assert await anext(watcher) == b"two"
    assert watcher.delivered == 5
    assert hub.live == []
    reading = asyncio.ensure_future(anext(watcher))
    await asyncio.wait((reading,), timeout=0.01)
    assert hub.live == [watcher]
    assert not reading.done()
    watcher.offer(Told(b"three", 6))
    assert await reading == b"three"
    assert watcher.delivered == 6


async def test_others_run_while_the_past_is_read() -> None:
    ran = asyncio.Event()
    asyncio.get_running_loop().call_soon(ran.set)
    watcher = watcher_of(Told(b"one", 4))
    await anext(watcher)
    assert ran.is_set()


async def test_a_read_that_is_cancelled_loses_nothing() -> None:
    watcher = watcher_of(Told(b"one", 4))
    for expected in (b"one", b"two"):
        for _ in range(3):
            reading = asyncio.ensure_future(anext(watcher))
            await asyncio.sleep(0)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
        if expected == b"two":
            watcher.offer(Told(b"two", 5))
        assert await anext(watcher) == expected


async def test_on_overflow_it_says_where_to_resume() -> None:
    hub = Hub()
    watcher = watcher_of(Told(b"one", 4), hub=hub, outbox=Outbox(max_bytes=5))
    await anext(watcher)
    for revision in range(5, 10):
        watcher.offer(Told(b"xxx", revision))
    assert hub.left
    with pytest.raises(SlowWatcher) as caught:
        await anext(watcher)
    assert caught.value.resume == 4
    with pytest.raises(StopAsyncIteration):
        await anext(watcher)


async def test_at_the_end_the_reader_still_gets_what_waits() -> None:
    watcher = watcher_of()
    await asyncio.wait((reading := asyncio.ensure_future(anext(watcher)),), timeout=0.01)
    watcher.offer(Told(b"last", 9))
    watcher.end(ShuttingDown())
    assert await reading == b"last"
    with pytest.raises(ShuttingDown):
        await anext(watcher)


async def test_the_end_interrupts_the_past() -> None:
    watcher = watcher_of(Told(b"one", 0), Told(b"two", 4))
    await anext(watcher)
    watcher.end(ShuttingDown())
    with pytest.raises(ShuttingDown):
        await anext(watcher)


async def test_only_the_first_error_counts() -> None:
    watcher = watcher_of()
    watcher.end(Expired(7))
    watcher.end(ShuttingDown())
    with pytest.raises(Expired):
        await anext(watcher)


async def test_a_past_that_expires_ends_it() -> None:
    def past() -> Iterator[Told]:
        yield Told(b"one", 4)
        raise Expired(7)

    hub = Hub()
    watcher = Watcher(hub, ALL_PODS, 3, past())
    await anext(watcher)
    with pytest.raises(Expired):
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
