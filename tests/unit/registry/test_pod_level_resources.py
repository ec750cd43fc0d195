"""spec.resources: requests and limits of a pod as a whole (kubernetes#137628)."""

from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.pods import qos_class
from pinnace.api.resources import PODS
from pinnace.apiserver.quota.usage import compute_usage
from pinnace.apiserver.registry.strategies import STRATEGIES
from pinnace.fit import pod_requests
from pinnace.fit.requests import spec_limits
from tests.unit.registry.objects import CONTAINER, Data, pod

STRATEGY: Any = STRATEGIES[PODS.plural]


def made(resources: Data, *containers: Data) -> Pod:
    """A pod with defaults."""
    spec = [CONTAINER | {"name": f"c{index}", "resources": each} for index, each in enumerate(containers or ({},))]
    built = pod(containers=spec, resources=resources)
    STRATEGY.prepare_create(built)
    return built


def problems(built: Pod) -> list[tuple[str, str]]:
    return [(item.field, item.message) for item in STRATEGY.validate(built)]


def test_pod_as_a_whole_counts_instead_of_its_containers() -> None:
    own = {"requests": {"cpu": "100m", "memory": "1Gi", "example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}
    built = made({"requests": {"cpu": "2"}, "limits": {"cpu": "3", "memory": "4Gi"}}, own, own)
    assert problems(built) == []
    assert dict(pod_requests(built).amounts) == {"pods": 1, "cpu": 2000, "memory": 2 << 30, "example.com/gpu": 2}
    assert pod_requests(built).scored == (2000, 2 << 30)
    assert (spec_limits(built.spec)["cpu"], spec_limits(built.spec)["memory"]) == (3000, 4 << 30)
    used = dict(compute_usage(built, 0).amounts)
    assert (used["requests.cpu"], used["limits.cpu"], used["limits.memory"]) == (2000, 3000, 4 << 30)


def test_requests_default_to_those_of_containers_or_else_to_limits() -> None:
    built = made({"limits": {"cpu": "1", "memory": "1Gi"}}, {"requests": {"cpu": "250m"}}, {"requests": {"cpu": "250m"}})
    assert {name: each.string for name, each in built.spec.resources.requests.items()} == {"cpu": "500m", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("resources", "containers", "expected"),
    [
        ({"requests": {"cpu": "1"}}, {}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, {}, "Guaranteed"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, {"requests": {"cpu": "100m"}}, "Burstable"),
        ({}, {}, "BestEffort"),
    ],
)
def test_quality_of_service_is_that_of_the_pod_as_a_whole(resources: Data, containers: Data, expected: str) -> None:
    assert qos_class(made(resources, containers).spec) == expected


@pytest.mark.parametrize(
    ("resources", "containers", "field", "message"),
    [
        (
            {"requests": {"cpu": "1"}}, {"requests": {"cpu": "2"}}, "spec.resources.requests[cpu]",
            'Invalid value: "1": must be greater than or equal to aggregate container requests of 2',
        ),
        (
            {"limits": {"cpu": "1"}}, {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}},
            "spec.containers[0].resources.limits[cpu]",
            'Invalid value: "2": must be less than or equal to pod limits of 1',
        ),
        (
            {"requests": {"ephemeral-storage": "1Gi"}}, {}, "spec.resources.requests[ephemeral-storage]",
            'Unsupported value: "ephemeral-storage": supported values: "cpu", "hugepages-*", "memory"',
        ),
        (
            {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}, {}, "spec.resources.requests",
            'Invalid value: "2": must be less than or equal to cpu limit of 1',
        ),
    ],
)  # fmt: skip
def test_resources_that_contradict_the_containers_are_refused(
    resources: Data, containers: Data, field: str, message: str
) -> None:
    assert problems(made(resources, containers)) == [(field, message)]
