"""Owners, dependents and namespaces, as an API server and the controllers see to them together."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import Namespace, Pod, Service
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.resources import SERVICES
from pinnace.client.client import Client
from pinnace.client.errors import NotFound
from pinnace.client.resource import ResourceClient
from pinnace.controllers.main import build_controllers
from pinnace.controllers.manager import ControllerManager
from pinnace.controllers.nodelifecycle import NodeLifecycleOptions
from tests.builders import make_pod

PATIENCE = 10.0
HOLD = "example.com/hold"


@pytest.fixture(autouse=True)
async def controllers(client: Client) -> AsyncIterator[None]:
    manager = ControllerManager(client, "test", lambda shared: build_controllers(shared, NodeLifecycleOptions()))
    running = asyncio.ensure_future(manager.run())
    yield
    await manager.stop()
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def owner(client: Client, name: str, namespace: str = "default") -> Service:
    made = Service(metadata=ObjectMeta(name=name, namespace=namespace))
    made.spec.ports.add(port=80)
    return await client.of(SERVICES).create(made)


async def dependent(client: Client, name: str, *owners: Service, hold: bool = False) -> Pod:
    pod = make_pod(name).req(cpu="1").new()
    for item in owners:
        pod.metadata.ownerReferences.add(
            kind="Service", apiVersion="v1", name=item.metadata.name, uid=item.metadata.uid, blockOwnerDeletion=True
        )
    if hold:
        pod.metadata.finalizers.append(HOLD)
    return await client.pods.create(pod)


async def settle(client: Client, **expected: list[str] | None) -> None:
    """Waits until the pods have these owners, by name; None: are gone."""
    result: dict[str, list[str]] = {}
    try:
        async with asyncio.timeout(PATIENCE):
            while any(result.get(name) != owners for name, owners in expected.items()) or not result:
                pods = (await client.pods.list("default")).items
                result = {
                    pod.metadata.name: [owner_reference.name for owner_reference in pod.metadata.ownerReferences]
                    for pod in pods
                }
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"the pods are {result}, not {expected}") from None


async def gone(client: ResourceClient[Any], name: str) -> None:
    async with asyncio.timeout(PATIENCE):
        with suppress(NotFound):
            while await client.get(name, "default"):  # noqa: ASYNC110 (other processes: there is no event to wait for)
                await asyncio.sleep(0.02)


async def test_dependents_follow_their_owners(client: Client) -> None:
    services = client.of(SERVICES)
    never = Service(metadata=ObjectMeta(name="never", uid="00000000-0000-0000-0000-000000000000"))
    a, b, c = [await owner(client, name) for name in ("a", "b", "c")]
    await dependent(client, "free")
    await dependent(client, "dangles", never)
    await dependent(client, "one", a)
    await dependent(client, "two", a, b)
    await settle(client, dangles=None, free=[], one=["a"], two=["a", "b"])

    await services.delete("a", "default")  # in the background: it is gone at once
    await settle(client, one=None, two=["b"], free=[])

    await services.delete("b", "default", propagation="Orphan")
    await gone(services, "b")
    await settle(client, two=[], free=[])

    held = await dependent(client, "held", c, hold=True)
    await services.delete("c", "default", propagation="Foreground")
    async with asyncio.timeout(PATIENCE):
        while not held.metadata.HasField("deletionTimestamp"):
            held = await client.pods.get("held", "default")
    assert list((await services.get("c", "default")).metadata.finalizers) == ["foregroundDeletion"]
    held.metadata.finalizers.remove(HOLD)
    await client.pods.update(held)
    await gone(services, "c")
    await settle(client, held=None, free=[])

    await client.namespaces.create(Namespace(metadata=ObjectMeta(name="team")))
    await owner(client, "s", "team")
    await client.pods.create_batch([make_pod(f"p{i}", "team").req(cpu="1").new() for i in range(3)])
    assert (await client.namespaces.delete("team")).status.phase == "Terminating"
    await gone(client.namespaces, "team")
    assert not (await client.pods.list("team")).items
    await settle(client, free=[])
