"""The cells of autoscalers, Endpoints and API services."""

from typing import Any

import pytest

from pinnace.api.autoscaling import to_v1
from pinnace.api.codec import from_dict
from pinnace.api.resources import API_SERVICES, ENDPOINTS, HORIZONTAL_POD_AUTOSCALERS, Resource
from pinnace.printers import COLUMNS

CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}
MEMORY = {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}}
QUEUE = {"type": "External", "external": {"metric": {"name": "q"}, "target": {"type": "Value", "value": "5"}}}
USED = {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 42, "averageValue": "42m"}}}


def cells(resource: Resource[Any], form: dict[str, Any]) -> list[str]:
    obj = from_dict(resource, {"metadata": {"name": "a"}, **form})
    return list(COLUMNS[resource.plural].row(obj, 0.0))[1:-1]


@pytest.mark.parametrize(
    ("metrics", "statuses", "targets"),
    [
        ([CPU], [], "cpu: <unknown>/80%"),
        ([CPU], [USED], "cpu: 42%/80%"),
        ([CPU, MEMORY], [USED], "cpu: 42%/80%, memory: <unknown>/1Gi"),
        ([MEMORY, QUEUE, CPU], [{"type": ""}] * 3, "memory: <unknown>/1Gi, <unknown>/5 + 1 more..."),
    ],
)
def test_targets_have_the_usage_and_the_goal(metrics: list[Any], statuses: list[Any], targets: str) -> None:
    target = {"kind": "Deployment", "name": "web"}
    form = {
        "spec": {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 5, "metrics": metrics},
        "status": {"currentReplicas": 2, "currentMetrics": statuses},
    }
    assert cells(HORIZONTAL_POD_AUTOSCALERS, form) == ["Deployment/web", targets, "1", "5", "2"]


def test_autoscaler_of_v1_has_the_same_row() -> None:
    form = {"metadata": {"name": "a"}, "spec": {"maxReplicas": 5, "metrics": [MEMORY]}}
    obj = from_dict(HORIZONTAL_POD_AUTOSCALERS, form)
    row = COLUMNS[HORIZONTAL_POD_AUTOSCALERS.plural].row
    assert row(to_v1(obj), 0.0) == row(obj, 0.0)


@pytest.mark.parametrize(
    ("subsets", "text"),
    [
        ([], "<none>"),
        ([{"notReadyAddresses": [{"ip": "10.0.0.1"}]}], ""),
        ([{"addresses": [{"ip": "10.0.0.1"}]}], "10.0.0.1"),
        ([{"addresses": [{"ip": "10.0.0.1"}, {"ip": "::1"}], "ports": [{"port": 80}]}], "10.0.0.1:80,[::1]:80"),
        (
            [{"addresses": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}], "ports": [{"port": 1}, {"port": 2}]}],
            "10.0.0.1:1,10.0.0.2:1,10.0.0.1:2 + 1 more...",
        ),
    ],
)
def test_endpoints_show_three_ready_addresses(subsets: list[Any], text: str) -> None:
    assert cells(ENDPOINTS, {"subsets": subsets}) == [text]


def test_api_service_shows_who_serves_it_and_why_not() -> None:
    local = {"status": {"conditions": [{"type": "Available", "status": "True", "reason": "Local"}]}}
    assert cells(API_SERVICES, local) == ["Local", "True"]
    remote = {
        "spec": {"service": {"namespace": "n", "name": "s"}},
        "status": {"conditions": [{"type": "Available", "status": "False", "reason": "ServiceNotFound"}]},
    }
    assert cells(API_SERVICES, remote) == ["n/s", "False (ServiceNotFound)"]
