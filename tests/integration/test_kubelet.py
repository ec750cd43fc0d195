"""A fleet as a real process: what it adopts, what it leaves, and what a restart of it changes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

import pytest

from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.resources import NODE_LEASE_NAMESPACE
from pinnace.api.verbs_pb2 import WatchEventType
from pinnace.client.client import Client
from pinnace.client.resource import ResourceClient
from pinnace.runtime.logs import NodesDropped
from tests.builders import make_node, make_pod
from tests.integration.conftest import Start
from tests.integration.processes import Component

PATIENCE = 10.0
T = TypeVar("T", Lease, Node, Pod)


async def until(client: ResourceClient[T], wanted: Callable[[dict[str, T]], bool]) -> dict[str, T]:
    """Follows all objects of a kind, by name, until they are as wanted."""
    seen: dict[str, T] = {}
    try:
        async with asyncio.timeout(PATIENCE):
            async for batch in client.watch():
                for kind, obj in batch.events:
                    seen.pop(obj.metadata.name, None)
                    if kind != WatchEventType.DELETED:
                        seen[obj.metadata.name] = obj
                if batch.resource_version and wanted(seen):
                    return seen
    except TimeoutError:
        raise AssertionError(f"not so within {PATIENCE} s: {sorted(seen)}\n{next(iter(seen.values()), None)}") from None
    raise AssertionError("the watch ended")


async def eventually(look: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            if look():
                return
            await asyncio.sleep(0.05)


def playable(node: Node) -> bool:
    ready = any(condition.type == "Ready" and condition.status == "True" for condition in node.status.conditions)
    return ready and not node.spec.taints and bool(node.status.allocatable)


def running(*names: str) -> Callable[[dict[str, Pod]], bool]:
    return lambda pods: all(name in pods and pods[name].status.phase == "Running" for name in names)


@pytest.fixture
async def fleet(apiserver: Component, start: Start) -> AsyncIterator[Callable[..., Component]]:
    """Starts a fleet; two nodes, if nothing else is said."""

    def start_fleet(name: str, *arguments: str) -> Component:
        own = arguments or ("--nodes", "2", "--node-prefix", "node-")
        return start("kubelet", name, "--server", apiserver.address, *own)

    yield start_fleet


async def bind(client: Client, *names: str, node: str = "node-0", cpu: str = "100m") -> None:
    for name in names:
        await client.pods.create(make_pod(name).req(cpu=cpu).node(node).new())


async def test_nodes_that_others_add_are_played_and_deleted_ones_are_not(
    client: Client, fleet: Callable[..., Component]
) -> None:
    await fleet("fleet").ready()
    added = make_node("extra").capacity().label("pinnace.io/fleet", "fleet").taint("node.kubernetes.io/not-ready")
    await client.nodes.create(added.new())
    await until(client.nodes, lambda nodes: "extra" in nodes and playable(nodes["extra"]))
    await bind(client, "a", node="extra")
    await until(client.pods, running("a"))
    await until(client.leases, lambda leases: "extra" in leases)

    await client.nodes.delete("extra")
    await until(client.leases, lambda leases: "extra" not in leases)  # the fleet has heard of it
    await bind(client, "b", node="extra")
    await bind(client, "c")
    pods = await until(client.pods, running("c"))
    assert pods["b"].status.phase == "Pending"


async def test_killed_fleet_takes_up_its_nodes_and_pods_again(client: Client, fleet: Callable[..., Component]) -> None:
    first = fleet("fleet")
    await first.ready()
    await bind(client, "a", "doomed")
    before = await until(client.pods, running("a", "doomed"))
    nodes = await until(client.nodes, lambda nodes: len(nodes) == 2)
    first.kill()
    await bind(client, "b", cpu="3950m")
    await client.pods.delete("doomed", "default")

    second = fleet("fleet")
    await second.ready()
    after = await until(client.pods, lambda pods: "doomed" not in pods and pods["b"].status.phase != "Pending")
    assert after["a"] == before["a"], "a pod that runs is left as it is"
    assert after["b"].status.reason == "OutOfcpu", "what a uses is counted, also when the doomed one has gone"
    assert await until(client.nodes, lambda nodes: True) == nodes, "nodes that are as they should be are not written"


async def test_stopped_fleet_gives_its_leases_back_and_leaves_pods_running(
    client: Client, fleet: Callable[..., Component]
) -> None:
    process = fleet("fleet")
    await process.ready()
    await bind(client, "a")
    await until(client.pods, running("a"))
    assert len((await client.leases.list(NODE_LEASE_NAMESPACE)).items) == 2
    assert process.stop() == 0
    assert (await client.leases.list(NODE_LEASE_NAMESPACE)).items == []
    assert (await client.pods.get("a", "default")).status.phase == "Running"


async def test_newer_of_two_fleets_with_the_same_nodes_runs_them(client: Client, fleet: Callable[..., Component]) -> None:
    older = fleet("older", "--nodes", "3", "--node-prefix", "node-")
    await older.ready()
    newer = fleet("newer")
    await newer.ready()
    await eventually(lambda: bool(older.logged(NodesDropped)))
    newer.kill()
    await bind(client, "a", node="node-0")
    await bind(client, "b", node="node-2")  # which only the older one plays; it hears of both pods, in this order
    assert (await until(client.pods, running("b")))["a"].status.phase == "Pending"


async def test_graceful_deletion_from_running_to_gone(client: Client, fleet: Callable[..., Component]) -> None:
    await fleet("fleet").ready()
    await bind(client, "a")
    await until(client.pods, running("a"))
    deleting = await client.pods.delete("a", "default")
    assert deleting.metadata.HasField("deletionTimestamp")
    await until(client.pods, lambda pods: not pods)
