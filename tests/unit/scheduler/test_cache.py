"""The cache's state machine: what comes twice, late, or in another order than one would think."""

import copy
import random

import pytest

from pinnace.scheduler.cache.cache import Cache, Change, ClusterEvent
from tests.builders import NodeBuilder, make_node, make_pod
from tests.unit.scheduler.pods import cache_of, info

POD = make_pod("a").req(cpu=1).host_port(80)
FREED = ClusterEvent(Change.POD_FREED, "n")


def free_cpu(cache: Cache) -> dict[str, int]:
    return {name: int(cache.nodes.free("cpu")[row]) for row, name in enumerate(cache.nodes.names)}


@pytest.fixture
def cache() -> Cache:
    return cache_of(make_node("n").capacity(cpu=4, pods=10), make_node("m").capacity(cpu=4, pods=10))


def test_assumed_pod_takes_room_at_once(cache: Cache) -> None:
    cache.assume_pod(info(POD), "n")
    assert free_cpu(cache) == {"n": 3000, "m": 4000}
    assert cache.nodes.used_ports.taken(info(POD).requests.ports) == {"n"}
    assert [pod.name for pod in cache.assumed_pods()] == ["a"]


def test_confirmed_by_the_informer_it_goes_on_taking_room_once(cache: Cache) -> None:
    cache.assume_pod(info(POD), "n")
    assert cache.confirm_assumption(info(POD).uid, "n")
    assert cache.add_pod(info(POD), "n") is None
    assert free_cpu(cache)["n"] == 3000
    assert not cache.is_assumed(info(POD).uid) and cache.node_of(info(POD).uid) == "n"


def test_forgetting_gives_the_room_back(cache: Cache) -> None:
    cache.assume_pod(info(POD), "n")
    assert cache.forget_pod(info(POD).uid) == FREED
    assert free_cpu(cache)["n"] == 4000
    assert cache.nodes.used_ports.taken(info(POD).requests.ports) == set()
    assert cache.forget_pod(info(POD).uid) is None


def test_bind_event_before_the_answer_wins_over_forget(cache: Cache) -> None:
    cache.assume_pod(info(POD), "n")
    cache.confirm_assumption(info(POD).uid, "n")
    assert cache.forget_pod(info(POD).uid) is None
    assert free_cpu(cache)["n"] == 3000


def test_bind_event_after_forget_counts_the_pod_again(cache: Cache) -> None:
    cache.assume_pod(info(POD), "n")
    cache.forget_pod(info(POD).uid)
    cache.add_pod(info(POD), "n")
    assert free_cpu(cache)["n"] == 3000


def test_foreign_bind_moves_an_assumed_pod(cache: Cache) -> None:
    cache.assume_pod(info(POD), "n")
    assert not cache.confirm_assumption(info(POD).uid, "m")
    assert cache.add_pod(info(POD), "m") == ClusterEvent(Change.POD_FREED | Change.POD_PLACED, "n")
    assert free_cpu(cache) == {"n": 4000, "m": 3000}
    assert cache.forget_pod(info(POD).uid) is None


def test_removed_pod_frees_its_volumes() -> None:
    cache = cache_of(make_node("n"), make_node("m"))
    pod, freed = info(make_pod("a").claim("data")), Change.POD_FREED | Change.VOLUMES_FREED
    cache.assume_pod(pod, "n")
    assert cache.add_pod(pod, "m") == ClusterEvent(freed | Change.POD_PLACED, "n")
    assert cache.remove_pod(pod.uid) == ClusterEvent(freed, "m")


def test_pod_deleted_while_it_is_assumed_is_gone(cache: Cache) -> None:
    cache.assume_pod(info(POD), "n")
    assert cache.remove_pod(info(POD).uid) == FREED
    assert cache.forget_pod(info(POD).uid) is None
    assert free_cpu(cache)["n"] == 4000 and len(cache) == 0


def test_pod_cannot_be_assumed_twice(cache: Cache) -> None:
    cache.assume_pod(info(POD), "n")
    with pytest.raises(ValueError, match="default/a"):
        cache.assume_pod(info(POD), "m")


def test_namesake_is_another_pod(cache: Cache) -> None:
    cache.add_pod(info(POD), "n")
    cache.assume_pod(info(make_pod("a").uid("another").req(cpu=1)), "n")
    assert free_cpu(cache)["n"] == 2000


def test_removal_of_unknown_objects_does_nothing(cache: Cache) -> None:
    assert cache.remove_pod("nobody") is None
    assert cache.remove_node("nowhere") is None


def test_cache_reports_events_that_may_help_pods(cache: Cache) -> None:
    event = cache.add_pod(info(POD), "n")
    assert event == ClusterEvent(Change.POD_PLACED, "n") == cache.placement_event(info(POD).uid)
    assert event.pod is not None and event.pod.labels == {}
    assert cache.update_labels(POD.build()) == ClusterEvent(Change.POD_LABELS, "n")
    assert cache.remove_node("n") == ClusterEvent(Change.NODE_REMOVED, "n")


def test_pods_are_known_before_their_node() -> None:
    cache = cache_of(placed=[make_pod("a").req(cpu=1).node("n")])
    cache.set_node(make_node("n").capacity(cpu=4, pods=10).build())
    assert free_cpu(cache) == {"n": 3000}


def test_node_that_comes_back_has_its_pods(cache: Cache) -> None:
    cache.add_pod(info(POD), "n")
    cache.assume_pod(info(make_pod("b").req(cpu=1)), "n")
    cache.remove_node("n")
    assert free_cpu(cache) == {"m": 4000}
    cache.remove_pod(info(POD).uid)
    assert cache.set_node(make_node("n").capacity(cpu=4, pods=10).build()) == ClusterEvent(Change.NODE_ADDED, "n")
    assert free_cpu(cache)["n"] == 3000
    assert cache.nodes.used_ports.taken(info(POD).requests.ports) == set()


@pytest.mark.parametrize(
    ("after", "change"),
    [
        (make_node("n").capacity(cpu=4, pods=10), Change.NONE),
        (make_node("n").capacity(cpu=5, pods=10), Change.NODE_ALLOCATABLE),
        (make_node("n").capacity(cpu=3, pods=10), Change.NONE),
        (make_node("n").capacity(cpu=4, pods=10).label("a", "b"), Change.NODE_LABELS),
        (make_node("n").capacity(cpu=4, pods=10).taint("a"), Change.NODE_TAINTS),
        (make_node("n").capacity(cpu=4, pods=10).unschedulable(), Change.NODE_TAINTS),
        (make_node("n").capacity(cpu=4, pods=10).annotation("a", "b"), Change.NODE_ANNOTATIONS),
        (make_node("n").capacity(cpu=4, pods=10).condition("Ready", "True"), Change.NODE_CONDITIONS),
    ],
)
def test_node_update_returns_its_cluster_event(cache: Cache, after: NodeBuilder, change: Change) -> None:
    assert cache.set_node(after.build()) == ClusterEvent(change, "n")


def test_heartbeat_of_a_node_is_no_event(cache: Cache) -> None:
    heard = make_node("n").capacity(cpu=4, pods=10).condition("Ready", "True", "Heard").build()
    cache.set_node(heard)
    again = copy.deepcopy(heard)
    again.status.conditions[0].lastHeartbeatTime.seconds = 10
    again.status.conditions[0].reason = "HeardAgain"
    assert cache.set_node(again) == ClusterEvent(Change.NONE, "n")


@pytest.mark.parametrize("seed", range(20))
def test_any_history_ends_in_the_sum_of_what_is_there(seed: int) -> None:
    rng = random.Random(seed)
    cache, nodes, placed = Cache(), set[str](), dict[str, str]()
    pods = {f"p{i}": info(make_pod(f"p{i}").uid(f"p{i}").req(cpu=f"{100 * (i + 1)}m")) for i in range(6)}
    for _ in range(300):
        uid, name = rng.choice(list(pods)), f"n{rng.randrange(3)}"
        match rng.choice(["assume", "observe", "confirm", "forget", "remove", "node", "no node"]):
            case "assume" if uid not in placed:
                cache.assume_pod(pods[uid], name)
                placed[uid] = name
            case "observe":
                cache.add_pod(pods[uid], name)
                placed[uid] = name
            case "confirm":
                assert cache.confirm_assumption(uid, name) is (placed.get(uid) == name)
            case "forget":
                if cache.forget_pod(uid) is not None:
                    del placed[uid]
            case "remove":
                cache.remove_pod(uid)
                placed.pop(uid, None)
            case "node":
                cache.set_node(make_node(name).capacity(cpu=4, pods=10).build())
                nodes.add(name)
            case "no node":
                cache.remove_node(name)
                nodes.discard(name)
        used = {
            name: sum(dict(pods[uid].requests.amounts)["cpu"] for uid, where in placed.items() if where == name)
            for name in nodes
        }
        assert free_cpu(cache) == {name: 4000 - cpu for name, cpu in used.items()}
        assert len(cache) == len(placed)
