"""The candidate's own part: what it believes, by its own clock, when servers lie, die and stall.

The clock stands still until a test moves it; the server answers as the test says. How real servers answer: tests/contract.
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
from pinnace.client.election import METHOD, Candidate
from tests.clock import FakeClock
from tests.unit.client.conftest import Connect, Serve
from tests.unit.client.fakeserver import FakeServer

PATIENCE = 5.0
VALIDITY = 1.4
INTERVAL = 0.2


class Conversation:
    """One campaign, from the server's side: what the candidate said, and what it is to be told."""

    markers = 0

    def __init__(self) -> None:
        self.heard: asyncio.Queue[CampaignRequest | None] = asyncio.Queue()
        self._answers: asyncio.Queue[CampaignResponse] = asyncio.Queue()

    async def opening(self) -> tuple[int, int]:
        """The session and token that the candidate begins with."""
        request = await self.hear()
        return request.open.session, request.open.token

    async def ends(self, clock: FakeClock | None = None) -> None:
        """Until the candidate has broken the stream off; time passes meanwhile if there is a clock."""
        async with asyncio.timeout(PATIENCE):
            while not (self.heard.qsize() and self.heard.get_nowait() is None):
                if clock is not None:
                    await clock.advance(0.01)
                await asyncio.sleep(0.001)

    async def hear(self) -> CampaignRequest:
        async with asyncio.timeout(PATIENCE):
            request = await self.heard.get()
        assert request is not None, "the candidate has left"
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
        """Until the candidate has read all that it was told so far: it logs who else leads, and does nothing about it."""
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
    """A server's campaigns, in the order in which they came."""

    def __init__(self, server: FakeServer) -> None:
        self._campaigns: asyncio.Queue[Conversation] = asyncio.Queue()
        server.on_duplex(METHOD, CampaignRequest, self._campaign)

    async def _campaign(self, requests: Any, context: Any) -> AsyncIterator[CampaignResponse]:
        conversation = Conversation()
        self._campaigns.put_nowait(conversation)
        async for answer in conversation.run(requests):
            yield answer

    async def first(self) -> Conversation:
        async with asyncio.timeout(PATIENCE):
            return await self._campaigns.get()

    async def next(self, clock: FakeClock) -> Conversation:
        """The next campaign; before each but the first the candidate waits a little, by its clock."""
        async with asyncio.timeout(PATIENCE):
            while self._campaigns.empty():
                await clock.advance(0.01)
                await asyncio.sleep(0.001)
            return self._campaigns.get_nowait()


class History:
    """What a candidate was told, in order."""

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
) -> AsyncIterator[Candidate]:
    candidate = Candidate(connect(*servers), "scheduler", "a", on_elected=history.note, on_lost=history.note, clock=clock)
    running = asyncio.ensure_future(candidate.run())
    yield candidate
    running.cancel()
    await asyncio.wait((running,))
    if not running.cancelled():
        running.result()


@pytest.fixture
async def leading(servers: list[FakeServer], candidate: Candidate, history: History) -> Conversation:
    """A campaign on the first server, session 5, elected with token 7 on the strength of its opening."""
    conversation = await Electorate(servers[0]).first()
    assert await conversation.opening() == (0, 0)
    conversation.opened(session=5)
    conversation.elected(token=7)
    assert await history.grows_to(1) == [7]
    return conversation


async def test_leads_as_long_as_its_opening_is_worth(leading: Conversation, candidate: Candidate, clock: FakeClock) -> None:
    assert candidate.token == 7
    clock.stall(VALIDITY - 0.01)
    assert candidate.token == 7
    clock.stall(0.01)
    assert candidate.token is None


async def test_candidate_is_notified_once_of_a_lapsed_term(leading: Conversation, clock: FakeClock, history: History) -> None:
    await clock.advance(VALIDITY)
    assert await history.grows_to(2) == [7, "no heartbeat was acknowledged for 1.4 s"]


async def test_a_leader_whose_writes_are_refused_leaves_its_session(
    leading: Conversation, servers: list[FakeServer], candidate: Candidate, clock: FakeClock, history: History
) -> None:
    """Else it would lead and do nothing for as long as it beats, if the refusal was wrong: as by a server with a stale view."""
    candidate.give_up(6, "its writes are fenced")
    assert candidate.token == 7, "a write of an earlier term"
    again = Electorate(servers[0])
    candidate.give_up(7, "its writes are fenced")
    assert candidate.token is None and history.entries == [7, "its writes are fenced"]
    opening = (await (await again.next(clock)).hear()).open
    assert (opening.session, opening.token, opening.forsaken) == (0, 0, 5)


async def test_leader_is_visible_to_other_clients(leading: Conversation, clock: FakeClock, history: History) -> None:
    def status() -> float | None:
        return REGISTRY.get_sample_value("leader_election_master_status", {"name": "scheduler"})

    assert status() == 1
    await clock.advance(VALIDITY)
    await history.grows_to(2)
    assert status() == 0


async def test_an_answer_counts_from_when_its_beat_was_sent(
    leading: Conversation, candidate: Candidate, clock: FakeClock
) -> None:
    beat = (await leading.hear()).heartbeat.sequence  # sent at once, at 0
    clock.stall(1.0)
    leading.answer(beat)
    await leading.was_read()
    clock.stall(VALIDITY - 1.0)
    assert candidate.token is None


async def test_answers_keep_it_in_office(
    leading: Conversation, candidate: Candidate, clock: FakeClock, history: History
) -> None:
    for _ in range(20):
        leading.answer((await leading.hear()).heartbeat.sequence)
        await leading.was_read()
        await clock.advance(INTERVAL)
    assert (candidate.token, history.entries) == (7, [7])


async def test_a_lapse_is_final_whatever_is_answered_afterwards(
    leading: Conversation, candidate: Candidate, clock: FakeClock, history: History
) -> None:
    """The process was stopped; when it wakes, answers are waiting, and beats that it sends then are answered too."""
    beat = (await leading.hear()).heartbeat.sequence
    leading.answer(beat)
    clock.stall(60.0)
    assert candidate.token is None
    await history.grows_to(2)
    assert candidate.token is None
    assert history.entries[1:] == ["no heartbeat was acknowledged for 1.4 s"]


async def test_says_how_long_ago_it_stood_down(
    leading: Conversation, servers: list[FakeServer], candidate: Candidate, clock: FakeClock, history: History
) -> None:
    """From when its term was over, though the process was stopped then."""
    elsewhere, over = Electorate(servers[1]), clock.monotonic() + VALIDITY
    clock.stall(60.0)
    woken = clock.monotonic()
    await clock.advance(0.0)
    await history.grows_to(2)
    opening = (await (await elsewhere.next(clock)).hear()).open
    assert opening.forsaken == 5
    assert woken - over - 0.5 < opening.forsaken_ago_ms / 1000 < clock.monotonic() - over + 0.5


async def test_says_nothing_of_standing_down_when_it_has_not(servers: list[FakeServer], candidate: Candidate) -> None:
    opening = (await (await Electorate(servers[0]).first()).hear()).open
    assert not opening.HasField("forsaken_ago_ms")


async def test_resumes_with_session_and_token_on_another_server(
    leading: Conversation, servers: list[FakeServer], candidate: Candidate, clock: FakeClock, history: History
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
async def test_a_token_that_was_given_up_does_not_come_back(
    leading: Conversation, servers: list[FakeServer], candidate: Candidate, clock: FakeClock, history: History, elected: bool
) -> None:
    """It lapses while another server is asked to go on with it. Binds under it may be on their way still, which the scheduler
    takes for dead in its next term; so the next term must have another token."""
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


async def test_leaves_a_server_that_does_not_answer(
    leading: Conversation, servers: list[FakeServer], candidate: Candidate, clock: FakeClock
) -> None:
    """In time to go on elsewhere before the term lapses."""
    elsewhere = Electorate(servers[1])
    await leading.hear()
    for _ in range(4):
        await clock.advance(INTERVAL)
    assert await (await elsewhere.next(clock)).opening() == (5, 7)
    assert candidate.token == 7


async def test_leaves_a_server_that_does_not_fence(
    servers: list[FakeServer], candidate: Candidate, clock: FakeClock, history: History
) -> None:
    """One that is older than the secrets of fences: other servers would refuse what the leader writes."""
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


async def test_a_leader_does_not_go_on_with_a_server_that_is_too_old(
    leading: Conversation, servers: list[FakeServer], candidate: Candidate, clock: FakeClock, history: History
) -> None:
    """Its term ends at once, and the next server deletes its key."""
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
    """A leader whose beats are not answered has come to this server."""
    elsewhere = Electorate(server)
    for _ in range(4):
        await clock.advance(INTERVAL)
    arrived = await elsewhere.next(clock)
    assert await arrived.opening() == (5, 7)
    return arrived


async def test_breaks_off_when_it_has_arrived_elsewhere(
    leading: Conversation, servers: list[FakeServer], candidate: Candidate, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server that it leaves would take it for dead, and delete its key."""
    cancelled, cancel = list[object](), Duplex.cancel
    monkeypatch.setattr(Duplex, "cancel", lambda stream: cancelled.append(stream) or cancel(stream))
    arrived = await left(servers[1], clock)
    assert not cancelled
    arrived.opened(session=5)
    await leading.ends()
    assert len(cancelled) == 1 and candidate.token == 7


async def test_breaks_off_when_its_term_is_over(
    leading: Conversation, servers: list[FakeServer], candidate: Candidate, clock: FakeClock
) -> None:
    """It has arrived nowhere in time: the server that it left may delete the key now."""
    await left(servers[1], clock)
    await clock.advance(VALIDITY)
    await leading.ends()
    assert candidate.token is None


async def test_non_leader_stops_immediately(servers: list[FakeServer], candidate: Candidate, clock: FakeClock) -> None:
    """It is the next one's turn there."""
    waiting = await Electorate(servers[0]).first()
    await waiting.opening()
    waiting.opened(session=5)
    await waiting.was_read()
    await waiting.ends(clock)


async def test_begins_anew_when_it_was_deposed(
    leading: Conversation, servers: list[FakeServer], candidate: Candidate, clock: FakeClock, history: History
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


async def test_does_not_act_on_an_election_that_comes_too_late(
    servers: list[FakeServer], candidate: Candidate, clock: FakeClock, history: History
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


async def test_candidate_resigns_without_a_response(
    leading: Conversation, candidate: Candidate, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(election, "RESIGN_TIMEOUT", 0.05)
    await leading.hear()
    await candidate.resign()
    assert (candidate.token, history.entries) == (None, [7, "resigned"])
    assert (await leading.hear()).HasField("resign")


async def test_is_healthy_with_a_session(servers: list[FakeServer], candidate: Candidate, history: History) -> None:
    conversation = await Electorate(servers[0]).first()
    assert candidate.healthy == 'no session with an API server for election "scheduler"'
    conversation.opened(session=5)
    conversation.elected(token=7)
    await history.grows_to(1)
    assert candidate.healthy is None
