"""Faults caused by clients and users: watchers that stop reading, connection storms, floods without permissions, leadership
transfers, failing plugins, pods with the maximum cost, and a second control plane on the same etcd.
"""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from grpc.aio import AioRpcError

from pinnace.api.core_v1_pb2 import Pod
from pinnace.client.client import Client
from pinnace.client.connection import Connection
from pinnace.client.errors import ApiError, Exhausted, Invalid, NotFound
from pinnace.cluster import certificates
from pinnace.cluster.folder import ClusterFolder as ClusterFolder
from pinnace.cluster.links import dying_with_parent
from pinnace.cluster.processes import PortAllocator
from pinnace.cluster.spec import ELECTION, SCHEDULER, ProcessPlan, pki_folder
from pinnace.cluster.view import probe_readiness
from pinnace.pki import Subject
from pinnace.pki import folder as certificates_folder
from pinnace.pki.folder import CertificateSpec, PkiFolder
from pinnace.runtime.tls import TlsFiles
from pinnace.verification.bench import BenchError, usage
from pinnace.verification.bench.flood import NOBODY, PROCESSES, STRANGER, FloodResult, flood_server, list_methods_by_service
from pinnace.verification.chaos.cluster_under_test import LEADER, ClusterUnderTest, NotPossible
from pinnace.verification.chaos.faults.base import MeasuringFault
from pinnace.verification.chaos.faults.environment import LittleMemory
from pinnace.verification.chaos.hostile_pods import HOSTILE
from pinnace.verification.chaos.saboteur import ACTION, ACTIONS, PROFILE, REPORT, Saboteur
from pinnace.verification.chaos.workers import HARM, build_pod

STUCK = 5
CROWD = 40
ROUNDS = 3
TOKEN_LISTEN = "--token-listen"
FLOOD_CALLS = 2_000
"""The number of concurrent calls."""
FLOOD_LIMIT = 120.0
"""Seconds after which a flood ends, in case the process that started it has died."""
FLOOD_NICE = 5
"""The niceness of flooding processes. A flood represents another machine, so it must not use the cluster's CPU time."""
ASKED_WITHIN = 15.0
"""Seconds within which a scheduler must have processed a pod."""
REMOVED_WITHIN = 30.0
"""Seconds within which pods must be deleted, including the effects of other faults on API servers."""
COUNTED_WITHIN = 8.0
"""Seconds from the call of a plugin until the scheduler counts the failure. The plugin may block for two of them."""
HOSTILE_AT_ONCE = 3
ITEMS = (9_900, 4_900, 3_300, 2_400, 1_600, 1_000, 500, 100)
"""Numbers of items of a hostile pod. The API server accepts objects with 10,000 items, including nested ones."""
REFUSED_WITHIN = 30.0
"""Seconds within which an API server of another cluster must start, read etcd, and exit."""
POLL = 0.05
_numbers = count()
_accepted: dict[str, int] = {}
"""The number of items of accepted hostile pods, by kind."""


class StuckWatchers:
    """Watchers of all pods that read the first events and then stop reading, each on its own connection."""

    def __init__(self, under_test: ClusterUnderTest, target: str, rng: random.Random) -> None:
        self._endpoint, self._tls = under_test.cluster.state.find_process(target).plan.address, under_test.cluster.tls
        self._connections: list[Connection] = []
        self._watches: list[AsyncGenerator[Any, None]] = []
        self.details = f"{STUCK} watchers"

    async def inject(self) -> None:
        for _ in range(STUCK):
            connection = Connection([self._endpoint], tls=self._tls)
            self._connections.append(connection)
            watch = Client(connection).pods.watch()
            self._watches.append(watch)
            with suppress(ApiError):
                await anext(watch)

    async def undo(self) -> None:
        for watch in self._watches:
            await watch.aclose()
        for connection in self._connections:
            await connection.close()
        self._watches, self._connections = [], []


class SchedulerLeadershipTransfer:
    """A leadership transfer to another scheduler."""

    def __init__(self, under_test: ClusterUnderTest, target: str, rng: random.Random) -> None:
        self._client = under_test.client
        self.details = ""

    async def inject(self) -> None:
        try:
            election_response = await self._client.elections.transfer_leadership(ELECTION)
        except ApiError as error:
            raise NotPossible(str(error)) from error
        self.details = f"from {election_response.before.holder} to {election_response.after.holder or 'no leader yet'}"

    async def undo(self) -> None:
        """Nothing to undo."""


class ConnectionStorm:
    """Clients that repeatedly connect, list, start a watch, and disconnect, all at the same time."""

    def __init__(self, under_test: ClusterUnderTest, target: str, rng: random.Random) -> None:
        self._endpoint, self._tls = under_test.cluster.state.find_process(target).plan.address, under_test.cluster.tls
        self._crowd: asyncio.Task[Any] | None = None
        self.details = f"{CROWD} clients, {ROUNDS} times"

    async def inject(self) -> None:
        self._crowd = asyncio.create_task(self._open_connections())
        await asyncio.wait((self._crowd,))

    async def undo(self) -> None:
        if self._crowd and not self._crowd.done():
            self._crowd.cancel()
            await asyncio.wait((self._crowd,))

    async def _open_connections(self) -> None:
        for _ in range(ROUNDS):
            await asyncio.gather(*(self._visit() for _ in range(CROWD)))

    async def _visit(self) -> None:
        connection = Connection([self._endpoint], tls=self._tls)
        client = Client(connection)
        try:
            listing = await client.pods.list(page_size=100)
            watch = client.pods.watch(resource_version=listing.resource_version)
            try:
                await anext(watch)
            finally:
                await watch.aclose()
        except ApiError:
            pass  # some calls may be refused
        finally:
            await connection.close()


class CallFloodFault(MeasuringFault):
    """A caller without permissions that keeps calls to all methods of all services open, and starts a new call when one ends.
    The caller is a user with a certificate and no role, or a client without a token on the token port. Other users receive
    responses, pods are bound, and leadership does not move."""

    def __init__(self, under_test: ClusterUnderTest, target: str, rng: random.Random, who: str = "") -> None:
        """`who`: the caller, or "" for a random one."""
        super().__init__()
        self._under_test = under_test
        self._target = target
        self._who = who or rng.choice((NOBODY, STRANGER))
        self._stack = AsyncExitStack()
        self._made: FloodResult | None = None
        self.details = ""

    async def inject(self) -> None:
        cluster = self._under_test.cluster
        plan = cluster.state.find_process(self._target).plan
        try:
            result = await list_methods_by_service(plan.address, cluster.tls)
        except (BenchError, AioRpcError) as error:
            raise NotPossible(str(error)) from error
        methods = [method for of_service in result.values() for method in of_service]
        named = [argument for method in methods for argument in ("--method", method)]
        calls = ("--calls", f"{FLOOD_CALLS // PROCESSES}")
        address, tls = self._resolve_served_files(plan)
        self._made = await self._stack.enter_async_context(
            flood_server(address, tls, lambda number: [*named, *calls], FLOOD_LIMIT, nice=FLOOD_NICE)
        )
        self.details = f"{self._target}, as {self._who}, {FLOOD_CALLS:,} calls of {len(methods)} methods"

    async def undo(self) -> None:
        made, self._made = self._made, None
        await self._stack.aclose()
        if made is not None:
            ended = made.outcomes.total() - made.outcomes["wanted"]
            self.read(self._target, "calls of the flood that were refused or answered", ended, least=FLOOD_CALLS / 4)

    def _resolve_served_files(self, plan: ProcessPlan) -> tuple[str, TlsFiles]:
        """Return the address of the flood, and its TLS files."""
        folder = pki_folder(self._under_test.cluster.spec.data_dir)
        if self._who == NOBODY:
            return plan.argv[plan.argv.index(TOKEN_LISTEN) + 1], TlsFiles(folder / "ca.crt")
        PkiFolder(folder).provide([CertificateSpec(STRANGER, Subject(STRANGER))], datetime.now(UTC))
        return plan.address, certificates.component_files(folder, STRANGER)


class _PodFault:
    """Pods that exist during the fault."""

    def __init__(self, under_test: ClusterUnderTest, target: str, rng: random.Random) -> None:
        self._under_test = under_test
        self._random = rng
        self._names: list[str] = []
        self.details = ""

    async def undo(self) -> None:
        """Delete the pods. Raises ApiError."""
        deadline = time.monotonic() + REMOVED_WITHIN
        while self._names:
            try:
                await self._under_test.client.pods.delete(self._names[-1], HARM, grace=0)
            except NotFound:
                pass
            except ApiError:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(POLL)
                continue
            self._names.pop()

    async def _create(self, made: Pod) -> None:
        """Create a pod. Raises NotPossible."""
        made.metadata.namespace, made.metadata.name = HARM, f"harm-{next(_numbers)}"
        self._names.append(made.metadata.name)
        try:
            await self._under_test.client.pods.create(made)
        except ApiError as error:
            raise NotPossible(str(error)) from error


class FailingPlugin(_PodFault, MeasuringFault):
    """A pod whose plugin harms the scheduler process each time the pod is scheduled. The fault has started when the plugin has
    been called. The scheduler must count the failures under the plugin's name, and may log them as errors."""

    deeds: Sequence[str] = ("cancel", "cancel-task", "exit", "generator-exit")
    counter = "scheduler_plugin_failures_total"
    least = 1
    """The minimum increase of the counter."""

    def __init__(self, under_test: ClusterUnderTest, target: str, rng: random.Random) -> None:
        _PodFault.__init__(self, under_test, target, rng)
        MeasuringFault.__init__(self)
        self._schedulers = under_test.cluster.state.processes_of(SCHEDULER)

    async def inject(self) -> None:
        deed = self._random.choice(self.deeds)
        assert deed in ACTIONS
        self.details = deed
        for record in self._schedulers:
            self._under_test.allow_errors(record.name, may_end=False)
        before = await self._count_plugin_calls()
        await self._ask(deed)
        deadline, counted = time.monotonic() + COUNTED_WITHIN, 0
        while counted < self.least and time.monotonic() < deadline:
            await asyncio.sleep(POLL)
            counted = await self._count_plugin_calls() - before
        self.read("schedulers", self.counter, counted, least=self.least)

    async def undo(self) -> None:
        await super().undo()
        for record in self._schedulers:
            await self._under_test.end_excuse(record.name)

    async def _count_plugin_calls(self) -> int:
        """Return the sum of the schedulers' counters for the plugin."""
        counts = []
        for record in self._schedulers:
            with suppress(BenchError):  # the scheduler is blocked or has ended
                counts.append(await usage.read_metric(record.plan.http, self.counter, plugin=Saboteur.name) or 0)
        return sum(counts)

    async def _ask(self, deed: str) -> None:
        """Create a pod, and wait until a scheduler has called the plugin. Raises NotPossible."""
        made = build_pod(HARM, "", scheduler=PROFILE)
        with TemporaryDirectory(prefix="pinnace-harm-") as folder:
            report = Path(folder, "asked")
            made.metadata.annotations.update({ACTION: deed, REPORT: str(report)})
            await self._create(made)
            deadline = time.monotonic() + ASKED_WITHIN
            while not await asyncio.to_thread(report.exists):
                if time.monotonic() > deadline:
                    raise NotPossible("no scheduler has processed the pod")
                await asyncio.sleep(POLL)


class HangingPlugin(FailingPlugin):
    """The plugin blocks for longer than a leader may be silent."""

    deeds = ("hang",)
    counter = "scheduler_plugin_stalls_total"


class LeakingPlugin(FailingPlugin):
    """The plugin allocates all memory that is available to the leading scheduler."""

    deeds = ("leak",)
    least = 0  # a process without memory may end instead

    def __init__(self, under_test: ClusterUnderTest, target: str, rng: random.Random) -> None:
        super().__init__(under_test, target, rng)
        self._memory = LittleMemory(under_test, LEADER, rng)

    async def inject(self) -> None:
        await self._memory.inject()
        await super().inject()
        self.details = self._memory.details

    async def undo(self) -> None:
        try:
            await super().undo()
        finally:
            await self._memory.undo()


class HostilePods(_PodFault):
    """Valid pods with the maximum cost. Other pods are bound, and leadership does not move."""

    def __init__(self, under_test: ClusterUnderTest, target: str, rng: random.Random, kinds: Sequence[str] = ()) -> None:
        """`kinds`: the kinds of hostile pods, or none for random kinds."""
        super().__init__(under_test, target, rng)
        self._kinds = kinds or rng.sample(sorted(HOSTILE), HOSTILE_AT_ONCE)

    async def inject(self) -> None:
        self.details = "; ".join(self._kinds)
        for kind in self._kinds:
            await self._create_largest(kind)

    async def _create_largest(self, kind: str) -> None:
        """Create the largest accepted pod of a kind. The API server limits the items of an object at any depth. The accepted
        number is determined once per kind. Raises NotPossible."""
        for items in ITEMS[ITEMS.index(_accepted.get(kind, ITEMS[0])) :]:
            made = await asyncio.to_thread(HOSTILE[kind].create_pod, "", HARM, items)
            try:
                await self._create(made)
            except NotPossible as error:
                if items == ITEMS[-1] or not isinstance(error.__cause__, Invalid | Exhausted):
                    raise
            else:
                _accepted[kind] = items
                return


class SecondControlPlane(MeasuringFault):
    """An API server of another cluster that is started on the same etcd. It must refuse to serve: it never becomes ready, and
    exits."""

    def __init__(self, under_test: ClusterUnderTest, target: str, rng: random.Random) -> None:
        super().__init__()
        self._under_test = under_test
        self._target = target
        self._process: asyncio.subprocess.Process | None = None
        self._folder: TemporaryDirectory[str] | None = None
        self._began = 0.0
        self.details = ""

    async def inject(self) -> None:
        self._began = time.time()
        plan = self._under_test.cluster.state.find_process(self._target).plan
        self._folder = TemporaryDirectory(prefix="pinnace-other-")
        pki = Path(self._folder.name)
        ports = PortAllocator()
        listen, http = f"127.0.0.1:{ports.next()}", f"127.0.0.1:{ports.next()}"
        await asyncio.to_thread(certificates.create_certificates, pki, [listen], {})
        own = certificates.component_files(pki, certificates_folder.APISERVER)
        argv = replace_options(
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
        with ClusterFolder(self._under_test.cluster.spec.data_dir).log(f"{self._target}.stranger").open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *dying_with_parent(argv), stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        self.details = f"pid {self._process.pid}"
        served = await self._became_ready(replace(plan, http=http), self._process)
        self.read(self._target, "served by another cluster's API server", float(served), most=0)
        code = self._process.returncode
        self.read(self._target, "exit code of another cluster's API server", -1.0 if code is None else code, least=1, most=1)

    async def undo(self) -> None:
        # The refusal is logged as an error. The readings show that the process refused: it did not serve, and its exit code is
        # 1.
        self._under_test.allow_log_errors(f"{self._target}.stranger", self._began)
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    async def _became_ready(self, plan: ProcessPlan, process: asyncio.subprocess.Process) -> bool:
        """Return whether the process became ready before it exited."""
        deadline = time.monotonic() + REFUSED_WITHIN
        while process.returncode is None and time.monotonic() < deadline:
            if await probe_readiness(plan) is None:
                return True
            await asyncio.sleep(POLL)
        return False


def replace_options(argv: Sequence[str], options: Mapping[str, str]) -> list[str]:
    """Return a command line with other values for existing options. Raises ValueError if an option is missing."""
    changed = list(argv)
    for option, value in options.items():
        changed[changed.index(option) + 1] = value
    return changed
