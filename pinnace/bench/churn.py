"""What comes and goes while pods are scheduled.

Kubernetes makes so many changes a second beside so many pods a second. Here ten times as many pods are aimed at; so there are
ten times as many changes a second, and as many for each pod.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from pinnace.api.core_v1_pb2 import Node, Service
from pinnace.api.resources import SERVICES
from pinnace.api.wellknown import FLEET_LABEL
from pinnace.bench import workload
from pinnace.bench.errors import BenchError
from pinnace.bench.load import Load
from pinnace.client.client import Client
from pinnace.client.errors import from_status
from pinnace.client.resource import delete_request

INTERVAL = 0.1
DELETED_AT_ONCE = 50
FLEET = "kubelet-0"
"""Plays the nodes that come."""
Churn = Callable[[Client, Load], Coroutine[Any, Any, None]]
"""Goes on until it is cancelled, or has nothing left to do. The load is that of the pods that were placed before."""


def recreating(shape: workload.Shape) -> Churn:
    """A node, a pod and a service come, and go one interval later."""

    async def churn(client: Client, placed: Load) -> None:
        services = client.of(SERVICES)
        for number in count():
            name = f"churn-{number}"
            await asyncio.gather(
                client.nodes.create(node(name)), client.pods.create(shape(name)), services.create(service(name))
            )
            await asyncio.sleep(INTERVAL)
            await asyncio.gather(
                client.nodes.delete(name),
                client.pods.delete(name, workload.NAMESPACE, grace=0),
                services.delete(name, workload.NAMESPACE),
            )
            await asyncio.sleep(INTERVAL)

    return churn


async def deleting(client: Client, placed: Load) -> None:
    """Pods that were placed go, some in each interval."""
    names = list(placed.sent)
    for start in range(0, len(names), DELETED_AT_ONCE):
        some = names[start : start + DELETED_AT_ONCE]
        for item in await client.pods.delete_batch([delete_request(name, placed.namespace, grace=0) for name in some]):
            if item.HasField("error"):
                raise BenchError(f"pod {item.name} was not deleted: {from_status(item.error)}")
        await asyncio.sleep(INTERVAL)


@asynccontextmanager
async def meanwhile(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """It goes on beside the body, and ends with it. What it raises is raised at the end."""
    task = asyncio.create_task(work)
    try:
        yield
        if task.done():
            task.result()
    finally:
        task.cancel()
        await asyncio.wait((task,))


def node(name: str) -> Node:
    """Ready from the start."""
    made = Node()
    made.metadata.name = name
    made.metadata.labels[FLEET_LABEL] = FLEET
    made.metadata.labels["kubernetes.io/hostname"] = name
    for resource, amount in (("cpu", "4"), ("memory", "32Gi"), ("pods", "110")):
        made.status.capacity[resource].string = amount
    made.status.conditions.add(type="Ready", status="True")
    return made


def service(name: str) -> Service:
    made = Service()
    made.metadata.name, made.metadata.namespace = name, workload.NAMESPACE
    made.spec.selector["app"] = name
    made.spec.ports.add(name="http", port=80, protocol="TCP")
    return made
