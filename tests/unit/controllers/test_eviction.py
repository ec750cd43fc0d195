"""The taint eviction controller over time, with fake stores."""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.resources import NODES
from pinnace.api.verbs_pb2 import ADDED, DELETED, MODIFIED, BatchItem, DeleteRequest
from pinnace.client.informer import Delta, Index
from pinnace.controllers.pods import pod_node_name
from pinnace.controllers.runtime import ControllerContext, WorkerPool
from pinnace.controllers.tainteviction import TaintEvictionController
from tests.builders import make_node, make_pod
from tests.clock import FakeClock
from tests.refusals import denied

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"


@dataclass
class Cluster:
    """A fake of the API, the informers and the event recorder."""

    nodes: dict[str, Node] = field(default_factory=dict)
    pods: Any = None
    """The pods client of the controller: this object."""
    bound: Index[Pod] = field(default_factory=lambda: Index(pod_node_name))
    handlers: list[Any] = field(default_factory=list)
    told: list[tuple[str, str]] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)
    """Pods whose deletion is rejected."""

    def store(self, resource: Any) -> dict[str, Node]:
        return self.nodes

    def index(self, resource: Any, by: Any) -> Index[Pod]:
        return self.bound

    def add_handler(self, resource: Any, handler: Any) -> None:
        self.handlers.append(handler)

    def for_component(self, component: str) -> "Cluster":
        return self

    def event(self, obj: Pod, type_: str, reason: str, message: str) -> None:
        self.told.append((obj.metadata.name, reason))
        self.messages.append(message)

    async def delete_batch(self, requests: list[DeleteRequest]) -> list[BatchItem]:
        self.deleted += [request.name for request in requests if request.name not in self.refused]
        self.told += [(request.name, request.disruption.reason) for request in requests]
        return [denied(request.name) if request.name in self.refused else BatchItem() for request in requests]

    def bind(self, name: str, seconds: int | None, **others: int) -> None:
        """Bind a pod that tolerates the unreachable taint for `seconds`, or not at all if None. `others` has tolerations by
        taint key.
        """
        pod = make_pod(name).uid(name).node("n").build()
        for key, toleration in {UNREACHABLE: seconds, **others}.items():
            if toleration is not None:
                pod.spec.tolerations.add(key=key, operator="Exists", effect="NoExecute", tolerationSeconds=toleration)
        self.bound.apply_deltas([Delta(ADDED, pod, None)])

    def taint(self, *keys: str) -> None:
        builder = make_node("n")
        for key in keys:
            builder.taint(key, effect="NoExecute")
        self.nodes["n"] = builder.build()
        for handler in self.handlers:
            handler([Delta(MODIFIED, self.nodes["n"], None)])


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.pods = made
    return made


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def controller(cluster: Cluster, clock: FakeClock) -> Iterator[TaintEvictionController]:
    anything: Any = cluster
    yield TaintEvictionController(ControllerContext(anything, anything, anything, clock, "taint-eviction-controller"))


async def test_pod_without_tolerations_is_evicted_immediately_with_an_event(
    cluster: Cluster, controller: TaintEvictionController
) -> None:
    cluster.bind("p", None)
    cluster.taint()
    assert await controller.sync("n") is None and cluster.deleted == []
    cluster.taint(UNREACHABLE)
    assert await controller.sync("n") is None
    assert cluster.deleted == ["p"]
    assert set(cluster.told) == {("p", "DeletionByTaintManager"), ("p", "TaintManagerEviction")}


async def test_each_pod_is_evicted_after_its_toleration_time(
    cluster: Cluster, controller: TaintEvictionController, clock: FakeClock
) -> None:
    cluster.bind("soon", 5)
    cluster.bind("late", 60)
    cluster.taint(UNREACHABLE)
    assert await controller.sync("n") == 5.0
    clock.stall(4.0)
    assert await controller.sync("n") == 1.0 and cluster.deleted == []
    clock.stall(1.0)
    assert await controller.sync("n") == 55.0 and cluster.deleted == ["soon"]


async def test_readded_taint_restarts_the_toleration_time(
    cluster: Cluster, controller: TaintEvictionController, clock: FakeClock
) -> None:
    cluster.bind("p", 5)
    cluster.taint(UNREACHABLE)
    assert await controller.sync("n") == 5.0
    cluster.taint()
    clock.stall(60.0)
    assert await controller.sync("n") is None and cluster.deleted == []
    cluster.taint(UNREACHABLE)
    assert await controller.sync("n") == 5.0 and cluster.deleted == []


async def test_taint_readded_between_syncs_restarts_the_toleration_time(
    cluster: Cluster, controller: TaintEvictionController, clock: FakeClock
) -> None:
    """Another replica may lead between the two syncs."""
    cluster.bind("p", 5)
    cluster.taint(UNREACHABLE)
    assert await controller.sync("n") == 5.0
    cluster.taint()
    clock.stall(60.0)
    cluster.taint(UNREACHABLE)
    assert await controller.sync("n") == 5.0 and cluster.deleted == []


async def test_each_taint_has_a_separate_toleration_time(
    cluster: Cluster, controller: TaintEvictionController, clock: FakeClock
) -> None:
    cluster.bind("p", 300, repair=60)
    cluster.taint(UNREACHABLE)
    assert await controller.sync("n") == 300.0
    clock.stall(100.0)
    cluster.taint(UNREACHABLE, "repair")
    assert await controller.sync("n") == 60.0 and cluster.deleted == []
    clock.stall(50.0)
    cluster.taint(UNREACHABLE)
    assert await controller.sync("n") == 150.0 and cluster.deleted == []
    clock.stall(150.0)
    assert await controller.sync("n") is None and cluster.deleted == ["p"]


async def test_readded_second_taint_restarts_its_toleration_time(
    cluster: Cluster, controller: TaintEvictionController, clock: FakeClock
) -> None:
    """Another replica may lead between the two syncs."""
    cluster.bind("p", 300, repair=60)
    cluster.taint(UNREACHABLE, "repair")
    assert await controller.sync("n") == 60.0
    clock.stall(50.0)
    cluster.taint(UNREACHABLE)
    cluster.taint(UNREACHABLE, "repair")
    assert await controller.sync("n") == 60.0 and cluster.deleted == []


async def test_change_from_not_ready_to_unreachable_keeps_the_toleration_time(
    cluster: Cluster, controller: TaintEvictionController, clock: FakeClock
) -> None:
    cluster.bind("p", 300, **{NOT_READY: 300})
    cluster.taint(NOT_READY)
    assert await controller.sync("n") == 300.0
    clock.stall(100.0)
    cluster.taint(UNREACHABLE)
    assert await controller.sync("n") == 200.0


async def test_toleration_time_of_a_later_pod_starts_with_the_pod(
    cluster: Cluster, controller: TaintEvictionController, clock: FakeClock
) -> None:
    cluster.taint(UNREACHABLE)
    assert await controller.sync("n") is None
    clock.stall(100.0)
    cluster.bind("p", 5)
    assert await controller.sync("n") == 5.0


async def test_cancelled_eviction_is_reported(cluster: Cluster, controller: TaintEvictionController) -> None:
    cluster.bind("p", 5, repair=60)
    cluster.bind("gone", 5, repair=60)
    cluster.taint(UNREACHABLE)
    await controller.sync("n")
    gone = cluster.bound.under("n")["gone"]
    cluster.bound.apply_deltas([Delta(DELETED, gone, gone)])
    cluster.taint("repair")
    await controller.sync("n")
    assert cluster.messages == [], "another taint still evicts the pod"
    for _ in range(2):
        cluster.taint()
        await controller.sync("n")
    assert cluster.messages == ["Cancelling deletion of Pod default/p"]


async def test_refused_deletion_does_not_block_other_pods(
    cluster: Cluster, controller: TaintEvictionController, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    cluster.refused.add("held")
    cluster.bind("held", None)
    cluster.bind("late", 350)
    cluster.taint(UNREACHABLE)
    working = WorkerPool(controller, lambda: True, clock=clock)
    await working.enqueue_existing(lambda resource: cluster.nodes if resource is NODES else {})
    running = asyncio.ensure_future(working.run())
    await clock.advance(349.0)
    assert cluster.deleted == []
    await clock.advance(1.0)
    assert cluster.deleted == ["late"]
    running.cancel()
