"""Autoscaling on real processes: load that an annotation sets, and the replicas that follow."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from pinnace.api.autoscaling import cpu_metric
from pinnace.api.autoscaling_v2_pb2 import HorizontalPodAutoscaler
from pinnace.api.codec import from_dict
from pinnace.api.resources import DEPLOYMENTS, HORIZONTAL_POD_AUTOSCALERS, PODS
from pinnace.client.client import Client
from pinnace.controllers.horizontalpodautoscaler import ABLE_TO_SCALE, SCALING_ACTIVE
from tests.integration.conftest import Start
from tests.integration.processes import Component

PATIENCE = 20.0
USAGE = "pinnace.io/cpu-usage"


@pytest.fixture(autouse=True)
async def cluster(apiserver: Component, start: Start) -> AsyncIterator[None]:
    server = ("--server", apiserver.address)
    periods = ("--horizontal-pod-autoscaler-sync-period", "0.3", "--horizontal-pod-autoscaler-downscale-stabilization", "1")
    parts = [start("controllers", "controllers-0", *server, *periods), start("scheduler", "scheduler-0", *server)]
    parts.append(start("kubelet", "fleet", *server, "--nodes", "1", "--node-prefix", "node-", "--listen", "127.0.0.1:0"))
    await asyncio.gather(*(part.ready() for part in parts))
    yield


async def until(client: Client, what: str, holds: Callable[[HorizontalPodAutoscaler, int], bool]) -> HorizontalPodAutoscaler:
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                autoscaler = await client.of(HORIZONTAL_POD_AUTOSCALERS).get("web", "default")
                deployment = await client.of(DEPLOYMENTS).get("web", "default")
                if holds(autoscaler, deployment.spec.replicas):
                    return autoscaler
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"not within {PATIENCE:g} s: {what}\n{autoscaler.status}") from None


async def rescales(client: Client) -> set[str]:
    events = (await client.events.list("default")).items
    return {event.message for event in events if event.reason == "SuccessfulRescale"}


def conditions(autoscaler: HorizontalPodAutoscaler) -> dict[str, tuple[str, str]]:
    return {condition.type: (condition.status, condition.reason) for condition in autoscaler.status.conditions}


async def test_replicas_follow_the_load(client: Client) -> None:
    container = {"name": "main", "image": "app:1", "resources": {"requests": {"cpu": "100m"}}}
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels, "annotations": {USAGE: "10m"}}, "spec": {"containers": [container]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    autoscaler = HorizontalPodAutoscaler()
    autoscaler.metadata.name, autoscaler.metadata.namespace = "web", "default"
    target = autoscaler.spec.scaleTargetRef
    target.kind, target.name, target.apiVersion = "Deployment", "web", "apps/v1"
    autoscaler.spec.maxReplicas = 4
    autoscaler.spec.metrics.append(cpu_metric(50))
    await client.of(HORIZONTAL_POD_AUTOSCALERS).create(autoscaler)
    await client.of(DEPLOYMENTS).create(
        from_dict(DEPLOYMENTS, {"metadata": {"name": "web", "namespace": "default"}, "spec": spec})
    )
    idle = await until(
        client, "usage is read", lambda hpa, replicas: hpa.status.currentMetrics and hpa.status.currentMetrics[0].type
    )
    assert idle.status.currentMetrics[0].resource.current.averageUtilization == 10
    assert conditions(idle)[SCALING_ACTIVE] == ("True", "ValidMetricFound")
    (pod,) = (await client.of(PODS).list("default")).items
    await client.of(PODS).modify(pod.metadata.name, "default", lambda obj: obj.metadata.annotations.update({USAGE: "150m"}))
    grown = await until(client, "load adds replicas", lambda hpa, replicas: replicas >= 3)
    assert grown.status.HasField("lastScaleTime")
    await client.of(PODS).modify(pod.metadata.name, "default", lambda obj: obj.metadata.annotations.update({USAGE: "10m"}))
    shrunk = await until(
        client, "less load removes them", lambda hpa, replicas: replicas == 1 and hpa.status.desiredReplicas == 1
    )
    assert conditions(shrunk)[ABLE_TO_SCALE][0] == "True"
    up, down = "reason: cpu resource utilization (percentage of request) above target", "reason: All metrics below target"
    async with asyncio.timeout(PATIENCE):
        while True:
            texts = await rescales(client)
            if f"New size: 1; {down}" in texts and any(text.endswith(up) for text in texts):
                break
            await asyncio.sleep(0.1)  # events are written in batches
