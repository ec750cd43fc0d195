"""The tables of roles, bindings, quotas and limit ranges."""

from typing import Any

import pytest

from pinnace.api.codec import from_dict
from pinnace.api.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    LIMIT_RANGES,
    RESOURCE_QUOTAS,
    ROLE_BINDINGS,
    ROLES,
    Resource,
)
from pinnace.printers import COLUMNS

NOW = 1_000_000_000.0
META = {"name": "a", "creationTimestamp": "2001-09-09T01:46:35Z"}
SUBJECTS = [
    {"kind": "User", "name": "ada"},
    {"kind": "Group", "name": "system:masters"},
    {"kind": "User", "name": "bob"},
    {"kind": "ServiceAccount", "name": "robot", "namespace": "default"},
    {"kind": "ServiceAccount", "name": "local"},
]
BINDING = {"roleRef": {"kind": "ClusterRole", "name": "view"}, "subjects": SUBJECTS}
USAGE = {
    "hard": {"requests.cpu": "4", "pods": "10", "limits.cpu": "8", "limits.memory": "8Gi"},
    "used": {"requests.cpu": "500m", "pods": "2", "limits.cpu": "1"},
}


def cells(resource: Resource[Any], data: dict[str, Any]) -> list[str]:
    return list(COLUMNS[resource.plural].row(from_dict(resource, {"metadata": META} | data), NOW))


@pytest.mark.parametrize("resource", [ROLES, CLUSTER_ROLES, LIMIT_RANGES], ids=lambda item: item.plural)
def test_table_shows_the_creation_time(resource: Resource[Any]) -> None:
    assert COLUMNS[resource.plural].headers == ("NAME", "CREATED AT")
    assert cells(resource, {}) == ["a", "2001-09-09T01:46:35Z"]


@pytest.mark.parametrize("resource", [ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS], ids=lambda item: item.plural)
def test_row_of_bindings(resource: Resource[Any]) -> None:
    assert cells(resource, BINDING) == ["a", "ClusterRole/view", "5s", "ada, bob", "system:masters", "default/robot, local"]


def test_row_of_a_quota() -> None:
    assert cells(RESOURCE_QUOTAS, {"status": USAGE}) == [
        "a",
        "pods: 2/10, requests.cpu: 500m/4",
        "limits.cpu: 1/8, limits.memory: 0/8Gi",
        "5s",
    ]


def test_quota_without_status_shows_no_usage() -> None:
    assert cells(RESOURCE_QUOTAS, {"spec": {"hard": {"pods": "1"}}}) == ["a", "", "", "5s"]
