"""Environment variables of a container."""

import pytest

from pinnace.api import wire
from pinnace.api.names import _NO_KEY, _NO_SUBDOMAIN
from pinnace.api.resources import PODS
from tests.unit.registry.objects import Data, created, pod

C = "spec.containers[0]"


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ([{"name": "A", "value": "1"}, {"name": "a b", "value": ""}], []),
        ([{"name": ""}], [f"{C}.env[0].name: Required value"]),
        (
            [{"name": "A=B"}],
            [
                f'{C}.env[0].name: Invalid value: "A=B": a valid environment variable name must consist only of printable '
                "ASCII characters other than '='"
            ],
        ),
        ([{"name": "A", "value": "\0"}], [f'{C}.env[0].value: Invalid value: "\\u0000": must not contain null characters']),
        ([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}}], []),
        ([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}], []),
        ([{"name": "A", "valueFrom": {"fieldRef": {}}}], [f"{C}.env[0].valueFrom.fieldRef.fieldPath: Required value"]),
        (
            [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a b']"}}}],
            [f'{C}.env[0].valueFrom.fieldRef.fieldPath: Invalid value: "a b": name part {_NO_KEY}'],
        ),
        (
            [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "cpu"}}}],
            [
                f'{C}.env[0].valueFrom.resourceFieldRef.resource: Unsupported value: "cpu": supported values: "limits.cpu", '
                '"limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory"'
            ],
        ),
        ([{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}], []),
        ([{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1000m"}}}], []),
        ([{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}}], []),
        ([{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "0"}}}], []),
        (
            [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "2"}}}],
            [
                f"{C}.env[0].valueFrom.resourceFieldRef.divisor: Invalid value: "
                '"2": only divisor\'s values 1m, 1 are supported with the cpu resource'
            ],
        ),
        (
            [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "requests.memory", "divisor": "7"}}}],
            [
                f'{C}.env[0].valueFrom.resourceFieldRef.divisor: Invalid value: "7": '
                "only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the memory "
                "resource"
            ],
        ),
        (
            [{"name": "A", "valueFrom": {"fieldRef": {"apiVersion": "v2", "fieldPath": "metadata.name"}}}],
            [
                f'{C}.env[0].valueFrom.fieldRef.fieldPath: Invalid value: "metadata.name": '
                "error converting fieldPath: unsupported pod version: v2"
            ],
        ),
        (
            [{"name": "A", "valueFrom": {"resourceFieldRef": {}}}],
            [f"{C}.env[0].valueFrom.resourceFieldRef.resource: Required value"],
        ),
        ([{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k.x"}}}], []),
        (
            [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "A", "key": ".."}}}],
            [
                f'{C}.env[0].valueFrom.secretKeyRef.name: Invalid value: "A": {_NO_SUBDOMAIN[0]}',
                f"{C}.env[0].valueFrom.secretKeyRef.key: Invalid value: \"..\": must not be '..'",
            ],
        ),
        (
            [{"name": "A", "valueFrom": {"configMapKeyRef": {}}}],
            [
                f"{C}.env[0].valueFrom.configMapKeyRef.name: Required value",
                f"{C}.env[0].valueFrom.configMapKeyRef.key: Required value",
            ],
        ),
        (
            [{"name": "A", "valueFrom": {}}],
            [
                f'{C}.env[0].valueFrom: Invalid value: "": must specify one of: `fieldRef`, `resourceFieldRef`, '
                "`configMapKeyRef` or `secretKeyRef`"
            ],
        ),
        (
            [{"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            [f'{C}.env[0].valueFrom: Invalid value: "": may not be specified when `value` is not empty'],
        ),
        (
            [
                {
                    "name": "A",
                    "valueFrom": {
                        "fieldRef": {"fieldPath": "metadata.name"},
                        "resourceFieldRef": {"resource": "limits.cpu"},
                    },
                }
            ],
            [f'{C}.env[0].valueFrom: Invalid value: "": may not have more than one field specified at a time'],
        ),
    ],
)
def test_env(env: list[Data], expected: list[str]) -> None:
    assert created(PODS, pod({"env": env})) == expected


def test_field_that_cannot_be_referred_to_names_those_that_can() -> None:
    env = [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.priority"}}}]
    (violation,) = created(PODS, pod({"env": env}))
    assert violation.startswith(
        f'{C}.env[0].valueFrom.fieldRef.fieldPath: Unsupported value: "spec.priority": supported values: '
    )


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ([{"prefix": "P_", "configMapRef": {"name": "m"}}, {"secretRef": {"name": "s"}}], []),
        ([{"configMapRef": {}}], [f"{C}.envFrom[0].configMapRef.name: Required value"]),
        ([{}], [f'{C}.envFrom[0]: Invalid value: "": must specify one of: `configMapRef` or `secretRef`']),
        (
            [{"configMapRef": {"name": "m"}, "secretRef": {"name": "s"}}],
            [f'{C}.envFrom[0]: Invalid value: "": may not have more than one field specified at a time'],
        ),
    ],
)
def test_env_from(sources: list[Data], expected: list[str]) -> None:
    assert created(PODS, pod({"envFrom": sources})) == expected


def test_sources_that_are_not_modelled_are_not_missed() -> None:
    """An unknown field may be just what the check is looking for."""
    obj = pod({"env": [{"name": "A", "valueFrom": {}}], "envFrom": [{}]})
    container = obj.spec.containers[0]
    container.env[0].valueFrom.MergeFromString(wire.field(99, b""))
    container.envFrom[0].MergeFromString(wire.field(99, b""))
    assert created(PODS, obj) == []
