"""GpuShare: devices from annotations and reservations, and the annotation of the bind."""

from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import PODS
from pinnace.api.verbs_pb2 import ADDED, DELETED
from pinnace.client.informer import Delta, Index
from pinnace.scheduler.cache.cache import Cache
from pinnace.scheduler.config import build_frameworks, parse_configuration
from pinnace.scheduler.framework.profile import Offline
from pinnace.scheduler.node_selector import NodeSelector
from pinnace.scheduler.plugins.gpu_share import GPU_MILLI, INDEX_ANNOTATION, device_table, parse_index
from pinnace.scheduler.scheduling_cycle import Placed, Unschedulable, schedule_one
from tests.builders import PodBuilder, make_node, make_pod
from tests.unit.scheduler.pods import info

SHARING = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{plugins: {multiPoint: {enabled: [{name: GpuShare}]}}}]
"""


class Handle(Offline):
    """A handle whose index of pods is fed by the test."""

    def __init__(self) -> None:
        super().__init__()
        self.indexes: list[Index[Any]] = []

    def index(self, resource: Any, by: Any) -> Index[Any]:
        index = super().index(resource, by)
        if resource is PODS:
            self.indexes.append(index)
        return index


class World:
    """Two nodes with two devices each."""

    def __init__(self) -> None:
        self.cache, self.handle = Cache(), Handle()
        (framework,) = build_frameworks(parse_configuration(SHARING), self.handle).values()
        for name in ("n0", "n1"):
            self.cache.set_node(make_node(name).capacity(cpu=8, memory="32Gi", pods=110).extended(GPU_MILLI, 2000).build())
        self.selector = NodeSelector(self.cache, framework, 0)

    def deliver(self, pod: Pod) -> None:
        """Deliver a bound pod, as the informer does."""
        for index in self.handle.indexes:
            index.apply_deltas([Delta(ADDED, pod, None)])
        self.cache.add_pod(info_of(pod), pod.spec.nodeName)

    def delete(self, pod: Pod) -> None:
        for index in self.handle.indexes:
            index.apply_deltas([Delta(DELETED, pod, pod)])
        self.cache.remove_pod(pod.metadata.uid)

    def place(self, pod: PodBuilder) -> tuple[str, str]:
        """Return the node and the annotation."""
        outcome = schedule_one(info(pod), self.selector)
        assert isinstance(outcome, Placed) and outcome.cycle is not None, outcome
        return outcome.node, outcome.cycle.annotations[INDEX_ANNOTATION]

    def free(self, node: str) -> list[int]:
        table = device_table(self.handle)
        table.update(self.cache.nodes)
        row = table.row_of(node)
        assert row is not None
        return [int(amount) for amount in table.free[row, :2]]


def info_of(pod: Pod) -> Any:
    from pinnace.scheduler.cache.pod_info import PodInfo

    return PodInfo(pod)


def wants(name: str, milli: int) -> PodBuilder:
    return make_pod(name).container(requests={"cpu": "100m", GPU_MILLI: milli})


def test_devices_follow_from_the_annotations_of_bound_pods() -> None:
    world = World()
    world.deliver(wants("a", 700).node("n0").annotation(INDEX_ANNOTATION, "1").build())
    bound = wants("b", 2000).node("n1").annotation(INDEX_ANNOTATION, "0-1").build()
    world.deliver(bound)
    assert (world.free("n0"), world.free("n1")) == ([1000, 300], [0, 0])
    assert world.place(wants("c", 300)) == ("n0", "1")  # the device with the least sufficient share
    world.delete(bound)
    assert world.free("n1") == [1000, 1000]


@pytest.mark.parametrize("annotation", ["", "7", "0-0", "x"])
def test_pod_without_valid_annotation_counts_on_some_device(annotation: str) -> None:
    world = World()
    world.deliver(wants("a", 700).node("n0").annotation(INDEX_ANNOTATION, annotation).build())
    assert sorted(world.free("n0")) == [300, 1000]


def test_reservation_ends_when_the_pod_is_forgotten() -> None:
    world = World()
    outcome = schedule_one(info(wants("a", 600)), world.selector)
    assert isinstance(outcome, Placed) and outcome.cycle is not None
    assert sorted(world.free(outcome.node)) == [400, 1000]
    world.cache.forget_pod("uid-default-a")
    outcome.cycle.run_unreserve()
    assert world.free(outcome.node) == [1000, 1000]


def test_sum_of_shares_is_no_device() -> None:
    world = World()
    for name, node in (("a", "n0"), ("b", "n0"), ("c", "n1"), ("d", "n1")):
        index = "0" if name in "ac" else "1"
        world.deliver(wants(name, 500).node(node).annotation(INDEX_ANNOTATION, index).build())
    outcome = schedule_one(info(wants("e", 1000)), world.selector)
    assert isinstance(outcome, Unschedulable) and "2 node(s) didn't have enough free GPU devices" in outcome.message


def test_amount_between_whole_devices_is_refused() -> None:
    outcome = schedule_one(info(wants("a", 1500)), World().selector)
    assert isinstance(outcome, Unschedulable) and "must be less than 1000 or a multiple of it" in outcome.message


def test_index_needs_different_devices() -> None:
    assert parse_index("0-3", 2) == [0, 3]
    assert parse_index("0-0", 2) is parse_index("1", 2) is parse_index("-1", 1) is parse_index("", 1) is None
