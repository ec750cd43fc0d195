"""The tables and descriptions of roles, bindings, quotas and limit ranges."""

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
from pinnace.cli.describe.text import render
from pinnace.cli.output.showing import ObjectTable
from pinnace.cli.verbs.describe import DESCRIPTIONS
from pinnace.printers import COLUMNS
from pinnace.printers.columns import View

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


def described(resource: Resource[Any], data: dict[str, Any]) -> list[list[str]]:
    """The words of each line after the metadata."""
    fields = DESCRIPTIONS[resource.plural](from_dict(resource, {"metadata": META} | data))
    lines = [line.split() for line in render(fields)]
    return lines[4:]


@pytest.mark.parametrize("resource", [ROLES, CLUSTER_ROLES, LIMIT_RANGES], ids=lambda each: each.plural)
def test_table_shows_the_creation_time(resource: Resource[Any]) -> None:
    text = ObjectTable(resource, View()).render([from_dict(resource, {"metadata": META})], NOW)
    assert text.splitlines() == ["NAME   CREATED AT", "a      2001-09-09T01:46:35Z"]


@pytest.mark.parametrize("resource", [ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS], ids=lambda each: each.plural)
def test_row_and_description_of_bindings(resource: Resource[Any]) -> None:
    assert cells(resource, BINDING) == ["a", "ClusterRole/view", "5s", "ada, bob", "system:masters", "default/robot, local"]
    assert described(resource, BINDING) == [
        ["Role:"],
        ["Kind:", "ClusterRole"],
        ["Name:", "view"],
        ["Subjects:"],
        ["Kind", "Name", "Namespace"],
        ["----", "----", "---------"],
        ["User", "ada"],
        ["Group", "system:masters"],
        ["User", "bob"],
        ["ServiceAccount", "robot", "default"],
        ["ServiceAccount", "local"],
    ]


def test_row_and_description_of_a_quota() -> None:
    assert cells(RESOURCE_QUOTAS, {"status": USAGE}) == [
        "a",
        "pods: 2/10, requests.cpu: 500m/4",
        "limits.cpu: 1/8, limits.memory: 0/8Gi",
        "5s",
    ]
    scope = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high", "low"]}]}
    spec = {"scopes": ["Terminating", "NotBestEffort"], "scopeSelector": scope}
    assert described(RESOURCE_QUOTAS, {"spec": spec, "status": USAGE}) == [
        ["Scopes:", "NotBestEffort,", "Terminating"],
        ["Scope", "Selector:", "PriorityClass", "In", "high,", "low"],
        ["Resources:"],
        ["Resource", "Used", "Hard"],
        ["--------", "----", "----"],
        ["limits.cpu", "1", "8"],
        ["limits.memory", "0", "8Gi"],
        ["pods", "2", "10"],
        ["requests.cpu", "500m", "4"],
    ]


def test_quota_without_status_shows_no_usage() -> None:
    assert cells(RESOURCE_QUOTAS, {"spec": {"hard": {"pods": "1"}}}) == ["a", "", "", "5s"]


def test_description_of_role_rules() -> None:
    rules = [
        {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "pods/status"]},
        {"verbs": ["get", "watch"], "apiGroups": [""], "resources": ["pods"]},
        {"verbs": ["update"], "apiGroups": ["apps"], "resources": ["deployments/scale"], "resourceNames": ["a", "b"]},
        {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
        {"verbs": ["get"], "nonResourceURLs": ["/healthz", "/metrics"]},
    ]
    table = [
        ["PolicyRule:"],
        ["Resources", "Non-Resource", "URLs", "Resource", "Names", "Verbs"],
        ["---------", "-----------------", "--------------", "-----"],
        ["pods", "[]", "[]", "[get", "list", "watch]"],
        ["pods/status", "[]", "[]", "[get", "list]"],
        ["deployments.apps/scale", "[]", "[a]", "[update]"],
        ["deployments.apps/scale", "[]", "[b]", "[update]"],
        ["*.*", "[]", "[]", "[*]"],
        ["[/healthz]", "[]", "[get]"],
        ["[/metrics]", "[]", "[get]"],
    ]
    assert described(CLUSTER_ROLES, {"rules": rules}) == table
    assert described(ROLES, {"rules": rules[:-1]}) == table[:-2]


def test_description_of_an_aggregated_role() -> None:
    rule = {"clusterRoleSelectors": [{"matchLabels": {"aggregate": "true"}}, {}]}
    assert described(CLUSTER_ROLES, {"aggregationRule": rule}) == [
        ["Aggregates:", "aggregate=true"],
        ["<all>"],
        ["PolicyRule:", "<none>"],
    ]


def test_description_of_a_limit_range() -> None:
    limits = [
        {"type": "Container", "min": {"cpu": "100m"}, "max": {"cpu": "2", "memory": "1Gi"}, "defaultRequest": {"cpu": "200m"}},
        {"type": "Pod", "maxLimitRequestRatio": {"cpu": "4"}},
    ]
    lines = described(LIMIT_RANGES, {"spec": {"limits": limits}})
    assert lines[3:] == [
        ["Container", "cpu", "100m", "2", "200m", "-", "-"],
        ["Container", "memory", "-", "1Gi", "-", "-", "-"],
        ["Pod", "cpu", "-", "-", "-", "-", "4"],
    ]
