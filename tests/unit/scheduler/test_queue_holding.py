"""Pods that are held: popped, and not decided on yet, while something takes its time."""

from pinnace.scheduler.queue import QueuedPod, SchedulingQueue
from tests.builders import make_pod
from tests.unit.scheduler.pods import info
from tests.unit.scheduler.test_queue import FREED, NODES, names, pop, queue_of

FIT = frozenset({"NodeResourcesFit"})
A = make_pod("a").req(cpu=1)


def held() -> tuple[SchedulingQueue, QueuedPod]:
    queue = queue_of(A)
    queued = pop(queue, 0.0)
    queue.hold_pod(queued)
    return queue, queued


def test_held_pod_is_popped_once() -> None:
    queue, queued = held()
    assert queue.count_by_place() == {"in flight": 1} and names(queue, 1000.0) == []
    assert queue.release_held_pod(queued) and len(queue) == 0


def test_it_can_go_meanwhile() -> None:
    queue, queued = held()
    queue.remove_pod(queued.info.uid)
    assert not queue.release_held_pod(queued) and len(queue) == 0
    queue, queued = held()
    queue.remove_pod(queued.info.uid)
    queue.add_pod(info(A), 1.0)
    assert not queue.release_held_pod(queued) and names(queue, 1.0) == ["a"], "a namesake that came after it"


def test_held_pod_is_requeued_after_a_change_outside_its_status() -> None:
    queue, queued = held()
    queue.add_pod(info(make_pod("a").req(cpu=1).condition("PodScheduled", "False", "Unschedulable").version(2)), 1.0)
    assert queue.release_held_pod(queued) and queued.info.pod.metadata.resourceVersion == "2"
    queue.hold_pod(queued)
    queue.add_pod(info(make_pod("a").req(cpu=1).tolerate("gpu").version(3)), 1.0)
    assert not queue.release_held_pod(queued)
    again = pop(queue, 1.0)
    assert again.info.pod.metadata.resourceVersion == "3" and again.attempts == 2


def test_event_that_it_may_have_missed_lets_it_wait_for_its_backoff_only() -> None:
    queue, queued = held()
    queue.move_pods_on_event(FREED, NODES, 0.5)
    assert queue.release_held_pod(queued)
    queue.add_unschedulable(queued, FIT, 1.0)
    assert queue.count_by_place() == {"backoff": 1} and queued.refused_by == FIT
    queued = pop(queue, 10.0)
    queue.hold_pod(queued)
    assert queue.release_held_pod(queued)
    queue.add_unschedulable(queued, FIT, 10.0)
    assert queue.count_by_place() == {"unschedulable": 1}


def test_activation_releases_a_held_pod() -> None:
    queue, queued = held()
    queue.activate_pod(queued.info.uid, 0.5)
    assert queue.release_held_pod(queued)
    queue.add_unschedulable(queued, FIT, 1.0)
    assert queue.count_by_place() == {"backoff": 1}


def test_events_before_the_hold_do_not_wake_the_pod() -> None:
    queue = queue_of(A)
    queue.move_pods_on_event(FREED, NODES, 0.0)
    queued = pop(queue, 0.0)
    queue.add_unschedulable(queued, FIT, 0.0)
    assert queue.count_by_place() == {"unschedulable": 1}
