"""Processes that die, stand still, are told to go, or are there twice."""

import asyncio
import random
import signal
from pathlib import Path

from pinnace.chaos.world import World
from pinnace.cluster.folder import Folder
from pinnace.cluster.helper import dying_with_us
from pinnace.cluster.ports import Ports

RUN_LOG = "--run-log"


class Kill:
    """kill -9; started again at the end."""

    number = signal.SIGKILL

    def __init__(self, world: World, target: str, rng: random.Random) -> None:
        self._world = world
        self._target = target
        self._name = ""
        self.details = ""

    async def begin(self) -> None:
        self._name = self.details = await self._world.find(self._target)
        self._world.down(self._name, self.number)

    async def end(self) -> None:
        if self._name:
            await self._world.revive(self._name)


class Terminate(Kill):
    """Asked to go (SIGTERM): a leader resigns, an API server sends its clients on. Started again at the end."""

    number = signal.SIGTERM


class Roll(Terminate):
    """One of a rolling restart: asked to go, and started again as soon as it has gone; over when it is ready."""

    async def begin(self) -> None:
        await super().begin()
        await self._world.revive(self._name)
        await self._world.ready(self._name)


class Freeze:
    """SIGSTOP; SIGCONT at the end. Its connections stay open, and what is sent to it waits."""

    def __init__(self, world: World, target: str, rng: random.Random) -> None:
        self._world = world
        self._target = target
        self._name = ""
        self.details = ""

    async def begin(self) -> None:
        self._name = self.details = await self._world.find(self._target)
        self._world.send(self._name, signal.SIGSTOP)

    async def end(self) -> None:
        if self._name:
            self._world.resume(self._name)


class Twin:
    """A second process with the same name, the same nodes and the same links; killed at the end."""

    def __init__(self, world: World, target: str, rng: random.Random) -> None:
        self._world = world
        self._target = target
        self._process: asyncio.subprocess.Process | None = None
        self.details = ""

    async def begin(self) -> None:
        plan = self._world.cluster.state.find(self._target).plan
        port = Ports().next()
        argv = [f"127.0.0.1:{port}" if argument == plan.http else argument for argument in plan.argv]
        if RUN_LOG in argv:
            log = Path(argv[argv.index(RUN_LOG) + 1])
            argv[argv.index(RUN_LOG) + 1] = str(log.with_name(f"twin-{port}.{log.name}"))
        with Folder(self._world.cluster.spec.data_dir).log(f"{self._target}.twin").open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *dying_with_us(argv), stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        self.details = f"pid {self._process.pid}"

    async def end(self) -> None:
        if self._process and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


class Quorum:
    """Two of three etcd members at once, killed or frozen."""

    def __init__(self, world: World, target: str, rng: random.Random) -> None:
        make = rng.choice((Kill, Freeze))
        self._parts = [make(world, f"etcd-{number}", rng) for number in rng.sample(range(3), 2)]
        self._how = make.__name__.lower()
        self.details = ""

    async def begin(self) -> None:
        for part in self._parts:
            await part.begin()
        self.details = f"{self._how} {', '.join(part.details for part in self._parts)}"

    async def end(self) -> None:
        for part in self._parts:
            await part.end()
