"""Whose turn it is, among the candidates of one server."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from apiserver.cacher.cacher import Cacher
from apiserver.election.candidates import UNSEEN, Contest, Held
from apiserver.election.service import TIMING
from apiserver.services.sessions import Conversation, Sign, election_of
from apiserver.storage.interface import Change, KeyValue
from pinnace.api.elections_pb2 import Election
from tests.clock import FakeClock

Member = Conversation[Any, Any]


async def nothing() -> AsyncIterator[Any]:
    for _ in ():
        yield None


@pytest.fixture
def contest() -> Contest:
    cacher: Any = SimpleNamespace(raw=lambda key: None, revision=1)
    return Contest("scheduler", cacher, FakeClock())


@pytest.fixture
def members(contest: Contest) -> list[Member]:
    members = [Member(nothing(), TIMING, FakeClock()) for _ in range(3)]
    for member in members:
        contest.join(member)
    return members


def turns(contest: Contest, members: list[Member]) -> list[bool]:
    return [contest.turn_of(member) for member in members]


async def test_the_first_that_came_stands_first(contest: Contest, members: list[Member]) -> None:
    assert turns(contest, members) == [True, False, False]


async def test_the_next_learns_that_its_turn_has_come(contest: Contest, members: list[Member]) -> None:
    contest.leave(members[0])
    assert turns(contest, members) == [False, True, False]
    assert [member.pending for member in members] == [False, True, False]
    assert await members[1].hear() is Sign.NEWS


async def test_a_leader_is_out_of_the_line_but_hears_what_happens(contest: Contest, members: list[Member]) -> None:
    contest.step_out(members[0])
    contest.announce(Change(contest.key, None, 0, 5))
    assert turns(contest, members) == [False, True, False]
    assert await members[0].hear() is Sign.NEWS


async def test_nobody_stands_against_a_leader_that_the_cache_does_not_show_yet() -> None:
    clock, cacher = FakeClock(), SimpleNamespace(raw=lambda key: None, revision=6)
    contest = Contest("scheduler", cast(Cacher, cacher), clock)
    leader, other = (Member(nothing(), TIMING, clock) for _ in range(2))
    for member in (leader, other):
        contest.join(member)
    assert contest.may_stand(leader, 1) and not contest.may_stand(other, 2)
    contest.won(leader, Held(7, 7))
    assert not contest.may_stand(other, 2), "it would only lose"
    cacher.revision = 8
    assert contest.may_stand(other, 2), "the key has gone again"
    cacher.revision = 6
    await clock.advance(UNSEEN)
    assert contest.may_stand(other, 2), "a cache that stays behind keeps nobody waiting"


async def test_records_that_cannot_be_read_end_nothing(contest: Contest, members: list[Member]) -> None:
    contest.announce(Change(contest.key, b"\xff", 5, 5))
    assert [member.pending for member in members] == [True] * 3
    assert election_of(KeyValue(contest.key, b"\xff", 5, 5, 1)) == Election(name="scheduler", token=5), "somebody leads"
    contest.announce(Change(contest.key, None, 0, 6))
    contest.join(Member(nothing(), TIMING, FakeClock()))
    over = contest.before(7)
    assert over is not None and over.token == 5
    contest._cacher = cast(Cacher, SimpleNamespace(raw=lambda key: KeyValue(key, b"\xff", 7, 7, 1), revision=7))
    assert contest.nomination() is None
    assert contest.may_stand(members[0], 1), "a nomination of nobody holds up nobody"


async def test_one_that_leaves_in_the_middle_disturbs_nobody(contest: Contest, members: list[Member]) -> None:
    contest.leave(members[1])
    assert turns(contest, members) == [True, False, False]
    contest.leave(members[0])
    assert turns(contest, members) == [False, False, True]
    contest.leave(members[2])
    assert contest.deserted
