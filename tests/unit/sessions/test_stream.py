"""A stream as a mailbox: order, signs, bounds, and who was late."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from pinnace.apiserver.cacher.store import ShuttingDown
from pinnace.apiserver.services import sessions as module
from pinnace.apiserver.services.sessions import SessionStream, SessionStreams, StreamEvent, Timing
from tests.clock import FakeClock

PATIENCE = 5.0
QUICK = Timing(interval=0.02, silence=0.1, ttl=2)
PATIENT = Timing(interval=0.02, silence=60.0, ttl=2)


class Peer:
    """The requests of a stream, as a test makes them up."""

    def __init__(self) -> None:
        self._requests: asyncio.Queue[str | None] = asyncio.Queue()
        self.taken = 0

    def say(self, *requests: str) -> None:
        for request in requests:
            self._requests.put_nowait(request)

    def hang_up(self) -> None:
        self._requests.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[str]:
        while (request := await self._requests.get()) is not None:
            self.taken += 1
            yield request


@pytest.fixture
def peer() -> Peer:
    return Peer()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def start(peer: Peer, clock: FakeClock, timing: Timing = PATIENT) -> SessionStream[str, str]:
    return SessionStream(aiter(peer), timing, clock)


async def heard(stream: SessionStream[str, str], count: int) -> list[str | StreamEvent]:
    async with asyncio.timeout(PATIENCE):
        return [await stream.receive() for _ in range(count)]


async def test_requests_come_in_order_and_then_the_end(peer: Peer, clock: FakeClock) -> None:
    stream = start(peer, clock)
    peer.say("a", "b")
    peer.hang_up()
    await stream.receive_requests()
    assert await heard(stream, 3) == ["a", "b", StreamEvent.GONE]


async def test_pending_news_is_sent_once(peer: Peer, clock: FakeClock) -> None:
    stream = start(peer, clock)
    for _ in range(5):
        stream.post_event(StreamEvent.CHANGED)
    stream.post_event(StreamEvent.DRAINED)
    assert await heard(stream, 2) == [StreamEvent.CHANGED, StreamEvent.DRAINED]
    assert not stream.pending


async def test_silence(peer: Peer, clock: FakeClock) -> None:
    stream = start(peer, clock, QUICK)
    hearing = asyncio.ensure_future(stream.receive())
    async with asyncio.timeout(PATIENCE):
        while not hearing.done():
            await asyncio.wait((hearing,), timeout=QUICK.interval / 2)
            clock.stall(QUICK.interval / 2)
    assert hearing.result() is StreamEvent.SILENT
    assert clock.monotonic() - 1_000_000.0 >= QUICK.silence


async def test_received_requests_are_read_before_silence_is_judged(peer: Peer, clock: FakeClock) -> None:
    """The one who hears was busy for so long that the peer, who beat all the while, must not count as silent."""
    stream = start(peer, clock, QUICK)
    listening = asyncio.ensure_future(stream.receive_requests())
    peer.say("a")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    clock.stall(10.0)
    assert await heard(stream, 1) == ["a"]
    listening.cancel()


@pytest.mark.parametrize(("seconds", "late"), [(0.1, False), (0.5, True)])
async def test_notices_that_it_let_the_peer_wait(peer: Peer, clock: FakeClock, seconds: float, late: bool) -> None:
    stream = start(peer, clock)
    stream.post_event(StreamEvent.CHANGED)
    await stream.receive()
    clock.stall(seconds)  # what was heard took that long to deal with
    stream.post_event(StreamEvent.GONE)
    assert await heard(stream, 1) == [StreamEvent.GONE]
    assert stream.was_late is late


async def test_having_been_late_is_forgotten(peer: Peer, clock: FakeClock) -> None:
    stream = start(peer, clock)
    clock.stall(0.5)
    stream.post_event(StreamEvent.CHANGED)
    await stream.receive()
    assert stream.was_late
    clock.stall(1.0)
    assert not stream.was_late


async def test_flood_is_not_read_faster_than_it_is_heard(peer: Peer, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_INBOX", 4)
    stream = start(peer, clock)
    listening = asyncio.ensure_future(stream.receive_requests())
    peer.say(*"abcdefghij")
    for _ in range(20):
        await asyncio.sleep(0)
    assert peer.taken == 4
    peer.hang_up()
    assert await heard(stream, 11) == [*"abcdefghij", StreamEvent.GONE]
    await listening


async def test_peer_that_does_not_read_is_taken_to_be_gone(
    peer: Peer, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_OUTBOX", 2)
    stream = start(peer, clock)
    for answer in "abc":
        stream.send(answer)
    assert await heard(stream, 1) == [StreamEvent.GONE]


async def test_answers_are_given_until_the_end_and_then_the_error(peer: Peer, clock: FakeClock) -> None:
    stream = start(peer, clock)
    stream.send("a")
    stream.send("b")
    stream.end(ValueError("over"))
    answers = stream.responses()
    assert [await anext(answers), await anext(answers)] == ["a", "b"]
    with pytest.raises(ValueError, match="over"):
        await anext(answers)


async def test_cleaning_up_outlives_a_call_that_is_cancelled(peer: Peer, clock: FakeClock) -> None:
    streams = SessionStreams()
    stream = start(peer, clock)
    cleaned = asyncio.Event()

    async def talk() -> None:
        stream.send("hello")
        assert await stream.receive() is StreamEvent.GONE
        await asyncio.sleep(0)
        cleaned.set()

    async def call() -> None:
        async for _ in streams.serve_stream(stream, talk):
            greeted.set()

    greeted = asyncio.Event()
    calling = asyncio.ensure_future(call())
    async with asyncio.timeout(PATIENCE):
        await greeted.wait()
        calling.cancel()
        await cleaned.wait()


async def test_drain_reaches_those_that_are_held_and_turns_others_away(peer: Peer, clock: FakeClock) -> None:
    streams = SessionStreams()
    stream = start(peer, clock)
    heard_signs: list[str | StreamEvent] = []

    async def talk() -> None:
        stream.send("hello")
        heard_signs.append(await stream.receive())

    call = streams.serve_stream(stream, talk)
    async with asyncio.timeout(PATIENCE):
        assert await anext(call) == "hello"
        streams.drain()
        with pytest.raises(StopAsyncIteration):
            await anext(call)
    assert heard_signs == [StreamEvent.DRAINED]
    with pytest.raises(ShuttingDown):
        await anext(streams.serve_stream(start(peer, clock), talk))
