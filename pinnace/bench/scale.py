"""Row `scale`: a cluster of the size of Kubernetes' limits, at rest, and then under a rolling update."""

import asyncio
import time

from pinnace.api.apps_v1_pb2 import Deployment
from pinnace.api.resources import DEPLOYMENTS, PODS
from pinnace.bench import BenchError, usage
from pinnace.bench.calibration import Bench
from pinnace.bench.load import Load
from pinnace.bench.node_loss import deployment
from pinnace.bench.report import Run
from pinnace.bench.usage import Meter
from pinnace.client.client import Client
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.spec import KUBELET
from pinnace.cluster.startup import Progress

FILL_TIMEOUT = 900.0
POLL = 0.5
FILLING_POLL = 2.0
BATCH = 250
CALLERS = 4
"""It is the full cluster that is measured, not how it fills: more callers keep two processors from everything else."""
SETTLING = 10.0
"""Seconds until what the filling has left behind is done: events, bookmarks, garbage."""
APP = "rolling"
UNAVAILABLE = 0.25
"""Of its replicas a Deployment may miss while it rolls: the default."""


async def scale(bench: Bench, pods: int, replicas: int, rest: float, progress: Progress) -> Run:
    """Fills the cluster with pods, `replicas` of them of one Deployment; looks at it for `rest` seconds in which nothing
    happens; then gives the Deployment another template. Usage is that at rest."""
    client, load = bench.clients[0], Load()
    began = time.monotonic()
    await client.of(DEPLOYMENTS).create(deployment(APP, replicas))
    progress.waiting(f"{pods:,} pods to run")
    await load.create(bench.clients, pods - replicas, batch=BATCH, callers=CALLERS)
    await _running(bench.cluster, client, pods, replicas)
    filled = time.monotonic() - began
    progress.waiting(f"{rest:g} s at rest")
    await asyncio.sleep(SETTLING)
    revision, meter = await _revision(client), Meter(bench.cluster.state)
    await asyncio.sleep(rest)
    usage, written = meter.read(), await _revision(client) - revision
    progress.waiting(f"{replicas:,} replicas to have another template")
    began = time.monotonic()
    fewest = await _roll(client, replicas)
    return Run(
        bench.calibration,
        usage,
        samples={"filled": [filled], "rolled": [time.monotonic() - began]},
        items=pods,
        violations={"missing_beyond_the_budget": max(0, round(replicas * (1 - UNAVAILABLE)) - fewest)},
        counts={"seconds_at_rest": round(rest), "revisions_of_etcd_at_rest": written, "fewest_available": fewest},
    )


async def _running(cluster: Cluster, client: Client, pods: int, replicas: int) -> None:
    """Waits for so many Running pods: the kubelets are asked, for whom it is one number. Raises BenchError."""
    kubelets = [record.plan.http for record in cluster.state.processes if record.plan.component == KUBELET]
    deadline = time.monotonic() + FILL_TIMEOUT
    while True:
        running = sum([await usage.read_metric(http, "kubelet_running_pods") or 0 for http in kubelets])
        ready = (await client.of(DEPLOYMENTS).get(APP, "default")).status.readyReplicas
        if running >= pods and ready >= replicas:
            return
        if time.monotonic() > deadline:
            raise BenchError(f"{running:,} of {pods:,} pods run, {ready:,} replicas are ready after {FILL_TIMEOUT:g} s")
        await asyncio.sleep(FILLING_POLL)


async def _revision(client: Client) -> int:
    """Of etcd, now."""
    return (await client.of(PODS).list("kube-system")).resource_version


async def _roll(client: Client, replicas: int) -> int:
    """Gives the Deployment another image, and waits until all its pods have it; the fewest that were available meanwhile.
    Raises BenchError."""

    def change(obj: Deployment) -> None:
        obj.spec.template.spec.containers[0].image = "example.com/app:2"

    changed = await client.of(DEPLOYMENTS).modify(APP, "default", change)
    deadline, fewest = time.monotonic() + FILL_TIMEOUT, replicas
    while True:
        status = (await client.of(DEPLOYMENTS).get(APP, "default")).status
        fewest = min(fewest, status.availableReplicas)
        if (
            status.observedGeneration >= changed.metadata.generation
            and status.updatedReplicas == status.availableReplicas == status.replicas == replicas
        ):
            return fewest
        if time.monotonic() > deadline:
            raise BenchError(f"{status.updatedReplicas:,} of {replicas:,} replicas are updated after {FILL_TIMEOUT:g} s")
        await asyncio.sleep(POLL)
