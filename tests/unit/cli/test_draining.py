"""Which pods of a node may go."""

import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.cli.draining import MIRROR_ANNOTATION, How, sort_out
from tests.builders import PodBuilder, make_pod
from tests.workloads import named


def owned(name: str) -> PodBuilder:
    return make_pod(name).owner("ReplicaSet", "web")


def with_data(builder: PodBuilder) -> Pod:
    pod = builder.build()
    pod.spec.volumes.add(name="data").volumeSource.emptyDir.SetInParent()
    return pod


def test_pods_that_come_again_go_and_mirror_pods_stay() -> None:
    found = sort_out([owned("a").build(), make_pod("m").annotation(MIRROR_ANNOTATION, "x").build()], How())
    assert (named(found.evict), found.warnings, found.obstacles) == (["a"], [], [])


@pytest.mark.parametrize(
    ("pod", "how", "what"),
    [
        (make_pod("a").build(), How(force=True), "Pods that declare no controller"),
        (with_data(owned("a")), How(delete_empty_dirs=True), "Pods with local storage"),
    ],
)
def test_what_would_be_lost_needs_a_word(pod: Pod, how: How, what: str) -> None:
    [obstacle] = sort_out([pod], How()).obstacles
    assert obstacle.startswith(f"cannot delete {what} (use --") and obstacle.endswith("default/a")
    found = sort_out([pod], how)
    assert (found.obstacles, found.warnings) == ([], [f"deleting {what}: default/a"])


def test_what_has_ended_may_go() -> None:
    found = sort_out([with_data(make_pod("a").phase("Succeeded")), make_pod("b").phase("Failed").build()], How())
    assert (named(found.evict), found.obstacles) == (["a", "b"], [])
