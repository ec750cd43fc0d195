"""What changes of pods and nodes do to cache and queue."""

import asyncio
from itertools import count

import pytest

from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.selectors import parse_labels
from pinnace.api.verbs_pb2 import WatchEventType
from pinnace.client.informer import Delta
from pinnace.scheduler.cache.cache import Cache, Change
from pinnace.scheduler.cache.pod_index import Selection
from pinnace.scheduler.informers import EventHandlers
from pinnace.scheduler.queue import SchedulingQueue
from tests.builders import PodBuilder, make_node, make_pod
from tests.clock import FakeClock
from tests.unit.scheduler.pods import framework, info

ADDED, MODIFIED, DELETED = WatchEventType.ADDED, WatchEventType.MODIFIED, WatchEventType.DELETED
POD = make_pod("a").req(cpu=1)


class World:
    def __init__(self) -> None:
        self.now = 0.0
        self.changes = 0
        self.cache = Cache()
        self.queue = SchedulingQueue(framework())
        self.feed = EventHandlers(self.cache, self.queue, {"default-scheduler"}, lambda: self.now, self.changed)
        self.tell_nodes([Delta(ADDED, make_node("n").capacity(cpu=1, pods=9, memory="1Gi").build(), None)])

    def changed(self) -> None:
        self.changes += 1

    def tell_nodes(self, deltas: list[Delta[Node]]) -> None:
        self.feed.on_nodes(deltas)
        while self.feed.move_pods_of_changed_node():
            pass

    def tell(self, kind: WatchEventType, pod: PodBuilder, old: PodBuilder | None = None) -> None:
        self.feed.on_pods([Delta(kind, pod.build(), old.build() if old else None)])

    @property
    def free(self) -> int:
        return int(self.cache.nodes.free("cpu")[0])

    def park(self) -> None:
        """The queued pod is found unschedulable."""
        queued = self.queue.pop_pod(self.now)
        assert queued is not None
        self.queue.add_unschedulable(queued, frozenset({"NodeResourcesFit"}), self.now)
        self.now += 60.0


@pytest.fixture
def world() -> World:
    return World()


def pending() -> PodBuilder:
    return make_pod("a").req(cpu=1)


def test_pending_pod_is_queued(world: World) -> None:
    world.tell(ADDED, pending())
    assert info(POD).uid in world.queue and world.changes == 2


@pytest.mark.parametrize("pod", [pending().scheduler("other"), pending().terminating()])
def test_pods_that_are_not_ours_to_place_are_not_queued(world: World, pod: PodBuilder) -> None:
    world.tell(ADDED, pod)
    assert len(world.queue) == 0


def test_pod_that_is_being_deleted_leaves_the_queue(world: World) -> None:
    world.tell(ADDED, pending())
    world.tell(MODIFIED, pending().terminating(), pending())
    assert len(world.queue) == 0


def test_assumed_pod_that_is_being_deleted_takes_no_room(world: World) -> None:
    world.tell(ADDED, make_pod("b").req(cpu=1))
    world.park()
    world.cache.assume_pod(info(POD), "n")
    world.tell(MODIFIED, pending().terminating(), pending())
    assert world.cache.node_of(info(POD).uid) is None and world.free == 1_000
    queued = world.queue.pop_pod(world.now)
    assert queued is not None and queued.info.name == "b", "it is woken"


def test_bound_pod_takes_room_whoever_its_scheduler_is(world: World) -> None:
    world.tell(ADDED, pending().scheduler("other").node("n"))
    assert world.free == 0 and len(world.queue) == 0


def test_pod_bound_by_another_client_leaves_the_queue(world: World) -> None:
    world.tell(ADDED, pending())
    world.tell(MODIFIED, pending().node("n"), pending())
    assert len(world.queue) == 0 and world.free == 0


def test_assumed_pod_is_not_queued_again_by_a_late_event(world: World) -> None:
    world.cache.assume_pod(info(POD), "n")
    world.tell(MODIFIED, pending().condition("PodScheduled", "False"), pending())
    assert len(world.queue) == 0
    world.tell(MODIFIED, pending().node("n"), pending())
    assert not world.cache.is_assumed(info(POD).uid) and world.free == 0


@pytest.mark.parametrize("kind", [ADDED, MODIFIED, DELETED])
def test_events_that_come_twice_change_nothing(world: World, kind: WatchEventType) -> None:
    pod = pending().node("n")
    world.tell(ADDED, pod)
    world.tell(kind, pod, pod)
    world.tell(kind, pod, pod)
    assert world.free == (1000 if kind == DELETED else 0)


@pytest.mark.parametrize(
    ("kind", "pod"),
    [
        (DELETED, pending().node("n")),
        (MODIFIED, pending().node("n").phase("Succeeded")),
        (MODIFIED, pending().node("n").phase("Failed")),
    ],
)
def test_terminated_pod_frees_its_requests_and_requeues_waiting_pods(
    world: World, kind: WatchEventType, pod: PodBuilder
) -> None:
    world.tell(ADDED, pending().node("n"))
    world.tell(ADDED, make_pod("waiting").req(cpu=1))
    world.park()
    world.tell(kind, pod, pending().node("n"))
    assert world.free == 1000
    queued = world.queue.pop_pod(world.now)
    assert queued is not None and queued.info.name == "waiting"


def test_downsized_pod_frees_requests_and_requeues_waiting_pods(world: World) -> None:
    world.tell(ADDED, pending().node("n"))
    world.tell(ADDED, make_pod("waiting").req(cpu="500m"))
    world.park()
    old, new = pending().node("n").build(), make_pod("a").req(cpu="400m").node("n").build()
    old.metadata.generation, new.metadata.generation = 1, 2
    world.feed.on_pods([Delta(MODIFIED, new, old)])
    assert world.free == 600
    queued = world.queue.pop_pod(world.now)
    assert queued is not None and queued.info.name == "waiting"


def test_pod_that_grows_takes_more_room_and_wakes_no_pod(world: World) -> None:
    world.tell(ADDED, make_pod("a").req(cpu="200m").node("n"))
    world.tell(ADDED, make_pod("waiting").req(cpu="2"))
    world.park()
    old, new = make_pod("a").req(cpu="200m").node("n").build(), make_pod("a").req(cpu="700m").node("n").build()
    old.metadata.generation, new.metadata.generation = 1, 2
    world.feed.on_pods([Delta(MODIFIED, new, old)])
    assert world.free == 300
    assert world.queue.pop_pod(world.now) is None
    world.tell(DELETED, make_pod("a").req(cpu="700m").node("n"))
    assert world.free == 1000


def test_pod_deleted_while_it_waits_is_gone(world: World) -> None:
    world.tell(ADDED, pending())
    world.park()
    world.tell(DELETED, pending(), pending())
    assert len(world.queue) == 0


def test_namesake_takes_the_place_of_the_one_that_was_missed(world: World) -> None:
    old = pending().node("n")
    world.tell(ADDED, old)
    world.tell(ADDED, pending().uid("another"), old)
    assert world.free == 1000 and "another" in world.queue


def test_nodes_come_and_go(world: World) -> None:
    world.tell(ADDED, make_pod("big").req(cpu=3))
    world.park()
    node = make_node("m").build()
    world.tell_nodes([Delta(ADDED, node, None)])
    assert world.queue.has_active_pods and len(world.cache.nodes) == 2
    world.tell_nodes([Delta(DELETED, node, node)])
    assert world.cache.nodes.names == ["n"]


def test_changed_node_requeues_only_pods_that_it_may_fit(world: World) -> None:
    world.tell(ADDED, make_pod("big").req(cpu=3))
    world.park()
    world.tell_nodes([Delta(MODIFIED, make_node("n").capacity(cpu=1, pods=9, memory="1Gi").label("a", "b").build(), None)])
    assert not world.queue.has_active_pods
    world.tell_nodes([Delta(MODIFIED, make_node("n").capacity(cpu=4, pods=9, memory="1Gi").build(), None)])
    assert world.queue.has_active_pods


def test_terminal_pod_that_was_never_bound_is_nothing(world: World) -> None:
    world.tell(ADDED, pending().phase("Failed"))
    assert len(world.queue) == 0 and len(world.cache) == 0


def test_many_changes_in_one_call(world: World) -> None:
    pods: list[Pod] = [make_pod(f"p{i}").build() for i in range(10)]
    world.feed.on_pods([Delta(ADDED, pod, None) for pod in pods])
    assert len(world.queue) == 10 and world.changes == 2


def web_pods(world: World) -> list[float]:
    return world.cache.nodes.pods.count_pods(Selection(None, parse_labels("app=web"), living=True)).tolist()


def test_labels_of_pods_on_nodes_are_followed(world: World) -> None:
    bound, web = pending().node("n"), pending().node("n").label("app", "web")
    world.tell(ADDED, bound)
    world.tell(MODIFIED, web, bound)
    assert web_pods(world) == [1]
    world.tell(MODIFIED, pending().node("n").label("app", "web").terminating(), web)
    assert web_pods(world) == [0] and world.free == 0


def test_labels_that_change_during_a_bind_are_followed(world: World) -> None:
    world.tell(ADDED, pending())
    world.cache.assume_pod(info(POD), "n")
    world.tell(MODIFIED, pending().label("app", "web"), pending())
    world.tell(MODIFIED, pending().label("app", "web").node("n"), pending().label("app", "web"))
    assert web_pods(world) == [1]


@pytest.mark.parametrize("assumed", [True, False])
def test_bound_pod_wakes_waiting_pods(world: World, assumed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[Change]()
    monkeypatch.setattr(world.queue, "move_pods_on_event", lambda event, nodes, now: told.append(event.change))
    if assumed:
        world.cache.assume_pod(info(POD), "n")
    for _ in range(2):
        world.tell(MODIFIED, pending().node("n"), pending())
    world.tell_nodes([Delta(DELETED, make_node("n").build(), None)])
    assert told == [Change.POD_PLACED, Change.NODE_REMOVED]


async def test_others_have_their_turn_between_the_nodes_of_a_batch(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes milliseconds to ask a thousand pods whether one node helps, and a leader must send heartbeats."""
    clock, seconds, story = FakeClock(), count(), list[str]()
    monkeypatch.setattr(clock, "monotonic", lambda: float(next(seconds)))
    monkeypatch.setattr(world.queue, "move_pods_on_event", lambda event, nodes, now: story.append(event.node))
    task = asyncio.ensure_future(world.feed.run(clock))
    nodes = [make_node(name) for name in "abc"]
    world.feed.on_nodes([Delta(ADDED, node.build(), None) for node in nodes])
    assert len(world.cache.nodes) == 4, "where there is room is known at once"
    async with asyncio.timeout(5.0):
        while len(set(story)) < 4:
            await asyncio.sleep(0)
            if story[-1:] != ["beat"]:
                story.append("beat")
    task.cancel()
    assert [item for item in story if item != "beat"] == ["a", "b", "c"]
    assert all(f"{one} beat" in " ".join(story) for one in "ab")


def test_node_that_changes_again_and_again_is_asked_about_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[tuple[str, Change]]()
    monkeypatch.setattr(world.queue, "move_pods_on_event", lambda event, nodes, now: told.append((event.node, event.change)))
    old, new = make_node("m").build(), make_node("m").label("a", "b").build()
    world.tell_nodes([Delta(ADDED, old, None), Delta(MODIFIED, new, old), Delta(MODIFIED, new, new)])
    assert told == [("m", Change.NODE_ADDED | Change.NODE_LABELS)]


def test_pods_that_leave_a_node_together_are_one_event(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = [make_pod(name).req(cpu="100m").node("n") for name in "xyz"] + [make_pod("v").label("app", "web").node("n")]
    for pod in gone:
        world.tell(ADDED, pod)
    told = list[tuple[str, Change, int]]()
    monkeypatch.setattr(
        world.queue, "move_pods_on_event", lambda event, nodes, now: told.append((event.node, event.change, world.free))
    )
    world.feed.on_pods([Delta(DELETED, pod.build(), pod.build()) for pod in gone])
    assert told == [("n", Change.POD_FREED, 1000)] * 2, "one for those that are alike, when all of them have gone"


def test_update_events_contain_the_old_pod(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody may wait for what one of them is no more."""
    before = [make_pod(name).label("app", app).node("n") for name, app in (("x", "web"), ("y", "db"), ("z", "db"))]
    for pod in before:
        world.tell(ADDED, pod)
    told = list[str]()
    monkeypatch.setattr(world.queue, "move_pods_on_event", lambda event, nodes, now: told.append(event.was.labels["app"]))
    after = [make_pod(name).label("app", "none").node("n") for name in "xyz"]
    world.feed.on_pods([Delta(MODIFIED, new.build(), old.build()) for new, old in zip(after, before, strict=True)])
    assert told == ["web", "db"]


def reported(cpu: str, allocated: str, reason: str = "") -> PodBuilder:
    """A bound pod of generation 2, by its kubelet; `reason`: of PodResizePending."""
    builder = make_pod("a").req(cpu=cpu).node("n")
    pod = builder._pod
    pod.metadata.generation = pod.status.observedGeneration = 2
    status = pod.status.containerStatuses.add(name=pod.spec.containers[0].name)
    status.allocatedResources["cpu"].string = status.resources.requests["cpu"].string = allocated
    return builder.condition("PodResizePending", "True", reason) if reason else builder


def test_resize_that_is_pending_counts_by_what_its_kubelet_reports(world: World) -> None:
    before = make_pod("a").req(cpu="100m").node("n")
    world.tell(ADDED, before)
    asked = make_pod("a").req(cpu="500m").node("n")
    asked._pod.metadata.generation = 2
    world.tell(MODIFIED, asked, before)
    assert world.free == 500
    infeasible = reported("500m", "100m", "Infeasible")
    world.tell(MODIFIED, infeasible, asked)
    assert world.free == 900
    deferred = reported("500m", "100m", "Deferred")
    world.tell(MODIFIED, deferred, infeasible)
    assert world.free == 500
    world.tell(MODIFIED, reported("500m", "500m"), deferred)
    assert world.free == 500
