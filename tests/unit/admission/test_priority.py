"""The priority of a pod that names no class: that of the default class of now."""

from collections.abc import Callable

import pytest

from apiserver.admission.priority import Priority
from apiserver.cacher.cacher import Cacher
from apiserver.storage.interface import Change, Changes, KeyValue
from apiserver.storage.memory import MemoryStorage
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import PODS, PRIORITY_CLASSES
from pinnace.api.scheduling_v1_pb2 import PriorityClass
from tests.builders import make_pod


def encoded(value: int, *, default: bool = True) -> bytes:
    return PriorityClass(value=value, globalDefault=default).SerializeToString()


def change(revision: int, name: str, value: bytes | None) -> Changes:
    return Changes(revision, [Change(PRIORITY_CLASSES.key("", name), value, revision, revision)])


@pytest.fixture
def cacher() -> Cacher:
    cacher = Cacher(MemoryStorage())
    cacher.install(5, [])
    return cacher


@pytest.fixture
def priority(cacher: Cacher) -> Callable[[], int]:
    """The priority that a new pod gets now."""
    plugin = Priority(cacher.of(PRIORITY_CLASSES))

    def of_a_new_pod() -> int:
        pod: Pod = make_pod("a").new()
        plugin.admit(PODS, pod)
        return pod.spec.priority

    return of_a_new_pod


def test_the_default_class_is_that_of_now(cacher: Cacher, priority: Callable[[], int]) -> None:
    assert priority() == 0
    cacher.apply(change(6, "a", encoded(70)))
    assert [priority(), priority()] == [70, 70]
    cacher.apply(change(7, "a", encoded(80)))
    assert priority() == 80
    cacher.apply(change(8, "a", encoded(80, default=False)))
    assert priority() == 0
    cacher.apply(change(9, "a", encoded(90)))
    cacher.apply(change(10, "a", None))
    assert priority() == 0


def test_of_several_defaults_the_lowest_counts(cacher: Cacher, priority: Callable[[], int]) -> None:
    for revision, value in enumerate((70, 60, 80), 6):
        cacher.apply(change(revision, f"of-{value}", encoded(value)))
    assert priority() == 60


def test_a_store_that_was_restored_may_say_something_else_at_the_same_revision(
    cacher: Cacher, priority: Callable[[], int]
) -> None:
    cacher.apply(change(6, "a", encoded(70)))
    assert priority() == 70
    cacher.install(6, [KeyValue(PRIORITY_CLASSES.key("", "a"), encoded(60), 6, 6, 1)])
    assert priority() == 60
