"""Row `node-loss`: a kubelet process dies with all its nodes, under Deployments, and comes back later."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from pinnace.api.apps_v1_pb2 import Deployment
from pinnace.api.codec import from_dict
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.documents import parse
from pinnace.api.resources import DEPLOYMENTS
from pinnace.api.rollouts import HASH_LABEL
from pinnace.bench.calibration import Bench
from pinnace.bench.outage import Observer, Outage
from pinnace.bench.report import Run
from pinnace.bench.usage import Meter
from pinnace.client.client import Client
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.progress import Progress
from pinnace.cluster.spec import KUBELET, NODE_PREFIX, shares

PATIENCE = 120.0
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


async def deploy(client: Client, deployments: Sequence[Deployment], observer: Observer, timeout: float = PATIENCE) -> None:
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
    await observer.until(lambda: len(outage.unready) == len(outage.nodes), "the nodes to be NotReady", PATIENCE)
    unready = sorted(outage.unready.values())
    progress.waiting(f"{len(on_it):,} pods to run elsewhere")
    replaced = await observer.until(lambda: outage.serving == replicas, f"{replicas:,} replicas to serve again", PATIENCE)
    ended = sorted(outage.ended[uid] for uid in on_it if uid in outage.ended)
    progress.waiting(f"{name} to come back")
    back = time.monotonic()
    await cluster.start(name)
    ready = await observer.until(lambda: not outage.unready, "the nodes to be Ready again", PATIENCE)
    cleared = await observer.until(lambda: not on_it & outage.there, "the old pods to be gone", PATIENCE)
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
