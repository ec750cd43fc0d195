"""Jobs, budgets and services, as an API server and the controllers see to them; the test is the kubelet."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import Pod, Service
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.policy_v1_pb2 import Eviction, PodDisruptionBudget
from pinnace.api.resources import ENDPOINT_SLICES, JOBS, POD_DISRUPTION_BUDGETS, REPLICA_SETS, SERVICES
from pinnace.client.client import Client
from pinnace.controllers.job_status import (
    FINALIZER,
)
from pinnace.controllers.main import build_controllers
from pinnace.controllers.manager import ControllerManager
from pinnace.controllers.nodelifecycle import NodeLifecycleOptions
from tests.builders import make_node, make_pod
from tests.workloads import make_job, make_replica_set, named

PATIENCE = 10.0


@pytest.fixture(autouse=True)
async def controllers(client: Client) -> AsyncIterator[None]:
    manager = ControllerManager(client, "test", lambda shared: build_controllers(shared, NodeLifecycleOptions()))
    running = asyncio.ensure_future(manager.run())
    yield
    await manager.stop()
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def until(what: str, look: Callable[[], Awaitable[Any]]) -> Any:
    """What `look` gives, as soon as that is something."""
    try:
        async with asyncio.timeout(PATIENCE):
            while not (result := await look()):  # noqa: ASYNC110 (another process: there is no event to wait for)
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"not within {PATIENCE:g} s: {what}") from None
    return result


async def play(client: Client, pod: Pod, phase: str) -> None:
    """What the kubelet would report; versions do not matter to it."""
    changed = Pod(metadata=ObjectMeta(namespace="default", name=pod.metadata.name))
    changed.status.phase, changed.status.podIP = phase, "10.0.0.1"
    if phase == "Running":
        changed.status.conditions.add(type="Ready", status="True")
    await client.pods.update_status(changed)


def new(made: Any) -> Any:
    """As a client sends it."""
    made.metadata.uid = made.metadata.resourceVersion = ""
    return made


async def end_of(client: Client, since: int) -> tuple[int, int]:
    """How many pods have succeeded and failed, by the first job that is complete after the revision `since`."""
    async with asyncio.timeout(PATIENCE):
        async for batch in client.of(JOBS).watch("default", resource_version=since):
            for _, result in batch.events:
                if any(condition.type == "Complete" and condition.status == "True" for condition in result.status.conditions):
                    return result.status.succeeded, result.status.failed
    raise AssertionError("the watch ended")


async def test_job_counts_its_pods_once_and_goes_when_its_time_is_over(client: Client) -> None:
    job = new(make_job("j", parallelism=2, completions=3, ttlSecondsAfterFinished=0, manualSelector=True))
    job.spec.selector.matchLabels.clear()
    job.spec.template.metadata.labels.clear()
    job.spec.selector.matchLabels["job"] = job.spec.template.metadata.labels["job"] = "j"
    created = await client.of(JOBS).create(job)

    async def working(number: int) -> list[Pod]:
        pods = (await client.pods.list("default", fields="status.phase=Pending")).items
        return pods if len(pods) == number else []

    pods = await until("two pods", lambda: working(2))
    assert all(FINALIZER in pod.metadata.finalizers for pod in pods)
    for pod in pods:
        await play(client, pod, "Succeeded")
        await client.pods.delete(pod.metadata.name, "default", grace=0)  # at once: it must be counted nevertheless
    [last] = await until("the third pod", lambda: working(1))
    await play(client, last, "Succeeded")
    assert await end_of(client, int(created.metadata.resourceVersion)) == (3, 0)

    async def gone() -> bool:
        return not (await client.of(JOBS).list("default")).items and not (await client.pods.list("default")).items

    await until("the job is gone, and its pods", gone)


async def test_pods_of_a_budget_and_a_service_are_counted_and_listed(client: Client) -> None:
    await client.nodes.create(make_node("n").new())
    replica_set = await client.of(REPLICA_SETS).create(new(make_replica_set("web", replicas=3)))
    orphan = await client.pods.create(make_pod("orphan").req(cpu="1").label("app", "web").node("n").new())
    service = Service(metadata=ObjectMeta(name="web", namespace="default"))
    service.spec.selector["app"] = "web"
    service.spec.ports.add(port=80)
    await client.of(SERVICES).create(service)
    budget = PodDisruptionBudget(metadata=ObjectMeta(name="b", namespace="default"))
    budget.spec.selector.matchLabels["app"] = "web"
    budget.spec.maxUnavailable.intVal = 1
    await client.of(POD_DISRUPTION_BUDGETS).create(budget)

    async def three() -> list[Pod]:
        pods = (await client.pods.list("default", labels="app=web")).items
        owned = [
            pod
            for pod in pods
            if any(owner_reference.uid == replica_set.metadata.uid for owner_reference in pod.metadata.ownerReferences)
        ]
        return pods if len(owned) == len(pods) == 3 else []

    pods = await until("three pods, one of them adopted", three)
    assert orphan.metadata.name in named(pods)
    for pod in pods:
        await play(client, pod, "Running")

    async def allowed(number: int) -> bool:
        status = (await client.of(POD_DISRUPTION_BUDGETS).get("b", "default")).status
        return (status.expectedPods, status.currentHealthy, status.disruptionsAllowed) == (3, 2 + number, number)

    async def addresses() -> int:
        slices = (await client.of(ENDPOINT_SLICES).list("default")).items
        return sum(endpoint.conditions.ready for slice_ in slices for endpoint in slice_.endpoints)

    await until("one may go", lambda: allowed(1))
    eviction = Eviction(metadata=ObjectMeta(name=pods[0].metadata.name, namespace="default"))
    [outcome] = await client.pods.evict_batch([eviction])
    assert not outcome.HasField("error")
    await until("none may go now", lambda: allowed(0))

    async def two() -> bool:
        return await addresses() == 2

    await until("two addresses are left", two)
