"""Row `node-loss`: a kubelet process dies with all its nodes, under Deployments, and is started again later.

    hit -> the first node NotReady -> the last -> the first old pod deleted -> the last -> all replicas run elsewhere
    back -> the last of its nodes is Ready -> the last of the old pods is gone

Times are those of arrival at the observer, on this process' monotonic clock.
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
from pinnace.bench import BenchError
from pinnace.bench.calibration import Bench
from pinnace.bench.report import Run
from pinnace.bench.usage import Meter
from pinnace.client.client import Client
from pinnace.client.errors import Conflict, Unavailable
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.spec import KUBELET, NODE_PREFIX, shares
from pinnace.cluster.startup import Progress
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock

RESUME_DELAY = 0.02


@dataclass(slots=True)
class _Pod:
    node: str = ""
    ready: bool = False
    ending: float = 0.0
    """When it was seen to be deleted, or asked to end; 0.0: never."""


@dataclass(slots=True)
class Outage:
    """The pure part: events in, moments out. `nodes`: those of the fleet that is to die; pods count when `counts` says so."""

    nodes: Collection[str]
    counts: Callable[[Pod], bool] = lambda pod: True
    unready: dict[str, float] = field(default_factory=dict)
    """Since when each of the nodes is not Ready; without those that are."""
    pods: dict[str, _Pod] = field(default_factory=dict)
    """By uid, those that are there."""
    ended: dict[str, float] = field(default_factory=dict)
    """When each pod that had been bound to one of the nodes was seen to be ending, by uid."""
    moved: list[str] = field(default_factory=list)
    """Names of the pods that were bound to another node than before: must never be."""
    fewest: int = 0
    """The least number of pods that were ready on other nodes, or on these while Ready, since `count`."""

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
            seen = self.pods.setdefault(uid, _Pod())
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
        self.fewest = min(self.fewest, self.serving)

    def count(self) -> None:
        """From now on `fewest` counts."""
        self.fewest = self.serving

    @property
    def serving(self) -> int:
        """Pods that are ready, are to stay, and whose node is."""
        return sum(seen.ready and not seen.ending and seen.node not in self.unready for seen in self.pods.values())

    @property
    def there(self) -> set[str]:
        """The uids of the pods on the nodes of the fleet."""
        return {uid for uid, seen in self.pods.items() if seen.node in self.nodes}


def is_ready(obj: Node | Pod) -> bool:
    return conditions.is_true(obj.status.conditions, "Ready")


class Observer:
    """Feeds an Outage from two watches, each resumed where it was. `run` inside a task group; raises ApiError when something
    had to be missed."""

    def __init__(self, client: Client, outage: Outage, clock: Clock = SYSTEM_CLOCK) -> None:
        self.outage = outage
        self._client = client
        self._clock = clock
        self._news = asyncio.Event()

    async def run(self) -> None:
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

    async def until(self, condition: Callable[[], bool], what: str, timeout: float) -> float:
        """When it was first seen to be true. Raises BenchError when that is not in time."""
        try:
            async with asyncio.timeout(timeout):
                while not condition():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise BenchError(f"waited {timeout:g} s in vain for {what}") from None
        return self._clock.monotonic()


STAGE_TIMEOUT = 120.0
TOLERATED = 1
"""Seconds for which the pods stay on a node that is lost (Kubernetes' default is 300)."""
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


@dataclass(frozen=True, slots=True)
class Loss:
    """Seconds after the kill, and after the restart. `lost`: pods that were on the nodes."""

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
    """Pods that served at the worst moment, of all replicas."""
    moved: int
    """Pods that were bound to a second node."""


def deployment(name: str, replicas: int) -> Deployment:
    (document,) = parse(_DEPLOYMENT.format(name=name, replicas=replicas, tolerated=TOLERATED))
    return from_dict(Deployment, document.data)


def nodes_of(cluster: Cluster, fleet: int) -> frozenset[str]:
    """The names of the nodes that a kubelet process plays."""
    first, count = shares(cluster.spec.nodes, cluster.spec.kubelets)[fleet]
    return frozenset(f"{NODE_PREFIX}{number}" for number in range(first, first + count))


@asynccontextmanager
async def observing(client: Client, outage: Outage) -> AsyncIterator[Observer]:
    """Raises what the observer raises, at the end."""
    observer = Observer(client, outage)
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(observer.run())
        yield observer
        watching.cancel()


async def deploy(client: Client, deployments: Sequence[Deployment], observer: Observer, timeout: float = STAGE_TIMEOUT) -> None:
    """Returns when all their replicas serve. Raises ApiError, BenchError."""
    replicas = sum(each.spec.replicas for each in deployments)
    for each in deployments:
        await client.of(DEPLOYMENTS).create(each)
    await observer.until(lambda: observer.outage.serving == replicas, f"{replicas:,} replicas to serve", timeout)


async def lose(cluster: Cluster, fleet: int, replicas: int, observer: Observer, progress: Progress) -> Loss:
    """Kills a kubelet process while all replicas serve, waits until they do again, and starts it again. Raises BenchError,
    ClusterError."""
    name, outage = f"{KUBELET}-{fleet}", observer.outage
    on_it, pid = outage.there, cluster.state.find(name).pid
    outage.count()
    hit = time.monotonic()
    cluster.kill(name, signal.SIGKILL)
    progress.waiting(f"{len(outage.nodes)} nodes to be NotReady")
    await observer.until(lambda: len(outage.unready) == len(outage.nodes), "the nodes to be NotReady", STAGE_TIMEOUT)
    unready = sorted(outage.unready.values())
    progress.waiting(f"{len(on_it):,} pods to run elsewhere")
    replaced = await observer.until(lambda: outage.serving == replicas, f"{replicas:,} replicas to serve again", STAGE_TIMEOUT)
    ended = sorted(outage.ended[uid] for uid in on_it if uid in outage.ended)
    progress.waiting(f"{name} to come back")
    back = time.monotonic()
    await cluster.start(name)
    ready = await observer.until(lambda: not outage.unready, "the nodes to be Ready again", STAGE_TIMEOUT)
    cleared = await observer.until(lambda: not on_it & outage.there, "the old pods to be gone", STAGE_TIMEOUT)
    return Loss(
        pid, len(outage.nodes), len(on_it),
        unready[0] - hit, unready[-1] - hit, ended[0] - hit, ended[-1] - hit, replaced - hit,
        ready - back, cleared - back, outage.fewest, len(outage.moved),
    )  # fmt: skip


async def node_loss(bench: Bench, replicas: int, deployments: int, progress: Progress) -> Run:
    """The last kubelet process dies. One sample of each stage."""
    cluster, client = bench.cluster, bench.clients[0]
    fleet = cluster.spec.kubelets - 1
    made = [deployment(f"app-{i}", count) for i, (_, count) in enumerate(shares(replicas, deployments))]
    outage = Outage(nodes_of(cluster, fleet), counts=of_a_deployment)
    async with observing(client, outage) as observer:
        progress.waiting(f"{replicas:,} replicas to serve")
        await deploy(client, made, observer)
        meter = Meter(cluster.state)
        loss = await lose(cluster, fleet, replicas, observer, progress)
        usage = meter.read()
    return Run(
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
    """Others may have the labels that a Deployment selects by, but not the one that it gives its pods."""
    return HASH_LABEL in pod.metadata.labels
