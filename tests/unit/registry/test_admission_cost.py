"""The CPU time that admission takes for a valid pod at the validation limits: defaults, validation, quota and resize.

Init containers between sidecars with resources of their own took 3.9 s, because the resources of all sidecars were copied for
each init container. No other call was answered during that time.

The bound is CPU time of this process, four times what the costliest step takes on an idle machine with 2 cores.
"""

import time
from collections.abc import Callable
from functools import cache

import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.apiserver.quota.usage import compute_usage, set_resource_names
from pinnace.apiserver.registry.strategies.pods import PodStrategy
from pinnace.fit.requests import spec_limits
from pinnace.verification.chaos.hostile_pods import HOSTILE

pytestmark = pytest.mark.slow

BOUND = 1.0
"""CPU seconds of one step."""
PODS = PodStrategy()


def copy(pod: Pod) -> Pod:
    copied = Pod()
    copied.CopyFrom(pod)
    return copied


def create(pod: Pod) -> None:
    created = copy(pod)
    PODS.prepare_create(created)
    assert PODS.validate(created) == []


def update(pod: Pod) -> None:
    changed = copy(pod)
    changed.metadata.labels["changed"] = "true"
    changed.spec.containers[0].image = "example.com/app:2"
    PODS.prepare_update(changed, pod)
    assert PODS.validate_update(changed, pod) == []


def resize(pod: Pod) -> None:
    resized = copy(pod)
    resized.spec.containers[0].resources.requests["cpu"].string = "2m"
    PODS.prepare_resize(resized, pod)
    PODS.validate_resize(resized, pod)


def count(pod: Pod) -> None:
    compute_usage(pod, 0.0)
    set_resource_names(pod)
    spec_limits(pod.spec)


@cache
def hostile_pod(kind: str, prepared: bool) -> Pod:
    """Return a pod that the steps do not change."""
    pod = HOSTILE[kind].create_pod("largest")
    if prepared:
        PODS.prepare_create(pod)
    return pod


@pytest.mark.parametrize("step", [create, update, resize, count])
@pytest.mark.parametrize("kind", HOSTILE)
def test_admission_of_a_pod_at_the_validation_limits(kind: str, step: Callable[[Pod], None]) -> None:
    pod = hostile_pod(kind, prepared=step is not create)
    began = time.process_time()
    step(pod)
    assert time.process_time() - began < BOUND
