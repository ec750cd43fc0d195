"""The first story of every Kubernetes course: what each part is for, seen by what happens without it."""

import asyncio
from collections.abc import Callable

from pinnace.api.core_v1_pb2 import Node, Pod, Taint
from pinnace.client.client import Client
from tests.builders import make_pod
from tests.integration.conftest import Start
from tests.integration.processes import Component

PATIENCE = 10.0
NODES = 3


async def until(client: Client, name: str, wanted: Callable[[Pod], bool]) -> Pod:
    """Follows a pod until it is as wanted."""
    seen: Pod | None = None
    try:
        async with asyncio.timeout(PATIENCE):
            async for batch in client.pods.watch("default", fields=f"metadata.name={name}"):
                for _, pod in batch.events:
                    seen = pod
                    if wanted(pod):
                        return pod
    except TimeoutError:
        raise AssertionError(f"pod {name} did not get there in {PATIENCE} s; it was last:\n{seen}") from None
    raise AssertionError("the watch ended")


async def until_event(client: Client, reason: str) -> None:
    async with asyncio.timeout(PATIENCE):
        async for batch in client.events.watch("default", fields=f"reason={reason}"):
            if batch.events:
                return


def scheduled(pod: Pod) -> str:
    """Status and message of the condition PodScheduled."""
    return next((f"{c.status} {c.message}" for c in pod.status.conditions if c.type == "PodScheduled"), "")


async def set_taints(client: Client, taints: list[Taint]) -> None:
    for index in range(NODES):

        def change(node: Node) -> None:
            del node.spec.taints[:]
            node.spec.taints.extend(taints)

        await client.nodes.modify(f"node-{index}", "", change)


async def test_each_component_has_its_effect_on_a_pod(apiserver: Component, client: Client, start: Start) -> None:
    fleet = start("kubelet", "fleet", "--server", apiserver.address, "--nodes", str(NODES), "--node-prefix", "node-")
    await fleet.ready()
    await set_taints(client, [Taint(key="keep", value="out", effect="NoSchedule")])
    assert fleet.stop() == 0
    await client.pods.create(make_pod("web").req(cpu="100m").new())

    # No scheduler: nobody decides.
    pod = await client.pods.get("web", "default")
    assert pod.status.phase == "Pending" and not pod.spec.nodeName and not scheduled(pod)

    # A scheduler, but every node is tainted: it says why not.
    scheduler = start("scheduler", "scheduler-0", "--server", apiserver.address)
    await scheduler.ready()
    pod = await until(client, "web", lambda pod: scheduled(pod).startswith("False"))
    assert "0/3 nodes are available: 3 node(s) had untolerated taint {keep: out}" in scheduled(pod)
    await until_event(client, "FailedScheduling")

    # Without the taint it is assigned, but with no kubelet nothing runs it.
    await set_taints(client, [])
    pod = await until(client, "web", lambda pod: bool(pod.spec.nodeName))
    assert pod.status.phase == "Pending" and scheduled(pod).startswith("True")

    # A kubelet runs it.
    await start("kubelet", "fleet", "--server", apiserver.address, "--nodes", str(NODES), "--node-prefix", "node-").ready()
    pod = await until(client, "web", lambda pod: pod.status.phase == "Running")
    assert pod.status.podIP and all(status.ready for status in pod.status.containerStatuses)


async def test_pod_with_a_node_name_bypasses_the_scheduler(apiserver: Component, client: Client, start: Start) -> None:
    await start("kubelet", "fleet", "--server", apiserver.address, "--nodes", "1", "--node-prefix", "node-").ready()
    pod = make_pod("direct").req(cpu="100m").node("node-0").new()
    await client.pods.create(pod)
    await until(client, "direct", lambda pod: pod.status.phase == "Running" and pod.spec.nodeName == "node-0")
