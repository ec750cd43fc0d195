"""Nobody is passed over who waits and has room: no level by a more important one, no flow by others of its level. For any loads
of users who send their next call as soon as the last is over. Time is counted in turns of the event loop, of a millisecond."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.flow import control
from pinnace.apiserver.flow.control import PriorityAndFairness, Seat
from pinnace.apiserver.flow.levels import LEADER_ELECTION, NODE_HIGH, SHARES, SYSTEM, WORKLOAD

pytestmark = pytest.mark.slow

SEATS, GAP = 40, 2
TURN = 0.001
SHORT, LONG = 1, 20
TURNS = 1500
ROUND = GAP * (control.MAX_OVERTAKEN + len(SHARES))
"""Turns in which each level has its turn, at least."""


@pytest.fixture(scope="module", autouse=True)
def _short_gaps() -> Iterator[None]:
    with mock.patch.multiple(control, ROUND=1, SEAT_PAUSE=GAP * TURN, SEAT_PAUSE_UNCROWDED=GAP * TURN):
        yield


class Turns:
    """A clock."""

    def __init__(self) -> None:
        self._count = 0

    async def run(self) -> None:
        while True:
            self._count += 1
            await asyncio.sleep(0)

    def monotonic(self) -> float:
        return self._count * TURN

    def time(self) -> float:
        return self.monotonic()

    async def sleep(self, seconds: float) -> None:
        await turns(max(1, round(seconds / TURN)))


@dataclass(frozen=True)
class Load:
    """`callers` of one user, each of whom has one call of such a cost after the other, each at work for so many turns."""

    level: str
    callers: int
    cost: int = 1
    turns: int = SHORT


WIDTHS = st.sampled_from((1, 1, 1, 2, 10, 50))
LOADS = st.builds(Load, st.sampled_from(list(SHARES)), st.integers(1, 60), WIDTHS, st.integers(SHORT, LONG))


class World:
    def __init__(self, loads: list[Load]) -> None:
        clock = Turns()
        self.control = PriorityAndFairness(SEATS, clock=clock)
        self.begun = dict.fromkeys(range(len(loads)), 0)
        self.tasks = [asyncio.ensure_future(clock.run())]
        self.tasks += [
            asyncio.ensure_future(self._call(number, load)) for number, load in enumerate(loads) for _ in range(load.callers)
        ]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _call(self, number: int, load: Load) -> None:
        while True:
            try:
                with self.control.request_seat(load.level, f"user-{number}", load.cost) as seat:
                    if seat.waits:
                        await seat.acquire()
                    self.begun[number] += 1
                    await turns(load.turns)
                await turns(1)  # the next one comes over the network: nobody is back in the same turn
            except Rejected:
                await turns(LONG)


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class Watched:
    """For how many turns each level has been passed over, which has seats of its own for somebody who waits; and all have been
    while there was room for anybody."""

    def __init__(self, flow: PriorityAndFairness) -> None:
        self.passed_over = dict.fromkeys(flow.levels, 0)
        self.idle = 0
        self._flow = flow
        self._begun = dict.fromkeys(flow.levels, 0)

    def look(self) -> None:
        levels = self._flow.levels
        free = SEATS - sum(level.seats_in_use for level in levels.values())
        begun = {name: level.started_calls for name, level in levels.items()}
        for name, level in levels.items():
            waits = level.next_flow(level.seats - level.seats_in_use) and begun[name] == self._begun[name]
            self.passed_over[name] = self.passed_over[name] + 1 if waits else 0
        room = any(level.next_flow(max(level.seats - level.seats_in_use, free)) for level in levels.values())
        self.idle = self.idle + 1 if room and begun == self._begun else 0
        self._begun = begun


@given(st.lists(LOADS, min_size=1, max_size=6))
async def test_level_with_seats_of_its_own_gets_its_turn(loads: list[Load]) -> None:
    async with World(loads) as world:
        watched = Watched(world.control)
        for _ in range(TURNS):
            await asyncio.sleep(0)
            watched.look()
            assert max(watched.passed_over.values()) <= ROUND
            assert watched.idle <= GAP


@given(st.lists(st.builds(Load, st.just(WORKLOAD), st.integers(1, 60), WIDTHS, st.just(SHORT)), min_size=2, max_size=6))
async def test_flow_gets_its_turn_among_others_of_its_level(loads: list[Load]) -> None:
    async with World(loads) as world:
        await turns(TURNS)
        before = dict(world.begun)
        await turns(TURNS)
        assert all(world.begun[number] > begun for number, begun in before.items()), world.begun


async def test_flood_at_one_level_leaves_the_others_their_calls() -> None:
    loads = [Load(NODE_HIGH, 900), Load(SYSTEM, 40), Load(WORKLOAD, 40), Load(WORKLOAD, 1, cost=10)]
    async with World(loads) as world:
        await turns(TURNS)
        _, *others = world.begun.values()
    assert min(others) > TURNS / ROUND / 2


async def test_more_important_begin_first_and_have_what_the_others_need_not_have() -> None:
    clock = Turns()
    ticking = asyncio.ensure_future(clock.run())
    flow = PriorityAndFairness(clock=clock)
    seats = {level: wait(flow, level) for level in (WORKLOAD, SYSTEM, NODE_HIGH, LEADER_ELECTION)}
    await turns(8 * GAP)
    ticking.cancel()
    begun = {level: sum(seat.future.done() for seat in waiting) for level, waiting in seats.items()}
    assert begun == {LEADER_ELECTION: 5, NODE_HIGH: 1, SYSTEM: 1, WORKLOAD: 1}
    for waiting in seats.values():
        for seat in waiting:
            seat.release()


def wait(flow: PriorityAndFairness, level: str, calls: int = 20) -> list[Seat]:
    """Calls that wait, of somebody who has all that he gets at once."""
    taken = [flow.request_seat(level, "eve") for _ in range(control.EAGER)]
    waiting = [flow.request_seat(level, "eve") for _ in range(calls)]
    return [seat for seat in (*taken, *waiting) if isinstance(seat, Seat) and seat.waits]
