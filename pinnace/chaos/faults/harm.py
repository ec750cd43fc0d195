"""What users can do to a cluster: pods whose plugin fails, pods that cost as much as a pod can, and another control plane on
the same etcd."""

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from pinnace.api.core_v1_pb2 import Pod
from pinnace.bench import metrics
from pinnace.bench.errors import BenchError
from pinnace.chaos.faults.base import Measuring
from pinnace.chaos.faults.limits import LittleMemory
from pinnace.chaos.hostile_pods import HOSTILE
from pinnace.chaos.saboteur import DEED, DEEDS, PROFILE, REPORT, Saboteur
from pinnace.chaos.workers import HARM, pod
from pinnace.chaos.world import LEADER, NotPossible, World
from pinnace.client.errors import ApiError, Exhausted, Invalid, NotFound
from pinnace.cluster import certificates
from pinnace.cluster.folder import Folder
from pinnace.cluster.helper import dying_with_us
from pinnace.cluster.ports import Ports
from pinnace.cluster.ready import problem
from pinnace.cluster.spec import SCHEDULER, Plan
from pinnace.pki import folder as certificates_folder

ASKED_WITHIN = 15.0
"""Seconds until a scheduler has decided about a pod, or has tried to."""
REMOVED_WITHIN = 30.0
"""Seconds in which pods are removed, whatever other faults do to the API servers meanwhile."""
COUNTED_WITHIN = 8.0
"""Seconds from when a plugin is asked until the scheduler counts what it did: two of them it may hang."""
HOSTILE_AT_ONCE = 3
ITEMS = (9_900, 4_900, 3_300, 2_400, 1_600, 1_000, 500, 100)
"""Items of a hostile pod. The API server takes objects with 10,000 items, each with the parts of its own."""
REFUSED_WITHIN = 30.0
"""Seconds for an API server of another cluster to start, to look into etcd, and to end."""
POLL = 0.05
_numbers = count()
_accepted: dict[str, int] = {}
"""Items of a hostile pod that is accepted, by kind."""


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


class FailingPlugin(_Pods, Measuring):
    """A pod whose plugin does harm in the process that decides about it, each time that it does. It has begun when the plugin
    has been asked. The scheduler must count that, by the plugin's name; it may log it as an error."""

    deeds: Sequence[str] = ("cancel", "cancel-task", "exit", "generator-exit")
    counter = "scheduler_plugin_failures_total"
    least = 1
    """Of what is counted."""

    def __init__(self, world: World, target: str, rng: random.Random) -> None:
        _Pods.__init__(self, world, target, rng)
        Measuring.__init__(self)
        self._schedulers = world.cluster.state.of(SCHEDULER)

    async def begin(self) -> None:
        deed = self._random.choice(self.deeds)
        assert deed in DEEDS
        self.details = deed
        for record in self._schedulers:
            self._world.excuse(record.name, may_end=False)
        before = await self._counted()
        await self._ask(deed)
        deadline, counted = time.monotonic() + COUNTED_WITHIN, 0
        while counted < self.least and time.monotonic() < deadline:
            await asyncio.sleep(POLL)
            counted = await self._counted() - before
        self.read("schedulers", self.counter, counted, least=self.least)

    async def end(self) -> None:
        await super().end()
        for record in self._schedulers:
            await self._world.recover(record.name)

    async def _counted(self) -> int:
        """What the schedulers count of the plugin, all together."""
        counts = []
        for record in self._schedulers:
            with suppress(BenchError):  # it hangs, or ends
                counts.append(await metrics.read(record.plan.http, self.counter, plugin=Saboteur.name) or 0)
        return sum(counts)

    async def _ask(self, deed: str) -> None:
        """Returns when a scheduler has asked the plugin. Raises NotPossible."""
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
    counter = "scheduler_plugin_stalls_total"


class LeakingPlugin(FailingPlugin):
    """The plugin takes all the memory that the leading scheduler may have, and keeps it."""

    deeds = ("leak",)
    least = 0  # a process that has no memory left may end instead

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


class HostilePods(_Pods):
    """Pods that are valid and as costly as an object can be. Others are bound, and leadership stays where it is."""

    def __init__(self, world: World, target: str, rng: random.Random, kinds: Sequence[str] = ()) -> None:
        """`kinds`: of hostile pods; none: some, by chance."""
        super().__init__(world, target, rng)
        self._kinds = kinds or rng.sample(sorted(HOSTILE), HOSTILE_AT_ONCE)

    async def begin(self) -> None:
        self.details = "; ".join(self._kinds)
        for kind in self._kinds:
            await self._create_largest(kind)

    async def _create_largest(self, kind: str) -> None:
        """The API server counts the items of an object at any depth. How many it accepts is tried once for each kind. Raises
        NotPossible."""
        for items in ITEMS[ITEMS.index(_accepted.get(kind, ITEMS[0])) :]:
            made = await asyncio.to_thread(HOSTILE[kind].pod, "", HARM, items)
            try:
                await self._create(made)
            except NotPossible as error:
                if items == ITEMS[-1] or not isinstance(error.__cause__, Invalid | Exhausted):
                    raise
            else:
                _accepted[kind] = items
                return


class SecondControlPlane(Measuring):
    """An API server of another cluster is started on the same etcd. It must refuse: it never is ready, and ends by itself."""

    def __init__(self, world: World, target: str, rng: random.Random) -> None:
        super().__init__()
        self._world = world
        self._target = target
        self._process: asyncio.subprocess.Process | None = None
        self._folder: TemporaryDirectory[str] | None = None
        self._began = 0.0
        self.details = ""

    async def begin(self) -> None:
        self._began = time.time()
        plan = self._world.cluster.state.find(self._target).plan
        self._folder = TemporaryDirectory(prefix="pinnace-other-")
        pki = Path(self._folder.name)
        ports = Ports()
        listen, http = f"127.0.0.1:{ports.next()}", f"127.0.0.1:{ports.next()}"
        await asyncio.to_thread(certificates.provide, pki, [listen], {})
        own = certificates.files(pki, certificates_folder.APISERVER)
        argv = replaced(
            plan.argv,
            {
                "--name": "stranger",
                "--listen": listen,
                **({"--token-listen": f"127.0.0.1:{ports.next()}"} if "--token-listen" in plan.argv else {}),
                "--http": http,
                "--tls-cert-file": f"{own.cert}",
                "--tls-private-key-file": f"{own.key}",
                "--client-ca-file": f"{own.ca}",
            },
        )
        with Folder(self._world.cluster.spec.data_dir).log(f"{self._target}.stranger").open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *dying_with_us(argv), stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        self.details = f"pid {self._process.pid}"
        served = await self._watched(replace(plan, http=http), self._process)
        self.read(self._target, "served by another cluster's API server", float(served), most=0)
        code = self._process.returncode
        self.read(self._target, "exit code of another cluster's API server", -1.0 if code is None else code, least=1, most=1)

    async def end(self) -> None:
        # It logs its refusal as an error, as it must. Whether it refused is judged by its exit code, and by whether it served.
        self._world.excuse_log(f"{self._target}.stranger", self._began)
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    async def _watched(self, plan: Plan, process: asyncio.subprocess.Process) -> bool:
        """Whether it was ready before it ended."""
        deadline = time.monotonic() + REFUSED_WITHIN
        while process.returncode is None and time.monotonic() < deadline:
            if await problem(plan) is None:
                return True
            await asyncio.sleep(POLL)
        return False


def replaced(argv: Sequence[str], options: Mapping[str, str]) -> list[str]:
    """A command line with other values for options that it has. Raises ValueError when it has none of that name."""
    changed = list(argv)
    for option, value in options.items():
        changed[changed.index(option) + 1] = value
    return changed
