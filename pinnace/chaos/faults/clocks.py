"""Wall clocks that are an hour off, or that run too fast or too slowly; each of one process."""

import asyncio
import random
import time

from pinnace.chaos.clocks import Clocks
from pinnace.chaos.world import NotPossible, World

HOUR = 3600
DRIFT_INTERVAL = 0.5


class ClockStep:
    """An hour forward or back for one process; back to the right time at the end. Monotonic clocks are untouched."""

    def __init__(self, world: World, target: str, rng: random.Random) -> None:
        self._world = world
        self._target = target
        self._seconds = rng.choice((HOUR, -HOUR))
        self._name = ""
        self.details = ""

    async def begin(self) -> None:
        if self._world.clocks is None:
            raise NotPossible("libfaketime is not installed")
        self._name = await self._world.find(self._target)
        self.details = f"{self._name}, {self._seconds:+d} s"
        self._world.clocks.step(self._name, self._seconds)

    async def end(self) -> None:
        if self._name and self._world.clocks:
            self._world.clocks.step(self._name, 0)


class ClockRate:
    """Twice as fast, or at half the speed, in steps of half a second; right again at the end. (libfaketime's own rates change
    how long a process sleeps, too.)"""

    def __init__(self, world: World, target: str, rng: random.Random) -> None:
        self._world = world
        self._target = target
        self._drift = rng.choice((1.0, -0.5))
        self._name = ""
        self._drifting: asyncio.Task[None] | None = None
        self.details = ""

    async def begin(self) -> None:
        if self._world.clocks is None:
            raise NotPossible("libfaketime is not installed")
        self._name = await self._world.find(self._target)
        self.details = f"{self._name}, {self._drift:+g} s each second"
        self._drifting = asyncio.create_task(self._drift_away(self._world.clocks))

    async def end(self) -> None:
        if self._drifting is not None:
            self._drifting.cancel()
            await asyncio.wait((self._drifting,))
        if self._name and self._world.clocks:
            self._world.clocks.step(self._name, 0)

    async def _drift_away(self, clocks: Clocks) -> None:
        began = time.monotonic()
        while True:
            await asyncio.sleep(DRIFT_INTERVAL)
            clocks.step(self._name, self._drift * (time.monotonic() - began))
