"""The tables and descriptions of replica sets, deployments, jobs and endpoint slices."""

from typing import Any

import pytest

from pinnace.api.codec import from_dict
from pinnace.api.resources import CRON_JOBS, DAEMON_SETS, DEPLOYMENTS, ENDPOINT_SLICES, JOBS, REPLICA_SETS, Resource
from pinnace.printers import COLUMNS

NOW = 1_000_000_000.0
META = {"name": "a", "namespace": "default", "creationTimestamp": "2001-09-09T01:46:35Z"}
START, END = "2001-09-09T01:45:00Z", "2001-09-09T01:45:30Z"
CONTAINERS = [{"name": "main", "image": "app:1"}, {"name": "side", "image": "log:2"}]
SETS = {
    "selector": {"matchLabels": {"app": "web"}},
    "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": CONTAINERS}},
}
WIDE = ["main,side", "app:1,log:2", "app=web"]


def cells(resource: Resource[Any], data: dict[str, Any]) -> list[str]:
    return list(COLUMNS[resource.plural].row(from_dict(resource, {"metadata": META} | data), NOW))


def test_replica_set_row() -> None:
    data = {"spec": SETS | {"replicas": 3}, "status": {"replicas": 2, "readyReplicas": 1}}
    assert cells(REPLICA_SETS, data) == ["a", "3", "2", "1", "5s", *WIDE]


def test_deployment_row() -> None:
    status = {"replicas": 4, "readyReplicas": 3, "updatedReplicas": 2, "availableReplicas": 1}
    assert cells(DEPLOYMENTS, {"spec": SETS | {"replicas": 3}, "status": status}) == ["a", "3/3", "2", "1", "5s", *WIDE]


@pytest.mark.parametrize(
    ("spec", "status", "expected"),
    [
        ({"completions": 3}, {"succeeded": 1}, ["Running", "1/3", ""]),
        ({"parallelism": 1}, {"startTime": START}, ["Running", "0/1", "100s"]),
        ({"parallelism": 3}, {"startTime": START, "completionTime": END, "succeeded": 1}, ["Running", "1/1 of 3", "30s"]),
        ({"completions": 1}, {"conditions": [{"type": "Complete", "status": "True"}]}, ["Complete", "0/1", ""]),
        ({"completions": 1}, {"conditions": [{"type": "Failed", "status": "True"}]}, ["Failed", "0/1", ""]),
        ({"completions": 1}, {"conditions": [{"type": "Suspended", "status": "True"}]}, ["Suspended", "0/1", ""]),
        ({"completions": 1}, {"conditions": [{"type": "Suspended", "status": "False"}]}, ["Running", "0/1", ""]),
    ],
)
def test_job_row(spec: dict[str, Any], status: dict[str, Any], expected: list[str]) -> None:
    assert cells(JOBS, {"spec": SETS | spec, "status": status}) == ["a", *expected, "5s", *WIDE]


def test_endpoint_slice_row() -> None:
    endpoints = [{"addresses": ["10.0.0.1", "10.0.0.2"]}, {"addresses": ["10.0.0.3"]}, {"addresses": ["10.0.0.4"]}]
    data = {"addressType": "IPv4", "endpoints": endpoints, "ports": [{"port": 80}, {"name": "any"}]}
    assert cells(ENDPOINT_SLICES, data) == ["a", "IPv4", "80,*", "10.0.0.1,10.0.0.2,10.0.0.3 + 1 more...", "5s"]
    assert cells(ENDPOINT_SLICES, {"addressType": "IPv4"}) == ["a", "IPv4", "<unset>", "<unset>", "5s"]


SHOWN = ["main,side", "app:1,log:2"]


@pytest.mark.parametrize(
    ("spec", "status", "expected"),
    [
        (
            {"jobTemplate": {"spec": {"template": SETS["template"]}}},
            {},
            ["<none>", "<unset>", "0", "<none>", "5s", *SHOWN, "<none>"],
        ),
        (
            {"timeZone": "UTC", "suspend": True},
            {"active": [{"name": "x"}], "lastScheduleTime": "2001-09-09T01:46:30Z"},
            ["UTC", "True", "1", "10s", "5s", "", "", "<none>"],
        ),
    ],
)
def test_cron_job_row(spec: dict[str, Any], status: dict[str, Any], expected: list[str]) -> None:
    assert cells(CRON_JOBS, {"spec": {"schedule": "@daily"} | spec, "status": status}) == ["a", "@daily", *expected]


def test_daemon_set_row() -> None:
    status = {
        "desiredNumberScheduled": 6,
        "currentNumberScheduled": 5,
        "numberReady": 4,
        "updatedNumberScheduled": 3,
        "numberAvailable": 2,
    }
    assert cells(DAEMON_SETS, {"spec": SETS, "status": status}) == ["a", "6", "5", "4", "3", "2", "<none>", "5s", *WIDE]
    spec = {"template": {"spec": {"nodeSelector": {"b": "2", "a": "1"}}}}
    assert cells(DAEMON_SETS, {"spec": spec})[6] == "a=1,b=2"
