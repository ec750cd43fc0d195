"""Who compacts, when, and up to where. `World` knows when each revision was made, so also how old was what was compacted."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from random import Random

import pytest

from pinnace.api.resources import COMPACT_REV_KEY
from pinnace.apiserver.storage.compactor import INTERVAL, Compactor
from pinnace.apiserver.storage.interface import Committed, Compacted, CompareFailed, Storage, StorageError, Write
from pinnace.runtime.logs import CompactionFailed
from tests.clock import FakeClock
from tests.contract.steps import put
from tests.logged import logged
from tests.unit.storage.faults import Fault, FaultyStorage, FullStorage

HOUR = 3600.0
STEP = 50.0
"""Seconds between writes. Every time is a multiple of it, so that all clocks agree when a turn is taken."""
BUSY = "/registry/pods/default/a"
FAULTS = [*[Fault.NONE] * 6, Fault.NOT_SENT, Fault.LOST_REQUEST, Fault.LOST_ANSWER, Fault.DELAYED]


@dataclass
class Compaction:
    revision: int
    age: float
    """Seconds since the youngest version that it took had been overwritten."""


class World(FullStorage):
    """A store in which time passes by `clock`."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.clock = clock
        self.compactions: list[Compaction] = []
        self.writes = 0
        self._made: dict[int, float] = {}

    async def transact(self, writes: Sequence[Write]) -> Committed | CompareFailed:
        before = await self.current_revision()
        try:
            return await super().transact(writes)
        finally:
            if (now := await self.current_revision()) > before:
                self._made[now] = self.clock.monotonic()

    async def compact(self, revision: int) -> None:
        await super().compact(revision)
        now = self.clock.monotonic()
        self.compactions.append(Compaction(revision, now - self._made[revision]))

    async def write(self) -> int:
        """Somebody else writes; the revision."""
        self.writes += 1
        return await put(self, f"{BUSY}{self.writes}")

    async def live(self, seconds: float, *others: FakeClock) -> None:
        """Time passes for all of these, and something is written now and then."""
        for _ in range(int(seconds // STEP)):
            if not self.full:
                await self.write()
            for clock in (self.clock, *others):
                await clock.advance(STEP)

    async def wake(self, *paused: FakeClock) -> None:
        """Servers that stood still find that it is now."""
        for clock in paused:
            clock.stall(self.clock.monotonic() - clock.monotonic())
            await clock.advance(0)


@asynccontextmanager
async def compacting(
    storage: Storage, *clocks: FakeClock, interval: float = INTERVAL
) -> AsyncIterator[list[asyncio.Task[None]]]:
    """One server by each of the clocks."""
    running = [asyncio.create_task(Compactor(storage, clock, interval).run()) for clock in clocks]
    try:
        for clock in clocks:
            await clock.advance(0)
        yield running
    finally:
        for task in running:
            task.cancel()
        await asyncio.wait(running)


async def test_compaction_is_at_the_revision_of_the_previous_turn() -> None:
    world = World(FakeClock())
    async with compacting(world, world.clock):
        first = await world.write()
        await world.clock.advance(INTERVAL)
        assert not world.compactions, "a server that has just started knows nothing that is old enough"
        turn = await world.current_revision()
        young = await world.write()
        await world.clock.advance(INTERVAL)
        assert [compaction.revision for compaction in world.compactions] == [turn]
        with pytest.raises(Compacted):
            await world.get(BUSY, revision=first)
        assert await world.get(f"{BUSY}2", revision=young) is not None
        result = await world.get(COMPACT_REV_KEY)
        assert result is not None and int(result.value) == turn


async def test_two_servers_compact_once_in_an_interval() -> None:
    world, other = World(FakeClock()), FakeClock()
    async with compacting(world, world.clock):
        await world.live(100)
        async with compacting(world, other):
            await world.live(INTERVAL, other)
            for turn in range(1, 12):
                await world.live(INTERVAL, other)
                assert len(world.compactions) == turn
    assert all(compaction.age == INTERVAL for compaction in world.compactions)


async def test_when_the_one_that_compacts_has_gone_another_does() -> None:
    world, other = World(FakeClock()), FakeClock()
    async with compacting(world, other):
        async with compacting(world, world.clock):
            await world.live(3 * INTERVAL)  # the other one's time stands still
            assert len(world.compactions) == 2
        await world.live(3 * INTERVAL, other)
        assert len(world.compactions) >= 3


@pytest.mark.parametrize("alone", [False, True])
async def test_server_that_stood_still_for_hours_compacts_nothing_young(*, alone: bool) -> None:
    world, paused = World(FakeClock()), FakeClock()
    async with compacting(world, paused, *(() if alone else (world.clock,))):
        await world.live(2 * INTERVAL, paused)
        before = len(world.compactions)
        await world.live(5 * HOUR)
        assert (len(world.compactions) == before) == alone
        await world.wake(paused)
        assert (len(world.compactions) == before + 1) == alone
        await world.live(3 * INTERVAL, paused)
        assert len(world.compactions) > before + 2
    assert all(compaction.age >= INTERVAL for compaction in world.compactions)


async def test_server_that_stood_still_between_its_turn_and_the_compaction() -> None:
    class Slow(World):
        gate = asyncio.Event()
        held = 0

        async def compact(self, revision: int) -> None:
            if not self.gate.is_set():
                self.held = revision
                await self.gate.wait()
            await super().compact(revision)

    world = Slow(FakeClock())
    async with compacting(world, world.clock):
        await world.live(2 * INTERVAL)
        assert world.held
        await world.live(5 * HOUR)
        assert not world.compactions
        world.gate.set()
        await world.live(INTERVAL)
    assert world.compactions[0].revision == world.held
    assert all(compaction.age >= INTERVAL for compaction in world.compactions)


class TestOutOfSpace:
    async def test_it_compacts_all_the_same_and_says_what_is_to_be_done(self, caplog: pytest.LogCaptureFixture) -> None:
        world = World(FakeClock())
        with caplog.at_level(logging.WARNING):
            async with compacting(world, world.clock):
                await world.live(100)
                world.full = True
                await world.live(2 * INTERVAL)
        assert [compaction.revision for compaction in world.compactions] == [await world.current_revision()]
        assert "etcdctl alarm disarm" in caplog.text

    async def test_several_that_do_it_are_harmless(self, caplog: pytest.LogCaptureFixture) -> None:
        world, other = World(FakeClock()), FakeClock()
        async with compacting(world, world.clock):
            await world.live(100)
            async with compacting(world, other):
                await world.live(2 * INTERVAL, other)
                world.full = True
                await world.live(4 * INTERVAL, other)
                world.full = False
                before = len(world.compactions)
                await world.live(5 * INTERVAL, other)
                assert 4 <= len(world.compactions) - before <= 5, "one of them again"
        revisions = [compaction.revision for compaction in world.compactions]
        assert revisions == sorted(set(revisions))
        assert all(compaction.age >= INTERVAL for compaction in world.compactions)
        assert not logged(caplog, CompactionFailed)

    async def test_put_that_was_refused_although_it_happened(self) -> None:
        world = World(FakeClock())
        async with compacting(world, world.clock):
            await world.live(2 * INTERVAL)
            world.full, world.late = True, 1
            await world.live(INTERVAL)
            world.full = False
            before = len(world.compactions)
            await world.live(3 * INTERVAL)
            assert len(world.compactions) == before + 2, "one turn to see where the key is"


async def test_store_that_is_away_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    world = World(FakeClock())
    storage = FaultyStorage([Fault.NONE, StorageError("away"), Fault.LOST_ANSWER], world)
    async with compacting(storage, world.clock):
        await world.live(3 * INTERVAL)
        assert not world.compactions and CompactionFailed("away") in logged(caplog, CompactionFailed)
        await world.live(2 * INTERVAL)
        assert len(world.compactions) == 1


async def test_key_may_be_deleted() -> None:
    world = World(FakeClock())
    async with compacting(world, world.clock):
        await world.live(2 * INTERVAL)
        result = await world.get(COMPACT_REV_KEY)
        assert result is not None
        await world.transact([Write(COMPACT_REV_KEY, None, result.mod_revision)])
        await world.live(2 * INTERVAL)
        assert len(world.compactions) == 2


async def test_interval_of_nothing_compacts_nothing() -> None:
    clock = FakeClock()
    world = World(clock)
    async with compacting(world, clock, interval=0.0) as servers:
        await clock.advance(10 * INTERVAL)
        assert not world.compactions and not any(task.done() for task in servers)


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_happens_nothing_young_is_compacted_and_when_it_is_over_history_goes(seed: int) -> None:
    rng, world, clocks = Random(seed), World(FakeClock()), [FakeClock() for _ in range(3)]
    troubled = True
    storage = FaultyStorage((rng.choice(FAULTS) if troubled else Fault.NONE for _ in count()), world)
    async with compacting(storage, *clocks):
        for _ in range(30):
            world.full, world.late = rng.random() < 0.2, rng.choice([0, 0, 1])
            going = [clock for clock in clocks if rng.random() < 0.7]
            await world.wake(*going)
            await world.live(rng.choice([STEP, INTERVAL]), *going)
        troubled = world.full = False
        await world.wake(*clocks)
        before = len(world.compactions)
        await world.live(4 * INTERVAL, *clocks)
        assert len(world.compactions) > before
    assert all(compaction.age >= INTERVAL for compaction in world.compactions)
