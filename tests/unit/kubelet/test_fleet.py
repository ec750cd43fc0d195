"""A fleet some of whose nodes the API server rejects."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import pytest

from pinnace.api.core_v1_pb2 import Node, Taint
from pinnace.api.machines import MachineShape
from pinnace.api.resources import SERVICES
from pinnace.api.verbs_pb2 import BatchItem
from pinnace.client import workqueue
from pinnace.client.client import Client
from pinnace.kubelet.fleet import Fleet
from pinnace.kubelet.registration import FleetMachine
from pinnace.kubelet.runtime.simulated_runtime import SimulatedRuntime
from pinnace.kubelet.runtime.stages import Behaviour
from pinnace.kubelet.service_variables import ServiceVariables
from tests.builders import make_node, make_pod
from tests.refusals import denied
from tests.regression.servers import serving
from tests.storage.memory import MemoryStorage
from tests.unit.cacher.world import eventually
from tests.unit.client.fakeserver import connect

CAPACITY = {"cpu": "4", "memory": "8Gi", "pods": "110"}

Write = Callable[[Sequence[Node]], Awaitable[Sequence[BatchItem]]]


class World:
    """A fleet and its client. `picky` has the nodes that a webhook rejects."""

    def __init__(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        self.client = client
        self.picky: set[str] = set()
        for verb in ("create_batch", "update_status_batch"):
            monkeypatch.setattr(client.nodes, verb, self._judged(getattr(client.nodes, verb)))
        self.fleet = Fleet(
            "edge", ["edge-0", "edge-1"], FleetMachine(MachineShape(CAPACITY)), client, SimulatedRuntime(Behaviour())
        )

    def _judged(self, write: Write) -> Write:
        async def judged(nodes: Sequence[Node]) -> list[BatchItem]:
            allowed = [node for node in nodes if node.metadata.name not in self.picky]
            done = iter(await write(allowed) if allowed else [])
            return [denied(node.metadata.name) if node.metadata.name in self.picky else next(done) for node in nodes]

        return judged

    def ready(self) -> str | None:
        return next((wrong for check in self.fleet.checks.values() if (wrong := check()) is not None), None)

    async def runs(self, node: str) -> bool:
        """Whether a pod bound to the node runs."""
        return await self.outcome(f"on-{node}", node) == "Running"

    async def seen(self, name: str, wanted: Callable[[Node], bool]) -> Node:
        """Wait for the node to satisfy `wanted`, and return it."""
        async with asyncio.timeout(5.0):
            async for batch in self.client.nodes.watch():
                for _, node in batch.events:
                    if node.metadata.name == name and wanted(node):
                        return node
        raise AssertionError("the watch ended")

    async def outcome(self, name: str, node: str, needs: Mapping[str, int] | None = None) -> str:
        """The phase of a new pod that is bound to the node. `needs` adds to one CPU."""
        amounts = {"cpu": 1, **(needs or {})}
        await self.client.pods.create(make_pod(name).container(amounts, amounts).node(node).new())
        async with asyncio.timeout(5.0):
            while (phase := await self._phase(name)) not in ("Running", "Failed"):  # noqa: ASYNC110 (what the API says)
                await asyncio.sleep(0.01)
        return phase

    async def _phase(self, name: str) -> str:
        return (await self.client.pods.get(name, "default")).status.phase

    async def set_taints(self, name: str, *taints: Taint) -> None:
        """Set the taints, and wait until the fleet has received the change."""
        node = await self.client.nodes.get(name)
        del node.spec.taints[:]
        node.spec.taints.extend(taints)
        written = await self.client.nodes.update(node)
        await self.fleet._informer.wait_for(int(written.metadata.resourceVersion), 5.0)


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(workqueue, "REJECTED_BASE_BACKOFF", 0.02)
    async with serving(MemoryStorage()) as address:
        client = Client(connect(address))
        yield World(client, monkeypatch)
        await client.connection.close()


@asynccontextmanager
async def played(world: World) -> AsyncIterator[None]:
    running = asyncio.ensure_future(world.fleet.run())
    yield
    running.cancel()
    await asyncio.wait((running,))


async def test_rejected_node_creation_does_not_block_other_nodes(world: World) -> None:
    world.picky = {"edge-0"}
    async with played(world):
        assert await world.runs("edge-1")
        await eventually(lambda: "edge-0: denied by a webhook" in (world.ready() or ""))
        world.picky.clear()
        await eventually(lambda: world.ready() is None)
        assert await world.runs("edge-0")


async def test_rejected_node_status_does_not_block_other_nodes(world: World) -> None:
    world.picky = {"added-0"}
    async with played(world):
        for name in ("added-0", "added-1"):
            await world.client.nodes.create(make_node(name).label("pinnace.io/fleet", "edge").new())
        assert await world.runs("added-1")
        await eventually(lambda: "added-0: denied by a webhook" in (world.ready() or ""))
        await world.client.nodes.delete("added-0")
        await eventually(lambda: world.ready() is None)


async def test_taint_removal_is_applied_during_a_status_write(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = asyncio.Event()

    async def never(_: Sequence[Node]) -> Sequence[BatchItem]:
        waiting.set()
        return await asyncio.Future[Sequence[BatchItem]]()

    async with played(world):
        assert await world.runs("edge-0")
        await world.set_taints("edge-1", Taint(key="maintenance", effect="NoExecute"))
        assert await world.outcome("early", "edge-1") == "Failed"
        monkeypatch.setattr(world.client.nodes, "update_status_batch", never)
        await world.client.nodes.create(make_node("added-0").label("pinnace.io/fleet", "edge").new())
        await waiting.wait()
        await world.set_taints("edge-1")
        assert await world.outcome("late", "edge-1") == "Running"


def bare(name: str) -> Node:
    """A node as `pinnace node add` creates it, with only the label of the fleet."""
    node = make_node(name).new()
    node.metadata.labels.clear()
    node.metadata.labels["pinnace.io/fleet"] = "edge"
    return node


async def test_node_whose_taint_a_controller_removed_first_gets_its_labels(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: https://github.com/kubernetes/kubernetes/issues/47044 and
    https://github.com/kubernetes-sigs/kwok/issues/1009

    Nodes stayed without their labels. The write of the fleet, which removes the taint not-ready and sets the labels, lost
    against the node lifecycle controller, which also removes the taint. The fleet then found no difference.
    """
    update = world.client.nodes.update
    raced = asyncio.Event()

    async def outrun(node: Node) -> Node:
        monkeypatch.setattr(world.client.nodes, "update", update)
        await world.set_taints(node.metadata.name)
        raced.set()
        return await update(node)

    async with played(world):
        assert await world.runs("edge-0")
        monkeypatch.setattr(world.client.nodes, "update", outrun)
        await world.client.nodes.create(bare("added-0"))
        async with asyncio.timeout(5.0):
            await raced.wait()
        node = await world.seen("added-0", lambda node: bool(node.spec.podCIDR))
        assert node.metadata.labels["kubernetes.io/hostname"] == "added-0"
        assert node.metadata.labels["topology.kubernetes.io/zone"] == "zone-a"


async def test_pod_runs_with_a_resource_added_to_the_capacity(world: World) -> None:
    """Regression: https://github.com/kubernetes/kubernetes/issues/115190"""

    async with played(world):
        assert await world.runs("edge-0")
        node = await world.client.nodes.get("edge-0")
        node.status.capacity["example.com/dongle"].string = "4"
        await world.client.nodes.update_status(node)
        node = await world.seen("edge-0", lambda node: "example.com/dongle" in node.status.allocatable)
        await world.fleet._informer.wait_for(int(node.metadata.resourceVersion), 5.0)
        dongles = {"example.com/dongle": 3}
        assert await world.outcome("dongle", "edge-0", dongles) == "Running"


class HeldServices(ServiceVariables):
    """Services that are not read before `release` is set."""

    release = asyncio.Event()

    @property
    def synced(self) -> bool:
        return self.release.is_set() and super().synced


async def test_nodes_start_after_the_services_have_been_read(world: World) -> None:
    services = HeldServices(world.client.of(SERVICES))
    services.release = asyncio.Event()
    fleet = Fleet(
        "edge", ["edge-0"], FleetMachine(MachineShape(CAPACITY)), world.client, SimulatedRuntime(Behaviour()), services=services
    )  # fmt: skip
    world.fleet = fleet
    async with played(world):
        await eventually(lambda: fleet.checks["session"]() is None and bool(fleet._informer.revision))
        await asyncio.sleep(0.1)
        assert (await world.client.nodes.list()).items == []
        services.release.set()
        await eventually(lambda: world.ready() is None)
        assert "services" in fleet.checks
