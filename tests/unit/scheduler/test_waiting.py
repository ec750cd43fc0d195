"""Pods that wait in Permit: who lets them go, and when they are rejected."""

import pytest

from pinnace.scheduler.framework.profile import MAX_TIMEOUT, WaitingPods
from pinnace.scheduler.framework.results import PluginRejection
from tests.builders import make_pod
from tests.unit.scheduler.pods import info

A, B = info(make_pod("a")), info(make_pod("b"))


class World:
    def __init__(self) -> None:
        self.changes = 0
        self.pods = WaitingPods(self.changed)

    def changed(self) -> None:
        self.changes += 1

    def settled(self, now: float = 0.0) -> list[tuple[str, PluginRejection | None]]:
        return [(waiting.pod.name, refused) for waiting, refused in self.pods.take_settled(now)]


@pytest.fixture
def world() -> World:
    return World()


def test_pod_goes_on_when_all_plugins_that_asked_have_allowed_it(world: World) -> None:
    world.pods.add_pod(A, "n", {"P": 5.0, "Q": 5.0}, 0.0)
    waiting = world.pods.get(A.uid)
    assert waiting is not None and (waiting.pod, waiting.node) == (A, "n")
    waiting.allow("P")
    waiting.allow("Other")
    assert waiting.pending == {"Q"} and world.settled() == []
    waiting.allow("Q")
    assert world.pods.get(A.uid) is None and world.changes == 2
    assert world.settled() == [("a", None)] and world.settled() == []


def test_first_word_counts(world: World) -> None:
    world.pods.add_pod(A, "n", {"P": 5.0, "Q": 5.0}, 0.0)
    world.pods.add_pod(B, "n", {"P": 5.0}, 0.0)
    first, second = world.pods
    first.reject("Q", "no")
    first.allow("P")
    second.allow("P")
    second.reject("P", "too late")
    assert world.settled() == [("a", PluginRejection("Q", "no")), ("b", None)]


def test_all_can_be_let_go_while_they_are_looked_at(world: World) -> None:
    for pod in (A, B):
        world.pods.add_pod(pod, "n", {"P": 5.0}, 0.0)
    for waiting in world.pods:
        waiting.allow("P")
    assert len(world.pods) == 0 and len(world.settled()) == 2


def test_time_runs_out_for_the_plugin_that_has_not_allowed(world: World) -> None:
    world.pods.add_pod(A, "n", {"P": 1.0, "Q": 2.0}, 10.0)
    assert world.pods.next_due() == 11.0
    waiting = world.pods.get(A.uid)
    assert waiting is not None
    waiting.allow("P")
    assert world.settled(11.0) == [] and world.pods.next_due() == 12.0
    assert world.settled(12.0) == [("a", PluginRejection("Q", "rejected due to timeout after waiting 2s at plugin Q"))]
    assert world.pods.next_due() is None


def test_permit_timeout_is_limited(world: World) -> None:
    world.pods.add_pod(A, "n", {"P": 1e9}, 0.0)
    assert world.pods.next_due() == MAX_TIMEOUT


def test_cleared_pod_is_not_settled(world: World) -> None:
    world.pods.add_pod(A, "n", {"P": 1.0}, 0.0)
    waiting = world.pods.get(A.uid)
    world.pods.drop_all()
    assert waiting is not None
    waiting.allow("P")
    assert world.settled(5.0) == [] and list(world.pods) == []
