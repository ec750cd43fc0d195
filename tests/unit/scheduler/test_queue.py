"""The scheduling queue, with the time in our hands."""

from typing import Any
from unittest.mock import patch

import pytest

from pinnace.runtime.logs import PluginFailed
from pinnace.scheduler.cache.cache import Change, ClusterEvent
from pinnace.scheduler.cache.pod_info import PodInfo
from pinnace.scheduler.cache.table import NodeTable
from pinnace.scheduler.framework import CycleState, FilterResult
from pinnace.scheduler.framework.profile import Enabled, profile_of
from pinnace.scheduler.framework.runtime import Framework
from pinnace.scheduler.queue import QueuedPod, SchedulingQueue
from tests.builders import PodBuilder, make_node, make_pod
from tests.logged import logged
from tests.unit.scheduler.pods import cache_of, default_plugins, framework, info

FIT = frozenset({"NodeResourcesFit"})
FREED = ClusterEvent(Change.POD_FREED, "n")
NODES = cache_of(make_node("n").capacity(cpu=1, memory="1Gi", pods=10)).nodes


def queue_of(*pods: PodBuilder, now: float = 0.0) -> SchedulingQueue:
    queue = SchedulingQueue(framework(), initial_backoff=1.0, max_backoff=10.0, flush_after=300.0)
    for pod in pods:
        queue.add_pod(info(pod), now)
    return queue


def pop(queue: SchedulingQueue, now: float) -> QueuedPod:
    queued = queue.pop_pod(now)
    assert queued is not None
    return queued


def names(queue: SchedulingQueue, now: float) -> list[str]:
    result = []
    while (queued := queue.pop_pod(now)) is not None:
        result.append(queued.info.name)
    return result


def fail(queue: SchedulingQueue, now: float, refused_by: frozenset[str] = FIT) -> QueuedPod:
    queued = pop(queue, now)
    queue.add_unschedulable(queued, refused_by, now)
    return queued


def test_priority_then_arrival() -> None:
    queue = queue_of(make_pod("a"), make_pod("b"), make_pod("high").priority(10))
    queue.add_pod(info(make_pod("higher").priority(11)), 1.0)
    queue.add_pod(info(make_pod("c")), 2.0)
    assert names(queue, 3.0) == ["higher", "high", "a", "b", "c"]


def test_pod_is_in_the_queue_once() -> None:
    queue = queue_of(make_pod("a"), make_pod("a").label("changed", "yes"))
    assert len(queue) == 1
    assert pop(queue, 0.0).info.pod.metadata.labels["changed"] == "yes"
    assert queue.pop_pod(0.0) is None and len(queue) == 0


def test_pod_that_is_gone_is_not_popped() -> None:
    queue = queue_of(make_pod("a"), make_pod("b"))
    queue.remove_pod(info(make_pod("a")).uid)
    queue.remove_pod("nobody")
    assert names(queue, 0.0) == ["b"]


def test_pod_that_left_and_came_back_is_popped_once() -> None:
    queue = queue_of(make_pod("a"))
    queue.remove_pod(info(make_pod("a")).uid)
    queue.add_pod(info(make_pod("a")), 1.0)
    assert names(queue, 1.0) == ["a"]


def test_unschedulable_pod_waits_for_an_event_that_may_help() -> None:
    queue = queue_of(make_pod("a").req(cpu=1))
    fail(queue, 0.0)
    assert queue.pop_pod(100.0) is None
    queue.move_pods_on_event(ClusterEvent(Change.NODE_LABELS, "n"), NODES, 100.0)
    assert queue.pop_pod(100.0) is None
    queue.move_pods_on_event(FREED, NODES, 100.0)
    assert names(queue, 100.0) == ["a"]


def test_event_that_frees_too_little_does_not_help() -> None:
    queue = queue_of(make_pod("big").req(cpu=2), make_pod("small").req(cpu=1))
    fail(queue, 0.0)
    fail(queue, 0.0)
    queue.move_pods_on_event(FREED, NODES, 100.0)
    assert names(queue, 100.0) == ["small"]


def test_any_event_wakes_a_pod_without_a_rejecting_plugin() -> None:
    queue = queue_of(make_pod("a"))
    fail(queue, 0.0, frozenset())
    queue.move_pods_on_event(ClusterEvent(Change.NODE_ADDED, "n"), NODES, 100.0)
    assert names(queue, 100.0) == ["a"]


def test_pod_wakes_when_one_of_its_plugins_is_helped() -> None:
    queue = queue_of(make_pod("a").req(cpu=1))
    fail(queue, 0.0, FIT | {"TaintToleration"})
    queue.move_pods_on_event(FREED, NODES, 100.0)
    assert names(queue, 100.0) == ["a"]


def test_pods_of_one_template_are_asked_about_once_and_woken_together() -> None:
    queue = queue_of(*(make_pod(f"p{i}").req(cpu=1) for i in range(5)), make_pod("other").req(cpu=9))
    for _ in range(6):
        fail(queue, 0.0)
    queue.move_pods_on_event(FREED, NODES, 100.0)
    assert names(queue, 100.0) == [f"p{i}" for i in range(5)]
    assert queue.count_by_place() == {"unschedulable": 1}


@pytest.mark.parametrize(("attempts", "backoff"), [(1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0), (5, 10.0), (60, 10.0)])
def test_backoff_doubles_up_to_its_limit(attempts: int, backoff: float) -> None:
    queue = queue_of(make_pod("a"))
    now = 0.0
    for _ in range(attempts - 1):
        queue.add_failed(pop(queue, now), now)
        now += 10.0
    queue.add_failed(pop(queue, now), now)
    assert queue.next_due() == now + backoff
    assert queue.pop_pod(now + backoff - 0.01) is None
    assert names(queue, now + backoff) == ["a"]


@pytest.mark.parametrize(
    ("failures", "backoff"), [("eeeee r", 1.0), ("rrrr e", 1.0), ("rrrr eee", 4.0), ("rr eeee r", 4.0), ("e r e", 1.0)]
)
def test_refusals_and_errors_count_apart(failures: str, backoff: float) -> None:
    """The r are refusals, the e errors."""
    queue = queue_of(make_pod("a"))
    now = 0.0
    for failure in failures.replace(" ", ""):
        now += 100.0
        queued = pop(queue, now)
        if failure == "e":
            queue.add_failed(queued, now)
        else:
            queue.add_unschedulable(queued, FIT, now)
            queue.activate_pod(queued.info.uid, now)
    assert queue.next_due() == now + backoff


def test_pod_that_is_woken_early_still_waits_for_its_backoff() -> None:
    queue = queue_of(make_pod("a").req(cpu=1))
    fail(queue, 10.0)
    queue.move_pods_on_event(FREED, NODES, 10.3)
    assert queue.count_by_place() == {"backoff": 1} and queue.pop_pod(10.9) is None
    assert names(queue, 11.0) == ["a"]


def test_pod_that_failed_goes_behind_those_that_wait() -> None:
    queue = queue_of(make_pod("a"), make_pod("b"))
    queue.add_failed(pop(queue, 0.0), 0.5)
    assert names(queue, 2.0) == ["b", "a"]


def test_flush_requeues_pods_that_waited_too_long() -> None:
    queue = queue_of(make_pod("a"), make_pod("b"))
    fail(queue, 0.0)
    fail(queue, 10.0)
    assert queue.next_due() == 300.0
    assert names(queue, 300.0) == ["a"]
    assert queue.next_due() == 310.0


def test_empty_queue_has_no_deadline() -> None:
    assert queue_of(make_pod("a")).next_due() is None


def test_change_of_the_pod_wakes_it_but_not_one_of_its_status() -> None:
    queue = queue_of(make_pod("a"))
    fail(queue, 0.0)
    queue.add_pod(info(make_pod("a").condition("PodScheduled", "False", "Unschedulable").version(2)), 100.0)
    assert queue.count_by_place() == {"unschedulable": 1}
    changed = make_pod("a")
    for version, change in enumerate((changed.tolerate, changed.label, changed.annotation), 3):
        change("some", "thing")
        queue.add_pod(info(changed.version(version)), 100.0 * version)
        fail(queue, 100.0 * version)


def test_pod_that_was_updated_while_it_waits_can_leave_its_group() -> None:
    queue = queue_of(make_pod("a"))
    fail(queue, 0.0)
    queue.add_pod(info(make_pod("a").version(2)), 1.0)
    queue.remove_pod(info(make_pod("a")).uid)
    queue.move_pods_on_event(FREED, NODES, 100.0)
    assert len(queue) == 0 and queue.pop_pod(1000.0) is None


def test_gated_pods_are_not_considered_until_the_gate_is_gone() -> None:
    queue = queue_of(make_pod("a").gate("wait"))
    assert queue.count_by_place() == {"gated": 1} and not queue.has_active_pods
    queue.move_pods_on_event(FREED, NODES, 100.0)
    assert queue.pop_pod(1000.0) is None
    queue.add_pod(info(make_pod("a").version(2)), 2.0)
    assert names(queue, 2.0) == ["a"]


class Hold:
    """Pods with a label are held back."""

    name = "Hold"

    def pre_enqueue(self, pod: PodInfo) -> bool:
        return "hold" not in pod.pod.metadata.labels


def test_pod_that_changes_after_it_was_refused_may_be_gated() -> None:
    queue = SchedulingQueue(framework(Enabled(Hold())))
    queue.add_pod(info(make_pod("a")), 0.0)
    fail(queue, 0.0)
    queue.add_pod(info(make_pod("a").label("hold", "yes")), 60.0)
    assert queue.count_by_place() == {"gated": 1} and names(queue, 1_000.0) == []
    queue.move_pods_on_event(FREED, NODES, 1_000.0)
    assert queue.count_by_place() == {"gated": 1}
    queue.add_pod(info(make_pod("a")), 1_001.0)
    assert names(queue, 1_001.0) == ["a"]


def test_pod_that_changes_while_it_is_tried_or_backs_off_may_be_gated() -> None:
    queue, held = SchedulingQueue(framework(Enabled(Hold()))), info(make_pod("a").label("hold", "yes"))
    queue.add_pod(info(make_pod("a")), 0.0)
    tried = queue.pop_pod(0.0)
    assert tried is not None
    tried.info = held
    queue.add_failed(tried, 0.0)
    assert names(queue, 100.0) == [] and queue.count_by_place() == {"gated": 1}
    queue.add_pod(info(make_pod("a")), 100.0)
    tried = queue.pop_pod(100.0)
    assert tried is not None
    queue.add_failed(tried, 100.0)
    queue.add_pod(held, 100.1)
    assert names(queue, 200.0) == [] and queue.count_by_place() == {"gated": 1}


class Shut:
    """Opens for reasons of its own."""

    name = "Shut"

    def __init__(self, helped_by: Change | None = None) -> None:
        self.open = False
        self.asked = 0
        if helped_by is not None:
            self.helped_by = helped_by

    def pre_enqueue(self, pod: PodInfo) -> bool:
        self.asked += 1
        return self.open

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        raise AssertionError("pre_enqueue says the same, and better")


def ask_gates(queue: SchedulingQueue) -> None:
    while queue.recheck_gated_pod():
        pass


def gated(gate: Shut) -> SchedulingQueue:
    queue = SchedulingQueue(framework(Enabled(gate)))
    for name in "ab":
        queue.add_pod(info(make_pod(name)), 0.0)
    assert queue.count_by_place() == {"gated": 2}
    gate.open = True
    return queue


@pytest.mark.parametrize("helped_by", [None, Change.NODE_ADDED], ids=["anything", "hint"])
def test_gated_pod_is_rechecked_after_a_matching_event(helped_by: Change | None) -> None:
    queue = gated(Shut(helped_by))
    queue.move_pods_on_event(ClusterEvent(Change.NODE_ADDED, "n"), NODES, 1.0)
    ask_gates(queue)
    assert names(queue, 1.0) == ["a", "b"]


def test_gated_pod_is_not_rechecked_without_a_reason() -> None:
    """Neither after an event of another kind, nor as often as something happens."""
    gate = Shut(Change.NODE_ADDED)
    queue = gated(gate)
    gate.open = False
    queue.move_pods_on_event(FREED, NODES, 1.0)
    assert not queue.recheck_gated_pod()
    for _ in range(200):
        queue.move_pods_on_event(ClusterEvent(Change.NODE_ADDED, "n"), NODES, 1.0)
    ask_gates(queue)
    assert gate.asked == 2 + 2 and queue.count_by_place() == {"gated": 2}


class Gang:
    """Holds pods back until all three are there, and says so of each to the queue, as a plugin does that knows its siblings."""

    name = "Gang"

    def __init__(self) -> None:
        self.queue: SchedulingQueue | None = None
        self.asked = 0

    def pre_enqueue(self, pod: PodInfo) -> bool:
        self.asked += 1
        there = self.queue is not None and len(self.queue) == 3
        for sibling in "abc" if there and self.queue is not None else "":
            self.queue.activate_pod(info(make_pod(sibling)).uid, 1.0)
        return there


@pytest.mark.parametrize("by", ["change", "event", "flush"])
def test_pod_is_let_go_once_whatever_plugins_do_while_they_are_asked(by: str) -> None:
    gang = Gang()
    queue = gang.queue = SchedulingQueue(framework(Enabled(gang)))
    for name in "ab":
        queue.add_pod(info(make_pod(name)), 0.0)
    if by == "change":
        queue.add_pod(info(make_pod("c")), 0.0)
    else:
        gang.queue = None
        queue.add_pod(info(make_pod("c")), 0.0)
        gang.queue = queue
        queue.move_pods_on_event(FREED, NODES, 1.0)
        if by == "flush":
            assert names(queue, 300.0) == []
        ask_gates(queue)
    popped = names(queue, 1.0)
    assert sorted(popped) == ["a", "b", "c"] and gang.asked <= 2 * 3
    assert len(queue) == 0 and not queue.has_active_pods


def test_nested_release_of_a_group_is_safe() -> None:
    """All are of one template, and were refused by the same plugin."""
    gang = Gang()
    queue = SchedulingQueue(framework(Enabled(gang)))
    waiting = [QueuedPod(info(make_pod(name)), 0.0) for name in "abc"]
    for queued in waiting:
        queue.add_unschedulable(queued, frozenset({"Full"}), 0.0)
    gang.queue = queue
    queue.move_pods_on_event(FREED, NODES, 100.0)
    assert sorted(names(queue, 100.0)) == ["a", "b", "c"] and len(queue) == 0


@pytest.mark.parametrize("wrong", [(Change.NODE_ADDED, Change.NODE_LABELS), [Change.NODE_ADDED], "NODE_ADDED", 3])
def test_plugin_with_invalid_events_is_logged_and_woken_by_any_event(wrong: Any, caplog: pytest.LogCaptureFixture) -> None:
    queue = gated(Shut(wrong))
    assert [(item.plugin, item.point) for item in logged(caplog, PluginFailed)] == [("Shut", "helped_by")]
    queue.move_pods_on_event(FREED, NODES, 1.0)
    ask_gates(queue)
    assert names(queue, 1.0) == ["a", "b"]


def test_gated_pod_is_rechecked_after_activation() -> None:
    queue = gated(Shut(Change.NODE_ADDED))
    queue.activate_pod(info(make_pod("b")).uid, 1.0)
    assert names(queue, 1.0) == ["b"] and queue.count_by_place() == {"gated": 1}


def test_flush_asks_about_the_gated() -> None:
    gate = Shut(Change.NODE_ADDED)
    queue = gated(gate)
    assert names(queue, 299.0) == [] and queue.next_due() == 300.0
    assert names(queue, 300.0) == [] and gate.asked == 2, "in turns"
    ask_gates(queue)
    assert names(queue, 300.0) == ["a", "b"] and queue.next_due() is None
    queue.add_pod(info(make_pod("c").gate("wait")), 300.0)
    assert names(queue, 1000.0) == [] and queue.next_due() is None


def test_gated_pod_can_be_deleted() -> None:
    queue = gated(Shut())
    queue.move_pods_on_event(FREED, NODES, 1.0)
    queue.remove_pod(info(make_pod("a")).uid)
    ask_gates(queue)
    assert names(queue, 1.0) == ["b"] and len(queue) == 0


class Partner:
    """When it is asked about one pod it has another tried, too."""

    name = "Partner"
    helped_by = Change.POD_FREED
    queue: SchedulingQueue | None = None

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
        raise AssertionError("nobody is tried here")

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        assert self.queue is not None
        self.queue.activate_pod(info(make_pod("b").req(cpu=2)).uid, 100.0)
        return True


def test_nested_release_of_the_last_pod_is_safe() -> None:
    partner = Partner()
    queue = partner.queue = SchedulingQueue(framework(Enabled(partner)))
    for item in (make_pod("a").req(cpu=1), make_pod("b").req(cpu=2)):
        queue.add_unschedulable(QueuedPod(info(item), 0.0), frozenset({"Partner"}), 0.0)
    queue.move_pods_on_event(FREED, NODES, 100.0)
    assert sorted(names(queue, 100.0)) == ["a", "b"] and len(queue) == 0


def test_standby_that_never_pops_does_not_grow() -> None:
    queue = queue_of()
    for number in range(1000):
        queue.add_pod(info(make_pod(f"p{number}")), 0.0)
        queue.remove_pod(info(make_pod(f"p{number}")).uid)
    assert len(queue._active) < 200
    queue.add_pod(info(make_pod("last")), 0.0)
    assert names(queue, 0.0) == ["last"]


def test_plugins_are_not_asked_about_events_that_cannot_help_them() -> None:
    """With thousands of pods that wait, each its own template, a bind must not cost a question for each."""

    class Counting(Framework):
        asked = 0

        def event_helps(self, plugin: str, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
            self.asked += 1
            return super().event_helps(plugin, event, pod, nodes)

    policy = Counting("default-scheduler", profile_of(default_plugins()))
    queue = SchedulingQueue(policy)
    for number in range(20):
        queue.add_pod(info(make_pod(f"p{number}").req(cpu=f"{number + 1}")), 0.0)
        fail(queue, 0.0)
    queue.move_pods_on_event(ClusterEvent(Change.POD_PLACED, "n"), NODES, 10.0)
    assert policy.asked == 0 and queue.count_by_place()["unschedulable"] == 20
    queue.move_pods_on_event(FREED, NODES, 10.0)
    assert policy.asked == 20


def test_event_is_evaluated_once_for_each_priority() -> None:
    """It takes a look at all nodes as soon as any pod is nominated."""
    queue = SchedulingQueue(framework())
    for number in range(20):
        queue.add_pod(info(make_pod(f"p{number}").req(cpu=f"{number + 1}").priority(number % 2)), 0.0)
        fail(queue, 0.0)
    with patch.object(NodeTable, "subtract_reserved", autospec=True, side_effect=NodeTable.subtract_reserved) as asked:
        queue.move_pods_on_event(FREED, NODES, 10.0)
    assert sorted(call.args[1] for call in asked.call_args_list) == [0, 1]
