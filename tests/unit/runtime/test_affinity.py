"""A process stays on one processor while its threads switch very often. Otherwise it may run on any."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Collection

import pytest

from pinnace.runtime.cpu import INTERVAL, PIN_ABOVE, RELEASE_BELOW, ProcessorPinning, count_context_switches, set_affinity
from tests.clock import FakeClock

pytestmark = pytest.mark.processes

ALL = {2, 5}


class Process:
    """A process with a controllable rate of switches between its threads. It records each change of its affinity."""

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
    stays = ProcessorPinning(5, clock=process.clock, switches=lambda: process.switches, move=process.move)
    running = asyncio.create_task(stays.run())
    await asyncio.sleep(0)
    yield process
    running.cancel()


async def test_process_is_pinned_while_its_threads_switch_often(process: Process) -> None:
    await process.spends(1.0, PIN_ABOVE - 100)
    assert not process.moves
    await process.spends(1.0, PIN_ABOVE + 100)
    assert process.moves == [{5}]


async def test_process_is_released_when_its_threads_switch_seldom(process: Process) -> None:
    await process.spends(1.0, 2 * PIN_ABOVE)
    await process.spends(1.0, RELEASE_BELOW + 100)
    assert process.moves == [{5}], "a rate between the two thresholds changes nothing"
    await process.spends(1.0, RELEASE_BELOW - 100)
    assert process.moves == [{5}, ALL]


@pytest.mark.parametrize("processor", [3, 5])
async def test_missing_or_only_processor_is_ignored(processor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine may have fewer processors than before."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {5})
    process = Process()
    await asyncio.wait_for(ProcessorPinning(processor, clock=process.clock, move=process.move).run(), 5)
    assert not process.moves


async def test_move_applies_to_all_threads() -> None:
    before, over = os.sched_getaffinity(0), threading.Event()
    other = threading.Thread(target=over.wait, args=[20])
    other.start()
    try:
        set_affinity({min(before)})
        assert other.native_id is not None
        assert os.sched_getaffinity(other.native_id) == os.sched_getaffinity(0) == {min(before)}
    finally:
        set_affinity(before)
        over.set()
        other.join()
    assert os.sched_getaffinity(0) == before


async def test_move_to_an_unavailable_processor_changes_nothing() -> None:
    before = os.sched_getaffinity(0)
    set_affinity({max(before) + 1000})
    assert os.sched_getaffinity(0) == before


def test_waiting_counts_as_a_switch() -> None:
    before = count_context_switches()
    assert not threading.Event().wait(0.001)
    assert count_context_switches() > before
