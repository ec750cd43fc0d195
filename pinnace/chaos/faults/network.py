"""Connections that are cut, swallow what is sent, are slow, or break. The links of one process to all that it connects to: of a
scheduler or a kubelet to the API servers, of an API server to etcd."""

import random
from collections.abc import Sequence

from pinnace.chaos.world import NotPossible, World
from pinnace.cluster.links import Link
from pinnace.cluster.proxy import Mode

BOTH, REQUESTS, ANSWERS = "both ways", "what it sends", "what is sent to it"
DIRECTIONS = (BOTH, REQUESTS, ANSWERS)
SHORTEST_DELAY, LONGEST_DELAY = 0.02, 0.4


class _OnLinks:
    """What all of them share: whose links, and that everything passes again at the end."""

    def __init__(self, world: World, target: str, rng: random.Random) -> None:
        self._world = world
        self._target = target
        self._random = rng
        self._links: list[Link] = []
        self.details = ""

    async def _find(self) -> None:
        source = await self._world.find(self._target)
        self._links = [link for link in self._world.links.all if link[0] == source]
        if not self._links:
            raise NotPossible(f"{source} has no links")
        self.details = source

    async def _set(self, direction: str, mode: Mode) -> None:
        requests = None if direction == ANSWERS else mode
        answers = None if direction == REQUESTS else mode
        await self._world.links.set(self._links, requests, answers)

    async def end(self) -> None:
        if self._links:
            await self._world.links.accept(self._links)
            await self._world.links.set(self._links, Mode.PASS, Mode.PASS)


class Partition(_OnLinks):
    """Nothing passes, or nothing in one direction; what was sent meanwhile arrives at the end."""

    directions: Sequence[str] = DIRECTIONS

    async def begin(self) -> None:
        await self._find()
        direction = self._random.choice(self.directions)
        self.details += f", {direction}"
        await self._set(direction, Mode.HOLD)


class Muted(Partition):
    """It hears everything, and nothing that it says arrives before the end."""

    directions = (REQUESTS,)


class BlackHole(_OnLinks):
    """One of its connections swallows what is sent, or what is answered, and stays open. New ones do so, too."""

    async def begin(self) -> None:
        await self._find()
        self._links = [self._random.choice(self._links)]
        direction = self._random.choice(DIRECTIONS)
        self.details += f" to {self._links[0][1]}, {direction}"
        await self._set(direction, Mode.LOSE)


class Slow(_OnLinks):
    """Everything takes longer, both ways."""

    async def begin(self) -> None:
        await self._find()
        delay = self._random.uniform(SHORTEST_DELAY, LONGEST_DELAY)
        self.details += f", {delay * 1000:.0f} ms"
        await self._world.links.set(self._links, Mode.DELAY, Mode.DELAY, delay)


class Reset(_OnLinks):
    """Its connections break, and new ones are refused until the end."""

    async def begin(self) -> None:
        await self._find()
        await self._world.links.refuse(self._links)
        await self._world.links.reset(self._links)
