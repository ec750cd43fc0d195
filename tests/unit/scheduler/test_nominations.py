"""Room that is kept for nominated pods: in the table, in the cycle, in the queue; and what their status says of it."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinnace.api.records import QueuePlace
from pinnace.api.resources import NODES, PODS
from pinnace.api.verbs_pb2 import ADDED, MODIFIED
from pinnace.client.informer import Delta
from pinnace.scheduler.cache.cache import Cache, Change, ClusterEvent
from pinnace.scheduler.cache.pod_info import PodInfo
from pinnace.scheduler.config import Configuration, with_plugin
from pinnace.scheduler.framework import CycleState, Status
from pinnace.scheduler.informers import EventHandlers
from pinnace.scheduler.node_selector import NodeSelector
from pinnace.scheduler.queue import SchedulingQueue
from pinnace.scheduler.scheduling_cycle import Placed, Unschedulable, schedule_one
from tests.builders import NodeBuilder, PodBuilder, make_node, make_pod
from tests.unit.scheduler.fake_api import Weather
from tests.unit.scheduler.pods import cache_of, framework, info
from tests.unit.scheduler.stage import Stage

FRAMEWORK = framework()
FIT = frozenset({"NodeResourcesFit"})


def node(name: str) -> NodeBuilder:
    return make_node(name).capacity(cpu=4, memory="4Gi", pods=10)


def nominating(pod: PodBuilder, *nodes: str) -> Cache:
    """Empty nodes; the pod is nominated to the first."""
    cache = cache_of(*map(node, nodes))
    cache.nominate_pod(info(pod), nodes[0])
    return cache


NOMINATED = make_pod("nominated").req(cpu=4).priority(10)


def test_room_is_kept_from_the_same_and_lower_priorities() -> None:
    for priority, expected in ((9, "b"), (10, "b"), (11, "a")):
        cache = nominating(NOMINATED, "a", "b")
        cache.add_pod(info(make_pod("there").req(cpu=2).node("b")), "b")  # b is liked less
        assert schedule_one(info(make_pod("p").req(cpu=1).priority(priority)), NodeSelector(cache, FRAMEWORK, 0)) == Placed(
            expected
        )
    message = "0/1 nodes are available: 1 Insufficient cpu."
    full = nominating(NOMINATED, "a")
    assert schedule_one(info(make_pod("p").req(cpu=1)), NodeSelector(full, FRAMEWORK, 0)) == Unschedulable(FIT, message)


def test_nominated_pod_goes_where_its_room_is_and_the_nomination_ends() -> None:
    cache = nominating(make_pod("nominated").req(cpu=1).priority(10), "a", "b")
    cache.add_pod(info(make_pod("there").req(cpu=2).node("a")), "a")  # a is liked less
    assert schedule_one(info(make_pod("nominated").req(cpu=1).priority(10)), NodeSelector(cache, FRAMEWORK, 0)) == Placed("a")
    assert len(cache.nodes.nominated) == 0


def test_other_things_than_amounts_are_kept_too() -> None:
    port = make_pod("nominated").host_port(80).priority(10)
    cache = nominating(port, "a", "b")
    assert schedule_one(info(make_pod("p").host_port(80)), NodeSelector(cache, FRAMEWORK, 0)) == Placed("b")
    alone = nominating(port, "a")
    assert schedule_one(info(make_pod("p").host_port(80)), NodeSelector(alone, FRAMEWORK, 0)) == Unschedulable(
        frozenset({"NodePorts"}), "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."
    )
    assert not alone.nodes.used_ports.taken(info(port).requests.ports), "it is not there yet"


def test_affinity_to_a_nominated_pod_does_not_count() -> None:
    cache = nominating(make_pod("nominated").label("app", "x").req(cpu=1).priority(10), "a")
    near = make_pod("p").affinity("app=x", "kubernetes.io/hostname")
    assert isinstance(schedule_one(info(near), NodeSelector(cache, FRAMEWORK, 0)), Unschedulable)


def test_nomination_moves_and_ends() -> None:
    cache, pod = nominating(NOMINATED, "a", "b"), info(NOMINATED)
    assert cache.nominate_pod(pod, "a") is None
    assert cache.nominate_pod(pod, "b") == ClusterEvent(Change.POD_FREED, "a")
    assert cache.nodes.nominated.node_of(pod.uid) == "b" and not cache.nodes.nominated.pods_on("a")
    assert cache.remove_pod(pod.uid) == ClusterEvent(Change.POD_FREED, "b")
    assert cache.nominate_pod(pod, "") is None and cache.remove_pod(pod.uid) is None


def waiting(cache: Cache, *pods: PodBuilder) -> SchedulingQueue:
    queue = SchedulingQueue(framework())
    for pod in pods:
        queue.add_pod(info(pod), 0.0)
    while (queued := queue.pop_pod(0.0)) is not None:
        queue.add_unschedulable(queued, FIT, 0.0)
    return queue


def test_room_that_is_kept_wakes_the_one_it_is_kept_for() -> None:
    cache = nominating(NOMINATED, "a", "b")
    queue = waiting(cache, NOMINATED, make_pod("alike").req(cpu=4).priority(10), make_pod("higher").req(cpu=4).priority(11))
    queue.move_pods_on_event(ClusterEvent(Change.POD_FREED, "a"), cache.nodes, 100.0)
    assert queue.count_by_place() == {"active": 2, "unschedulable": 1}
    queue.move_pods_on_event(ClusterEvent(Change.POD_FREED, "b"), cache.nodes, 100.0)
    assert queue.count_by_place() == {"active": 3}


def test_pod_can_be_woken_by_name() -> None:
    queue = waiting(Cache(), NOMINATED)
    queue.activate_pod("nobody", 100.0)
    queue.activate_pod(info(NOMINATED).uid, 100.0)
    assert queue.count_by_place() == {"active": 1}


def test_nominations_of_an_earlier_leader_are_known() -> None:
    cache = cache_of(node("a"))
    feed = EventHandlers(cache, SchedulingQueue(framework()), {"default-scheduler"}, lambda: 0.0, lambda: None)
    old, cleared = make_pod("p").nominated("a").build(), make_pod("p").version(2)
    feed.on_pods([Delta(ADDED, old, None)])
    assert cache.nodes.nominated.node_of(old.metadata.uid) == "a"
    feed.on_pods([Delta(MODIFIED, make_pod("p").nominated("b").build(), old)])
    assert cache.nodes.nominated.node_of(old.metadata.uid) == "b"
    cache.nominate_pod(info(cleared), "")
    feed.on_pods([Delta(MODIFIED, make_pod("p").nominated("a").label("new", "label").build(), old)])
    assert not len(cache.nodes.nominated), "that it was nominated there is no news"
    cache.nominate_pod(info(cleared), "a")
    feed.on_pods([Delta(MODIFIED, cleared.build(), old)])
    assert not len(cache.nodes.nominated)


def test_labels_of_nominated_pods_are_followed() -> None:
    """A pod that will not be near is refused by what the nominated one is called now, and woken when that changes."""
    cache, away = cache_of(node("a")), make_pod("away").anti_affinity("app=x", "kubernetes.io/hostname")
    queue = SchedulingQueue(framework())
    feed = EventHandlers(cache, queue, {"default-scheduler"}, lambda: 100.0, lambda: None)
    old, new = (make_pod("p").label("app", app).nominated("a").priority(10).build() for app in "yx")
    feed.on_pods([Delta(ADDED, old, None), Delta(MODIFIED, new, old)])
    assert queue.pop_pod(0.0) is not None
    queue.add_pod(info(away), 0.0)
    queued = queue.pop_pod(0.0)
    assert queued is not None
    decided = schedule_one(queued.info, NodeSelector(cache, FRAMEWORK, 0))
    assert isinstance(decided, Unschedulable)
    queue.add_unschedulable(queued, decided.refused_by, 0.0)
    feed.on_pods([Delta(MODIFIED, old, new)])
    assert queued.place is QueuePlace.ACTIVE
    assert schedule_one(info(away), NodeSelector(cache, FRAMEWORK, 0)) == Placed("a")


def test_when_a_pod_started_is_known() -> None:
    cache = cache_of(node("a"))
    feed = EventHandlers(cache, SchedulingQueue(framework()), {"default-scheduler"}, lambda: 0.0, lambda: None)
    old = make_pod("p").node("a").build()
    feed.on_pods([Delta(ADDED, old, None)])
    version = cache.node_version("a")
    feed.on_pods([Delta(MODIFIED, make_pod("p").node("a").started(7).build(), old)])
    assert [pod.started for pod in cache.pods_on("a")] == [7] and cache.node_version("a") != version


STEPS = st.lists(st.tuples(st.sampled_from(["place", "nominate", "node"]), st.integers(0, 5), st.integers(0, 3)), max_size=30)


@given(STEPS)
def test_sums_follow(steps: list[tuple[str, int, int]]) -> None:
    """Whatever comes and goes: pods, nominations, nodes."""
    cache = Cache()
    placed: dict[PodInfo, str] = {}
    nominated: dict[PodInfo, str] = {}
    for step, number, where in steps:
        pod, name = info(make_pod(f"p{number}").req(cpu=number).priority(number)), f"n{where}"
        if step == "node":
            if cache.remove_node(name) is None:
                cache.set_node(node(name).build())
        elif where == 3:
            cache.remove_pod(pod.uid)
            placed = {each: at for each, at in placed.items() if each.uid != pod.uid}
            nominated = {each: at for each, at in nominated.items() if each.uid != pod.uid}
        elif pod.uid not in {item.uid for item in placed}:
            nominated = {each: at for each, at in nominated.items() if each.uid != pod.uid}
            if step == "place":
                cache.add_pod(pod, name)
                placed[pod] = name
            else:
                cache.nominate_pod(pod, name)
                nominated[pod] = name
        for priority in (2, 4):
            below, kept = cache.requests_below(priority), cache.nodes.nominated.reserved_against(priority)
            for row, at in enumerate(cache.nodes.names):
                lower = [each for each, on in placed.items() if on == at and each.priority < priority]
                ahead = [each for each, on in nominated.items() if on == at and each.priority >= priority]
                for result, pods in ((below, lower), (kept, ahead)):
                    assert (result["pods"][row] if "pods" in result else 0) == len(pods)
                    assert (result["cpu"][row] if "cpu" in result else 0) == sum(1000 * item.priority for item in pods)


class FailsInPermit:
    name = "FailsInPermit"

    def permit(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        if pod.name == "high":
            raise ValueError("it does")
        return None


class RefusesInPreBind:
    name = "RefusesInPreBind"

    async def pre_bind(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        return Status("not now") if pod.name == "high" else None


@pytest.mark.parametrize("how", [FailsInPermit, RefusesInPreBind, Weather.REFUSED])
def test_failed_bind_of_a_placed_pod_ends_its_nomination(how: type | Weather) -> None:
    """No room is kept any more, and the status does not say that it is: the next leader would keep it again."""
    plugin = how if isinstance(how, type) else None
    configuration = Configuration()
    stage = Stage(with_plugin(configuration, f"{__name__}:{plugin.__name__}") if plugin is not None else configuration)

    async def story() -> None:
        stage.api.put(NODES, node("n").build())
        low, high = make_pod("low").req(cpu=4).node("n"), make_pod("high").req(cpu=4).priority(10)
        stage.api.put(PODS, low.build(), high.build())
        await asyncio.sleep(1.0)
        assert stage.api.all(PODS)["default/high"].status.nominatedNodeName == "n"
        if isinstance(how, Weather):
            stage.api.weather = lambda: how
        stage.api.remove(PODS, "default/low")
        await asyncio.sleep(3.0)
        assert not stage.node_of("high") and not len(stage.schedulers[0]._cache.nodes.nominated)
        assert stage.api.all(PODS)["default/high"].status.nominatedNodeName == ""

    stage.play(story())
