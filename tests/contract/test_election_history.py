"""The history of terms with the reason for each end, and the list of waiting candidates."""

import asyncio

from pinnace.api.scalars import to_seconds
from pinnace.api.terms import TermEnd
from pinnace.client.client import ElectionClient
from tests.contract.electing import HASTY, Serve, Vote, history_until
from tests.contract.servers import PATIENCE
from tests.contract.voters import ELECTION, Speaker
from tests.unit.client.fakeserver import connect


async def test_history_records_leaders_with_the_reason_for_each_end(serve: Serve, vote: Vote) -> None:
    """All servers return the same history."""
    one, two = await serve(), await serve()
    first = vote("a", one)
    tokens = [await first.elected()]
    second = vote("b", two)
    await first.candidate.release()
    tokens.append(await second.elected())
    third = await Speaker.open(one, "c")
    await third.hear("opened")
    await second.kill()
    tokens.append((await third.skip("observed")).elected.token)
    expected = [("a", "resigned"), ("b", "stream closed"), ("c", "")]
    terms = await history_until(two, lambda terms: [(term.holder, term.reason) for term in terms] == expected)
    assert [term.token for term in terms] == tokens and not any(term.presumed for term in terms)
    assert [term.HasField("ended") for term in terms] == [True, True, False]
    assert [term.HasField("last_heartbeat") for term in terms] == [False, True, False], (
        "a leader that resigns acts until the end"
    )
    assert (await history_until(one, bool)) == terms


async def test_history_has_the_last_heartbeat_of_a_silent_leader(serve: Serve) -> None:
    """A frozen leader did nothing since its last heartbeat. The history had only the milliseconds after the end of its term."""
    server = await serve(HASTY)
    leader = await Speaker.open(server, "a")
    await leader.lead()
    await leader.hear("lost")
    following = await Speaker.open(server, "b")
    await following.lead()
    first, second = await history_until(server, lambda terms: len(terms) == 2 and terms[0].HasField("ended"))
    assert first.reason == "no heartbeats"
    end, began = TermEnd.of(first), to_seconds(second.began)
    gap, outage = end.gap(began), end.outage(began)
    assert gap is not None and outage is not None and outage - gap > HASTY.silence / 2


async def test_end_of_a_leader_that_crashed_with_its_server_is_presumed(serve: Serve, vote: Vote) -> None:
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
    assert (terms[0].reason, terms[0].presumed) == ("lease expired", True)


async def test_leader_that_moves_to_another_server_keeps_its_term(serve: Serve) -> None:
    one, two = await serve(), await serve()
    leader = await Speaker.open(one, "a")
    session, token = await leader.lead()
    before = await history_until(one, bool)
    again = await Speaker.open(two, "a", session, token)
    await again.lead()
    other = await Speaker.open(two, "b")
    await other.hear("opened")
    assert await history_until(two, bool) == before


async def test_history_contains_a_completed_transfer(serve: Serve, vote: Vote) -> None:
    """Servers write terms to etcd with a delay. `leader history` showed the previous leader as current after a transfer."""
    one, two = await serve(), await serve()
    tokens = [await vote("a", one).elected()]
    await vote("b", two).stands()
    connection = connect(two.address)
    try:
        elections = ElectionClient(connection)
        transfer = await elections.transfer_leadership(ELECTION, "b")
        tokens.append(transfer.after.token)
        terms = await elections.list_terms(ELECTION)
    finally:
        await connection.close()
    assert [(term.token, term.reason) for term in terms] == [(tokens[0], "transferred to b"), (tokens[1], "")]
    gap = TermEnd.of(terms[0]).gap(to_seconds(terms[1].began))
    assert gap is not None and transfer.gap_micros == round(gap * 1e6), "the transfer and the history have one figure"


async def test_every_server_lists_the_waiting_candidates(serve: Serve, vote: Vote) -> None:
    one, two = await serve(), await serve()
    leader = vote("a", one)
    await leader.elected()
    for holder, server in (("b", two), ("c", one)):
        await vote(holder, server).stands()
    connection = connect(two.address)
    try:
        result = await ElectionClient(connection).get(ELECTION)
        async with asyncio.timeout(PATIENCE):
            while [candidate.holder for candidate in result.candidates] != ["b", "c"]:
                await asyncio.sleep(0.05)
                result = await ElectionClient(connection).get(ELECTION)
        assert not any(candidate.session for candidate in result.candidates), "a client that knows a session can resume it"
        (term,) = await ElectionClient(connection).list_terms(ELECTION)
        assert term.began == result.since, "the term and the election differ in the start time"
    finally:
        await connection.close()
