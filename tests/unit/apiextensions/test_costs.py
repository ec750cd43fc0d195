"""Hostile schemas and objects cost little: each takes a fraction of a second of CPU on a slow machine."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from pinnace.apiextensions.columns import MAX_COLUMNS, cells, columns_of
from pinnace.apiextensions.definitions import validate_definition
from pinnace.apiextensions.schema import compile_schema
from pinnace.apiextensions.validation import MAX_VIOLATIONS, validate_object, validate_value
from pinnace.apiextensions.violations import MAX_TEXT
from tests.unit.apiextensions.definitions import make_definition, make_schema, make_version

pytestmark = pytest.mark.slow
SECONDS = 2.0
"""CPU time that no call takes on any machine. Most take a tenth of it, and quadratic ones minutes."""
EXPENSIVE = '<nil>: Invalid value: "": the validation of the object takes too many steps'


def nest(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"f": schema}}
    return schema


def many(number: int, make: Callable[[int], Any]) -> dict[str, Any]:
    return make_schema(**{f"f{index}": make(index) for index in range(number)})


def measure(call: Callable[[], Any]) -> Any:
    start = time.process_time()
    result = call()
    assert time.process_time() - start < SECONDS
    return result


@pytest.mark.parametrize(
    "make",
    [
        lambda: make_schema(f={"type": "string", "enum": [f"value-{index}" for index in range(100_000)]}),
        lambda: many(30_000, lambda _: {"type": "string"}),
        lambda: many(30_000, lambda _: {}),
        lambda: many(10_000, lambda index: {"type": "string", "pattern": f"^a{{999}}{index}$"}),
        lambda: many(1_000, lambda index: {"type": "string", "pattern": rf"\p{{L}}{{{200 + index}}}"}),
        lambda: make_schema(f={"type": "string", "pattern": "(((((a{30}){30}){30}){30}){30})"}),
        lambda: make_schema(f={"type": "object", "required": [f"f{index}" for index in range(100_000)]}),
        lambda: make_schema(f={"type": "integer", "allOf": [{"minimum": index} for index in range(30_000)], "default": 1}),
        lambda: make_schema(f={
            "type": "object", "x-kubernetes-preserve-unknown-fields": True,
            "default": dict.fromkeys(map(str, range(50_000)), 1),
            "anyOf": [{"required": [f"f{index}"]} for index in range(10_000)],
        }),
        lambda: nest(60),
        lambda: nest(3_000),
    ],
    ids=["enum", "width", "untyped", "patterns", "classes", "repeats", "required", "allOf", "default", "depth", "deeper"],
)  # fmt: skip
def test_definition_with_hostile_schema_costs_little(make: Callable[[], Any]) -> None:
    definition = make_definition(make_version(make()))
    violations = measure(lambda: validate_definition(definition))
    assert len(violations) <= MAX_VIOLATIONS


def test_published_host_name_pattern_is_compiled() -> None:
    """RE2 needs tens of thousands of instructions for letters of all scripts."""
    pattern = r"^(\p{L}|\d)([-\p{L}\d]{0,61}[\p{L}\d])?$"
    crd = make_definition(make_version(make_schema(host={"type": "string", "pattern": pattern})))
    assert validate_definition(crd) == []


def test_definition_of_833_kilobytes_costs_little() -> None:
    text = "A description that says what the field does, and why. " * 4
    leaf = {"type": "string", "description": text, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}
    schema = many(60, lambda _: {"type": "object", "properties": {f"f{index}": leaf for index in range(50)}})
    crd = make_definition(make_version(schema))
    assert len(str(schema)) > 833_000
    assert measure(lambda: validate_definition(crd)) == []
    obj = {"spec": {f"f{index}": {"f0": "a"} for index in range(60)}}
    assert measure(lambda: validate_object(obj, compile_schema(schema))) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ({"type": "array", "items": {"type": "object"},
          "allOf": [{"items": {"required": [f"f{index}"]}} for index in range(5_000)]}, [{}] * 10_000),
        ({"type": "string", "allOf": [{"pattern": f"(a|b)*a(a|b){{300}}{index}"} for index in range(1_000)]}, "ab" * 500_000),
        ({"type": "string", "pattern": "(a|b)*a(a|b){300}c"}, "ab" * 500_000),
        ({"type": "object", "x-kubernetes-preserve-unknown-fields": True,
          "oneOf": [{"enum": [{"a": index}]} for index in range(30_000)]}, {"a": ["x"] * 100_000}),
    ],
    ids=["items", "patterns", "pattern", "enum"],
)  # fmt: skip
def test_object_that_multiplies_schema_is_refused(field: Any, value: Any) -> None:
    violations = measure(lambda: validate_value({"f": value}, compile_schema({"type": "object", "properties": {"f": field}})))
    assert [str(violation) for violation in violations] == [EXPENSIVE]


@pytest.mark.parametrize(
    ("items", "value"),
    [
        ({"type": "string", "enum": [f"value-{index}" for index in range(50_000)]}, ["no"] * 20_000),
        ({"type": "object", "required": [f"f{index}" for index in range(10_000)]}, [{}] * 10_000),
        ({"type": "string", "maxLength": 1}, ["x" * 100_000] * 100),
    ],
    ids=["enum", "required", "texts"],
)
def test_violations_of_large_list_are_few_and_short(items: Any, value: Any) -> None:
    schema = compile_schema({"type": "object", "properties": {"f": {"type": "array", "items": items}}})
    violations = measure(lambda: validate_value({"f": value}, schema))
    assert 0 < len(violations) <= MAX_VIOLATIONS
    assert all(len(violation.message) <= 3 * MAX_TEXT for violation in violations)


def test_duplicates_in_large_lists_cost_little() -> None:
    fields = {
        "s": {"type": "array", "items": {"type": "integer"}, "x-kubernetes-list-type": "set"},
        "m": {
            "type": "array",
            "items": {"type": "object"},
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"],
        },
    }
    obj = {"s": list(range(100_000)) * 2, "m": [{"k": index % 1_000} for index in range(50_000)]}
    schema = compile_schema({"type": "object", "properties": fields})
    assert len(measure(lambda: validate_object(obj, schema, obj))) <= MAX_VIOLATIONS


def test_row_with_hostile_columns_costs_little() -> None:
    nested: Any = {"a": 1}
    for _ in range(60):
        nested = {"a": nested, "b": [nested]}
    column = {"name": "C", "type": "string", "jsonPath": "..a..b..c..d"}
    columns = columns_of({"additionalPrinterColumns": [column] * 10_000})
    assert len(columns) == MAX_COLUMNS
    assert measure(lambda: cells(columns, nested, now=0.0)) == [None] * MAX_COLUMNS
