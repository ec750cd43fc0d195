"""Each verdict of the witness, with and without the violation."""

import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.verbs_pb2 import ADDED, DELETED, MODIFIED
from pinnace.api.wellknown import FENCE_ANNOTATION
from pinnace.verification.bench.witness import BOUND, RUNNING, PodHistory
from tests.builders import make_pod


def bound(name: str, node: str, token: int) -> Pod:
    pod = make_pod(name).uid(name).node(node).build()
    pod.metadata.annotations[FENCE_ANNOTATION] = f"scheduler/{token}"
    return pod


def running(name: str, node: str, token: int) -> Pod:
    pod = bound(name, node, token)
    pod.status.phase = "Running"
    return pod


def pending(name: str) -> Pod:
    return make_pod(name).uid(name).build()


@pytest.fixture
def history() -> PodHistory:
    """Two pods: one is bound and running, the other one is pending."""
    made = PodHistory()
    made.observe_events([(ADDED, pending("a")), (ADDED, pending("b"))], 1.0)
    made.observe_events([(MODIFIED, bound("a", "n", 5))], 2.0)
    made.observe_events([(MODIFIED, running("a", "n", 5))], 3.0)
    return made


def test_bind_and_run_times_are_recorded(history: PodHistory) -> None:
    seen = history.pods["a"]
    assert (seen.node, seen.token, seen.bound, seen.running) == ("n", 5, 2.0, 3.0)
    assert history.counts == {BOUND: 1, RUNNING: 1}


def test_correct_run_has_no_violations(history: PodHistory) -> None:
    history.observe_events([(MODIFIED, bound("b", "n", 9)), (DELETED, running("a", "n", 5))], 4.0)
    assert history.count_violations(["a", "b"]) == {"lost": 0, "bound_twice": 0, "bound_by_deposed": 0}


def test_pod_that_was_never_bound_is_lost(history: PodHistory) -> None:
    assert history.lost_pods(["a", "b", "never-seen"]) == ["b", "never-seen"]


def test_moved_pod_was_bound_twice(history: PodHistory) -> None:
    history.observe_events([(MODIFIED, bound("a", "other", 9))], 4.0)
    assert history.bound_twice() == ["a"]


def test_unbound_pod_counts_as_bound_twice(history: PodHistory) -> None:
    history.observe_events([(MODIFIED, pending("a"))], 4.0)
    assert history.bound_twice() == ["a"]


def test_second_bind_to_the_same_node_counts_as_bound_twice(history: PodHistory) -> None:
    history.observe_events([(MODIFIED, bound("a", "n", 9))], 4.0)
    assert history.bound_twice() == ["a"]


def test_bind_with_an_old_token_is_by_a_deposed_leader(history: PodHistory) -> None:
    history.observe_events([(MODIFIED, bound("b", "n", 4))], 4.0)
    assert history.deposed == ["b"]
    assert history.count_violations(["a", "b"])["bound_by_deposed"] == 1


def test_malformed_fence_is_ignored(history: PodHistory) -> None:
    pod = make_pod("b").uid("b").node("n").annotation(FENCE_ANNOTATION, "hello").build()
    history.observe_events([(MODIFIED, pod)], 4.0)
    assert history.pods["b"].token == 0 and not history.deposed


def test_recreated_pod_is_another_pod(history: PodHistory) -> None:
    namesake = bound("a", "other", 9)
    namesake.metadata.uid = "a-2"
    history.observe_events([(ADDED, namesake)], 4.0)
    assert not history.bound_twice() and history.counts[BOUND] == 2


def test_nodes_are_those_of_existing_bound_pods(history: PodHistory) -> None:
    assert history.nodes_of(["a", "b", "never-seen"]) == ["n"]
    history.observe_events([(DELETED, running("a", "n", 5))], 4.0)
    assert history.nodes_of(["a", "b"]) == []


def test_first_bind_after_a_token(history: PodHistory) -> None:
    assert history.first_bind_after(4) == 2.0
    assert history.first_bind_after(5) is None
    history.observe_events([(MODIFIED, bound("b", "n", 9))], 4.0)
    assert history.first_bind_after(5) == 4.0
