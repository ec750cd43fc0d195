"""Pods by which one user can harm the scheduler: a plugin fails when it is asked about them."""

import asyncio
import random
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from pinnace.api.core_v1_pb2 import Pod
from pinnace.chaos.faults.limits import LittleMemory
from pinnace.chaos.saboteur import DEED, DEEDS, PROFILE, REPORT
from pinnace.chaos.workers import HARM, pod
from pinnace.chaos.world import LEADER, NotPossible, World
from pinnace.client.errors import ApiError, NotFound

ASKED_WITHIN = 5.0
"""Seconds until a scheduler has decided about a pod, or has tried to."""
REMOVED_WITHIN = 30.0
"""Seconds in which pods are removed, whatever other faults do to the API servers meanwhile."""
POLL = 0.05
_numbers = count()


class _Pods:
    """Pods that are there while the fault is on."""

    def __init__(self, world: World, target: str, rng: random.Random) -> None:
        self._world = world
        self._random = rng
        self._names: list[str] = []
        self.details = ""

    async def end(self) -> None:
        """Raises ApiError."""
        deadline = time.monotonic() + REMOVED_WITHIN
        while self._names:
            try:
                await self._world.client.pods.delete(self._names[-1], HARM, grace=0)
            except NotFound:
                pass
            except ApiError:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(POLL)
                continue
            self._names.pop()

    async def _create(self, made: Pod) -> None:
        """Raises NotPossible."""
        made.metadata.namespace, made.metadata.name = HARM, f"harm-{next(_numbers)}"
        self._names.append(made.metadata.name)
        try:
            await self._world.client.pods.create(made)
        except ApiError as error:
            raise NotPossible(str(error)) from error


class FailingPlugin(_Pods):
    """A pod whose plugin does harm in the process that decides about it, each time that it does. It has begun when the plugin
    has been asked."""

    deeds: Sequence[str] = ("cancel", "exit", "generator-exit")

    async def begin(self) -> None:
        deed = self._random.choice(self.deeds)
        assert deed in DEEDS
        self.details = deed
        made = pod(HARM, "", scheduler=PROFILE)
        with TemporaryDirectory(prefix="pinnace-harm-") as folder:
            report = Path(folder, "asked")
            made.metadata.annotations.update({DEED: deed, REPORT: str(report)})
            await self._create(made)
            deadline = time.monotonic() + ASKED_WITHIN
            while not await asyncio.to_thread(report.exists):
                if time.monotonic() > deadline:
                    raise NotPossible("no scheduler has decided about the pod")
                await asyncio.sleep(POLL)


class HangingPlugin(FailingPlugin):
    """The plugin does not return for longer than a leader may be silent."""

    deeds = ("hang",)


class LeakingPlugin(FailingPlugin):
    """The plugin takes all the memory that the leading scheduler may have, and keeps it."""

    deeds = ("leak",)

    def __init__(self, world: World, target: str, rng: random.Random) -> None:
        super().__init__(world, target, rng)
        self._memory = LittleMemory(world, LEADER, rng)

    async def begin(self) -> None:
        await self._memory.begin()
        await super().begin()
        self.details = self._memory.details

    async def end(self) -> None:
        try:
            await super().end()
        finally:
            await self._memory.end()
