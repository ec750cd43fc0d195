"""Transfer of leadership on request."""

import asyncio
import random
from collections.abc import Callable

import pytest

from pinnace.api.elections_pb2 import Nomination, TransferElectionResponse
from pinnace.api.resources import election_key, nomination_key
from pinnace.apiserver.election.candidate_queue import NOMINEE_PRECEDENCE
from pinnace.apiserver.election.service import TIMING, LeadershipTransfer
from pinnace.apiserver.election.term_history import HistoryWriter
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.services.sessions import Timing
from pinnace.apiserver.storage.interface import Committed, Storage, Write
from pinnace.client import errors
from pinnace.client.client import ElectionClient
from pinnace.runtime.clock import SYSTEM_CLOCK
from tests.contract.electing import Serve, Vote, history_until
from tests.contract.servers import PATIENCE, Server
from tests.contract.voters import ELECTION, Speaker
from tests.unit.client.fakeserver import connect


async def transfer(server: Server, to: str = "") -> TransferElectionResponse:
    connection = connect(server.address)
    try:
        return await ElectionClient(connection).transfer_leadership(ELECTION, to)
    finally:
        await connection.close()


async def test_transfer_elects_the_named_candidate(serve: Serve, vote: Vote) -> None:
    """The candidate is not first in the queue, and uses a server other than the one that handles the call."""
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
    again = await transfer(two, "a")  # the deposed leader is a candidate again
    assert (again.before.token, again.after.holder) == (done.after.token, "a")
    assert await leader.elected(after=token) == again.after.token


async def test_transfer_without_a_name_elects_another_candidate(serve: Serve, vote: Vote) -> None:
    one, two = await serve(), await serve()
    leader = vote("a", one)
    token = await leader.elected()
    await vote("b", two).stands()
    done = await transfer(one)
    assert (done.before.token, done.after.holder) == (token, "b")


@pytest.mark.parametrize("key_of", [election_key, nomination_key])
async def test_unreadable_records_do_not_block_elections(
    serve: Serve, vote: Vote, storage: Storage, key_of: Callable[[str], str]
) -> None:
    server = await serve()
    leader = vote("a", server)
    await leader.elected()
    await vote("b", server).stands()
    result = await storage.get(key_of(ELECTION))
    await storage.transact([Write(key_of(ELECTION), b"\xff", result.mod_revision if result else 0)])
    done = await transfer(server)
    assert done.after.token > done.before.token and done.after.holder in ("a", "b")


async def test_transfer_without_a_matching_candidate_keeps_the_leader(serve: Serve, vote: Vote) -> None:
    server = await serve()
    with pytest.raises(errors.NotFound, match="has no leader"):
        await transfer(server)
    leader = vote("a", server)
    token = await leader.elected()
    with pytest.raises(errors.NotFound, match="has no other candidate: a remains the leader"):
        await transfer(server)
    await vote("b", server).stands()
    with pytest.raises(errors.NotFound, match='has no candidate "nobody": a remains the leader'):
        await transfer(server, "nobody")
    done = await transfer(server, "a")
    assert (done.before, done.after.token) == (done.after, token)
    assert leader.history == [token]


async def test_transfer_to_a_hanging_candidate_fails(serve: Serve, vote: Vote, storage: Storage) -> None:
    server = await serve(Timing(interval=0.05, silence=30, ttl=30))
    leader = vote("a", server)
    token = await leader.elected()
    hanging = await Speaker.open(server, "b")
    await hanging.hear("opened")
    await asyncio.sleep(0.2)
    with pytest.raises(errors.NotFound, match="has no candidate"):
        await transfer(server, "b")
    assert leader.history == [token]
    assert await storage.get(nomination_key(ELECTION)) is None


async def test_acceptance_of_an_earlier_transfer_is_ignored(serve: Serve, vote: Vote, storage: Storage) -> None:
    """The cache of a lagging server still contains the nomination of a transfer that has just ended."""
    late, server = await serve(), await serve()
    leader = vote("a", server)
    token = await leader.elected()
    accepted = Nomination(election=ELECTION, token=token, holder="b", session=7).SerializeToString()
    made = await storage.transact([Write(nomination_key(ELECTION), accepted, 0)])
    assert isinstance(made, Committed)
    await late.cacher.wait_for(made.revision, PATIENCE)
    late.blind()
    await asyncio.sleep(0.05)
    await storage.transact([Write(nomination_key(ELECTION), None, made.revision)])
    terms = HistoryWriter(storage, late.committer, SYSTEM_CLOCK, 2, random.Random(0))
    moving = LeadershipTransfer(ELECTION, "nobody", storage, late.committer, late.cacher, terms, SYSTEM_CLOCK)
    with pytest.raises(Rejected, match='has no candidate "nobody"'):
        await moving.run()
    assert leader.history == [token]


async def test_transfer_by_a_server_whose_cache_is_behind(serve: Serve, vote: Vote, storage: Storage) -> None:
    """The transfer did not see the acceptance in time, and refused a candidate that was ready."""
    late, server = await serve(), await serve()
    leader = vote("a", server)
    token = await leader.elected()
    await vote("b", server).stands()
    await late.cacher.wait_for(token, PATIENCE)
    late.blind()
    terms = HistoryWriter(storage, late.committer, SYSTEM_CLOCK, 2, random.Random(0))
    done = await LeadershipTransfer(ELECTION, "b", storage, late.committer, late.cacher, terms, SYSTEM_CLOCK).run()
    assert (done.before.token, done.after.holder) == (token, "b")


async def test_candidates_wait_for_the_nominee_for_a_limited_time(serve: Serve, vote: Vote, storage: Storage) -> None:
    """The nominee accepts and is dead when the key is deleted."""
    server = await serve()
    leader = vote("a", server)
    token = await leader.elected()
    other = vote("b", server)
    await other.stands()
    accepted = Nomination(election=ELECTION, token=token, holder="c", session=12345)
    await storage.transact([Write(nomination_key(ELECTION), accepted.SerializeToString(), 0)])
    began = asyncio.get_running_loop().time()
    await leader.candidate.release()
    await other.elected(after=token)
    assert NOMINEE_PRECEDENCE <= asyncio.get_running_loop().time() - began < NOMINEE_PRECEDENCE + TIMING.ttl
