"""Types of custom objects for server-side apply."""

from typing import Any

import pytest

from pinnace.api.fieldset import FieldSet
from pinnace.api.schema import Map
from pinnace.api.structured_merge import ABSENT, TypeMismatch, check, compare
from pinnace.apiextensions.schema import compile_schema
from pinnace.apiextensions.typed import type_of

ITEM = {"type": "object", "properties": {"key": {"type": "string"}, "proto": {"type": "string", "default": "TCP"}, "value": {}}}
SPEC = {
    "type": "object",
    "properties": {
        "items": {
            "type": "array",
            "items": ITEM,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["key", "proto"],
        },
        "names": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "plain": {"type": "array", "items": {"type": "string"}},
        "whole": {"type": "object", "properties": {"a": {"type": "string"}}, "x-kubernetes-map-type": "atomic"},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "port": {"x-kubernetes-int-or-string": True},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
SCHEMA = compile_schema({"type": "object", "properties": {"spec": SPEC}})


def owned_fields(spec: Any) -> FieldSet:
    """Return the fields that a manager of the object owns."""
    return compare(type_of(SCHEMA), ABSENT, {"spec": spec}).added


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"items": [{"key": "a", "value": 1}]}, ("f:spec", "f:items", 'k:{"key":"a","proto":"TCP"}', "f:value")),
        ({"names": ["x"]}, ("f:spec", "f:names", 'v:"x"')),
        ({"plain": ["x"]}, ("f:spec", "f:plain")),
        ({"whole": {"a": "b"}}, ("f:spec", "f:whole")),
        ({"labels": {"a": "b"}}, ("f:spec", "f:labels", "f:a")),
        ({"port": "http"}, ("f:spec", "f:port")),
        ({"free": {"deep": {"x": 1}}}, ("f:spec", "f:free", "f:deep", "f:x")),
    ],
)
def test_ownership_follows_topology_of_schema(spec: Any, path: tuple[str, ...]) -> None:
    assert path in owned_fields(spec)


def test_undeclared_field_is_refused() -> None:
    with pytest.raises(TypeMismatch, match=r"\.spec\.nope: field not declared in schema"):
        check(type_of(SCHEMA), {"spec": {"nope": 1}})


def test_metadata_has_types_of_object_meta() -> None:
    of = type_of(SCHEMA)
    assert isinstance(of, Map)
    check(of, {"apiVersion": "e.com/v1", "kind": "W", "metadata": {"labels": {"a": "b"}}})
    with pytest.raises(TypeMismatch):
        check(of, {"metadata": {"labels": {"a": 1}}})
