"""Row `scale`: a cluster at the scalability limits of Kubernetes, first idle and then during a rolling update."""

import asyncio
import time

from pinnace.api.apps_v1_pb2 import Deployment
from pinnace.api.resources import DEPLOYMENTS, PODS
from pinnace.client.client import Client
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.spec import KUBELET
from pinnace.cluster.startup import StartProgress
from pinnace.verification.bench import BenchError, usage
from pinnace.verification.bench.calibration import BenchCluster
from pinnace.verification.bench.load import CreatedPods
from pinnace.verification.bench.node_loss import build_deployment
from pinnace.verification.bench.report import BenchRun
from pinnace.verification.bench.usage import ProcessMeter

FILL_TIMEOUT = 900.0
POLL = 0.5
FILLING_POLL = 2.0
BATCH = 250
CALLERS = 4
"""The number of concurrent callers. It is low because the fill is not measured, and more callers would occupy two
processors."""
SETTLING = 10.0
"""Seconds until the effects of the fill have ended: events, bookmarks, garbage collection."""
APP = "rolling"
UNAVAILABLE = 0.25
"""The default maxUnavailable of a Deployment."""


async def measure_scale(bench: BenchCluster, pods: int, replicas: int, rest: float, progress: StartProgress) -> BenchRun:
    """Fill the cluster with pods, `replicas` of them in one Deployment. Measure the usage of the idle cluster for `rest`
    seconds. Then update the template of the Deployment."""
    client, load = bench.clients[0], CreatedPods()
    began = time.monotonic()
    await client.of(DEPLOYMENTS).create(build_deployment(APP, replicas))
    progress.waiting(f"{pods:,} pods to run")
    await load.create_pods(bench.clients, pods - replicas, batch=BATCH, callers=CALLERS)
    await _wait_for_running_pods(bench.cluster, client, pods, replicas)
    filled = time.monotonic() - began
    progress.waiting(f"{rest:g} s at rest")
    await asyncio.sleep(SETTLING)
    revision, meter = await _get_etcd_revision(client), ProcessMeter(bench.cluster.state)
    await asyncio.sleep(rest)
    usage, written = meter.read_usage(), await _get_etcd_revision(client) - revision
    progress.waiting(f"{replicas:,} replicas to have another template")
    began = time.monotonic()
    fewest = await _roll_deployment(client, replicas)
    return BenchRun(
        bench.calibration,
        usage,
        samples={"filled": [filled], "rolled": [time.monotonic() - began]},
        items=pods,
        violations={"missing_beyond_the_budget": max(0, round(replicas * (1 - UNAVAILABLE)) - fewest)},
        counts={"seconds_at_rest": round(rest), "revisions_of_etcd_at_rest": written, "fewest_available": fewest},
    )


async def _wait_for_running_pods(cluster: Cluster, client: Client, pods: int, replicas: int) -> None:
    """Wait for this number of Running pods, by a metric of the kubelets. Raises BenchError."""
    kubelets = [record.plan.http for record in cluster.state.processes if record.plan.component == KUBELET]
    deadline = time.monotonic() + FILL_TIMEOUT
    while True:
        running = sum([await usage.read_metric(http, "kubelet_running_pods") or 0 for http in kubelets])
        ready = (await client.of(DEPLOYMENTS).get(APP, "default")).status.readyReplicas
        if running >= pods and ready >= replicas:
            return
        if time.monotonic() > deadline:
            raise BenchError(f"{running:,} of {pods:,} pods are running and {ready:,} replicas ready after {FILL_TIMEOUT:g} s")
        await asyncio.sleep(FILLING_POLL)


async def _get_etcd_revision(client: Client) -> int:
    """Return the current revision of etcd."""
    return (await client.of(PODS).list("kube-system")).resource_version


async def _roll_deployment(client: Client, replicas: int) -> int:
    """Update the image of the Deployment, and wait until all pods are replaced. Return the minimum of availableReplicas. Raises
    BenchError."""

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
            raise BenchError(f"only {status.updatedReplicas:,} of {replicas:,} replicas are updated after {FILL_TIMEOUT:g} s")
        await asyncio.sleep(POLL)
