"""In-place resize: what a patch of the subresource resize may change in a pod."""

from collections.abc import Callable
from typing import Any

import pytest

from pinnace.api import pods_pb2
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import PODS
from pinnace.api.verbs_pb2 import PatchRequest
from pinnace.apiserver.auth.permissions import permission_of
from pinnace.apiserver.registry.mutation import patch_function
from pinnace.apiserver.registry.strategies import STRATEGIES
from tests.unit.registry.objects import copy, pod, ready, updated

STRATEGY: Any = STRATEGIES[PODS.plural]
Change = Callable[[Pod], object]


def before() -> Pod:
    resources = {
        "requests": {"cpu": "1", "memory": "1Gi", "example.com/gpu": "1"},
        "limits": {"example.com/gpu": "1", "cpu": "2"},
    }
    init = [{"name": "i", "image": "i:1"}, {"name": "s", "image": "s:1", "restartPolicy": "Always"}]
    return ready(pod({"resources": resources}, initContainers=init, nodeName="n1"))


def resized(change: Change) -> tuple[Pod, Pod, list[str]]:
    """The new pod, the old one, and what is wrong with the step."""
    old = before()
    new = copy(old)
    change(new)
    STRATEGY.prepare_resize(new, old)
    return new, old, [str(item) for item in STRATEGY.validate_resize(new, old)]


def request(pod: Pod, name: str, amount: str, field: str = "requests") -> None:
    getattr(pod.spec.containers[0].resources, field)[name].string = amount


@pytest.mark.parametrize(
    "change",
    [
        lambda pod: request(pod, "cpu", "2"),
        lambda pod: request(pod, "memory", "512Mi"),
        lambda pod: request(pod, "cpu", "3", "limits"),
        lambda pod: request(pod, "memory", "2Gi", "limits"),
        lambda pod: pod.spec.containers[0].resizePolicy.add(resourceName="cpu", restartPolicy="RestartContainer"),
        lambda pod: (
            pod.spec.initContainers[1].resources.requests["cpu"].CopyFrom(pod.spec.containers[0].resources.requests["cpu"])
        ),
    ],
)
def test_cpu_and_memory_of_containers_and_sidecars_change(change: Change) -> None:
    new, old, problems = resized(change)
    assert problems == []
    assert STRATEGY.is_new_generation(new, old)
    assert updated(copy(new), old) != []


def test_other_changes_are_dropped() -> None:
    def change(pod: Pod) -> None:
        pod.metadata.labels["a"] = "b"
        pod.spec.containers[0].image = "app:2"
        pod.spec.nodeName = "n2"
        pod.status.phase = "Failed"

    new, old, problems = resized(change)
    assert (new, problems) == (old, [])


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            lambda pod: pod.spec.containers[0].resources.requests.pop("memory"),
            "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed",
        ),
        (
            lambda pod: pod.spec.containers[0].resources.limits.pop("cpu"),
            "spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed",
        ),
        (
            lambda pod: [request(pod, "example.com/gpu", "2", field) for field in ("requests", "limits")],
            "spec: Forbidden: only cpu and memory resources are mutable; changed: spec.containers[0].resources",
        ),
        (
            lambda pod: setattr(pod.spec.containers[0], "name", "other"),
            "spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize",
        ),
        (
            lambda pod: pod.spec.containers.add(name="more", image="app:1"),
            "spec.containers: Forbidden: containers may not be added or removed on resize",
        ),
        (
            lambda pod: (
                pod.spec.initContainers[0].resources.requests["cpu"].CopyFrom(pod.spec.containers[0].resources.requests["cpu"])
            ),
            "spec.initContainers[0].resources: Forbidden: resources for non-sidecar init containers are immutable",
        ),
        (
            lambda pod: pod.spec.resources.requests["cpu"].CopyFrom(pod.spec.containers[0].resources.requests["cpu"]),
            "spec.resources: Forbidden: pod-level resources cannot be resized",
        ),
    ],
)
def test_resize_changes_resources_only(change: Change, expected: str) -> None:
    assert expected in resized(change)[2]


def test_request_above_its_limit_is_refused() -> None:
    (problem,) = resized(lambda pod: request(pod, "cpu", "3"))[2]
    assert "must be less than or equal to cpu limit of 2" in problem


def test_quality_of_service_stays() -> None:
    old = ready(pod())
    new = copy(old)
    request(new, "cpu", "1")
    STRATEGY.prepare_resize(new, old)
    (problem,) = map(str, STRATEGY.validate_resize(new, old))
    assert problem == 'spec: Invalid value: "Burstable": Pod QOS Class may not change as a result of resizing'


def test_ordinary_update_names_the_subresource() -> None:
    old = before()
    new = copy(old)
    request(new, "cpu", "2")
    (problem,) = updated(new, old)
    assert problem.endswith(
        "changed: spec.containers[0].resources; cpu and memory of containers change through the subresource resize"
    )


def test_resize_needs_a_permission_of_its_own() -> None:
    asked = PatchRequest(name="a", type=PatchRequest.MERGE, patch=b"{}", subresource="resize")
    patch_function(PODS, asked)
    method = pods_pb2.DESCRIPTOR.services_by_name["Pods"].methods_by_name["Patch"]
    (action,) = permission_of(method).actions(asked)
    assert (action.verb, action.resource) == ("patch", "pods/resize")
