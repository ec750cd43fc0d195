"""Contract of elections with every Storage. The tests use the real service and the real candidate over gRPC."""

import asyncio

import pytest

from pinnace.api.elections_pb2 import Election
from pinnace.apiserver.election.service import TIMING
from pinnace.apiserver.services.sessions import Timing
from pinnace.apiserver.storage.committer import GuardFailed
from pinnace.apiserver.storage.interface import Guard, Storage, Write
from pinnace.client import errors
from pinnace.client.client import ElectionClient
from tests.contract.electing import HASTY, KEY, PATIENT, Serve, Vote
from tests.contract.servers import PATIENCE
from tests.contract.voters import ELECTION, INTERVAL, Speaker
from tests.unit.client.fakeserver import connect


async def test_first_candidate_leads_and_the_others_observe_it(serve: Serve, storage: Storage) -> None:
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


async def test_tokens_increase_and_only_one_candidate_leads_at_a_time(serve: Serve, vote: Vote) -> None:
    """The test kills each leader in turn. The candidates use two servers."""
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


async def test_candidates_of_one_server_are_elected_in_order_of_arrival(serve: Serve) -> None:
    """The candidates send no heartbeats. The elections end before the server considers the candidates hanging."""
    server = await serve(PATIENT)
    leader = await Speaker.open(server, "first")
    _, token = await leader.lead()
    queue = []
    for holder in ("second", "third", "fourth"):
        waiting = await Speaker.open(server, holder)
        await waiting.hear("opened")
        assert (await waiting.hear("observed")).observed.holder == "first"
        queue.append(waiting)
    for following in queue:
        leader.vanish()
        higher = (await following.skip("observed")).elected.token
        assert higher > token
        leader, token = following, higher


async def test_server_ends_the_terms_of_its_candidates_after_a_restore(serve: Serve, storage: Storage) -> None:
    """This includes terms that began after the restore, which the cleanup of restored terms does not touch."""
    server = await serve(PATIENT)
    leader = await Speaker.open(server, "a")
    await leader.lead()
    server.elections.end_restored_campaigns()
    await leader.hear("lost")
    assert await storage.get(KEY) is None


async def test_resignation_frees_the_key_for_the_next_candidate(serve: Serve, vote: Vote) -> None:
    server = await serve()
    leader = vote("a", server)
    token = await leader.elected()
    follower = vote("b", server)
    await leader.candidate.release()
    assert leader.candidate.token is None
    assert leader.history == [token, "resigned"]
    assert await follower.elected() > token


async def test_waiting_candidate_that_resigns_is_not_elected(serve: Serve, vote: Vote, storage: Storage) -> None:
    server = await serve()
    leader = vote("a", server)
    await leader.elected()
    waiting = await Speaker.open(server, "b")
    await waiting.hear("opened")
    await waiting.hear("observed")
    await waiting.resign()
    await waiting.hear("resigned")
    assert await waiting.next() is None
    await leader.candidate.release()
    assert await storage.get(KEY) is None


async def test_silent_leader_is_deposed_and_notified(serve: Serve) -> None:
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


async def test_silent_waiting_candidate_loses_its_session_but_not_the_leader(serve: Serve, vote: Vote) -> None:
    server = await serve(HASTY)
    leader = vote("a", server)
    token = await leader.elected()
    silent = await Speaker.open(server, "b")
    await silent.hear("opened")
    await silent.hear("observed")
    assert "no heartbeat" in (await silent.hear("lost")).lost.reason
    assert leader.history == [token]


async def test_heartbeats_keep_leadership_beyond_the_ttl(serve: Serve, vote: Vote, storage: Storage) -> None:
    leader = vote("a", await serve())
    token = await leader.elected()
    await asyncio.sleep(TIMING.ttl * 1.5)
    assert leader.history == [token]
    assert leader.candidate.token == token
    assert leader.candidate.healthy is None


async def test_leader_stands_down_before_its_lease_expires(serve: Serve, vote: Vote, storage: Storage) -> None:
    """The server cannot reach the store, so it acknowledges no heartbeats. The candidate stands down by its own clock."""
    server = await serve()
    leader = vote("a", server)
    token = await leader.elected()
    server.storage.sever()
    assert "no heartbeat was acknowledged" in await leader.lost()
    record = await storage.get(KEY)
    assert record is not None
    assert record.create_revision == token


async def test_deposed_leader_can_be_elected_again(serve: Serve, vote: Vote, storage: Storage) -> None:
    server = await serve()
    leader = vote("a", server)
    token = await leader.elected()
    await server.committer.commit(Write(KEY, None, expected=token))
    again = await leader.elected(after=token)
    assert [item for item in leader.history if isinstance(item, int)] == [token, again]


async def test_write_with_the_token_of_an_earlier_leader_fails(serve: Serve, vote: Vote) -> None:
    server = await serve()
    first = vote("a", server)
    token = await first.elected()
    fenced = Write("/fenced", b"", expected=0, guards=(Guard(KEY, token),))
    await first.kill()
    await vote("b", server).elected(after=token)
    with pytest.raises(GuardFailed):
        await server.committer.commit(fenced)


async def test_get_and_list_return_the_leader(serve: Serve, vote: Vote) -> None:
    server = await serve()
    connection = connect(server.address)
    client = ElectionClient(connection)
    with pytest.raises(errors.NotFound, match="has no leader"):
        await client.get(ELECTION)
    assert await client.list() == []
    token = await vote("a", server).elected()
    result = await client.get(ELECTION)
    assert (result.name, result.holder, result.token) == (ELECTION, "a", token)
    assert result.since.seconds > 0
    assert not result.session, "a client that knows the session could resume it"
    assert await client.list() == [result]
    await connection.close()


async def test_hanging_candidate_is_passed_over(serve: Serve) -> None:
    """The first candidate in the queue does not answer. The next one is elected."""
    server = await serve(Timing(interval=INTERVAL, silence=30, ttl=30))
    leader = await Speaker.open(server, "a")
    _, token = await leader.lead()
    in_queue: list[Speaker] = []
    for holder in ("hangs", "is well"):
        in_queue.append(await Speaker.open(server, holder))
        await in_queue[-1].hear("opened")
        await in_queue[-1].hear("observed")
    _, well = in_queue
    await asyncio.sleep(0.2)
    winning = asyncio.create_task(well.win())
    await leader.resign()
    assert await winning > token


async def test_campaign_without_a_valid_holder_is_invalid(serve: Serve) -> None:
    without_holder = await Speaker.open(await serve(), "")
    with pytest.raises(errors.Invalid, match="holder must have"):
        await without_holder.next()
    too_long = await Speaker.open(await serve(), "a" * 254)
    with pytest.raises(errors.Invalid, match="1 to 253 characters"):
        await too_long.next()


async def test_draining_server_rejects_candidates(serve: Serve) -> None:
    server = await serve()
    server.elections.drain()
    candidate = await Speaker.open(server, "a")
    with pytest.raises(errors.Unavailable, match="shutting down"):
        await candidate.next()
