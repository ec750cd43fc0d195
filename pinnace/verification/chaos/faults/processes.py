"""Faults of processes and connections: killed, frozen, terminated or duplicated processes, and partitions, black holes, delays
and resets on the links of a scheduler or kubelet to the API servers, or of an API server to etcd.
"""

import asyncio
import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from pinnace.cluster.folder import ClusterFolder
from pinnace.cluster.links import Link, Mode, dying_with_parent
from pinnace.cluster.processes import PortAllocator
from pinnace.cluster.spec import ProcessPlan
from pinnace.cluster.view import probe_readiness
from pinnace.verification.chaos.cluster_under_test import ClusterUnderTest, NotPossible
from pinnace.verification.chaos.faults.base import ProcessFault

RUN_LOG = "--run-log"
HTTP = "--http"
ADDRESSES = (HTTP, "--listen")
"""Options with addresses that two processes cannot share."""
TWIN_TIMEOUT = 30.0
"""Seconds within which a second process must be ready."""
POLL = 0.1
BOTH, REQUESTS, ANSWERS = "both directions", "outgoing", "incoming"
DIRECTIONS = (BOTH, REQUESTS, ANSWERS)
SHORTEST_DELAY, LONGEST_DELAY = 0.02, 0.4


class Kill(ProcessFault):
    """kill -9. The process is restarted at the end."""

    number = signal.SIGKILL

    async def inject(self) -> None:
        self._name = self.details = await self._under_test.resolve_target(self._target)
        self._under_test.end_process(self._name, self.number)

    async def undo(self) -> None:
        if self._name:
            await self._under_test.restart_stopped_process(self._name)


class Terminate(Kill):
    """SIGTERM: a leader resigns, and an API server redirects its clients. The process is restarted at the end."""

    number = signal.SIGTERM


class RollingRestart(Terminate):
    """A step of a rolling restart: SIGTERM, and a restart as soon as the process has ended. The fault ends when it is ready."""

    async def inject(self) -> None:
        await super().inject()
        await self._under_test.restart_stopped_process(self._name)
        await self._under_test.wait_until_ready(self._name)


class Freeze(ProcessFault):
    """SIGSTOP, and SIGCONT at the end. Connections stay open, and messages to the process are queued."""

    async def inject(self) -> None:
        self._name = self.details = await self._under_test.resolve_target(self._target)
        self._under_test.send_signal(self._name, signal.SIGSTOP)

    async def undo(self) -> None:
        if self._name:
            self._under_test.resume_process(self._name)


class DuplicateProcess:
    """A second process with the same name, nodes and links. It is killed at the end. The fault has started when the second
    process is ready, which on a busy machine takes longer than the scheduled duration."""

    def __init__(self, under_test: ClusterUnderTest, target: str, rng: random.Random) -> None:
        self._under_test = under_test
        self._target = target
        self._process: asyncio.subprocess.Process | None = None
        self.details = ""

    async def inject(self) -> None:
        plan = self._under_test.cluster.state.find_process(self._target).plan
        argv = duplicate_argv(plan.argv, PortAllocator().next)
        with ClusterFolder(self._under_test.cluster.spec.data_dir).log(f"{self._target}.twin").open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *dying_with_parent(argv), stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        self.details = f"pid {self._process.pid}"
        await self._wait_until_ready(self._process, replace(plan, http=argv[argv.index(HTTP) + 1]))

    async def _wait_until_ready(self, process: asyncio.subprocess.Process, plan: ProcessPlan) -> None:
        """Wait until the process runs the nodes. Return after TWIN_TIMEOUT, because other faults may prevent this."""
        deadline = time.monotonic() + TWIN_TIMEOUT
        while process.returncode is None and await probe_readiness(plan):
            if time.monotonic() > deadline:
                return
            await asyncio.sleep(POLL)

    async def undo(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is not None:
            self._under_test.unstoppable_processes.append(
                f"a second {self._target} ended unexpectedly with exit code {process.returncode}"
            )
            return
        process.kill()
        await process.wait()


def duplicate_argv(argv: Sequence[str], port: Callable[[], int]) -> list[str]:
    """Return the command line of an identical second process, except for addresses and the run log."""
    twin = list(argv)
    for option in ADDRESSES:
        if option in twin:
            twin[twin.index(option) + 1] = f"127.0.0.1:{port()}"
    if RUN_LOG in twin:
        log = Path(twin[twin.index(RUN_LOG) + 1])
        twin[twin.index(RUN_LOG) + 1] = str(log.with_name(f"twin-{port()}.{log.name}"))
    return twin


class QuorumLoss:
    """Two of three etcd members are killed or frozen at the same time."""

    def __init__(self, under_test: ClusterUnderTest, target: str, rng: random.Random) -> None:
        make = rng.choice((Kill, Freeze))
        self._parts = [make(under_test, f"etcd-{number}", rng) for number in rng.sample(range(3), 2)]
        self._how = make.__name__.lower()
        self.details = ""

    async def inject(self) -> None:
        for part in self._parts:
            await part.inject()
        self.details = f"{self._how} {', '.join(part.details for part in self._parts)}"

    async def undo(self) -> None:
        for part in self._parts:
            await part.undo()


class _LinkFault:
    """The base class of faults on the links of a process. All links are restored at the end."""

    def __init__(self, under_test: ClusterUnderTest, target: str, rng: random.Random) -> None:
        self._under_test = under_test
        self._target = target
        self._random = rng
        self._links: list[Link] = []
        self.details = ""

    async def _find(self) -> None:
        source = await self._under_test.resolve_target(self._target)
        self._links = [link for link in self._under_test.links.all_links if link[0] == source]
        if not self._links:
            raise NotPossible(f"{source} has no links")
        self.details = source

    async def _set(self, direction: str, mode: Mode) -> None:
        requests = None if direction == ANSWERS else mode
        answers = None if direction == REQUESTS else mode
        await self._under_test.links.set(self._links, requests, answers)

    async def undo(self) -> None:
        if self._links:
            await self._under_test.links.accept(self._links)
            await self._under_test.links.set(self._links, Mode.PASS, Mode.PASS)


class Partition(_LinkFault):
    """A partition in both directions or in one. Held data is delivered at the end."""

    directions: Sequence[str] = DIRECTIONS

    async def inject(self) -> None:
        await self._find()
        direction = self._random.choice(self.directions)
        self.details += f", {direction}"
        await self._set(direction, Mode.HOLD)


class OneWayPartition(Partition):
    """The process receives messages, but its own messages are held until the end."""

    directions = (REQUESTS,)


class BlackHole(_LinkFault):
    """One connection drops requests or responses and stays open. New connections behave in the same way."""

    async def inject(self) -> None:
        await self._find()
        self._links = [self._random.choice(self._links)]
        direction = self._random.choice(DIRECTIONS)
        self.details += f" to {self._links[0][1]}, {direction}"
        await self._set(direction, Mode.LOSE)


class Slow(_LinkFault):
    """All messages are delayed in both directions."""

    async def inject(self) -> None:
        await self._find()
        delay = self._random.uniform(SHORTEST_DELAY, LONGEST_DELAY)
        self.details += f", {delay * 1000:.0f} ms"
        await self._under_test.links.set(self._links, Mode.DELAY, Mode.DELAY, delay)


class Reset(_LinkFault):
    """The connections of the process are reset, and new ones are refused until the end."""

    async def inject(self) -> None:
        await self._find()
        await self._under_test.links.refuse(self._links)
        await self._under_test.links.reset(self._links)
