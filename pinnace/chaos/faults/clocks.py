"""A wall clock that is suddenly an hour off."""

import random

from pinnace.chaos.world import NotPossible, World

HOUR = 3600


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
