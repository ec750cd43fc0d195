"""Properties of schemas and objects that chance makes."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinnace.apiextensions.columns import cells, columns_of
from pinnace.apiextensions.defaulting import DefaultsTooLarge, drop_invalid_nulls, set_defaults
from pinnace.apiextensions.definitions import validate_definition
from pinnace.apiextensions.jsonpath import JSONPathError, compile_jsonpath
from pinnace.apiextensions.metadata import coerce_metadata
from pinnace.apiextensions.openapi import schemas_v2, schemas_v3
from pinnace.apiextensions.pruning import prune
from pinnace.apiextensions.schema import compile_schema
from pinnace.apiextensions.schema_types import GO_NAMES, read_schema
from pinnace.apiextensions.structs import StructError
from pinnace.apiextensions.validation import validate_object, validate_value
from tests.unit.apiextensions.definitions import make_definition, make_schema, make_version

pytestmark = pytest.mark.slow
NAMES = st.sampled_from(["a", "b", "c", "metadata", "kind", "spec"])
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=3))
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=8
)
OBJECTS = st.dictionaries(NAMES, JSON, max_size=4)


def leaf_schemas() -> st.SearchStrategy[dict[str, Any]]:
    """Schemas of scalars, some with defaults that are valid."""
    return st.sampled_from([
        {"type": "string"},
        {"type": "string", "default": "d", "maxLength": 2},
        {"type": "string", "nullable": True},
        {"type": "string", "format": "duration"},
        {"type": "integer", "default": 1, "minimum": 0},
        {"type": "number", "multipleOf": 0.5},
        {"type": "boolean", "default": False},
        {"x-kubernetes-int-or-string": True},
        {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "x-kubernetes-embedded-resource": True},
    ])  # fmt: skip


def extend_schema(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    fields = st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3)
    return st.one_of(
        st.builds(lambda properties: {"type": "object", "properties": properties}, fields),
        st.builds(lambda properties: {"type": "object", "properties": properties, "default": {}}, fields),
        st.builds(lambda values: {"type": "object", "additionalProperties": values}, inner),
        st.builds(lambda items: {"type": "array", "items": items}, inner),
    )


SCHEMAS = st.recursive(leaf_schemas(), extend_schema, max_leaves=8).map(lambda props: make_schema(a=props))
KEYWORDS = st.sampled_from(sorted(GO_NAMES))
HOSTILE = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYWORDS | NAMES, inner, max_size=4), max_leaves=20
)


@given(SCHEMAS)
def test_structural_schema_is_valid(props: dict[str, Any]) -> None:
    assert validate_definition(make_definition(make_version(props))) == []


@given(SCHEMAS, OBJECTS)
def test_pruning_is_idempotent(props: dict[str, Any], spec: dict[str, Any]) -> None:
    schema, obj = compile_schema(props), {"apiVersion": "e.com/v1", "kind": "W", "spec": spec}
    prune(obj, schema)
    pruned = deepcopy(obj)
    assert prune(obj, schema) == []
    assert obj == pruned


@given(SCHEMAS, OBJECTS)
def test_defaulting_is_idempotent_and_keeps_nothing_invalid_out(props: dict[str, Any], spec: dict[str, Any]) -> None:
    schema, obj = compile_schema(props), {"spec": spec}
    drop_invalid_nulls(obj, schema)
    set_defaults(obj, schema)
    defaulted = deepcopy(obj)
    drop_invalid_nulls(obj, schema)
    set_defaults(obj, schema)
    assert obj == defaulted


@given(SCHEMAS)
def test_defaults_are_valid_and_pruned(props: dict[str, Any]) -> None:
    schema, obj = compile_schema(props), {"spec": {}}
    set_defaults(obj, schema)
    assert validate_value(obj, schema) == []
    assert prune(obj, schema) == []


@given(SCHEMAS, OBJECTS)
def test_unchanged_object_is_tolerated_if_its_fields_are_declared(props: dict[str, Any], spec: dict[str, Any]) -> None:
    schema, obj = compile_schema(props), {"spec": spec}
    if not prune(deepcopy(obj), schema) and "x-kubernetes-preserve-unknown-fields" not in str(props):
        assert validate_value(obj, schema, deepcopy(obj)) == []


@given(SCHEMAS)
def test_reading_of_schema_is_idempotent(props: dict[str, Any]) -> None:
    read, unknown = read_schema(props)
    assert unknown == []
    assert read_schema(read) == (read, [])


@given(HOSTILE, OBJECTS, OBJECTS)
def test_any_json_is_accepted_as_schema_without_crash(props: Any, obj: dict[str, Any], old: dict[str, Any]) -> None:
    schemas = [props, make_schema(a=props)]
    for candidate in schemas:
        crd = make_definition(make_version(candidate))
        validate_definition(crd)
        try:
            read, _ = read_schema(candidate)
        except StructError:
            continue
        crd = make_definition(make_version(read))
        schemas_v2(crd, "v1")
        schemas_v3(crd, "v1")
        schema, written = compile_schema(read), deepcopy(obj)
        try:
            drop_invalid_nulls(written, schema)
            set_defaults(written, schema)
        except DefaultsTooLarge:
            continue
        coerce_metadata(written, schema, root=True, drop_invalid=True)
        prune(written, schema)
        validate_object(written, schema, old, evaluate_rules=lambda *_: [])


@given(st.text(alphabet=".[]()?@*':=\"ab0-,\\ ", max_size=20), JSON)
def test_any_path_is_parsed_without_crash(path: str, obj: Any) -> None:
    try:
        compile_jsonpath(path).find(obj)
    except JSONPathError:
        return
    cells(columns_of({"additionalPrinterColumns": [{"name": "A", "type": "string", "jsonPath": path}]}), {"a": obj}, now=0.0)
