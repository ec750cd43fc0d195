"""Rows `throughput` and `create`: pods from create to Running, and creates only. Row `backlog`: scheduling of a workload that
is already waiting.

For `backlog`, the schedulers run as hot standbys with all pods in their queues, while the benchmark leads the election. When it
resigns, a scheduler is elected and starts with the full queue. This measures scheduling without the start of a process.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from itertools import cycle
from typing import TypeVar

from pinnace.api.core_v1_pb2 import Namespace, Node
from pinnace.api.resources import CSI_NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, Resource, T
from pinnace.api.scheduling_v1_pb2 import PriorityClass
from pinnace.api.wellknown import ZONE_LABEL
from pinnace.client.channel import Caller
from pinnace.client.client import Client
from pinnace.client.election import LeaderElector
from pinnace.cluster import processes
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.spec import ELECTION, KUBELET, SCHEDULER
from pinnace.cluster.startup import StartProgress
from pinnace.verification.bench import BenchError, workloads
from pinnace.verification.bench.calibration import BenchCluster
from pinnace.verification.bench.load import CALLERS, CreatedPods, count_lost_pods, cpu_of
from pinnace.verification.bench.report import BenchRun
from pinnace.verification.bench.usage import ProcessMeter, StageMeter
from pinnace.verification.bench.witness import BOUND, RUNNING, PodHistory, PodWitness, watch_pods
from pinnace.verification.bench.workloads import (
    BEFORE,
    MEASURED,
    PRIORITY,
    PRIORITY_CLASS,
    PodGroup,
    Workload,
    run_in_background,
)

RUN_TIMEOUT = 300.0
"""Seconds before a run times out."""
BATCH = 500
HOLDER = "bench"
ELECTION_TIMEOUT = 10.0
QUIET_INTERVAL, QUIET_CPU, QUIET_TIMEOUT = 0.25, 0.03, 120.0
"""In seconds. A scheduler has processed all events if it uses at most QUIET_CPU of CPU time in an interval."""
Item = TypeVar("Item")


async def measure_throughput(bench: BenchCluster, pods: int, batch: int) -> BenchRun:
    """Measure from the first create to the last pod that is observed Running. Pods are created and scheduled concurrently."""
    load = CreatedPods()
    async with bench.cluster.client() as client, watch_pods(client) as witness:
        meter = ProcessMeter(bench.cluster.state)
        await load.create_pods(bench.clients, pods, batch=batch)
        await witness.wait_for_stage(RUNNING, pods, RUN_TIMEOUT)
        usage = meter.read_usage()
    history = witness.history
    seen = list(history.pods.values())
    return BenchRun(
        bench.calibration,
        usage,
        samples={
            "created": load.latencies,
            BOUND: [pod.bound - load.sent[pod.name] for pod in seen],
            RUNNING: [pod.running - load.sent[pod.name] for pod in seen],
        },
        items=pods,
        rate=pods / (max(pod.running for pod in seen) - load.began_at),
        violations=history.count_violations(load.uids),
    )


async def measure_creates(bench: BenchCluster, pods: int, batch: int) -> BenchRun:
    """Measure from the first create to the last acknowledgement, without scheduling. The pods are read back after the
    measurement."""
    load = CreatedPods()
    stages = await StageMeter.start_stage_meter(bench.cluster.state)
    meter = ProcessMeter(bench.cluster.state)
    await load.create_pods(bench.clients, pods, batch=batch)
    usage = meter.read_usage()
    stage_cpu = await stages.read_stage_cpu()
    elapsed = max(load.acknowledged.values()) - load.began_at
    return BenchRun(
        bench.calibration,
        usage,
        {"created": load.latencies},
        items=pods,
        rate=pods / elapsed,
        violations={"lost": await count_lost_pods(bench.clients[0], load.acknowledged)},
        stage_cpu=stage_cpu,
    )


@dataclass(frozen=True, slots=True)
class PreparedWorkload:
    """A prepared workload. The pods of `measured` have not been created. `zones`: the zone of each node."""

    placed: CreatedPods
    measured: CreatedPods
    zones: dict[str, str]


async def prepare_workload(
    bench: BenchCluster, workload: Workload, pods: int, witness: PodWitness, progress: StartProgress
) -> PreparedWorkload:
    """Prepare the cluster, and wait until the existing pods are Running. Raises BenchError, ApiError."""
    client = bench.clients[0]
    await common_objects(bench.clients)
    names = [node.metadata.name for node in (await client.nodes.list()).items]
    zones = dict(zip(names, cycle(workload.zones), strict=False)) if workload.zones else {}
    if zones:
        progress.waiting("the zones of the nodes")
        await set_zone_labels(client, zones)
    if workload.volumes:
        await create_all(client, CSI_NODES, [workloads.build_csi_node(name) for name in names])
    placed = await _create_pod_group(bench, workload, workload.placed, len(names), "before-", progress)
    await witness.wait_for_stage(RUNNING, len(placed.uids), RUN_TIMEOUT)
    await _create_pod_group(bench, workload, workload.waiting, len(names), "waiting-", progress)
    measured = CreatedPods(shape=workload.measured.shape, namespace=MEASURED)
    if workload.volumes:
        await bound_claims(client, measured, pods)
    return PreparedWorkload(placed, measured, zones)


async def common_objects(clients: Sequence[Client]) -> None:
    """Create the namespaces and the priority class, and make sure that all API servers have them in their caches."""
    for name in (BEFORE, MEASURED):
        namespace = Namespace()
        namespace.metadata.name = name
        await clients[0].namespaces.create(namespace)
    high = PriorityClass(value=PRIORITY)
    high.metadata.name = PRIORITY_CLASS
    await clients[0].priority_classes.create(high)
    for client in clients:  # a list includes all acknowledged writes
        await client.namespaces.list()
        await client.priority_classes.list()


async def _create_pod_group(
    bench: BenchCluster, workload: Workload, group: PodGroup, nodes: int, prefix: str, progress: StartProgress
) -> CreatedPods:
    load, count = CreatedPods(prefix, group.shape, BEFORE), workload.scaled(group.count, nodes)
    if count:
        progress.waiting(f"{count:,} existing pods")
        if workload.volumes:
            await bound_claims(bench.clients[0], load, count)
        await load.create_pods(bench.clients, count, batch=BATCH)
    return load


async def bound_claims(client: Client, load: CreatedPods, count: int) -> None:
    """Create volumes and bound claims for the first `count` pods of a load."""
    names = [load.name(number) for number in range(count)]
    await create_all(client, PERSISTENT_VOLUMES, [workloads.build_volume(name, load.namespace) for name in names])
    await create_all(client, PERSISTENT_VOLUME_CLAIMS, [workloads.build_claim(name, load.namespace) for name in names])


async def create_all(client: Client, resource: Resource[T], objs: Iterable[T]) -> None:
    """Create objects with single calls, because few resources support batches."""
    await call_for_all(objs, client.of(resource).create)


async def set_zone_labels(client: Client, zones: Mapping[str, str]) -> None:
    """Set the zone labels of the nodes."""

    async def give(name: str) -> None:
        def change(node: Node) -> None:
            node.metadata.labels[ZONE_LABEL] = zones[name]

        await client.nodes.modify(name, "", change)

    await call_for_all(zones, give)


async def call_for_all(items: Iterable[Item], call: Callable[[Item], Awaitable[object]]) -> None:
    """Call a function for all items with limited concurrency. Raises the errors of the calls."""
    rest = iter(items)

    async def work() -> None:
        for item in rest:  # shared between the callers
            await call(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(CALLERS):
            group.create_task(work())


async def measure_backlog(
    bench: BenchCluster, workload: Workload, pods: int, progress: StartProgress, *, bound_only: bool = False
) -> BenchRun:
    """Measure from the resignation of the benchmark to the last observed bind. `bound_only`: the kubelets are stopped."""
    cluster = bench.cluster
    async with cluster.client() as client, watch_pods(client) as witness:
        setting = await prepare_workload(bench, workload, pods, witness, progress)
        if bound_only:
            await processes.stop_processes(cluster.state.processes_of(KUBELET))  # without controllers, the nodes stay Ready
        await wait_for_idle_schedulers(cluster)
        progress.waiting("the schedulers to take in the backlog")
        async with run_without_leader(cluster, client) as caretaker:
            await setting.measured.create_pods(bench.clients, pods, batch=BATCH)
            caretaker.check_still_leads()
            await wait_for_idle_schedulers(cluster)
            progress.waiting("the backlog to be scheduled")
            meter = ProcessMeter(cluster.state)
            async with run_in_background(workload.churn(client, setting.placed)) if workload.churn else nullcontext():
                caretaker.check_still_leads()
                let_go = time.monotonic()
                resigning = asyncio.ensure_future(caretaker.candidate.release())
                await witness.wait_for_stage(BOUND, len(setting.placed.uids) + pods, RUN_TIMEOUT)
                usage = meter.read_usage()
            await resigning
    history = witness.history
    binds = [history.pods[uid].bound - let_go for uid in setting.measured.uids]
    return BenchRun(
        bench.calibration,
        usage,
        samples={BOUND: binds, "first bind": [min(binds)]},
        items=pods,
        rate=pods / max(binds),
        violations=count_violations(history, workload, setting),
    )


def count_violations(history: PodHistory, workload: Workload, setting: PreparedWorkload) -> dict[str, int]:
    """Return the number of violations by name; see witness.py and workloads.py."""
    placed, measured = set(setting.placed.uids), set(setting.measured.uids)
    loads = ((placed, cpu_of(workload.placed.shape)), (measured, cpu_of(workload.measured.shape)))
    return history.count_violations(placed | measured) | {
        "overcommitted": workloads.count_overcommitted_nodes(
            (node, cpu) for uids, cpu in loads for node in history.nodes_of(uids)
        ),
        "misplaced": workload.misplaced(history.nodes_of(workload.constrained_pods(placed, measured)), setting.zones),
        "wrongly_bound": sum(bool(seen.bound) for uid, seen in history.pods.items() if uid not in placed | measured),
    }


class PlaceholderLeader:
    """Leads the election without scheduling, until its candidate resigns."""

    def __init__(self, connection: Caller) -> None:
        self.elected = asyncio.Event()
        self.candidate = LeaderElector(
            connection, ELECTION, HOLDER, on_elected=lambda token: self.elected.set(), on_lost=self._record_loss
        )
        self._lost = ""

    def check_still_leads(self) -> None:
        """Raise BenchError if leadership was lost since the election, because a scheduler may have started."""
        if self._lost or self.candidate.token is None:
            why = self._lost or "its heartbeats were late"
            raise BenchError(
                f"the benchmark lost the election before the measurement, so a scheduler may have started early ({why}); "
                "try again with fewer pods or on a machine with less load"
            )

    def _record_loss(self, reason: str) -> None:
        self._lost = self._lost or reason


@asynccontextmanager
async def run_without_leader(cluster: Cluster, client: Client) -> AsyncIterator[PlaceholderLeader]:
    """Run all schedulers as standbys while the benchmark leads. Raises BenchError."""
    schedulers = [record.name for record in cluster.state.processes_of(SCHEDULER)]
    await processes.stop_processes(cluster.state.processes_of(SCHEDULER))
    caretaker = PlaceholderLeader(client.connection)
    campaigning = asyncio.create_task(caretaker.candidate.run())
    try:
        try:
            async with asyncio.timeout(ELECTION_TIMEOUT):
                await caretaker.elected.wait()
        except TimeoutError:
            raise BenchError(f"the benchmark was not elected within {ELECTION_TIMEOUT:g} s after the schedulers' end") from None
        await asyncio.gather(*map(cluster.start, schedulers))
        yield caretaker
    finally:
        campaigning.cancel()
        with suppress(asyncio.CancelledError):
            await campaigning


async def wait_for_idle_schedulers(cluster: Cluster) -> None:
    """Wait until the schedulers are idle. Raises BenchError."""
    deadline = time.monotonic() + QUIET_TIMEOUT
    names = {record.name for record in cluster.state.processes_of(SCHEDULER)}
    while time.monotonic() < deadline:
        meter = ProcessMeter(cluster.state)
        await asyncio.sleep(QUIET_INTERVAL)
        if all(usage.cpu_s <= QUIET_CPU for name, usage in meter.read_usage().items() if name in names):
            return
    raise BenchError(f"timed out after {QUIET_TIMEOUT:g} s waiting for idle schedulers")
