"""Hostile pods are valid: an API server takes them, so that the scheduler meets them."""

import pytest

from apiserver.registry.strategies.pods import PodStrategy
from apiserver.storage.interface import MAX_BYTES
from pinnace.api.status import Violation
from pinnace.chaos.hostile_pods import HOSTILE


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_pods_are_valid_and_can_be_stored(kind: str) -> None:
    """Smaller ones, but for the kinds whose defaults make them grow: every item is like the others."""
    strategy = PodStrategy()
    grows = kind in ("containers", "init containers", "ephemeral volumes")
    pod = HOSTILE[kind].pod("a", items=None if grows else 500)
    strategy.prepare_create(pod)
    strategy.set_defaults(pod)
    violations: list[Violation] = []
    strategy.check_new(pod, violations)
    assert violations == []
    assert pod.ByteSize() <= MAX_BYTES


def test_a_hostile_pod_fills_an_object() -> None:
    assert MAX_BYTES * 0.9 < HOSTILE["node terms, keys that no node has"].pod("a").ByteSize() < MAX_BYTES
