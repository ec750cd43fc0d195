"""The node lifecycle controller in a cluster of a few nodes."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.resources import LEASES, NODE_LEASE_NAMESPACE, NODES
from pinnace.api.verbs_pb2 import ADDED, DELETED, MODIFIED, BatchItem
from pinnace.client.informer import Delta, Index
from pinnace.controllers.nodelifecycle import (
    LOOK_AGAIN,
    RECOVERY,
    EvictionRates,
    NodeLifecycleController,
    NodeLifecycleOptions,
    ready_status,
)
from pinnace.controllers.pods import pod_node_name
from pinnace.controllers.runtime import ControllerContext, WorkerPool
from tests.builders import make_node, make_pod
from tests.clock import FakeClock
from tests.refusals import denied

SILENT = 1.0
"""Seconds until the controller detects a silent node."""


class Cluster:
    """A fake of the API, the informers and the event recorder. Writes are observed at once."""

    def __init__(self, *nodes: str, refused: Iterable[str] = (), eviction: float = 100.0) -> None:
        """A cluster with these nodes and their leases. `refused` has pods whose status update is rejected."""
        self.clock = FakeClock()
        self.stores: dict[Any, dict[str, Any]] = {NODES: {}, LEASES: {}}
        self.bound = Index(pod_node_name)
        self.marked: list[str] = []
        self._refused = set(refused)
        self.meanwhile: Callable[[], None] = lambda: None
        """Called while the status of pods is written."""
        self._handlers: dict[Any, list[Any]] = {NODES: [], LEASES: []}
        self.nodes = SimpleNamespace(update_status_batch=self._write_statuses, update=self._write_node)
        self.pods = SimpleNamespace(update_status_batch=self._write_pods)
        anything: Any = self
        controller = NodeLifecycleController(
            ControllerContext(anything, anything, anything, self.clock, "node-controller"),
            NodeLifecycleOptions(rates=EvictionRates(eviction)),
        )
        self.working = WorkerPool(controller, lambda: True, clock=self.clock)
        for watch in controller.watches:
            self.add_handler(watch.resource, lambda deltas, keys=watch.keys: self.working.handle_deltas(keys, deltas))
        for name in nodes:
            self.add_lease(name)
            self.put(NODES, name, make_node(name).condition("Ready", "True").build())

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        running = asyncio.ensure_future(self.working.run())
        await self.clock.advance(0)
        yield
        running.cancel()

    def add_lease(self, node: str) -> None:
        self.put(
            LEASES, f"{NODE_LEASE_NAMESPACE}/{node}", Lease(metadata=ObjectMeta(name=node, namespace=NODE_LEASE_NAMESPACE))
        )

    def remove_lease(self, node: str) -> None:
        lease = self.stores[LEASES].pop(f"{NODE_LEASE_NAMESPACE}/{node}")
        self._tell(LEASES, Delta(DELETED, lease, lease))

    def delete_node(self, node: str) -> None:
        """Delete the node."""
        store = self.stores[NODES].pop(node)
        self._tell(NODES, Delta(DELETED, store, store))

    def put(self, resource: Any, key: str, obj: Any) -> None:
        old = self.stores[resource].get(key)
        self.stores[resource][key] = obj
        self._tell(resource, Delta(MODIFIED if old else ADDED, obj, old))

    def taints(self, node: str) -> set[tuple[str, str]]:
        return {(taint.key.removeprefix("node.kubernetes.io/"), taint.effect) for taint in self.stores[NODES][node].spec.taints}

    def _tell(self, resource: Any, delta: Delta[Any]) -> None:
        for handler in self._handlers[resource]:
            handler([delta])

    # the informers and the event recorder

    def store(self, resource: Any) -> dict[str, Any]:
        return self.stores[resource]

    def index(self, resource: Any, by: Any) -> Index[Pod]:
        return self.bound

    def add_handler(self, resource: Any, handler: Any) -> None:
        self._handlers[resource].append(handler)

    def for_component(self, component: str) -> "Cluster":
        return self

    def event(self, *_: object) -> None:
        pass

    # the client

    async def _write_statuses(self, nodes: Sequence[Node]) -> list[BatchItem]:
        for node in nodes:
            changed = Node()
            changed.CopyFrom(self.stores[NODES][node.metadata.name])
            changed.status.CopyFrom(node.status)
            self.put(NODES, node.metadata.name, changed)
        return [BatchItem(name=node.metadata.name) for node in nodes]

    async def _write_node(self, node: Node) -> None:
        changed = Node()
        changed.CopyFrom(node)
        self.put(NODES, node.metadata.name, changed)

    async def _write_pods(self, pods: Sequence[Pod]) -> list[BatchItem]:
        self.meanwhile()
        names = [pod.metadata.name for pod in pods]
        self.marked += [name for name in names if name not in self._refused]
        return [denied(name) if name in self._refused else BatchItem(name=name) for name in names]


NO_SCHEDULE, NO_EXECUTE = ("unreachable", "NoSchedule"), ("unreachable", "NoExecute")


async def test_rejected_pod_update_does_not_block_the_taints_of_its_node(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    cluster = Cluster("a", "b", refused=["held"])
    pods = [make_pod(name).uid(name).node("a").condition("Ready", "True").build() for name in ("held", "other")]
    cluster.bound.apply_deltas([Delta(ADDED, pod, None) for pod in pods])
    async with cluster.running():
        cluster.remove_lease("a")
        await cluster.clock.advance(SILENT)
    assert cluster.taints("a") == {NO_SCHEDULE, NO_EXECUTE}
    assert cluster.marked.count("other") > 1, "the update is retried"


async def test_pod_observed_as_ready_after_the_node_failed_is_marked() -> None:
    """The watch of pods may be seconds behind the watch of nodes. Without the update, a Service would route to the pod."""
    cluster = Cluster("a", "b")
    before, after = (make_pod("p").node("a").condition("Ready", status).build() for status in ("False", "True"))
    cluster.bound.apply_deltas([Delta(ADDED, before, None)])
    async with cluster.running():
        cluster.remove_lease("a")
        await cluster.clock.advance(SILENT)
        assert cluster.marked == []
        cluster.bound.apply_deltas([Delta(MODIFIED, after, before)])
        await cluster.clock.advance(LOOK_AGAIN)
        assert cluster.marked == ["p"]


async def test_node_deleted_while_its_pods_are_marked_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster("a", "b")
    cluster.bound.apply_deltas([Delta(ADDED, make_pod("p").node("a").condition("Ready", "True").build(), None)])
    cluster.meanwhile = lambda: cluster.delete_node("a")
    async with cluster.running():
        cluster.remove_lease("a")
        await cluster.clock.advance(SILENT)
    assert cluster.marked == ["p"] and not caplog.records


async def test_eviction_taints_are_removed_when_all_nodes_fail() -> None:
    cluster = Cluster("a", "b")
    async with cluster.running():
        cluster.remove_lease("a")
        await cluster.clock.advance(SILENT)
        assert cluster.taints("a") == {NO_SCHEDULE, NO_EXECUTE}
        await cluster.clock.advance(60.0)
        cluster.remove_lease("b")
        await cluster.clock.advance(SILENT)
        assert cluster.taints("a") == cluster.taints("b") == {NO_SCHEDULE}
        cluster.add_lease("b")
        cluster.put(NODES, "b", make_node("b").condition("Ready", "True").build())
        await cluster.clock.advance(RECOVERY - 0.1)
        assert cluster.taints("a") == {NO_SCHEDULE}
        await cluster.clock.advance(0.1)
        assert cluster.taints("a") == {NO_SCHEDULE, NO_EXECUTE}


async def test_node_already_tainted_takes_no_second_turn() -> None:
    """When the state of the zone changes, turns are assigned again."""
    names = ["a", "b", "c", "d", "e"]
    cluster = Cluster(*names, eviction=0.01)
    async with cluster.running():
        cluster.remove_lease("a")
        await cluster.clock.advance(SILENT)
        assert cluster.taints("a") == {NO_SCHEDULE, NO_EXECUTE}
        for name in ("b", "c"):
            cluster.remove_lease(name)
        await cluster.clock.advance(SILENT)
        assert cluster.taints("a") == {NO_SCHEDULE, NO_EXECUTE} and cluster.taints("b") == {NO_SCHEDULE}
        cluster.add_lease("c")
        cluster.put(NODES, "c", make_node("c").condition("Ready", "True").build())
        await cluster.clock.advance(SILENT)
        assert cluster.taints("b") == {NO_SCHEDULE, NO_EXECUTE}


async def test_recovered_node_stays_ready_until_the_event_of_its_lease_arrives() -> None:
    cluster = Cluster("a", "b")

    def status() -> str:
        return ready_status(cluster.stores[NODES]["a"])

    async with cluster.running():
        cluster.remove_lease("a")
        await cluster.clock.advance(SILENT)
        assert status() == "Unknown"
        cluster.put(NODES, "a", make_node("a").condition("Ready", "True").build())
        await cluster.clock.advance(0.9 * NodeLifecycleOptions().grace)
        assert status() == "True"
        cluster.add_lease("a")
        await cluster.clock.advance(SILENT)
        assert status() == "True"


async def test_recovered_node_without_a_lease_is_unreachable_after_the_grace_period() -> None:
    cluster = Cluster("a", "b")
    async with cluster.running():
        cluster.remove_lease("a")
        await cluster.clock.advance(SILENT)
        cluster.put(NODES, "a", make_node("a").condition("Ready", "True").build())
        await cluster.clock.advance(SILENT)
        assert ready_status(cluster.stores[NODES]["a"]) == "Unknown"


async def test_excluded_nodes_do_not_disrupt_their_zone() -> None:
    """Three of five silent nodes would put the zone into partial disruption, and no node would be evicted."""
    names = ["a", "b", "c", "d", "e"]
    cluster = Cluster(*names)
    for name in ("a", "b"):
        excluded = make_node(name).label("node.kubernetes.io/exclude-disruption", "").condition("Ready", "True").build()
        cluster.put(NODES, name, excluded)
    async with cluster.running():
        for name in ("a", "b", "c"):
            cluster.remove_lease(name)
        await cluster.clock.advance(SILENT)
        assert [cluster.taints(name) for name in ("a", "b", "c")] == [{NO_SCHEDULE, NO_EXECUTE}] * 3
