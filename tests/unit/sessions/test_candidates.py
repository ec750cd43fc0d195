"""Whose turn it is, among the candidates of one server."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pinnace.api.elections_pb2 import Election
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.election.candidate_queue import CACHE_LAG, CandidateQueue, HeldKey
from pinnace.apiserver.election.service import TIMING
from pinnace.apiserver.services.sessions import SessionStream, StreamEvent, election_of
from pinnace.apiserver.storage.interface import KeyChange, KeyValue
from tests.clock import FakeClock

Member = SessionStream[Any, Any]


async def nothing() -> AsyncIterator[Any]:
    for _ in ():
        yield None


@pytest.fixture
def queue() -> CandidateQueue:
    cacher: Any = SimpleNamespace(raw_key=lambda key: None, revision=1)
    return CandidateQueue("scheduler", cacher, FakeClock())


@pytest.fixture
def members(queue: CandidateQueue) -> list[Member]:
    members = [Member(nothing(), TIMING, FakeClock()) for _ in range(3)]
    for member in members:
        queue.add_candidate(member)
    return members


def turns(queue: CandidateQueue, members: list[Member]) -> list[bool]:
    return [queue.is_next(member) for member in members]


async def test_first_that_came_stands_first(queue: CandidateQueue, members: list[Member]) -> None:
    assert turns(queue, members) == [True, False, False]


async def test_next_learns_that_its_turn_has_come(queue: CandidateQueue, members: list[Member]) -> None:
    queue.remove_candidate(members[0])
    assert turns(queue, members) == [False, True, False]
    assert [member.pending for member in members] == [False, True, False]
    assert await members[1].receive() is StreamEvent.CHANGED


async def test_leader_is_out_of_the_line_but_hears_what_happens(queue: CandidateQueue, members: list[Member]) -> None:
    queue.remove_from_queue(members[0])
    queue.apply_change(KeyChange(queue.key, None, 0, 5))
    assert turns(queue, members) == [False, True, False]
    assert await members[0].receive() is StreamEvent.CHANGED


async def test_candidate_waits_for_a_leader_missing_from_the_cache() -> None:
    clock, cacher = FakeClock(), SimpleNamespace(raw_key=lambda key: None, revision=6)
    queue = CandidateQueue("scheduler", cast(Cacher, cacher), clock)
    leader, other = (Member(nothing(), TIMING, clock) for _ in range(2))
    for member in (leader, other):
        queue.add_candidate(member)
    assert queue.may_create_key(leader, 1) and not queue.may_create_key(other, 2)
    queue.record_leader(leader, HeldKey(7, 7))
    assert not queue.may_create_key(other, 2), "it would only lose"
    cacher.revision = 8
    assert queue.may_create_key(other, 2), "the key has gone again"
    cacher.revision = 6
    await clock.advance(CACHE_LAG)
    assert queue.may_create_key(other, 2), "a cache that stays behind keeps nobody waiting"


async def test_records_that_cannot_be_read_end_nothing(queue: CandidateQueue, members: list[Member]) -> None:
    queue.apply_change(KeyChange(queue.key, b"\xff", 5, 5))
    assert [member.pending for member in members] == [True] * 3
    assert election_of(KeyValue(queue.key, b"\xff", 5, 5, 1)) == Election(name="scheduler", token=5), "somebody leads"
    queue.apply_change(KeyChange(queue.key, None, 0, 6))
    queue.add_candidate(Member(nothing(), TIMING, FakeClock()))
    over = queue.previous_term(7)
    assert over is not None and over.token == 5
    queue._cacher = cast(Cacher, SimpleNamespace(raw_key=lambda key: KeyValue(key, b"\xff", 7, 7, 1), revision=7))
    assert queue.nomination() is None
    assert queue.may_create_key(members[0], 1), "a nomination of nobody holds up nobody"


async def test_candidate_leaving_the_queue_does_not_affect_others(queue: CandidateQueue, members: list[Member]) -> None:
    queue.remove_candidate(members[1])
    assert turns(queue, members) == [True, False, False]
    queue.remove_candidate(members[0])
    assert turns(queue, members) == [False, False, True]
    queue.remove_candidate(members[2])
    assert queue.is_empty
