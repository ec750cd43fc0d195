"""Pruning, defaulting, and the metadata of embedded resources."""

from typing import Any

import pytest

from pinnace.apiextensions.defaulting import DefaultsTooLarge, drop_invalid_nulls, set_defaults
from pinnace.apiextensions.metadata import coerce_metadata, finalizer_warnings, validate_embedded
from pinnace.apiextensions.pruning import MAX_PATHS, prune
from pinnace.apiextensions.schema import StructuralSchema, compile_schema

STRING = {"type": "string"}
EMBEDDED = {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}


def make_schema(**properties: Any) -> StructuralSchema:
    """Return the schema of an object with these properties in its spec."""
    return compile_schema({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}})


@pytest.mark.parametrize(
    ("schema", "spec", "pruned", "paths"),
    [
        ({"a": STRING}, {"a": "x", "b": 1}, {"a": "x"}, ["spec.b"]),
        ({"l": {"type": "array", "items": {"type": "object"}}}, {"l": [{"x": 1}]}, {"l": [{}]}, ["spec.l[0].x"]),
        ({"a": STRING}, {"a": {"x": 1}}, {"a": {}}, ["spec.a.x"]),
        ({"m": {"type": "object", "additionalProperties": STRING}}, {"m": {"k": "v"}}, {"m": {"k": "v"}}, []),
        ({"m": {"type": "object", "additionalProperties": True}}, {"m": {"k": {"x": 1}}}, {"m": {"k": {}}}, ["spec.m.k.x"]),
    ],
)
def test_pruning_removes_undeclared_fields(schema: Any, spec: Any, pruned: Any, paths: list[str]) -> None:
    obj = {"apiVersion": "e.com/v1", "kind": "W", "metadata": {"name": "a"}, "spec": spec, "extra": 1}
    assert prune(obj, make_schema(**schema)) == sorted(["extra", *paths])
    assert obj == {"apiVersion": "e.com/v1", "kind": "W", "metadata": {"name": "a"}, "spec": pruned}


def test_pruning_keeps_unknown_fields_of_preserving_nodes_but_not_of_declared_ones_below() -> None:
    inner = {"type": "object", "properties": {"a": STRING}}
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"inner": inner}}
    obj = {"spec": {"free": {"x": {"y": 1}, "inner": {"a": "b", "c": 1}}}}
    assert prune(obj, make_schema(free=free)) == ["spec.free.inner.c"]
    assert obj == {"spec": {"free": {"x": {"y": 1}, "inner": {"a": "b"}}}}


def test_pruning_keeps_items_of_preserving_list() -> None:
    free = {
        "type": "array",
        "x-kubernetes-preserve-unknown-fields": True,
        "items": {"type": "object", "properties": {"a": STRING}},
    }
    obj = {"spec": {"free": [{"a": "b", "c": 1}]}}
    assert prune(obj, make_schema(free=free)) == []


def test_pruning_keeps_embedded_metadata() -> None:
    template = {"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"spec": {"type": "object"}}}
    value = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"x": 1}, "y": 1}
    obj = {"spec": {"template": value}}
    assert prune(obj, make_schema(template=template)) == ["spec.template.spec.x", "spec.template.y"]
    assert obj["spec"]["template"] == {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {}}


def test_pruning_reports_limited_number_of_paths() -> None:
    obj = {f"x{index}": 1 for index in range(MAX_PATHS + 1)}
    assert len(prune(obj, make_schema())) == MAX_PATHS
    assert obj == {}


@pytest.mark.parametrize(
    ("field", "before", "after"),
    [
        ({"type": "string", "default": "d"}, {}, {"f": "d"}),
        ({"type": "string", "default": "d"}, {"f": "x"}, {"f": "x"}),
        ({"type": "string", "default": "d"}, {"f": None}, {"f": "d"}),
        ({"type": "string", "default": "d", "nullable": True}, {"f": None}, {"f": None}),
        ({"type": "string", "nullable": True}, {"f": None}, {"f": None}),
        ({"type": "string"}, {"f": None}, {}),
        ({"type": "object", "properties": {"g": {"type": "integer", "default": 1}}}, {}, {}),
        ({"type": "object", "default": {}, "properties": {"g": {"type": "integer", "default": 1}}}, {}, {"f": {"g": 1}}),
        ({"type": "array", "items": {"type": "string", "default": "d"}}, {"f": [None, "x"]}, {"f": ["d", "x"]}),
        ({"type": "array", "items": {"type": "string"}}, {"f": [None]}, {"f": [None]}),
        ({"type": "object", "additionalProperties": {"type": "string", "default": "d"}}, {"f": {"k": None}}, {"f": {"k": "d"}}),
        ({"type": "object", "additionalProperties": {"type": "string"}}, {"f": {"k": None}}, {"f": {}}),
    ],
)
def test_defaults_replace_absent_fields_and_invalid_nulls(field: Any, before: Any, after: Any) -> None:
    schema, obj = make_schema(f=field), {"spec": before}
    drop_invalid_nulls(obj, schema)
    set_defaults(obj, schema)
    assert obj == {"spec": after}


def test_defaults_are_copied() -> None:
    schema = make_schema(f={"type": "array", "items": STRING, "default": ["a"]})
    first: Any = {"spec": {}}
    second: Any = {"spec": {}}
    set_defaults(first, schema)
    first["spec"]["f"].append("b")
    set_defaults(second, schema)
    assert second["spec"]["f"] == ["a"]


def test_defaults_of_unbounded_size_are_refused() -> None:
    item = {"type": "object", "properties": {"f": {"type": "string", "default": "x" * 100_000}}}
    schema = make_schema(l={"type": "array", "items": item})
    with pytest.raises(DefaultsTooLarge):
        set_defaults({"spec": {"l": [{} for _ in range(1_000)]}}, schema)


def test_embedded_metadata_loses_unknown_fields_and_empty_values() -> None:
    metadata = {"name": "a", "labels": {}, "creationTimestamp": None, "nope": 1, "ownerReferences": [{"kind": "K", "x": 1}]}
    obj: Any = {"spec": {"t": {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}}}
    violation, unknown = coerce_metadata(obj, make_schema(t=EMBEDDED))
    assert violation is None
    assert unknown == ["spec.t.metadata.nope", "spec.t.metadata.ownerReferences[0].x"]
    owner = {"apiVersion": "", "kind": "K", "name": "", "uid": ""}
    assert obj["spec"]["t"]["metadata"] == {"name": "a", "ownerReferences": [owner]}


def test_embedded_metadata_of_wrong_type_is_refused_or_dropped() -> None:
    schema = make_schema(t=EMBEDDED)

    def make_object() -> Any:
        return {"spec": {"t": {"apiVersion": 1, "kind": "Pod", "metadata": {"labels": {"a": 1}, "name": "n"}}}}

    violation, _ = coerce_metadata(make_object(), schema)
    assert violation is not None
    assert str(violation) == "spec.t.apiVersion: Invalid value: 1: must be a string"
    obj = make_object()
    assert coerce_metadata(obj, schema, drop_invalid=True) == (None, [])
    assert obj["spec"]["t"] == {"kind": "Pod", "metadata": {"name": "n"}}


def test_unqualified_finalizers_have_warnings_when_they_are_added() -> None:
    prefer, avoid = "prefer a domain-qualified finalizer name", "to avoid accidental conflicts with other finalizer writers"
    assert finalizer_warnings(["e.com/a", "orphan", "b", "e.com", "old"], ["old"]) == [
        f'metadata.finalizers: "b": {prefer} {avoid}',
        f'metadata.finalizers: "e.com": {prefer} including a path (/) {avoid}',
    ]


def test_embedded_resource_needs_type_and_valid_metadata() -> None:
    schema = make_schema(t=EMBEDDED, l={"type": "array", "items": EMBEDDED})
    obj = {"spec": {"t": {"kind": "9"}, "l": [{"apiVersion": "a/b/c", "kind": "Pod", "metadata": {"name": "a/b"}}]}}
    assert [str(violation).partition(" regex")[0] for violation in validate_embedded(obj, schema)] == [
        "spec.t.apiVersion: Required value",
        'spec.t.kind: Invalid value: "9": may have mixed case, but should otherwise match: a DNS-1035 label must consist of '
        "lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character "
        "(e.g. 'my-name',  or 'abc-123',",
        'spec.l[0].apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c',
        "spec.l[0].metadata.name: Invalid value: \"a/b\": may not contain '/'",
    ]
