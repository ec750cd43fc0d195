"""Controllers as real processes: a fleet dies together with the leading controllers, and comes back."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pinnace.api.core_v1_pb2 import Binding, Node, Pod
from pinnace.api.resources import NODES, PODS
from pinnace.api.wellknown import FAULT_ANNOTATION
from pinnace.client.client import Client
from pinnace.client.informer import Informer
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.spec import ClusterSpec
from tests.builders import make_pod

PATIENCE = 20.0
NOT_READY_WITHIN = 3.0
UNREACHABLE = "node.kubernetes.io/unreachable"
DEAD = ("node-3", "node-4", "node-5")
"""Those of kubelet-1: half of all, so that their zone is not disrupted."""


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    spec = ClusterSpec(nodes=6, kubelets=2, schedulers=0, apiservers=1, controllers=2, data_dir=tmp_path / "cluster")
    cluster = Cluster(spec)
    await cluster.up()
    yield cluster
    await cluster.down()


@asynccontextmanager
async def informed(client: Client) -> AsyncIterator[tuple[Informer[Node], Informer[Pod]]]:
    nodes, pods = Informer(client.of(NODES)), Informer(client.of(PODS))
    tasks = [asyncio.ensure_future(item.run()) for item in (nodes, pods)]
    try:
        for item in (nodes, pods):
            await item.wait_synced(PATIENCE)
        yield nodes, pods
    finally:
        for task in tasks:
            task.cancel()


async def until(what: str, holds: Callable[[], bool]) -> float:
    """The time when it first did, in monotonic seconds."""
    try:
        async with asyncio.timeout(PATIENCE):
            while not holds():  # noqa: ASYNC110 (other processes: there is no event to wait for)
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"not within {PATIENCE:g} s: {what}") from None
    return time.monotonic()


async def leader(client: Client, other_than: str = "") -> str:
    async with asyncio.timeout(PATIENCE):
        while True:
            holders = [election.holder for election in await client.elections.list() if election.name == "controllers"]
            if holders and holders[0] != other_than:
                return holders[0]
            await asyncio.sleep(0.02)


async def create(client: Client, name: str, node: str, patience: int) -> None:
    pod = make_pod(name).req(cpu="100m").new()
    pod.spec.tolerations.add(key=UNREACHABLE, operator="Exists", effect="NoExecute", tolerationSeconds=patience)
    await client.pods.create(pod)
    binding = Binding()
    binding.metadata.name, binding.metadata.namespace = name, "default"
    binding.target.kind, binding.target.name = "Node", node
    (outcome,) = await client.pods.bind_batch([binding], None)
    assert not outcome.HasField("error"), outcome


def ready(obj: Node | Pod | None) -> str:
    return (
        next((condition.status for condition in obj.status.conditions if condition.type == "Ready"), "")
        if obj is not None
        else ""
    )


def tainted(node: Node) -> set[str]:
    return {taint.effect for taint in node.spec.taints if taint.key == UNREACHABLE}


async def test_fleet_and_the_leading_controllers_die_and_the_fleet_comes_back(cluster: Cluster) -> None:
    async with cluster.client() as client, informed(client) as (nodes, pods):
        for i, node in enumerate(DEAD):
            await create(client, f"goes-{i}", node, 0)
        await create(client, "stays", DEAD[0], 300)
        await create(client, "elsewhere", "node-0", 0)
        await until("all pods are Ready", lambda: [ready(pod) for pod in pods.store.values()] == ["True"] * 5)
        first = await leader(client)

        killed = time.monotonic()
        cluster.kill(first)
        cluster.kill("kubelet-1")
        assert await leader(client, first) != first

        unready = await until("the nodes are NotReady", lambda: {ready(nodes.store[name]) for name in DEAD} == {"Unknown"})
        assert unready - killed < NOT_READY_WITHIN
        both = {"NoSchedule", "NoExecute"}
        await until("the nodes are tainted", lambda: all(tainted(nodes.store[name]) == both for name in DEAD))
        goes = [f"default/goes-{i}" for i in range(len(DEAD))]
        await until("their pods go", lambda: all(pods.store[key].metadata.HasField("deletionTimestamp") for key in goes))
        why = {condition.type: condition.reason for condition in pods.store[goes[0]].status.conditions}
        assert why["DisruptionTarget"] == "DeletionByTaintManager"
        await until("who stays is not Ready", lambda: ready(pods.store["default/stays"]) == "False")
        for key in ("default/stays", "default/elsewhere"):
            assert not pods.store[key].metadata.HasField("deletionTimestamp")
        assert [ready(nodes.store[f"node-{i}"]) for i in range(3)] == ["True"] * 3

        await cluster.start("kubelet-1")
        await until("the nodes are back", lambda: all(ready(nodes.store[name]) == "True" for name in DEAD))
        await until("their taints are gone", lambda: not any(tainted(nodes.store[name]) for name in DEAD))
        await until("who went has ended", lambda: not any(key in pods.store for key in goes))
        await until("who stays is Ready", lambda: ready(pods.store["default/stays"]) == "True")


async def test_single_node_of_a_fleet_fails_and_recovers(cluster: Cluster) -> None:
    """As `pinnace node fail` and `recover` do it: by an annotation."""

    def fail(node: Node) -> None:
        node.metadata.annotations[FAULT_ANNOTATION] = "failed"

    def recover(node: Node) -> None:
        del node.metadata.annotations[FAULT_ANNOTATION]

    async with cluster.client() as client, informed(client) as (nodes, pods):
        await create(client, "goes", "node-0", 0)
        await create(client, "stays", "node-0", 300)
        await create(client, "beside", "node-1", 0)
        await until(
            "all run", lambda: all(ready(pods.store.get(f"default/{n}")) == "True" for n in ("goes", "stays", "beside"))
        )
        await client.nodes.modify("node-0", "", fail)
        await until("its pods are not ready", lambda: ready(pods.store["default/stays"]) == "False")
        await until("one is evicted", lambda: pods.store["default/goes"].metadata.HasField("deletionTimestamp"))
        assert {name for name, node in nodes.store.items() if ready(node) != "True"} == {"node-0"}

        await client.nodes.modify("node-0", "", recover)
        await until(
            "the node is ready and free", lambda: ready(nodes.store["node-0"]) == "True" and not tainted(nodes.store["node-0"])
        )
        await until("what was deleted is gone", lambda: "default/goes" not in pods.store)
        await until("what was there runs again", lambda: ready(pods.store["default/stays"]) == "True")
        restarts = {
            name: pods.store[f"default/{name}"].status.containerStatuses[0].restartCount for name in ("stays", "beside")
        }
        assert restarts == {"stays": 1, "beside": 0}
