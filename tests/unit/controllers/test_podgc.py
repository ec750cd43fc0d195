from collections.abc import Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.verbs_pb2 import ADDED, DELETED, BatchItem, DeleteRequest
from pinnace.client.errors import ApiError, Forbidden, unavailable_error
from pinnace.client.informer import Delta, Index
from pinnace.client.resource import Listing
from pinnace.controllers.podgc import (
    INTERVAL,
    QUARANTINE,
    PodGarbageCollector,
    failed_status,
    find_missing_nodes,
    leaving_key,
    select_pods_to_remove,
)
from pinnace.controllers.runtime import PartialSyncError
from tests.builders import NodeBuilder, PodBuilder, make_node, make_pod
from tests.clock import FakeClock
from tests.refusals import denied

NOW = 1_000.0
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


@pytest.mark.parametrize(
    ("pod", "node", "gone", "why"),
    [
        (make_pod("p").node("n"), make_node("n"), None, None),
        (make_pod("p").node("n"), None, None, None),
        (make_pod("p").node("n"), None, QUARANTINE - 1, None),
        (make_pod("p").node("n"), None, QUARANTINE, "PodGC: node no longer exists"),
        (make_pod("p").node("n").phase("Succeeded"), None, QUARANTINE, "PodGC: node no longer exists"),
        (make_pod("p"), None, None, None),
        (make_pod("p").terminating(), None, None, ""),
        (make_pod("p").node("n").terminating(), make_node("n").condition("Ready", "Unknown"), None, None),
        (
            make_pod("p").node("n").terminating(),
            make_node("n").condition("Ready", "Unknown").taint(OUT_OF_SERVICE, effect="NoExecute"),
            None,
            "PodGC: node is out of service",
        ),
        (
            make_pod("p").node("n").terminating().phase("Failed"),
            make_node("n").condition("Ready", "Unknown").taint(OUT_OF_SERVICE),
            None,
            "PodGC: node is out of service",
        ),
        (make_pod("p").node("n"), make_node("n").condition("Ready", "Unknown").taint(OUT_OF_SERVICE), None, None),
        (
            make_pod("p").node("n").terminating(),
            make_node("n").condition("Ready", "True").taint(OUT_OF_SERVICE),
            None,
            None,
        ),
    ],
)
def test_terminating_pods_without_a_kubelet_are_deleted(
    pod: PodBuilder, node: NodeBuilder | None, gone: float | None, why: str | None
) -> None:
    nodes = {"n": node.build()} if node is not None else {}
    result = select_pods_to_remove([pod.build()], nodes, {} if gone is None else {"n": NOW - gone}, NOW)
    assert [item.why for item in result] == ([] if why is None else [why])


@pytest.mark.parametrize(
    ("phase", "grace", "finalizers", "goes"),
    [
        ("Failed", 0, ["example.com/keep"], False),
        ("Failed", 30, ["example.com/keep"], True),
        ("Failed", 0, [], True),
        ("Running", 0, ["example.com/keep"], True),
    ],
)
def test_pod_kept_only_by_finalizers_is_not_deleted_again(phase: str, grace: int, finalizers: list[str], goes: bool) -> None:
    """Each deletion also reaches the audit log and webhooks."""
    pod: Pod = make_pod("p").node("n").terminating().phase(phase).build()
    pod.metadata.deletionGracePeriodSeconds = grace
    pod.metadata.finalizers.extend(finalizers)
    assert bool(select_pods_to_remove([pod], {}, {"n": NOW - QUARANTINE}, NOW)) is goes


def test_oldest_finished_pods_beyond_the_threshold_are_deleted() -> None:
    pods = [make_pod(name).created(age).phase("Succeeded").build() for name, age in (("b", 2), ("c", 3), ("a", 1))]
    pods.append(make_pod("runs").created(0).phase("Running").build())
    assert [item.pod.metadata.name for item in select_pods_to_remove(pods, {}, {}, NOW, threshold=2)] == ["a"]
    assert select_pods_to_remove(pods, {}, {}, NOW, threshold=3) == []


def test_evicted_pods_are_deleted_before_other_finished_pods() -> None:
    """A node under pressure leaves many evicted pods, and they would displace finished pods of Jobs."""
    pods = [make_pod(name).created(age).phase("Failed").build() for name, age in (("a", 1), ("b", 2), ("c", 3), ("d", 4))]
    for pod in pods[2:]:
        pod.status.reason = "Evicted"
    assert [item.pod.metadata.name for item in select_pods_to_remove(pods, {}, {}, NOW, threshold=1)] == ["c", "d", "a"]


def test_missing_node_keeps_its_first_time_until_it_reappears() -> None:
    bound = {"gone", "there"}
    nodes = {"there": make_node("there").build()}
    first = find_missing_nodes(bound, nodes, {}, 5.0)
    assert first == {"gone": 5.0}
    assert find_missing_nodes(bound, nodes, first, 9.0) == {"gone": 5.0}
    assert find_missing_nodes(bound, nodes | {"gone": make_node("gone").build()}, first, 9.0) == {}


@pytest.mark.parametrize(
    ("pod", "looked_at"),
    [
        (make_pod("p").node("n").phase("Running"), False),
        (make_pod("p"), False),
        (make_pod("p").phase("Failed"), True),
        (make_pod("p").node("n").phase("Running").terminating(), True),
    ],
)
def test_only_terminating_pods_are_checked_on_existing_nodes(pod: PodBuilder, looked_at: bool) -> None:
    assert bool(leaving_key(pod.build())) is looked_at


@pytest.mark.parametrize("phase", ["Running", "Pending"])
def test_pod_removed_before_its_end_has_failed(phase: str) -> None:
    pod: Pod = make_pod("p").phase(phase).build()
    left = failed_status(pod, "PodGC: node no longer exists", NOW)
    assert left.status.phase == "Failed" and pod.status.phase == phase
    (condition,) = [item for item in left.status.conditions if item.type == "DisruptionTarget"]
    assert (condition.status, condition.reason, condition.message) == (
        "True", "DeletionByPodGC", "PodGC: node no longer exists",
    )  # fmt: skip


def test_podgc_writes_only_the_status() -> None:
    """Otherwise hundreds of whole pods could exceed the size of a request, and garbage collection would stop."""
    pod: Pod = make_pod("p").req(cpu="1").build()
    pod.metadata.annotations["about"] = "x" * (9 << 10)
    pod.metadata.resourceVersion = "7"
    left = failed_status(pod, "PodGC: node no longer exists", NOW)
    assert left.ByteSize() < 1 << 10
    assert (left.metadata.name, left.metadata.namespace) == (pod.metadata.name, pod.metadata.namespace)
    assert (left.metadata.uid, left.metadata.resourceVersion) == (pod.metadata.uid, "7")


class World:
    """A collector with pods of a node that its informer does not have. `refused` is a pod whose status update is rejected.
    `others` has unscheduled pods. `nodes` are the nodes of the API server, or its error.
    """

    def __init__(self, *pods: str, refused: str = "", others: Sequence[Pod] = ()) -> None:
        result = [*(make_pod(name).node("n").build() for name in pods), *others]
        self.clock, self.handlers, self.updated, self.removed = FakeClock(), list[Any](), list[Pod](), list[str]()
        self._refused = refused
        self.nodes: list[Node] | ApiError = []
        informers = SimpleNamespace(
            store=lambda resource: {},
            index=lambda resource, by: Index(by, result),
            add_handler=lambda resource, handler: self.handlers.append(handler),
        )
        client = SimpleNamespace(pods=self, nodes=SimpleNamespace(list=self._list_nodes))
        shared: Any = SimpleNamespace(informers=informers, client=client, clock=self.clock)
        self.collector = PodGarbageCollector(shared)

    async def _list_nodes(self, *, fields: str) -> Listing[Node]:
        assert fields == "metadata.name=n"
        if isinstance(self.nodes, ApiError):
            raise self.nodes
        return Listing(self.nodes, 7)

    async def update_status_batch(self, pods: Sequence[Pod]) -> list[BatchItem]:
        self.updated += pods
        return [denied(pod.metadata.name) if pod.metadata.name == self._refused else BatchItem() for pod in pods]

    async def delete_batch(self, requests: Sequence[DeleteRequest]) -> list[BatchItem]:
        self.removed += [request.name for request in requests]
        return [BatchItem() for _ in requests]


async def test_reappeared_node_restarts_the_quarantine() -> None:
    """Another replica may lead between the two syncs."""
    world, node = World("p"), make_node("n").build()
    await world.collector.sync("pods")
    for handler in world.handlers:
        handler([Delta(ADDED, node, None)])
        handler([Delta(DELETED, node, node)])
    world.clock.stall(QUARANTINE)
    await world.collector.sync("pods")
    assert world.removed == []
    world.clock.stall(QUARANTINE)
    await world.collector.sync("pods")
    assert world.removed == ["p"]


async def test_unscheduled_pod_that_is_deleted_becomes_failed() -> None:
    """A controller may wait for the end of the pod, and no kubelet reports it. The pod was not disrupted."""
    ended = make_pod("ended").terminating().phase("Succeeded").build()
    world = World(others=[make_pod("waits").terminating().phase("Pending").build(), ended])
    await world.collector.sync("pods")
    assert [(item.metadata.name, item.status.phase, len(item.status.conditions)) for item in world.updated] == [
        ("waits", "Failed", 0)
    ]
    assert world.removed == ["waits", "ended"]


async def test_refused_status_update_keeps_the_pod_and_blocks_no_other() -> None:
    world = World("a", "held", "b", refused="held")
    await world.collector.sync("pods")
    world.clock.stall(QUARANTINE)
    with pytest.raises(PartialSyncError) as caught:
        await world.collector.sync("pods")
    assert world.removed == ["a", "b"]
    assert isinstance(caught.value.cause, Forbidden) and caught.value.again == INTERVAL


@pytest.mark.parametrize("nodes", [[make_node("n").build()], unavailable_error("not now")], ids=["exists", "unavailable"])
async def test_missing_node_is_confirmed_by_the_api_before_its_pods_are_deleted(nodes: list[Node] | ApiError) -> None:
    """The watch of nodes may be broken while the watch of pods works."""
    world = World("p")
    await world.collector.sync("pods")
    world.clock.stall(QUARANTINE)
    world.nodes = nodes
    with suppress(PartialSyncError):
        await world.collector.sync("pods")
    assert world.removed == []
    world.nodes = []
    await world.collector.sync("pods")
    assert world.removed == ["p"]
