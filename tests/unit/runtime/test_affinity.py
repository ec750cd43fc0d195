"""A process stays on one processor while its threads switch very often, and goes where it likes otherwise."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Collection

import pytest

from pinnace.runtime.cpu import INTERVAL, PIN_ABOVE, RELEASE_BELOW, Affinity, move, switches
from tests.clock import FakeClock

pytestmark = pytest.mark.processes

ALL = {2, 5}


class Process:
    """Whose threads switch as often as it is told, and which remembers where it was moved."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.switches = 1_000_000
        self.moves: list[set[int]] = []

    def move(self, processors: Collection[int]) -> None:
        self.moves.append(set(processors))

    async def spends(self, seconds: float, rate: float) -> None:
        for _ in range(round(seconds / INTERVAL)):
            self.switches += round(rate * INTERVAL)
            await self.clock.advance(INTERVAL)


@pytest.fixture
async def process(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Process]:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: ALL)
    process = Process()
    stays = Affinity(5, clock=process.clock, switches=lambda: process.switches, move=process.move)
    running = asyncio.create_task(stays.run())
    await asyncio.sleep(0)
    yield process
    running.cancel()


async def test_it_stays_while_they_switch_often(process: Process) -> None:
    await process.spends(1.0, PIN_ABOVE - 100)
    assert not process.moves
    await process.spends(1.0, PIN_ABOVE + 100)
    assert process.moves == [{5}]


async def test_it_goes_where_it_likes_when_they_switch_seldom(process: Process) -> None:
    await process.spends(1.0, 2 * PIN_ABOVE)
    await process.spends(1.0, RELEASE_BELOW + 100)
    assert process.moves == [{5}], "what is in between changes nothing"
    await process.spends(1.0, RELEASE_BELOW - 100)
    assert process.moves == [{5}, ALL]


@pytest.mark.parametrize("processor", [3, 5])
async def test_a_processor_that_is_not_one_of_several_is_none(processor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine that has become smaller."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {5})
    process = Process()
    await asyncio.wait_for(Affinity(processor, clock=process.clock, move=process.move).run(), 5)
    assert not process.moves


async def test_all_threads_are_moved() -> None:
    before, over = os.sched_getaffinity(0), threading.Event()
    other = threading.Thread(target=over.wait, args=[20])
    other.start()
    try:
        move({min(before)})
        assert other.native_id is not None
        assert os.sched_getaffinity(other.native_id) == os.sched_getaffinity(0) == {min(before)}
    finally:
        move(before)
        over.set()
        other.join()
    assert os.sched_getaffinity(0) == before


async def test_a_processor_that_was_taken_away_changes_nothing() -> None:
    before = os.sched_getaffinity(0)
    move({max(before) + 1000})
    assert os.sched_getaffinity(0) == before


def test_waiting_process_yields_the_processor() -> None:
    before = switches()
    assert not threading.Event().wait(0.001)
    assert switches() > before
