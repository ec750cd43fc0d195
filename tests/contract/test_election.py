"""What must hold of elections, whatever the storage: the real service and the real candidate, over real gRPC."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol

import pytest

from apiserver.services.contest import NOMINEE_FIRST
from apiserver.services.elections import TIMING
from apiserver.sessions import Timing
from apiserver.storage.committer import GuardFailed
from apiserver.storage.interface import Guard, KeyValue, Storage, Write
from pinnace.api.elections_pb2 import Election, Nomination, Term, TransferElectionResponse
from pinnace.api.resources import election_key, nomination_key
from pinnace.client import errors
from pinnace.client.client import ElectionClient
from tests.contract.servers import PATIENCE, Server
from tests.contract.voters import ELECTION, Speaker, Voter
from tests.unit.client.fakeserver import connect

KEY = election_key(ELECTION)
HASTY = Timing(interval=0.05, silence=0.3, ttl=2)
PATIENT = Timing(interval=2.0, silence=10.0, ttl=20)


class Serve(Protocol):
    def __call__(self, timing: Timing = TIMING) -> Awaitable[Server]: ...


Vote = Callable[..., Voter]


@pytest.fixture
async def serve(storage: Storage) -> AsyncIterator[Serve]:
    """Starts API servers before the storage."""
    servers: list[Server] = []

    async def start(timing: Timing = TIMING) -> Server:
        servers.append(await Server(storage, elections=timing).start())
        return servers[-1]

    yield start
    for server in servers:
        await server.kill()


@pytest.fixture
async def vote() -> AsyncIterator[Vote]:
    """Starts candidates."""
    voters: list[Voter] = []

    def start(holder: str, *servers: Server) -> Voter:
        voters.append(Voter(holder, *servers))
        return voters[-1]

    yield start
    for voter in voters:
        await voter.stop()


async def record_until(storage: Storage, condition: Callable[[KeyValue | None], bool]) -> KeyValue | None:
    """The election's key, once it is as wanted; follows the storage itself."""
    revision = await storage.current_revision()
    if condition(record := await storage.get(KEY)):
        return record
    async with asyncio.timeout(PATIENCE):
        async for changes in storage.watch(revision + 1):
            if any(change.key == KEY for change in changes.changes) and condition(record := await storage.get(KEY)):
                return record
    raise AssertionError("the watch ended")


async def test_the_first_leads_and_the_others_learn_who_does(serve: Serve, storage: Storage) -> None:
    server = await serve()
    leader = await Speaker.open(server, "a")
    session, token = await leader.lead()
    other = await Speaker.open(server, "b")
    await other.hear("opened")
    observed = (await other.hear("observed")).observed
    assert (observed.holder, observed.token) == ("a", token)
    record = await storage.get(KEY)
    assert record is not None
    assert (record.create_revision, record.lease) == (token, session)
    election = Election.FromString(record.value)
    assert (election.name, election.holder, election.session, election.token) == (ELECTION, "a", session, 0)


async def test_one_leads_at_a_time_with_ever_higher_tokens(serve: Serve, vote: Vote) -> None:
    """Each leader in turn is killed; the candidates are spread over two servers."""
    one, two = await serve(), await serve()
    voters = [vote("a", one, two), vote("b", two, one), vote("c", one, two)]
    token = 0
    for _ in range(3):
        async with asyncio.timeout(PATIENCE):
            waits = [asyncio.ensure_future(voter.elected(after=token)) for voter in voters]
            (done,), _pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        assert done.result() > token
        token = done.result()
        (leader,) = [voter for voter in voters if voter.candidate.token is not None]
        assert leader.candidate.token == token
        await leader.kill()
        voters.remove(leader)


async def test_candidates_of_one_server_follow_in_the_order_in_which_they_came(serve: Serve) -> None:
    """And at once: none of them beats here, so all must be over before they count as frozen."""
    server = await serve(PATIENT)
    leader = await Speaker.open(server, "first")
    _, token = await leader.lead()
    line = []
    for holder in ("second", "third", "fourth"):
        waiting = await Speaker.open(server, holder)
        await waiting.hear("opened")
        assert (await waiting.hear("observed")).observed.holder == "first"
        line.append(waiting)
    for following in line:
        leader.vanish()
        higher = (await following.skip("observed")).elected.token
        assert higher > token
        leader, token = following, higher


async def test_a_leader_that_resigns_is_followed_at_once(serve: Serve, vote: Vote) -> None:
    server = await serve()
    leader = vote("a", server)
    token = await leader.elected()
    follower = vote("b", server)
    await leader.candidate.resign()
    assert leader.candidate.token is None
    assert leader.history == [token, "resigned"]
    assert await follower.elected() > token


async def test_a_candidate_that_resigns_while_it_waits_is_never_elected(serve: Serve, vote: Vote, storage: Storage) -> None:
    server = await serve()
    leader = vote("a", server)
    await leader.elected()
    waiting = await Speaker.open(server, "b")
    await waiting.hear("opened")
    await waiting.hear("observed")
    await waiting.resign()
    await waiting.hear("resigned")
    assert await waiting.next() is None
    await leader.candidate.resign()
    assert await storage.get(KEY) is None


async def test_a_silent_leader_is_deposed_and_told(serve: Serve) -> None:
    server = await serve(HASTY)
    silent = await Speaker.open(server, "a")
    _, token = await silent.lead()
    follower = await Speaker.open(server, "b")
    await follower.hear("opened")
    await follower.hear("observed")
    for sequence in range(1, 200):
        await follower.beat(sequence)
        response = await follower.next()
        assert response is not None
        if response.HasField("elected"):
            assert response.elected.token > token
            break
        await asyncio.sleep(HASTY.interval)
    assert "no heartbeat" in (await silent.hear("lost")).lost.reason


async def test_a_silent_candidate_that_waits_loses_its_session_only(serve: Serve, vote: Vote) -> None:
    server = await serve(HASTY)
    leader = vote("a", server)
    token = await leader.elected()
    silent = await Speaker.open(server, "b")
    await silent.hear("opened")
    await silent.hear("observed")
    assert "no heartbeat" in (await silent.hear("lost")).lost.reason
    assert leader.history == [token]


async def test_beats_keep_leadership_beyond_the_lease(serve: Serve, vote: Vote, storage: Storage) -> None:
    leader = vote("a", await serve())
    token = await leader.elected()
    await asyncio.sleep(TIMING.ttl * 1.5)
    assert leader.history == [token]
    assert leader.candidate.token == token
    assert leader.candidate.healthy is None


async def test_leadership_survives_a_server_that_stops(serve: Serve, vote: Vote, storage: Storage) -> None:
    one, two = await serve(), await serve()
    leader = vote("a", one, two)
    token = await leader.elected()
    await one.stop()
    await record_until(storage, moved)
    assert leader.history == [token]


async def test_leadership_survives_a_server_that_dies(serve: Serve, vote: Vote, storage: Storage) -> None:
    one, two = await serve(), await serve()
    leader = vote("a", one, two)
    token = await leader.elected()
    waiting = vote("b", two)
    await one.kill()
    await record_until(storage, moved)
    await asyncio.sleep(TIMING.ttl)
    assert leader.candidate.token == token
    assert (leader.history, waiting.history) == ([token], [])


def moved(record: KeyValue | None) -> bool:
    return record is not None and record.mod_revision != record.create_revision


async def test_the_server_that_a_leader_has_left_cannot_depose_it(serve: Serve, storage: Storage) -> None:
    """The stream on the first server, which has not seen it yet, breaks when the session lives on the second already."""
    one, two = await serve(), await serve()
    before = await Speaker.open(one, "a")
    session, token = await before.lead()
    one.blind()
    after = await Speaker.open(two, "a", session, token)
    assert await after.lead() == (session, token)
    record = await storage.get(KEY)
    assert record is not None
    before.vanish()
    await asyncio.wait_for(one.storage.refused.wait(), PATIENCE)
    assert await storage.get(KEY) == record


async def test_the_server_that_a_leader_has_left_tells_it_so(serve: Serve) -> None:
    one, two = await serve(), await serve()
    before = await Speaker.open(one, "a")
    session, token = await before.lead()
    after = await Speaker.open(two, "a", session, token)
    await after.lead()
    assert "another API server" in (await before.hear("lost")).lost.reason


async def test_a_session_that_was_elected_unheard_is_taken_over_too(serve: Serve) -> None:
    """The first server died between the election and the message about it."""
    one, two = await serve(), await serve()
    session, token = await (await Speaker.open(one, "a")).lead()
    assert await (await Speaker.open(two, "a", session)).lead() == (session, token)


async def test_a_leader_cannot_resume_when_its_key_is_gone(serve: Serve, storage: Storage) -> None:
    server = await serve()
    leader = await Speaker.open(server, "a")
    session, token = await leader.lead()
    leader.vanish()
    await record_until(storage, lambda record: record is None)
    again = await Speaker.open(server, "a", session, token)
    assert "meanwhile" in (await again.hear("lost")).lost.reason


async def test_a_leader_that_has_stood_down_frees_its_key(serve: Serve, storage: Storage) -> None:
    """When it is back: nobody waits for the lease then."""
    one, two = await serve(PATIENT), await serve(PATIENT)
    session, token = await (await Speaker.open(one, "a")).lead()
    thief = await Speaker.open(two, "b", forsaken=session)
    await thief.hear("opened")
    assert (await thief.hear("observed")).observed.token == token
    again = await Speaker.open(two, "a", forsaken=session)
    await again.hear("opened")
    assert (await thief.hear("elected")).elected.token > token
    (term, _) = await history_until(two, lambda terms: len(terms) == 2 and terms[0].HasField("ended"))
    assert term.reason == "stood down unanswered"


async def test_a_leader_that_asks_two_servers_keeps_its_token(serve: Serve, storage: Storage) -> None:
    """It did not wait for the answer of one of them, which takes its key over all the same."""
    servers = [await serve() for _ in range(3)]
    session, token = await (await Speaker.open(servers[0], "a")).lead()
    speakers = await asyncio.gather(*(Speaker.open(server, "a", session, token) for server in servers[1:]))
    assert [await speaker.lead() for speaker in speakers] == [(session, token)] * 2
    record = await storage.get(KEY)
    assert record is not None and record.create_revision == token


async def test_only_the_holder_itself_can_resume(serve: Serve, storage: Storage) -> None:
    server = await serve()
    session, token = await (await Speaker.open(server, "a")).lead()
    record = await storage.get(KEY)
    for holder, its_session, its_token in (("b", session, token), ("a", session, token - 1), ("a", session + 1, token)):
        thief = await Speaker.open(server, holder, its_session, its_token)
        assert "meanwhile" in (await thief.hear("lost")).lost.reason
    assert await storage.get(KEY) == record


async def test_the_lease_frees_the_key_when_server_and_leader_die_together(serve: Serve, vote: Vote) -> None:
    one, two = await serve(), await serve()
    leader = vote("a", one)
    token = await leader.elected()
    follower = vote("b", two)
    await one.kill()
    await leader.kill()
    assert await follower.elected(after=token) > token


async def test_a_leader_stands_down_before_its_lease_can_run_out(serve: Serve, vote: Vote, storage: Storage) -> None:
    """The store is out of the server's reach: beats are not answered, and nobody but the candidate's own clock can tell it."""
    server = await serve()
    leader = vote("a", server)
    token = await leader.elected()
    server.storage.sever()
    assert "no heartbeat was answered" in await leader.lost()
    record = await storage.get(KEY)
    assert record is not None
    assert record.create_revision == token


async def test_a_deposed_leader_can_lead_again(serve: Serve, vote: Vote, storage: Storage) -> None:
    server = await serve()
    leader = vote("a", server)
    token = await leader.elected()
    await server.committer.commit(Write(KEY, None, expected=token))
    again = await leader.elected(after=token)
    assert [each for each in leader.history if isinstance(each, int)] == [token, again]


async def test_a_write_with_the_token_of_an_earlier_leader_fails(serve: Serve, vote: Vote) -> None:
    server = await serve()
    first = vote("a", server)
    token = await first.elected()
    fenced = Write("/fenced", b"", expected=0, guards=(Guard(KEY, token),))
    await first.kill()
    await vote("b", server).elected(after=token)
    with pytest.raises(GuardFailed):
        await server.committer.commit(fenced)


async def test_a_write_with_the_token_holds_when_the_leader_has_moved(serve: Serve) -> None:
    """Only mod_revision moves: the fence compares create_revision."""
    one, two = await serve(), await serve()
    session, token = await (await Speaker.open(one, "a")).lead()
    await (await Speaker.open(two, "a", session, token)).lead()
    fenced = Write("/fenced", b"", expected=0, guards=(Guard(KEY, token),))
    assert await one.committer.commit(fenced) > token


async def test_who_leads_can_be_asked(serve: Serve, vote: Vote) -> None:
    server = await serve()
    connection = connect(server.address)
    client = ElectionClient(connection)
    with pytest.raises(errors.NotFound, match="nobody leads"):
        await client.get(ELECTION)
    assert await client.list() == []
    token = await vote("a", server).elected()
    found = await client.get(ELECTION)
    assert (found.name, found.holder, found.token) == (ELECTION, "a", token)
    assert found.since.seconds > 0
    assert await client.list() == [found]
    await connection.close()


async def transfer(server: Server, to: str = "") -> TransferElectionResponse:
    connection = connect(server.address)
    try:
        return await ElectionClient(connection).transfer(ELECTION, to)
    finally:
        await connection.close()


async def test_leadership_is_transferred_to_the_one_that_is_named(serve: Serve, vote: Vote) -> None:
    """It is neither the first in line nor on the server that is asked."""
    one, two = await serve(), await serve()
    leader = vote("a", one)
    token = await leader.elected()
    others = {}
    for holder, server in (("b", one), ("c", two), ("d", two)):
        others[holder] = vote(holder, server)
        await others[holder].stands()
    done = await transfer(one, "d")
    assert (done.before.holder, done.before.token, done.after.holder) == ("a", token, "d")
    assert await others["d"].elected() == done.after.token > token
    await leader.lost()
    assert others["b"].history == others["c"].history == []
    terms = await history_until(two, lambda terms: len(terms) == 2 and not terms[0].presumed and terms[0].HasField("ended"))
    assert terms[0].reason == "transferred to d"
    again = await transfer(two, "a")  # the deposed one is a candidate like any other
    assert (again.before.token, again.after.holder) == (done.after.token, "a")
    assert await leader.elected(after=token) == again.after.token


async def test_leadership_is_transferred_to_anybody_else(serve: Serve, vote: Vote) -> None:
    one, two = await serve(), await serve()
    leader = vote("a", one)
    token = await leader.elected()
    await vote("b", two).stands()
    done = await transfer(one)
    assert (done.before.token, done.after.holder) == (token, "b")


async def test_a_transfer_to_somebody_who_is_not_there_leaves_the_leader_in_place(serve: Serve, vote: Vote) -> None:
    server = await serve()
    with pytest.raises(errors.NotFound, match="nobody leads"):
        await transfer(server)
    leader = vote("a", server)
    token = await leader.elected()
    with pytest.raises(errors.NotFound, match="nobody else stands, so a goes on leading"):
        await transfer(server)
    await vote("b", server).stands()
    with pytest.raises(errors.NotFound, match='no candidate "nobody" stands, so a goes on leading'):
        await transfer(server, "nobody")
    done = await transfer(server, "a")
    assert (done.before, done.after.token) == (done.after, token)
    assert leader.history == [token]


async def test_one_that_hangs_is_not_transferred_to(serve: Serve, vote: Vote, storage: Storage) -> None:
    server = await serve(Timing(interval=0.05, silence=30, ttl=30))
    leader = vote("a", server)
    token = await leader.elected()
    hanging = await Speaker.open(server, "b")
    await hanging.hear("opened")
    await asyncio.sleep(0.2)
    with pytest.raises(errors.NotFound, match="stands"):
        await transfer(server, "b")
    assert leader.history == [token]
    assert await storage.get(nomination_key(ELECTION)) is None


async def test_the_others_wait_for_a_nominee_and_not_for_ever(serve: Serve, vote: Vote, storage: Storage) -> None:
    """It accepts, and is dead when the key is gone."""
    server = await serve()
    leader = vote("a", server)
    token = await leader.elected()
    other = vote("b", server)
    await other.stands()
    accepted = Nomination(election=ELECTION, token=token, holder="c", session=12345)
    await storage.transact([Write(nomination_key(ELECTION), accepted.SerializeToString(), 0)])
    began = asyncio.get_running_loop().time()
    await leader.candidate.resign()
    await other.elected(after=token)
    assert NOMINEE_FIRST <= asyncio.get_running_loop().time() - began < NOMINEE_FIRST + TIMING.ttl


async def test_one_that_hangs_is_passed_over(serve: Serve) -> None:
    """It is the first in line; the next one leads at once."""
    server = await serve(Timing(interval=0.05, silence=30, ttl=30))
    leader, hanging, well = [await Speaker.open(server, holder) for holder in ("a", "b", "c")]
    _, token = await leader.lead()
    for waiting in (hanging, well):
        await waiting.hear("opened")
        await waiting.hear("observed")
    await asyncio.sleep(0.2)
    await well.beat(1)
    await well.hear("heartbeat")
    await leader.resign()
    assert (await well.hear("elected")).elected.token > token


async def history_until(server: Server, condition: Callable[[Sequence[Term]], bool]) -> Sequence[Term]:
    """The election's terms, once they are as wanted: they are written down after the fact."""
    connection = connect(server.address)
    try:
        async with asyncio.timeout(PATIENCE):
            async for _ in server.storage.watch(await server.storage.current_revision() + 1):
                if condition(terms := await ElectionClient(connection).history(ELECTION)):
                    return terms
    finally:
        await connection.close()
    raise AssertionError("the watch ended")


async def test_who_led_is_remembered_with_the_reason_for_each_end(serve: Serve, vote: Vote) -> None:
    """By all servers alike, though two of them have seen it."""
    one, two = await serve(), await serve()
    first = vote("a", one)
    tokens = [await first.elected()]
    second = vote("b", two)
    await first.candidate.resign()
    tokens.append(await second.elected())
    third = await Speaker.open(one, "c")
    await third.hear("opened")
    await second.kill()
    tokens.append((await third.skip("observed")).elected.token)
    terms = await history_until(two, lambda terms: len(terms) == 3 and all(not term.presumed for term in terms))
    assert [term.token for term in terms] == tokens
    assert [(term.holder, term.reason) for term in terms] == [("a", "resigned"), ("b", "its stream broke"), ("c", "")]
    assert [term.HasField("ended") for term in terms] == [True, True, False]
    assert (await history_until(one, bool)) == terms


async def test_of_a_leader_that_died_with_its_server_the_end_is_presumed(serve: Serve, vote: Vote) -> None:
    one, two = await serve(), await serve()
    leader = vote("a", one)
    token = await leader.elected()
    await history_until(two, bool)
    follower = vote("b", two)
    await one.kill()
    await leader.kill()
    following = await follower.elected(after=token)
    terms = await history_until(two, lambda terms: len(terms) == 2 and terms[0].HasField("ended"))
    assert [term.token for term in terms] == [token, following]
    assert (terms[0].reason, terms[0].presumed) == ("its lease ran out", True)


async def test_a_leader_that_moves_to_another_server_has_one_term(serve: Serve) -> None:
    one, two = await serve(), await serve()
    session, token = await (await Speaker.open(one, "a")).lead()
    before = await history_until(one, bool)
    await (await Speaker.open(two, "a", session, token)).lead()
    other = await Speaker.open(two, "b")
    await other.hear("opened")
    assert await history_until(two, bool) == before


async def test_a_campaign_needs_a_name_and_a_holder(serve: Serve) -> None:
    nobody = await Speaker.open(await serve(), "")
    with pytest.raises(errors.Invalid, match="a holder"):
        await nobody.next()
    everybody = await Speaker.open(await serve(), "a" * 254)
    with pytest.raises(errors.Invalid, match="at most 253"):
        await everybody.next()


async def test_a_server_that_is_stopping_takes_no_candidates(serve: Serve) -> None:
    server = await serve()
    server.elections.drain()
    candidate = await Speaker.open(server, "a")
    with pytest.raises(errors.Unavailable, match="going away"):
        await candidate.next()
