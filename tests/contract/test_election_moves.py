"""Leaders that move between API servers, and API servers that stop, crash or lag."""

import asyncio

import pytest

from pinnace.api.scalars import to_seconds
from pinnace.apiserver.election.service import TIMING
from pinnace.apiserver.storage.interface import Guard, KeyValue, Storage, Write
from pinnace.client.election import LeaderElector
from tests.contract.electing import KEY, PATIENT, Serve, Vote, history_until, record_until
from tests.contract.servers import PATIENCE
from tests.contract.voters import Speaker


async def test_leadership_survives_a_server_shutdown(serve: Serve, vote: Vote, storage: Storage) -> None:
    one, two = await serve(), await serve()
    leader = vote("a", one, two)
    token = await leader.elected()
    await one.stop()
    await record_until(storage, moved)
    assert leader.history == [token]


async def test_leadership_survives_a_server_crash(serve: Serve, vote: Vote, storage: Storage) -> None:
    one, two = await serve(), await serve()
    leader = vote("a", one, two)
    token = await leader.elected()
    waiting = vote("b", two)
    await one.kill()
    await record_until(storage, moved)
    await asyncio.sleep(TIMING.ttl)
    assert leader.candidate.token == token
    assert (leader.history, waiting.history) == ([token], [])


async def test_leadership_survives_a_server_whose_responses_are_lost(
    serve: Serve, vote: Vote, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is healthy, so it could delete the key of a leader that it considers dead."""
    one, two = await serve(), await serve()
    leader = vote("a", one, two)
    token = await leader.elected()
    waiting = vote("b", two)
    await waiting.stands()
    with monkeypatch.context() as patch:
        patch.setattr(LeaderElector, "_handle_response", lambda candidate, response: None)
        await record_until(storage, moved)
    assert (leader.history, waiting.history) == ([token], [])


async def test_resignation_during_reconnection_frees_the_key(serve: Serve, vote: Vote, storage: Storage) -> None:
    one, two = await serve(), await serve()
    leader = vote("a", one, two)
    await leader.elected()
    await one.kill()
    await leader.candidate.release()
    assert await storage.get(KEY) is None


def moved(record: KeyValue | None) -> bool:
    return record is not None and record.mod_revision != record.create_revision


async def test_previous_server_cannot_depose_a_leader_that_moved(serve: Serve, storage: Storage) -> None:
    """The stream to the first server breaks after the session has moved. The first server has not seen the move."""
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


async def test_previous_server_notifies_a_leader_that_moved(serve: Serve) -> None:
    one, two = await serve(), await serve()
    before = await Speaker.open(one, "a")
    session, token = await before.lead()
    after = await Speaker.open(two, "a", session, token)
    await after.lead()
    assert "another API server" in (await before.hear("lost")).lost.reason


async def test_session_is_taken_over_when_the_elected_message_was_lost(serve: Serve) -> None:
    """The first server crashes between the election and the message to the candidate."""
    one, two = await serve(), await serve()
    leader = await Speaker.open(one, "a")
    session, token = await leader.lead()
    again = await Speaker.open(two, "a", session)
    assert await again.lead() == (session, token)


async def test_leader_cannot_resume_after_its_key_was_deleted(serve: Serve, storage: Storage) -> None:
    server = await serve()
    leader = await Speaker.open(server, "a")
    session, token = await leader.lead()
    leader.vanish()
    await record_until(storage, lambda record: record is None)
    again = await Speaker.open(server, "a", session, token)
    assert "the term has ended" in (await again.hear("lost")).lost.reason


async def test_returning_leader_that_stood_down_frees_its_key(serve: Serve, storage: Storage) -> None:
    """The key is deleted when the candidate reconnects, not when the lease expires."""
    one, two = await serve(PATIENT), await serve(PATIENT)
    leader = await Speaker.open(one, "a")
    session, token = await leader.lead()
    other = await Speaker.open(two, "b", forsaken=session)
    await other.hear("opened")
    assert (await other.hear("observed")).observed.token == token
    again = await Speaker.open(two, "a", forsaken=session, ago=0.0)
    await again.hear("opened")
    assert (await other.hear("elected")).elected.token > token
    (term, _) = await history_until(two, lambda terms: len(terms) == 2 and terms[0].HasField("ended"))
    assert (term.reason, term.presumed) == ("heartbeats not acknowledged", False)


async def test_term_ends_at_the_time_that_the_leader_reports(serve: Serve, storage: Storage) -> None:
    """The election has no leader from that time on, although the key still exists."""
    server = await serve(PATIENT)
    leader = await Speaker.open(server, "a")
    session, _ = await leader.lead()
    await asyncio.sleep(0.5)
    again = await Speaker.open(server, "a", forsaken=session, ago=0.4)
    await again.lead()
    (before, after) = await history_until(server, lambda terms: len(terms) == 2 and terms[0].HasField("ended"))
    assert not before.presumed
    assert to_seconds(after.began) - to_seconds(before.ended) >= 0.39
    assert to_seconds(before.began) < to_seconds(before.ended)


async def test_term_end_is_presumed_when_the_candidate_reports_no_time(serve: Serve, storage: Storage) -> None:
    server = await serve(PATIENT)
    leader = await Speaker.open(server, "a")
    session, _ = await leader.lead()
    again = await Speaker.open(server, "a", forsaken=session)
    await again.lead()
    (before, _) = await history_until(server, lambda terms: len(terms) == 2 and terms[0].HasField("ended"))
    assert before.presumed


async def test_leader_that_resumes_on_two_servers_keeps_its_token(serve: Serve, storage: Storage) -> None:
    """The leader does not wait for one server, which takes over the key nevertheless."""
    servers = [await serve() for _ in range(3)]
    leader = await Speaker.open(servers[0], "a")
    session, token = await leader.lead()
    speakers = await asyncio.gather(*(Speaker.open(server, "a", session, token) for server in servers[1:]))
    assert [await speaker.lead() for speaker in speakers] == [(session, token)] * 2
    record = await storage.get(KEY)
    assert record is not None and record.create_revision == token


async def test_only_the_holder_can_resume_its_session(serve: Serve, storage: Storage) -> None:
    server = await serve()
    leader = await Speaker.open(server, "a")
    session, token = await leader.lead()
    record = await storage.get(KEY)
    for holder, its_session, its_token in (("b", session, token), ("a", session, token - 1), ("a", session + 1, token)):
        other = await Speaker.open(server, holder, its_session, its_token)
        assert "the term has ended" in (await other.hear("lost")).lost.reason
    assert await storage.get(KEY) == record


async def test_lease_expiry_frees_the_key_when_server_and_leader_crash(serve: Serve, vote: Vote) -> None:
    one, two = await serve(), await serve()
    leader = vote("a", one)
    token = await leader.elected()
    follower = vote("b", two)
    await one.kill()
    await leader.kill()
    assert await follower.elected(after=token) > token


async def test_token_stays_valid_when_the_leader_moves(serve: Serve) -> None:
    """The move changes only mod_revision. The fence compares create_revision."""
    one, two = await serve(), await serve()
    leader = await Speaker.open(one, "a")
    session, token = await leader.lead()
    again = await Speaker.open(two, "a", session, token)
    await again.lead()
    fenced = Write("/fenced", b"", expected=0, guards=(Guard(KEY, token),))
    assert await one.committer.commit(fenced) > token
