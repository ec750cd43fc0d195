"""Volumes that show files: keys, fields of the pod, tokens."""

import pytest

from pinnace.api.resources import PODS
from tests.unit.registry.objects import Data, created, pod

MODE = "must be a number between 0 and 0777 (octal), both inclusive"
ITEM: Data = {"key": "k", "path": "p"}
FIELD: Data = {"path": "p", "fieldRef": {"fieldPath": "metadata.labels"}}
ABSOLUTE = '.path: Invalid value: "/p": must be a relative path'


def wrong(**source: Data) -> list[str]:
    """What is wrong with the source of the only volume of a pod."""
    return [item.removeprefix("spec.volumes[0].") for item in created(PODS, pod(volumes=[{"name": "v", **source}]))]


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ({}, []),
        ({"mode": 0o400, "path": "d/..k"}, []),
        ({"key": ""}, ["items[0].key: Required value"]),
        ({"path": ""}, ["items[0].path: Required value"]),
        ({"path": "/p"}, [f"items[0]{ABSOLUTE}"]),
        ({"path": "a/../p"}, ["items[0].path: Invalid value: \"a/../p\": must not contain '..'"]),
        ({"path": "..p"}, ["items[0].path: Invalid value: \"..p\": must not start with '..'"]),
        ({"mode": 0o1000}, [f"items[0].mode: Invalid value: 512: {MODE}"]),
    ],
)
def test_keys(item: Data, expected: list[str]) -> None:
    assert wrong(secret={"secretName": "s", "items": [ITEM | item]}) == [f"secret.{each}" for each in expected]
    assert wrong(configMap={"name": "c", "items": [ITEM | item]}) == [f"configMap.{each}" for each in expected]
    result = wrong(projected={"sources": [{"secret": {"name": "s", "items": [ITEM | item]}}]})
    assert result == [f"projected.sources[0].secret.{each}" for each in expected]


@pytest.mark.parametrize("kind", ["secret", "configMap", "downwardAPI", "projected"])
def test_modes(kind: str) -> None:
    source = {"secret": {"secretName": "s"}, "configMap": {"name": "c"}}.get(kind, {})
    assert wrong(**{kind: source | {"defaultMode": 0o777}}) == []
    assert wrong(**{kind: source | {"defaultMode": -1}}) == [f"{kind}.defaultMode: Invalid value: -1: {MODE}"]


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (FIELD, []),
        (FIELD | {"fieldRef": {"fieldPath": "metadata.annotations['a']"}}, []),
        ({"path": "p", "resourceFieldRef": {"containerName": "c", "resource": "limits.cpu", "divisor": "1m"}}, []),
        (
            FIELD | {"fieldRef": {"fieldPath": "status.podIP"}},
            [
                '.fieldRef.fieldPath: Unsupported value: "status.podIP": supported values: "metadata.annotations", '
                '"metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"'
            ],
        ),
        ({"path": "p"}, [": Required value: one of fieldRef and resourceFieldRef is required"]),
        (
            FIELD | {"resourceFieldRef": {"containerName": "c", "resource": "limits.cpu"}},
            [': Invalid value: "resource": fieldRef and resourceFieldRef can not be specified simultaneously'],
        ),
        (
            {"path": "p", "resourceFieldRef": {"resource": "limits.cpu"}},
            [".resourceFieldRef.containerName: Required value"],
        ),
        (FIELD | {"path": "/p"}, [ABSOLUTE]),
        (FIELD | {"mode": -1}, [f".mode: Invalid value: -1: {MODE}"]),
    ],
)
def test_fields_of_the_pod(item: Data, expected: list[str]) -> None:
    assert wrong(downwardAPI={"items": [item]}) == [f"downwardAPI.items[0]{each}" for each in expected]


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        (
            [{"secret": {"name": "s", "items": [ITEM]}}, {"configMap": {"name": "c"}}, {"serviceAccountToken": {"path": "t"}}],
            [],
        ),
        ([{"secret": {}}], ["[0].secret.name: Required value"]),
        ([{"configMap": {}}], ["[0].configMap.name: Required value"]),
        (
            [{"secret": {"name": "s"}, "configMap": {"name": "c"}}],
            ["[0].configMap: Forbidden: may not specify more than 1 volume type per source"],
        ),
        (
            [{"secret": {"name": "s", "items": [ITEM]}}, {"downwardAPI": {"items": [FIELD]}}],
            ['[1].downwardAPI: Invalid value: "p": conflicting duplicate paths'],
        ),
        ([{"serviceAccountToken": {}}], ["[0].serviceAccountToken.path: Required value"]),
        (
            [{"serviceAccountToken": {"path": "t", "expirationSeconds": 599}}],
            ["[0].serviceAccountToken.expirationSeconds: Invalid value: 599: must be between 600 and 4294967296, inclusive"],
        ),
    ],
)
def test_several_sources(sources: list[Data], expected: list[str]) -> None:
    assert wrong(projected={"sources": sources}) == [f"projected.sources{item}" for item in expected]


def test_nfs_path_must_be_absolute() -> None:
    assert wrong(nfs={"server": "s", "path": "/a"}) == []
    assert wrong(nfs={"server": "s", "path": "a"}) == ['nfs.path: Invalid value: "a": must be an absolute path']
