"""What wakes a pod that a plugin of somebody's own refused or holds back, without a word of what helps: all that it can have
looked at."""

import asyncio

import pytest

from pinnace.api.core_v1_pb2 import Namespace, Pod
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.resources import NAMESPACES, NODES, PODS
from pinnace.scheduler.config import Configuration, with_plugin
from pinnace.scheduler.framework import (
    Change,
    ClusterEvent,
    CycleState,
    Handle,
    NodeTable,
    NodeView,
    PerNodeFilter,
    PodInfo,
    Wait,
)
from tests.builders import NodeBuilder, PodBuilder, make_node, make_pod
from tests.unit.scheduler.stage import Stage


class Quiet(PerNodeFilter):
    name = "Quiet"

    def filter_node(self, pod: Pod, node: NodeView) -> str | None:
        if pod.metadata.annotations.get("asleep") == "yes":
            return "pod asleep"
        loud = any(condition.type == "Loud" and condition.status == "True" for condition in node.node.status.conditions)
        return "node(s) loud" if loud or node.annotations.get("loud") == "yes" else None


@pytest.mark.parametrize(
    ("node", "pod"),
    [
        (make_node("n").annotation("loud", "yes"), make_pod("a")),
        (make_node("n").condition("Loud", "True"), make_pod("a")),
        (make_node("n"), make_pod("a").annotation("asleep", "yes")),
    ],
    ids=["node's annotation", "node's condition", "pod's annotation"],
)
def test_it_is_tried_again(node: NodeBuilder, pod: PodBuilder) -> None:
    stage = Stage(with_plugin(Configuration(), f"{__name__}:Quiet"))

    async def story() -> None:
        stage.api.put(NODES, node.build())
        await asyncio.sleep(1.0)
        stage.api.put(PODS, pod.build())
        await asyncio.sleep(15.0)
        assert stage.node_of("a") == ""
        stage.api.put(NODES, make_node("n").build())
        stage.api.put(PODS, make_pod("a").build())
        await asyncio.sleep(1.0)
        assert stage.node_of("a") == "n"

    stage.play(story())


class Opened:
    """Holds pods back until their namespace is open."""

    name = "Opened"
    needs = (NAMESPACES,)

    def __init__(self, handle: Handle) -> None:
        self._namespaces = handle.objects(NAMESPACES)

    def pre_enqueue(self, pod: PodInfo) -> bool:
        return pod.namespace in self._namespaces and "open" in self._namespaces[pod.namespace].metadata.labels


def test_pod_that_another_object_holds_back_is_let_go() -> None:
    stage = Stage(with_plugin(Configuration(), f"{__name__}:Opened"))

    async def story() -> None:
        stage.api.put(NODES, make_node("n").build())
        stage.api.put(PODS, make_pod("a").build())
        await asyncio.sleep(1.0)
        stage.api.put(NAMESPACES, Namespace(metadata=ObjectMeta(name="default")))
        await asyncio.sleep(1.0)
        assert stage.schedulers[0].count_pending() == {"gated": 1}
        stage.api.put(NAMESPACES, Namespace(metadata=ObjectMeta(name="default", labels={"open": "yes"})))
        await asyncio.sleep(1.0)
        assert stage.node_of("a") == "n"

    stage.play(story())


class Licence:
    """There is one, and pods are held back until it is free. `slow` waits for others once it has it."""

    name = "Licence"

    def __init__(self) -> None:
        self._holder = ""

    def pre_enqueue(self, pod: PodInfo) -> bool:
        return not self._holder or self._holder == pod.uid

    def permit(self, state: CycleState, pod: PodInfo, node: str) -> Wait | None:
        return Wait(600.0) if pod.name == "slow" else None

    def reserve(self, state: CycleState, pod: PodInfo, node: str) -> None:
        self._holder = pod.uid

    def unreserve(self, state: CycleState, pod: PodInfo, node: str) -> None:
        if self._holder == pod.uid:
            self._holder = ""


class PatientLicence(Licence):
    name = "PatientLicence"
    helped_by = Change.RESERVATION_ENDED

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        return True


@pytest.mark.parametrize("plugin", ["Licence", "PatientLicence"])
def test_held_pod_is_retried_when_a_reservation_ends(plugin: str) -> None:
    """Which no informer tells of: the scheduler itself does."""
    stage = Stage(with_plugin(Configuration(), f"{__name__}:{plugin}"))

    async def story() -> None:
        stage.api.put(NODES, make_node("n").build())
        await asyncio.sleep(1.0)
        stage.api.put(PODS, make_pod("slow").build())
        await asyncio.sleep(5.0)
        stage.api.put(PODS, make_pod("next").build())
        await asyncio.sleep(40.0)
        assert stage.node_of("next") == ""
        stage.api.remove(PODS, "default/slow")
        await asyncio.sleep(2.0)
        assert stage.node_of("next") == "n"

    stage.play(story())
