"""Hostile pods pass the validation of the API server, so that they reach the scheduler."""

import pytest

from pinnace.api.core_v1_pb2 import Toleration
from pinnace.api.status import Violation
from pinnace.apiserver.registry.strategies.pods import PodStrategy
from pinnace.apiserver.registry.strategy import MAX_PARTS, has_too_many_items
from pinnace.apiserver.storage.interface import MAX_BYTES
from pinnace.verification.chaos import hostile_pods
from pinnace.verification.chaos.hostile_pods import HOSTILE


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_pods_pass_validation_and_size_limits(kind: str) -> None:
    strategy = PodStrategy()
    pod = HOSTILE[kind].create_pod("a")
    assert not has_too_many_items(pod)
    strategy.prepare_create(pod)
    strategy.set_defaults(pod)
    violations: list[Violation] = []
    strategy.check_new(pod, violations)
    assert violations == []
    assert pod.ByteSize() <= MAX_BYTES


def test_hostile_pod_has_the_maximum_number_of_parts() -> None:
    assert hostile_pods.MAX_PARTS == MAX_PARTS
    pod = HOSTILE["node terms, keys that no node has"].create_pod("a")
    pod.spec.tolerations.extend(Toleration(key=f"k{number}") for number in range(200))
    assert has_too_many_items(pod)
