from collections.abc import Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from controllers.podgc import INTERVAL, QUARANTINE, PodGarbageCollector, doomed, failed, leaving, missed
from controllers.runtime import Unfinished
from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.verbs_pb2 import ADDED, DELETED, BatchItem, DeleteRequest
from pinnace.client.errors import ApiError, Forbidden, unavailable
from pinnace.client.informer import Delta, Index
from pinnace.client.resource import Listing
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
    found = doomed([pod.build()], nodes, {} if gone is None else {"n": NOW - gone}, NOW)
    assert [each.why for each in found] == ([] if why is None else [why])


@pytest.mark.parametrize(
    ("phase", "grace", "finalizers", "goes"),
    [
        ("Failed", 0, ["example.com/keep"], False),
        ("Failed", 30, ["example.com/keep"], True),
        ("Failed", 0, [], True),
        ("Running", 0, ["example.com/keep"], True),
    ],
)
def test_a_pod_that_only_its_finalizers_keep_is_not_deleted_again(
    phase: str, grace: int, finalizers: list[str], goes: bool
) -> None:
    """Each deletion is one for the audit log and for webhooks, too."""
    pod: Pod = make_pod("p").node("n").terminating().phase(phase).build()
    pod.metadata.deletionGracePeriodSeconds = grace
    pod.metadata.finalizers.extend(finalizers)
    assert bool(doomed([pod], {}, {"n": NOW - QUARANTINE}, NOW)) is goes


def test_the_oldest_finished_pods_go_when_there_are_too_many() -> None:
    pods = [make_pod(name).created(age).phase("Succeeded").build() for name, age in (("b", 2), ("c", 3), ("a", 1))]
    pods.append(make_pod("runs").created(0).phase("Running").build())
    assert [each.pod.metadata.name for each in doomed(pods, {}, {}, NOW, threshold=2)] == ["a"]
    assert doomed(pods, {}, {}, NOW, threshold=3) == []


def test_evicted_pods_go_before_others_that_have_finished() -> None:
    """A node under pressure leaves many, and a Job's would go for them."""
    pods = [make_pod(name).created(age).phase("Failed").build() for name, age in (("a", 1), ("b", 2), ("c", 3), ("d", 4))]
    for pod in pods[2:]:
        pod.status.reason = "Evicted"
    assert [each.pod.metadata.name for each in doomed(pods, {}, {}, NOW, threshold=1)] == ["c", "d", "a"]


def test_nodes_are_missed_from_when_they_were_first_and_no_longer_than_they_are() -> None:
    bound = {"gone", "there"}
    nodes = {"there": make_node("there").build()}
    first = missed(bound, nodes, {}, 5.0)
    assert first == {"gone": 5.0}
    assert missed(bound, nodes, first, 9.0) == {"gone": 5.0}
    assert missed(bound, nodes | {"gone": make_node("gone").build()}, first, 9.0) == {}


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
    assert bool(leaving(pod.build())) is looked_at


@pytest.mark.parametrize("phase", ["Running", "Pending"])
def test_pod_removed_before_its_end_has_failed(phase: str) -> None:
    pod: Pod = make_pod("p").phase(phase).build()
    left = failed(pod, "PodGC: node no longer exists", NOW)
    assert left.status.phase == "Failed" and pod.status.phase == phase
    (condition,) = [each for each in left.status.conditions if each.type == "DisruptionTarget"]
    assert (condition.status, condition.reason, condition.message) == (
        "True", "DeletionByPodGC", "PodGC: node no longer exists",
    )  # fmt: skip


def test_podgc_writes_only_the_status() -> None:
    """Hundreds of whole pods may be more than a call takes, and nothing would be collected any more."""
    pod: Pod = make_pod("p").req(cpu="1").build()
    pod.metadata.annotations["about"] = "x" * (9 << 10)
    pod.metadata.resourceVersion = "7"
    left = failed(pod, "PodGC: node no longer exists", NOW)
    assert left.ByteSize() < 1 << 10
    assert (left.metadata.name, left.metadata.namespace) == (pod.metadata.name, pod.metadata.namespace)
    assert (left.metadata.uid, left.metadata.resourceVersion) == (pod.metadata.uid, "7")


class World:
    """A collector before pods of a node that is not there, as far as its watch tells. `refused`: whose status may not be
    written; `others`: pods that are on no node; `nodes`: those that the API server has, or why it does not say."""

    def __init__(self, *pods: str, refused: str = "", others: Sequence[Pod] = ()) -> None:
        found = [*(make_pod(name).node("n").build() for name in pods), *others]
        self.clock, self.handlers, self.told, self.removed = FakeClock(), list[Any](), list[Pod](), list[str]()
        self._refused = refused
        self.nodes: list[Node] | ApiError = []
        informers = SimpleNamespace(
            store=lambda resource: {},
            index=lambda resource, by: Index(by, found),
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
        self.told += pods
        return [denied(pod.metadata.name) if pod.metadata.name == self._refused else BatchItem() for pod in pods]

    async def delete_batch(self, requests: Sequence[DeleteRequest]) -> list[BatchItem]:
        self.removed += [each.name for each in requests]
        return [BatchItem() for _ in requests]


async def test_reappeared_node_restarts_the_quarantine() -> None:
    """Another replica leads meanwhile."""
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


async def test_a_pod_that_is_deleted_before_it_has_a_node_has_failed_where_a_finalizer_keeps_it() -> None:
    """Who keeps it waits for its end, and no kubelet will say so. It was not disrupted."""
    ended = make_pod("ended").terminating().phase("Succeeded").build()
    world = World(others=[make_pod("waits").terminating().phase("Pending").build(), ended])
    await world.collector.sync("pods")
    assert [(each.metadata.name, each.status.phase, len(each.status.conditions)) for each in world.told] == [
        ("waits", "Failed", 0)
    ]
    assert world.removed == ["waits", "ended"]


async def test_refused_status_update_keeps_the_pod_and_blocks_no_other() -> None:
    world = World("a", "held", "b", refused="held")
    await world.collector.sync("pods")
    world.clock.stall(QUARANTINE)
    with pytest.raises(Unfinished) as caught:
        await world.collector.sync("pods")
    assert world.removed == ["a", "b"]
    assert isinstance(caught.value.cause, Forbidden) and caught.value.again == INTERVAL


@pytest.mark.parametrize("nodes", [[make_node("n").build()], unavailable("not now")], ids=["it is there", "nobody says"])
async def test_a_node_that_is_missed_is_asked_for_before_its_pods_go(nodes: list[Node] | ApiError) -> None:
    """The watch of nodes may be broken while that of pods is not."""
    world = World("p")
    await world.collector.sync("pods")
    world.clock.stall(QUARANTINE)
    world.nodes = nodes
    with suppress(Unfinished):
        await world.collector.sync("pods")
    assert world.removed == []
    world.nodes = []
    await world.collector.sync("pods")
    assert world.removed == ["p"]
