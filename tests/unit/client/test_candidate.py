"""The candidate's view of its term, by its own clock, when servers fail or stall.

The clock only moves when a test moves it, and the responses of the server are scripted. Tests with real servers:
tests/contract.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from prometheus_client import REGISTRY

from pinnace.api.elections_pb2 import CampaignRequest, CampaignResponse
from pinnace.client import election
from pinnace.client.channel import Duplex
from pinnace.client.election import CAMPAIGN_METHOD, LeaderElector
from tests.clock import FakeClock
from tests.unit.client.conftest import Connect, Serve
from tests.unit.client.fakeserver import FakeServer

PATIENCE = 5.0
VALIDITY = 1.4
INTERVAL = 0.2


class Conversation:
    """The server's side of one campaign: the received requests and the scripted responses."""

    markers = 0

    def __init__(self) -> None:
        self.heard: asyncio.Queue[CampaignRequest | None] = asyncio.Queue()
        self._answers: asyncio.Queue[CampaignResponse] = asyncio.Queue()

    async def opening(self) -> tuple[int, int]:
        """The session and token of the first request."""
        request = await self.hear()
        return request.open.session, request.open.token

    async def ends(self, clock: FakeClock | None = None) -> None:
        """Wait until the candidate has closed the stream. With a clock, advance it meanwhile."""
        async with asyncio.timeout(PATIENCE):
            while not (self.heard.qsize() and self.heard.get_nowait() is None):
                if clock is not None:
                    await clock.advance(0.01)
                await asyncio.sleep(0.001)

    async def hear(self) -> CampaignRequest:
        async with asyncio.timeout(PATIENCE):
            request = await self.heard.get()
        assert request is not None, "the candidate closed the stream"
        return request

    def opened(self, session: int, *, secret_fences: bool = True) -> None:
        opened = CampaignResponse.Opened(
            session=session,
            interval_ms=int(INTERVAL * 1000),
            validity_ms=int(VALIDITY * 1000),
            secret_fences=secret_fences,
        )
        self._answers.put_nowait(CampaignResponse(opened=opened))

    def elected(self, token: int) -> None:
        self._answers.put_nowait(CampaignResponse(elected=CampaignResponse.Elected(token=token)))

    def answer(self, sequence: int) -> None:
        self._answers.put_nowait(CampaignResponse(heartbeat=CampaignResponse.HeartbeatAck(sequence=sequence)))

    def lost(self, reason: str) -> None:
        self._answers.put_nowait(CampaignResponse(lost=CampaignResponse.Lost(reason=reason)))

    async def was_read(self) -> None:
        """Wait until the candidate has read all responses so far.

        The marker is an `Observed` message, which the candidate only logs.
        """
        Conversation.markers += 1
        marker = CampaignResponse.Observed(holder="marker", token=Conversation.markers)
        seen = asyncio.Event()
        logger = logging.getLogger(election.__name__)

        def look(record: logging.LogRecord) -> bool:
            if record.args and Conversation.markers in record.args:
                seen.set()
            return True

        logger.addFilter(look)
        logger.setLevel(logging.INFO)
        try:
            self._answers.put_nowait(CampaignResponse(observed=marker))
            async with asyncio.timeout(PATIENCE):
                await seen.wait()
        finally:
            logger.removeFilter(look)
            logger.setLevel(logging.NOTSET)

    async def run(self, requests: AsyncIterator[CampaignRequest]) -> AsyncIterator[CampaignResponse]:
        listening = asyncio.ensure_future(self._listen(requests))
        try:
            while True:
                yield await self._answers.get()
        finally:
            listening.cancel()

    async def _listen(self, requests: AsyncIterator[CampaignRequest]) -> None:
        async for request in requests:
            self.heard.put_nowait(request)
        self.heard.put_nowait(None)


class Electorate:
    """The campaigns on a server, in order of arrival."""

    def __init__(self, server: FakeServer) -> None:
        self._campaigns: asyncio.Queue[Conversation] = asyncio.Queue()
        server.on_duplex(CAMPAIGN_METHOD, CampaignRequest, self._campaign)

    async def _campaign(self, requests: Any, context: Any) -> AsyncIterator[CampaignResponse]:
        conversation = Conversation()
        self._campaigns.put_nowait(conversation)
        async for answer in conversation.run(requests):
            yield answer

    async def first(self) -> Conversation:
        async with asyncio.timeout(PATIENCE):
            return await self._campaigns.get()

    async def next(self, clock: FakeClock) -> Conversation:
        """The next campaign. The candidate waits between campaigns, so the clock is advanced."""
        async with asyncio.timeout(PATIENCE):
            while self._campaigns.empty():
                await clock.advance(0.01)
                await asyncio.sleep(0.001)
            return self._campaigns.get_nowait()


class History:
    """The calls of the candidate's callbacks, in order."""

    def __init__(self) -> None:
        self.entries: list[int | str] = []
        self.changed = asyncio.Event()

    def note(self, entry: int | str) -> None:
        self.entries.append(entry)
        self.changed.set()

    async def grows_to(self, length: int) -> list[int | str]:
        async with asyncio.timeout(PATIENCE):
            while len(self.entries) < length:
                self.changed.clear()
                await self.changed.wait()
        return self.entries


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def history() -> History:
    return History()


@pytest.fixture
async def servers(serve: Serve) -> list[FakeServer]:
    return [await serve(), await serve()]


@pytest.fixture
async def candidate(
    servers: list[FakeServer], connect: Connect, clock: FakeClock, history: History
) -> AsyncIterator[LeaderElector]:
    candidate = LeaderElector(connect(*servers), "scheduler", "a", on_elected=history.note, on_lost=history.note, clock=clock)
    running = asyncio.ensure_future(candidate.run())
    yield candidate
    running.cancel()
    await asyncio.wait((running,))
    if not running.cancelled():
        running.result()


@pytest.fixture
async def leading(servers: list[FakeServer], candidate: LeaderElector, history: History) -> Conversation:
    """A campaign on the first server, with session 5 and token 7. No heartbeat was acknowledged yet."""
    conversation = await Electorate(servers[0]).first()
    assert await conversation.opening() == (0, 0)
    conversation.opened(session=5)
    conversation.elected(token=7)
    assert await history.grows_to(1) == [7]
    return conversation


async def test_opening_is_valid_for_one_validity_period(
    leading: Conversation, candidate: LeaderElector, clock: FakeClock
) -> None:
    assert candidate.token == 7
    clock.stall(VALIDITY - 0.01)
    assert candidate.token == 7
    clock.stall(0.01)
    assert candidate.token is None


async def test_lapsed_term_is_reported_once(leading: Conversation, clock: FakeClock, history: History) -> None:
    await clock.advance(VALIDITY)
    assert await history.grows_to(2) == [7, "no heartbeat was acknowledged for 1.4 s"]


async def test_leader_with_fenced_writes_abandons_its_session(
    leading: Conversation, servers: list[FakeServer], candidate: LeaderElector, clock: FakeClock, history: History
) -> None:
    """A server with a stale view may fence writes wrongly.

    Without a new session, the leader would keep its term and do nothing.
    """
    candidate.abandon_term(6, "its writes are fenced")
    assert candidate.token == 7, "a write of an earlier term"
    again = Electorate(servers[0])
    candidate.abandon_term(7, "its writes are fenced")
    assert candidate.token is None and history.entries == [7, "its writes are fenced"]
    opening = (await (await again.next(clock)).hear()).open
    assert (opening.session, opening.token, opening.forsaken) == (0, 0, 5)


async def test_leader_status_metric_follows_the_term(leading: Conversation, clock: FakeClock, history: History) -> None:
    def status() -> float | None:
        return REGISTRY.get_sample_value("leader_election_master_status", {"name": "scheduler"})

    assert status() == 1
    await clock.advance(VALIDITY)
    await history.grows_to(2)
    assert status() == 0


async def test_acknowledgment_extends_the_term_from_the_send_time(
    leading: Conversation, candidate: LeaderElector, clock: FakeClock
) -> None:
    beat = (await leading.hear()).heartbeat.sequence  # sent at once, at 0
    clock.stall(1.0)
    leading.answer(beat)
    await leading.was_read()
    clock.stall(VALIDITY - 1.0)
    assert candidate.token is None


async def test_acknowledged_heartbeats_keep_the_term(
    leading: Conversation, candidate: LeaderElector, clock: FakeClock, history: History
) -> None:
    for _ in range(20):
        leading.answer((await leading.hear()).heartbeat.sequence)
        await leading.was_read()
        await clock.advance(INTERVAL)
    assert (candidate.token, history.entries) == (7, [7])


async def test_late_acknowledgment_does_not_revive_a_lapsed_term(
    leading: Conversation, candidate: LeaderElector, clock: FakeClock, history: History
) -> None:
    """The process was stopped. When it continues, an acknowledgment is waiting in the socket."""
    beat = (await leading.hear()).heartbeat.sequence
    leading.answer(beat)
    clock.stall(60.0)
    assert candidate.token is None
    await history.grows_to(2)
    assert candidate.token is None
    assert history.entries[1:] == ["no heartbeat was acknowledged for 60.0 s"]


async def test_opening_contains_the_time_since_the_lapse(
    leading: Conversation, servers: list[FakeServer], candidate: LeaderElector, clock: FakeClock, history: History
) -> None:
    """The time counts from the end of the term, even if the process was stopped at that moment."""
    elsewhere, over = Electorate(servers[1]), clock.monotonic() + VALIDITY
    clock.stall(60.0)
    woken = clock.monotonic()
    await clock.advance(0.0)
    await history.grows_to(2)
    opening = (await (await elsewhere.next(clock)).hear()).open
    assert opening.forsaken == 5
    assert woken - over - 0.5 < opening.forsaken_ago_ms / 1000 < clock.monotonic() - over + 0.5


async def test_first_opening_has_no_time_since_a_lapse(servers: list[FakeServer], candidate: LeaderElector) -> None:
    opening = (await (await Electorate(servers[0]).first()).hear()).open
    assert not opening.HasField("forsaken_ago_ms")


async def test_resumes_session_and_token_on_another_server(
    leading: Conversation, servers: list[FakeServer], candidate: LeaderElector, clock: FakeClock, history: History
) -> None:
    elsewhere = Electorate(servers[1])
    await servers[0].stop()
    resumed = await elsewhere.next(clock)
    assert await resumed.opening() == (5, 7)
    assert candidate.token == 7
    resumed.opened(session=5)
    resumed.elected(token=7)
    await resumed.hear()
    assert (candidate.token, history.entries) == (7, [7])


@pytest.mark.parametrize("elected", [True, False])
async def test_lapsed_token_is_not_used_again(
    leading: Conversation,
    servers: list[FakeServer],
    candidate: LeaderElector,
    clock: FakeClock,
    history: History,
    elected: bool,
) -> None:
    """The term lapses while the candidate resumes on another server.

    Binds with the old token may still be in flight, and the scheduler treats them as failed in its next term. Therefore the
    next term needs another token.
    """
    elsewhere = Electorate(servers[1])
    for _ in range(4):
        await clock.advance(INTERVAL)
    resumed = await elsewhere.next(clock)
    assert await resumed.opening() == (5, 7)
    await clock.advance(VALIDITY - 3 * INTERVAL)  # the last beat that was answered may have been the second
    await history.grows_to(2)
    resumed.opened(session=5)
    if elected:
        resumed.elected(token=7)
    anew = await elsewhere.next(clock)
    assert await anew.opening() == (0, 0)
    assert (candidate.token, history.entries) == (None, [7, "no heartbeat was acknowledged for 1.4 s"])


async def test_leaves_an_unresponsive_server_before_the_term_lapses(
    leading: Conversation, servers: list[FakeServer], candidate: LeaderElector, clock: FakeClock
) -> None:
    elsewhere = Electorate(servers[1])
    await leading.hear()
    for _ in range(4):
        await clock.advance(INTERVAL)
    assert await (await elsewhere.next(clock)).opening() == (5, 7)
    assert candidate.token == 7


async def test_leaves_a_server_without_secret_fences(
    servers: list[FakeServer], candidate: LeaderElector, clock: FakeClock, history: History
) -> None:
    """Newer servers would refuse the leader's writes, because its fence has no secret."""
    old, new = (Electorate(server) for server in servers)
    waiting = await old.first()
    await waiting.opening()
    waiting.opened(session=5, secret_fences=False)
    waiting.elected(token=7)
    arrived = await new.next(clock)
    assert candidate.healthy is not None
    await arrived.opening()
    arrived.opened(session=6)
    arrived.elected(token=8)
    assert await history.grows_to(1) == [8]
    assert candidate.healthy is None


async def test_leader_steps_down_on_a_server_without_secret_fences(
    leading: Conversation, servers: list[FakeServer], candidate: LeaderElector, clock: FakeClock, history: History
) -> None:
    """The term ends at once, and the next opening asks for the deletion of the key."""
    old = Electorate(servers[1])
    await servers[0].stop()
    resumed = await old.next(clock)
    assert await resumed.opening() == (5, 7)
    resumed.opened(session=5, secret_fences=False)
    resumed.elected(token=7)
    assert "does not support fences with secrets" in str((await history.grows_to(2))[1])
    assert candidate.token is None
    opening = (await (await old.next(clock)).hear()).open
    assert (opening.session, opening.token, opening.forsaken) == (0, 0, 5)


async def left(server: FakeServer, clock: FakeClock) -> Conversation:
    """Move a leader without acknowledged heartbeats to this server."""
    elsewhere = Electorate(server)
    for _ in range(4):
        await clock.advance(INTERVAL)
    arrived = await elsewhere.next(clock)
    assert await arrived.opening() == (5, 7)
    return arrived


async def test_keeps_the_old_stream_until_the_session_is_resumed(
    leading: Conversation,
    servers: list[FakeServer],
    candidate: LeaderElector,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The old server deletes the key when the stream ends too early."""
    cancelled, cancel = list[object](), Duplex.cancel
    monkeypatch.setattr(Duplex, "cancel", lambda stream: cancelled.append(stream) or cancel(stream))
    arrived = await left(servers[1], clock)
    assert not cancelled
    arrived.opened(session=5)
    await leading.ends()
    assert len(cancelled) == 1 and candidate.token == 7


async def test_closes_the_old_stream_when_the_term_lapses(
    leading: Conversation, servers: list[FakeServer], candidate: LeaderElector, clock: FakeClock
) -> None:
    """The session was not resumed in time, so the old server may delete the key."""
    await left(servers[1], clock)
    await clock.advance(VALIDITY)
    await leading.ends()
    assert candidate.token is None


async def test_non_leader_closes_an_unresponsive_stream(
    servers: list[FakeServer], candidate: LeaderElector, clock: FakeClock
) -> None:
    """A candidate without a term has no key to keep."""
    waiting = await Electorate(servers[0]).first()
    await waiting.opening()
    waiting.opened(session=5)
    await waiting.was_read()
    await waiting.ends(clock)


async def test_deposed_leader_starts_a_new_campaign(
    leading: Conversation, servers: list[FakeServer], candidate: LeaderElector, clock: FakeClock, history: History
) -> None:
    again = Electorate(servers[0])
    leading.lost("the key was deleted")
    assert await history.grows_to(2) == [7, "the key was deleted"]
    assert candidate.token is None
    anew = await again.next(clock)
    assert await anew.opening() == (0, 0)
    anew.opened(session=6)
    anew.elected(token=9)
    assert await history.grows_to(3) == [7, "the key was deleted", 9]


async def test_leader_that_was_stopped_gives_its_own_clock_as_the_reason(
    leading: Conversation, clock: FakeClock, history: History
) -> None:
    """When the process continues, the server's message can be read before the timer of the term fires."""
    clock.stall(VALIDITY)
    leading.lost("no heartbeat for 1 s")
    lost = (await history.grows_to(2))[1]
    assert str(lost).startswith("no heartbeat was acknowledged for")


async def test_late_election_is_ignored(
    servers: list[FakeServer], candidate: LeaderElector, clock: FakeClock, history: History
) -> None:
    electorate = Electorate(servers[0])
    conversation = await electorate.first()
    await conversation.opening()
    conversation.opened(session=5)
    await conversation.hear()
    clock.stall(VALIDITY)
    conversation.elected(token=7)
    assert await (await electorate.next(clock)).opening() == (0, 0)
    assert history.entries == []


async def test_resigns_without_a_response(
    leading: Conversation, candidate: LeaderElector, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(election, "RELEASE_TIMEOUT", 0.05)
    await leading.hear()
    await candidate.release()
    assert (candidate.token, history.entries) == (None, [7, "resigned"])
    assert (await leading.hear()).HasField("resign")


async def test_healthy_with_a_session(servers: list[FakeServer], candidate: LeaderElector, history: History) -> None:
    conversation = await Electorate(servers[0]).first()
    assert candidate.healthy == 'no session with an API server for election "scheduler"'
    conversation.opened(session=5)
    conversation.elected(token=7)
    await history.grows_to(1)
    assert candidate.healthy is None
