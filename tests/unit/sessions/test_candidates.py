"""Whose turn it is, among the candidates of one server."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pinnace.api.elections_pb2 import Election
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.election.candidates import UNSEEN, Candidates, HeldKey
from pinnace.apiserver.election.service import TIMING
from pinnace.apiserver.services.sessions import SessionStream, StreamEvent, election_of
from pinnace.apiserver.storage.interface import Change, KeyValue
from tests.clock import FakeClock

Member = SessionStream[Any, Any]


async def nothing() -> AsyncIterator[Any]:
    for _ in ():
        yield None


@pytest.fixture
def candidates() -> Candidates:
    cacher: Any = SimpleNamespace(raw=lambda key: None, revision=1)
    return Candidates("scheduler", cacher, FakeClock())


@pytest.fixture
def members(candidates: Candidates) -> list[Member]:
    members = [Member(nothing(), TIMING, FakeClock()) for _ in range(3)]
    for member in members:
        candidates.join(member)
    return members


def turns(candidates: Candidates, members: list[Member]) -> list[bool]:
    return [candidates.is_next(member) for member in members]


async def test_first_that_came_stands_first(candidates: Candidates, members: list[Member]) -> None:
    assert turns(candidates, members) == [True, False, False]


async def test_next_learns_that_its_turn_has_come(candidates: Candidates, members: list[Member]) -> None:
    candidates.leave(members[0])
    assert turns(candidates, members) == [False, True, False]
    assert [member.pending for member in members] == [False, True, False]
    assert await members[1].receive() is StreamEvent.CHANGED


async def test_leader_is_out_of_the_line_but_hears_what_happens(candidates: Candidates, members: list[Member]) -> None:
    candidates.remove_from_queue(members[0])
    candidates.announce(Change(candidates.key, None, 0, 5))
    assert turns(candidates, members) == [False, True, False]
    assert await members[0].receive() is StreamEvent.CHANGED


async def test_candidate_waits_for_a_leader_missing_from_the_cache() -> None:
    clock, cacher = FakeClock(), SimpleNamespace(raw=lambda key: None, revision=6)
    candidates = Candidates("scheduler", cast(Cacher, cacher), clock)
    leader, other = (Member(nothing(), TIMING, clock) for _ in range(2))
    for member in (leader, other):
        candidates.join(member)
    assert candidates.may_stand(leader, 1) and not candidates.may_stand(other, 2)
    candidates.won(leader, HeldKey(7, 7))
    assert not candidates.may_stand(other, 2), "it would only lose"
    cacher.revision = 8
    assert candidates.may_stand(other, 2), "the key has gone again"
    cacher.revision = 6
    await clock.advance(UNSEEN)
    assert candidates.may_stand(other, 2), "a cache that stays behind keeps nobody waiting"


async def test_records_that_cannot_be_read_end_nothing(candidates: Candidates, members: list[Member]) -> None:
    candidates.announce(Change(candidates.key, b"\xff", 5, 5))
    assert [member.pending for member in members] == [True] * 3
    assert election_of(KeyValue(candidates.key, b"\xff", 5, 5, 1)) == Election(name="scheduler", token=5), "somebody leads"
    candidates.announce(Change(candidates.key, None, 0, 6))
    candidates.join(Member(nothing(), TIMING, FakeClock()))
    over = candidates.previous_term(7)
    assert over is not None and over.token == 5
    candidates._cacher = cast(Cacher, SimpleNamespace(raw=lambda key: KeyValue(key, b"\xff", 7, 7, 1), revision=7))
    assert candidates.nomination() is None
    assert candidates.may_stand(members[0], 1), "a nomination of nobody holds up nobody"


async def test_candidate_leaving_the_queue_does_not_affect_others(candidates: Candidates, members: list[Member]) -> None:
    candidates.leave(members[1])
    assert turns(candidates, members) == [True, False, False]
    candidates.leave(members[0])
    assert turns(candidates, members) == [False, False, True]
    candidates.leave(members[2])
    assert candidates.is_empty
