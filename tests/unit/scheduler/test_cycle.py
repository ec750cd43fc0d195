"""One pod's story: chosen and assumed, or why not."""

from collections import Counter

from pinnace.scheduler.cache.cache import Cache
from pinnace.scheduler.framework import BoolArray, CycleState, Diagnosis, FloatArray, NodeTable, Nominated, PodInfo, Status
from pinnace.scheduler.framework.profile import Enabled
from pinnace.scheduler.node_selector import NodeSelector
from pinnace.scheduler.scheduling_cycle import AttemptFailed, Placed, Unschedulable, schedule_one
from tests.builders import make_node, make_pod
from tests.unit.scheduler.pods import cache_of, framework, info

FRAMEWORK = framework()


def equal_nodes(count: int) -> Cache:
    return cache_of(*(make_node(f"n{i}").capacity(cpu=4, memory="4Gi", pods=10) for i in range(count)))


def test_pod_is_assumed_where_it_is_placed() -> None:
    cache = cache_of(make_node("full"), make_node("free"), placed=[make_pod("there").req(cpu=4).node("full")])
    pod = info(make_pod("a").req(cpu=1))
    assert schedule_one(pod, NodeSelector(cache, FRAMEWORK, 0)) == Placed("free")
    assert cache.is_assumed(pod.uid) and cache.node_of(pod.uid) == "free"


def test_assumed_pod_counts_for_the_next() -> None:
    cache = equal_nodes(2)
    placed = [schedule_one(info(make_pod(f"p{i}").req(cpu=3)), NodeSelector(cache, FRAMEWORK, 0)) for i in range(3)]
    assert {item.node for item in placed if isinstance(item, Placed)} == {"n0", "n1"}
    assert placed[2] == Unschedulable(frozenset({"NodeResourcesFit"}), "0/2 nodes are available: 2 Insufficient cpu.")


def test_same_question_has_the_same_answer() -> None:
    def run(seed: int) -> list[object]:
        cache = equal_nodes(20)
        return [schedule_one(info(make_pod(f"p{i}").req(cpu=1)), NodeSelector(cache, FRAMEWORK, seed)) for i in range(60)]

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_equal_nodes_are_chosen_alike_often() -> None:
    chosen = Counter(
        placed.node
        for i in range(2000)
        if isinstance(placed := schedule_one(info(make_pod(f"p{i}")), NodeSelector(equal_nodes(4), FRAMEWORK, 7)), Placed)
    )
    assert len(chosen) == 4 and min(chosen.values()) > 350


class Boom:
    name = "Boom"

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        raise RuntimeError("boom")


def test_plugin_that_fails_breaks_the_attempt_and_assumes_nothing() -> None:
    cache, pod = equal_nodes(2), info(make_pod("a"))
    outcome = schedule_one(pod, NodeSelector(cache, framework(Enabled(Boom())), 0))
    assert isinstance(outcome, AttemptFailed)
    assert str(outcome.error) == 'plugin "Boom" failed in Score: RuntimeError: boom (test_cycle.py:56)'
    assert len(cache) == 0


def test_without_nodes() -> None:
    assert schedule_one(info(make_pod("a")), NodeSelector(Cache(), FRAMEWORK, 0)) == Unschedulable(
        frozenset(), "no nodes available to schedule pods"
    )


class Late:
    """Takes part once a node is chosen."""

    name = "Late"

    def __init__(self, reserved: Status | Exception | None) -> None:
        self.reserved = reserved
        self.undone: list[str] = []

    def reserve(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        if isinstance(self.reserved, Exception):
            raise self.reserved
        return self.reserved

    def unreserve(self, state: CycleState, pod: PodInfo, node: str) -> None:
        self.undone.append(node)


def test_plugin_that_does_not_want_the_chosen_node() -> None:
    cache, pod, late = equal_nodes(1), info(make_pod("a").req(cpu=1)), Late(Status("node(s) were taken"))
    assert schedule_one(pod, NodeSelector(cache, framework(Enabled(late)), 0)) == Unschedulable(
        frozenset({"Late"}), "0/1 nodes are available: 1 node(s) were taken."
    )
    assert late.undone == ["n0"] and len(cache) == 0 and cache.nodes.free("cpu")[0] == 4000


def test_plugin_that_fails_after_the_choice_leaves_nothing_assumed() -> None:
    cache, late = equal_nodes(1), Late(RuntimeError("boom"))
    assert isinstance(schedule_one(info(make_pod("a")), NodeSelector(cache, framework(Enabled(late)), 0)), AttemptFailed)
    assert late.undone == ["n0"] and len(cache) == 0


def test_decision_includes_reserve_and_permit() -> None:
    placed = schedule_one(info(make_pod("a")), NodeSelector(equal_nodes(1), framework(Enabled(Late(None))), 0))
    assert isinstance(placed, Placed) and placed.cycle is not None and placed.cycle.needs_no_plugins


class Preempting:
    name = "Preempting"

    def __init__(self, answer: Status | Nominated) -> None:
        self.answer = answer

    def post_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable, diagnosis: Diagnosis) -> Status | Nominated:
        assert diagnosis.plugins == {"NodeResourcesFit"}
        return self.answer


def test_post_filter_is_asked_when_no_node_is_left() -> None:
    pod, refused_by = info(make_pod("a").req(cpu=9)), frozenset({"NodeResourcesFit"})
    message = "0/1 nodes are available: 1 Insufficient cpu."
    for answer, expected in (
        (Status("preemption: no victims."), Unschedulable(refused_by, f"{message} preemption: no victims.")),
        (Nominated("n0"), Unschedulable(refused_by, message, "n0")),
    ):
        assert schedule_one(pod, NodeSelector(equal_nodes(1), framework(Enabled(Preempting(answer))), 0)) == expected
    broken = framework(Enabled(Preempting(Nominated("n0"))))
    assert schedule_one(pod, NodeSelector(Cache(), broken, 0)) == Unschedulable(
        frozenset(), "no nodes available to schedule pods"
    )
