"""Lets a schedule happen to a cluster, and writes down what happened.

Each fault is on for the time that the schedule says, and is undone whatever becomes of the run. One that is not possible at its
moment (nobody leads whom to kill) is tried again, then left out, and recorded as not fired. One whose area is still
taken, because the fault before it took longer to happen or to undo than the schedule thought, waits for that.

A run of which something is not recorded any more proves nothing: it ends at once, not after the hour that it was to take.
"""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import astuple, dataclass, field

from pinnace.chaos.faults.base import Area, Fault, Measuring
from pinnace.chaos.journal import Journal
from pinnace.chaos.schedule import Strike
from pinnace.chaos.world import NotPossible, World
from pinnace.check import history
from pinnace.cluster.helper import HelperError

PATIENCE = 5.0
"""Seconds for which a fault that is not possible is tried again."""
RETRY = 0.25
Say = Callable[[str], None]
CRASH_POLL = 1.0
"""Seconds between looks: also those for which what has crashed stays down."""


@dataclass(slots=True)
class Damage:
    """What has been done, and what was found on the way."""

    fired: dict[str, int] = field(default_factory=dict)
    """How often, by kind."""
    missed: list[str] = field(default_factory=list)
    """Faults that were due and not possible, and why."""
    misdeeds: list[str] = field(default_factory=list)
    """Processes that ended by themselves, or did not when they were asked to, or failed; errors in their logs."""


class Engine:
    """`say` is told a line for each fault."""

    def __init__(self, world: World, journal: Journal, say: Say) -> None:
        self.damage = Damage()
        self._world = world
        self._journal = journal
        self._say = say
        self._areas: dict[Area, asyncio.Lock] = {area: asyncio.Lock() for area in Area if area is not Area.NONE}

    async def run(self, strikes: Sequence[Strike]) -> None:
        """Returns when all faults are over and undone. Raises ChaosError when records were lost, and what a fault raised that
        has a bug, or whose tools failed."""
        started = time.monotonic()
        try:
            await self._strike_all(strikes, started)
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        await self._world.heal()
        await self._look_for_crashes(started)
        self.damage.misdeeds += [f"{name} was not ready again after the last fault" for name in await self._world.unready()]
        self.damage.misdeeds += self._world.astray

    async def _strike_all(self, strikes: Sequence[Strike], started: float) -> None:
        async with asyncio.TaskGroup() as group:
            guarding = group.create_task(self._guard(started))
            striking = [group.create_task(self._strike(number, strike, started)) for number, strike in enumerate(strikes, 1)]
            await asyncio.gather(*striking)
            guarding.cancel()

    async def _strike(self, number: int, strike: Strike, started: float) -> None:
        await asyncio.sleep(started + strike.at - time.monotonic())
        async with self._areas.get(strike.kind.area) or nullcontext():
            await self._happen(number, strike, started)

    async def _happen(self, number: int, strike: Strike, started: float) -> None:
        fault = strike.kind.make(self._world, strike.target, random.Random(strike.draw))
        began = time.monotonic()

        def record(ended: float | None, fired: bool = True) -> None:
            self._journal.write(history.Fault(number, strike.kind.name, strike.target, began, ended, fired, fault.details))

        record(None)
        fired = False
        try:
            await _begin(fault)
            fired = True
            self._note(started, number, strike, fault.details)
            await asyncio.sleep(strike.seconds)
        except (NotPossible, HelperError) as error:
            self.damage.missed.append(f"{strike.kind.name} {strike.target}: {error}")
            self._tell(started, number, f"{strike.kind.name} {strike.target}: not possible, {error}")
        finally:
            await fault.end()
        record(time.monotonic(), fired)
        for reading in fault.readings if isinstance(fault, Measuring) else ():
            self._journal.write(history.Observed(reading.at, number, *astuple(reading)[1:]))

    def _note(self, started: float, number: int, strike: Strike, details: str) -> None:
        name, fired = strike.kind.name, self.damage.fired
        fired[name] = fired.get(name, 0) + 1
        self._tell(started, number, f"{name} {details or strike.target}, {strike.seconds:.1f} s")

    async def _guard(self, started: float) -> None:
        """Starts again what has ended by itself, as any supervisor would, and keeps that it has. Raises ChaosError when the
        journal or the recorder of etcd has failed."""
        while True:
            self._journal.check()
            self._world.recorded()
            await self._look_for_crashes(started)
            await asyncio.sleep(CRASH_POLL)

    async def _look_for_crashes(self, started: float) -> None:
        for name, code in self._world.crashed():
            found = f"{name} ended by itself, {time.monotonic() - started:.1f} s after the start: exit code {code}"
            self.damage.misdeeds.append(found)
            self._say(f"!! {found}")
            await self._world.start(name)

    def _tell(self, started: float, number: int, what: str) -> None:
        self._say(f"{time.monotonic() - started:6.1f} s  #{number} {what}")


async def _begin(fault: Fault) -> None:
    """What is not there now, such as a leader, may be in a moment. Raises NotPossible, HelperError."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            await fault.begin()
            return
        except (NotPossible, HelperError):
            if time.monotonic() > deadline:
                raise
        await fault.end()
        await asyncio.sleep(RETRY)
