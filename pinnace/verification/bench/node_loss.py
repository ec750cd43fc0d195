"""Row `node-loss`: a kubelet process with pods of Deployments is killed and later restarted, with all of its nodes.

    killed -> first node NotReady -> last node NotReady -> first old pod deleted -> last -> all replicas run on other nodes
    restarted -> the last of its nodes is Ready -> the last of the old pods is removed

Times are those at which the observer received the event, on the monotonic clock of this process.
"""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from pinnace.api import conditions
from pinnace.api.apps_v1_pb2 import Deployment
from pinnace.api.codec import from_dict
from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.documents import parse
from pinnace.api.resources import DEPLOYMENTS, NODES, PODS, Resource, T
from pinnace.api.rollouts import HASH_LABEL
from pinnace.api.verbs_pb2 import WatchEventType
from pinnace.client.client import Client
from pinnace.client.errors import Conflict, Unavailable
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.spec import KUBELET, NODE_PREFIX, split_evenly
from pinnace.cluster.startup import StartProgress
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.verification.bench import BenchError
from pinnace.verification.bench.calibration import BenchCluster
from pinnace.verification.bench.report import BenchRun
from pinnace.verification.bench.usage import ProcessMeter

RESUME_DELAY = 0.02
STAGE_TIMEOUT = 120.0
TOLERATED = 1
"""tolerationSeconds of the pods (Kubernetes' default is 300)."""
_DEPLOYMENT = """
metadata: {{name: {name}, namespace: default}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      tolerations:
      - {{key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: {tolerated}}}
      - {{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: {tolerated}}}
      containers:
      - name: app
        image: example.com/app:1
        resources: {{requests: {{cpu: 100m, memory: 500Mi}}}}
"""


@dataclass(slots=True)
class _PodState:
    node: str = ""
    ready: bool = False
    ending: float = 0.0
    """The time at which its deletion or termination was observed, or 0.0."""


@dataclass(slots=True)
class Outage:
    """Derives times from watch events. `nodes`: the nodes of the killed fleet. `counts`: selects the pods that count."""

    nodes: Collection[str]
    counts: Callable[[Pod], bool] = lambda pod: True
    unready: dict[str, float] = field(default_factory=dict)
    """The time since when each node is not Ready. Ready nodes are omitted."""
    pods: dict[str, _PodState] = field(default_factory=dict)
    """Existing pods by uid."""
    ended: dict[str, float] = field(default_factory=dict)
    """The time at which the termination of each pod on one of the nodes was observed, by uid."""
    moved: list[str] = field(default_factory=list)
    """Names of pods whose node changed, which is a violation."""
    fewest: int = 0
    """The minimum of `serving_count` since `start_counting`."""

    def see_nodes(self, events: Iterable[tuple[WatchEventType, Node]], now: float) -> None:
        for kind, node in events:
            name = node.metadata.name
            if name not in self.nodes:
                continue
            if kind != WatchEventType.DELETED and is_ready(node):
                self.unready.pop(name, None)
            else:
                self.unready.setdefault(name, now)

    def see_pods(self, events: Iterable[tuple[WatchEventType, Pod]], now: float) -> None:
        for kind, pod in events:
            if not self.counts(pod):
                continue
            uid = pod.metadata.uid
            seen = self.pods.setdefault(uid, _PodState())
            if seen.node and pod.spec.nodeName != seen.node:
                self.moved.append(pod.metadata.name)
            seen.node = pod.spec.nodeName
            seen.ready = is_ready(pod)
            if kind == WatchEventType.DELETED or pod.metadata.HasField("deletionTimestamp"):
                seen.ending = seen.ending or now
                if seen.node in self.nodes:
                    self.ended.setdefault(uid, now)
            if kind == WatchEventType.DELETED:
                del self.pods[uid]
        self.fewest = min(self.fewest, self.serving_count)

    def start_counting(self) -> None:
        """Start to track `fewest`."""
        self.fewest = self.serving_count

    @property
    def serving_count(self) -> int:
        """The number of pods that are ready and not terminating, on nodes that are Ready."""
        return sum(seen.ready and not seen.ending and seen.node not in self.unready for seen in self.pods.values())

    @property
    def fleet_pods(self) -> set[str]:
        """The uids of the pods on the nodes of the fleet."""
        return {uid for uid, seen in self.pods.items() if seen.node in self.nodes}


def is_ready(obj: Node | Pod) -> bool:
    return conditions.is_condition_true(obj.status.conditions, "Ready")


class OutageObserver:
    """Feeds an Outage from two watches, which are resumed if they break. Call `watch_outage` in a task group. It raises
    ApiError if events were missed."""

    def __init__(self, client: Client, outage: Outage, clock: Clock = SYSTEM_CLOCK) -> None:
        self.outage = outage
        self._client = client
        self._clock = clock
        self._news = asyncio.Event()

    async def watch_outage(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch(NODES, self.outage.see_nodes))
            group.create_task(self._watch(PODS, self.outage.see_pods))

    async def _watch(self, resource: Resource[T], see: Callable[[Iterable[tuple[WatchEventType, T]], float], None]) -> None:
        client, revision = self._client.of(resource), None
        while True:
            try:
                async for batch in client.watch(resource_version=revision):
                    if batch.resource_version:
                        revision = batch.resource_version
                    if batch.events:
                        see(batch.events, self._clock.monotonic())
                        self._news.set()
            except (Unavailable, Conflict):
                await self._clock.sleep(RESUME_DELAY)

    async def wait_until(self, condition: Callable[[], bool], what: str, timeout: float) -> float:
        """Wait until the condition is true, and return the time. Raises BenchError on timeout."""
        try:
            async with asyncio.timeout(timeout):
                while not condition():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise BenchError(f"timed out after {timeout:g} s waiting for {what}") from None
        return self._clock.monotonic()


@dataclass(frozen=True, slots=True)
class NodeLossResult:
    """The result of a node loss. Times are seconds after the kill or the restart. `lost`: the number of pods on the nodes."""

    pid: int
    nodes: int
    lost: int
    first_unready: float
    all_unready: float
    first_ended: float
    all_ended: float
    replaced: float
    ready_again: float
    cleared: float
    fewest: int
    """The minimum number of serving pods."""
    moved: int
    """The number of pods that were bound to a second node."""


def build_deployment(name: str, replicas: int) -> Deployment:
    (document,) = parse(_DEPLOYMENT.format(name=name, replicas=replicas, tolerated=TOLERATED))
    return from_dict(Deployment, document.data)


def nodes_of(cluster: Cluster, fleet: int) -> frozenset[str]:
    """Return the names of the nodes that a kubelet process runs."""
    first, count = split_evenly(cluster.spec.nodes, cluster.spec.kubelets)[fleet]
    return frozenset(f"{NODE_PREFIX}{number}" for number in range(first, first + count))


@asynccontextmanager
async def observe_outage(client: Client, outage: Outage) -> AsyncIterator[OutageObserver]:
    """Run an observer during the body. Raises the observer's errors at the end."""
    observer = OutageObserver(client, outage)
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(observer.watch_outage())
        yield observer
        watching.cancel()


async def create_deployments(
    client: Client, deployments: Sequence[Deployment], observer: OutageObserver, timeout: float = STAGE_TIMEOUT
) -> None:
    """Create Deployments, and wait until all of their replicas serve. Raises ApiError, BenchError."""
    replicas = sum(item.spec.replicas for item in deployments)
    for item in deployments:
        await client.of(DEPLOYMENTS).create(item)
    await observer.wait_until(lambda: observer.outage.serving_count == replicas, f"{replicas:,} replicas to serve", timeout)


async def kill_fleet(
    cluster: Cluster, fleet: int, replicas: int, observer: OutageObserver, progress: StartProgress
) -> NodeLossResult:
    """Kill a kubelet process, wait until all replicas serve again, and restart it. Raises BenchError, ClusterError."""
    name, outage = f"{KUBELET}-{fleet}", observer.outage
    on_it, pid = outage.fleet_pods, cluster.state.find_process(name).pid
    outage.start_counting()
    hit = time.monotonic()
    cluster.kill(name, signal.SIGKILL)
    progress.waiting(f"{len(outage.nodes)} nodes to be NotReady")
    await observer.wait_until(lambda: len(outage.unready) == len(outage.nodes), "the nodes to be NotReady", STAGE_TIMEOUT)
    unready = sorted(outage.unready.values())
    progress.waiting(f"{len(on_it):,} pods to run elsewhere")
    replaced = await observer.wait_until(
        lambda: outage.serving_count == replicas, f"{replicas:,} replicas to serve again", STAGE_TIMEOUT
    )
    ended = sorted(outage.ended[uid] for uid in on_it if uid in outage.ended)
    progress.waiting(f"{name} to come back")
    back = time.monotonic()
    await cluster.start(name)
    ready = await observer.wait_until(lambda: not outage.unready, "the nodes to be Ready again", STAGE_TIMEOUT)
    cleared = await observer.wait_until(lambda: not on_it & outage.fleet_pods, "the old pods to be gone", STAGE_TIMEOUT)
    return NodeLossResult(
        pid, len(outage.nodes), len(on_it),
        unready[0] - hit, unready[-1] - hit, ended[0] - hit, ended[-1] - hit, replaced - hit,
        ready - back, cleared - back, outage.fewest, len(outage.moved),
    )  # fmt: skip


async def measure_node_loss(bench: BenchCluster, replicas: int, deployments: int, progress: StartProgress) -> BenchRun:
    """Kill the last kubelet process, and return one sample of each stage."""
    cluster, client = bench.cluster, bench.clients[0]
    fleet = cluster.spec.kubelets - 1
    made = [build_deployment(f"app-{i}", count) for i, (_, count) in enumerate(split_evenly(replicas, deployments))]
    outage = Outage(nodes_of(cluster, fleet), counts=of_a_deployment)
    async with observe_outage(client, outage) as observer:
        progress.waiting(f"{replicas:,} replicas to serve")
        await create_deployments(client, made, observer)
        meter = ProcessMeter(cluster.state)
        loss = await kill_fleet(cluster, fleet, replicas, observer, progress)
        usage = meter.read_usage()
    return BenchRun(
        bench.calibration,
        usage,
        samples={
            "first node NotReady": [loss.first_unready],
            "all nodes NotReady": [loss.all_unready],
            "first pod evicted": [loss.first_ended],
            "all pods evicted": [loss.all_ended],
            "all replicas serve again": [loss.replaced],
            "nodes Ready again, after the restart": [loss.ready_again],
            "old pods gone, after the restart": [loss.cleared],
        },
        items=loss.lost,
        violations={
            "bound_twice": loss.moved,
            "missing_beyond_the_lost": max(0, replicas - loss.lost - loss.fewest),
        },
        counts={"lost_pods": loss.lost, "lost_nodes": loss.nodes},
    )


def of_a_deployment(pod: Pod) -> bool:
    """Return whether a Deployment created the pod: other pods can match its selector, but do not have the hash label."""
    return HASH_LABEL in pod.metadata.labels
