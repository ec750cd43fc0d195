"""Values against schemas, with the messages of Kubernetes."""

from copy import deepcopy
from typing import Any

import pytest

from pinnace.api.status import TYPE_INVALID
from pinnace.apiextensions.schema import compile_schema
from pinnace.apiextensions.validation import validate_list_types, validate_object, validate_value


def violations_of(field: Any, value: Any, **old: Any) -> list[str]:
    """Return the violations of a value in a field f. `old`: f before an update."""
    schema = compile_schema({"type": "object", "properties": {"f": field}})
    return [str(violation) for violation in validate_value({"f": value}, schema, *([old] if old else []))]


@pytest.mark.parametrize(
    ("field", "value", "messages"),
    [
        ({"type": "string"}, 1, ['f: Invalid value: "integer": f in body must be of type string: "integer"']),
        ({"type": "integer"}, 1.5, [
            'f: Invalid value: "number": f in body must be of type integer: "number"',
            '<nil>: Invalid value: "": Checked value must be of type integer (default format) in f',
        ]),
        ({"type": "integer"}, 2.0, []),
        ({"type": "number"}, 2, []),
        ({"type": "integer"}, True, ['f: Invalid value: "boolean": f in body must be of type integer: "boolean"']),
        ({"type": "string"}, None, ['f: Invalid value: "null": f in body must be of type string: "null"']),
        ({"type": "string", "nullable": True}, None, []),
        ({"x-kubernetes-int-or-string": True}, "a", []),
        ({"x-kubernetes-int-or-string": True}, 1, []),
        ({"x-kubernetes-int-or-string": True}, 1.5, [
            'f: Invalid value: "number": f in body must be of type integer,string: "number"'
        ]),
        ({"type": "integer", "format": "int32"}, 1 << 31, [
            '<nil>: Invalid value: "": Checked value must be of type integer with format int32 in f'
        ]),
        ({"type": "string", "format": "date-time"}, "x", ['f: Invalid value: "x": f in body must be of type date-time: "x"']),
        ({"type": "string", "format": "date-time"}, 5, [
            'f: Invalid value: "int64": f in body must be of type date-time: "int64"'
        ]),
        ({"type": "string", "format": "no-such-format"}, "x", []),
        ({"type": "string", "maxLength": 1, "pattern": "^b$"}, "aa", ["f: Too long: may not be more than 1 bytes"]),
        ({"type": "string", "minLength": 3}, "aé", ['f: Invalid value: "aé": f in body should be at least 3 chars long']),
        ({"type": "string", "pattern": "^b$"}, "a\n", ["f: Invalid value: \"a\\n\": f in body should match '^b$'"]),
        ({"type": "integer", "maximum": 5}, 6, ["f: Invalid value: 6: f in body should be less than or equal to 5"]),
        ({"type": "integer", "maximum": 5, "exclusiveMaximum": True}, 5, [
            "f: Invalid value: 5: f in body should be less than 5"
        ]),
        ({"type": "number", "minimum": 1.5}, 1, []),  # Kubernetes truncates the limit for integers
        ({"type": "number", "minimum": 1e6}, 0.5, [
            "f: Invalid value: 0.5: f in body should be greater than or equal to 1e+06"
        ]),
        ({"type": "integer", "multipleOf": 3}, 4, ["f: Invalid value: 4: f in body should be a multiple of 3"]),
        ({"type": "array", "items": {"type": "string"}, "maxItems": 1}, ["a", "b"], [
            "f: Too many: 2: must have at most 1 item"
        ]),
        ({"type": "array", "items": {"type": "string"}, "minItems": 1}, [], [
            "f: Invalid value: 0: f in body should have at least 1 items"
        ]),
        ({"type": "array", "items": {"type": "string"}}, [1], [
            'f[0]: Invalid value: "integer": f[0] in body must be of type string: "integer"'
        ]),
        ({"type": "object", "maxProperties": 1}, {"a": 1, "b": 1}, ["f: Too many: 2: must have at most 1 item"]),
        ({"type": "object", "minProperties": 1}, {}, ["f: Invalid value: 0: f in body should have at least 1 properties"]),
        ({"type": "object", "required": ["a"]}, {}, ["f.a: Required value"]),
        ({"type": "object", "additionalProperties": {"type": "string"}}, {"a": 1}, [
            'f.a: Invalid value: "integer": f.a in body must be of type string: "integer"'
        ]),
        ({"type": "object", "additionalProperties": False}, {"a": 1}, [
            'f: Invalid value: "a": f.a in body is a forbidden property'
        ]),
        ({"type": "string", "enum": ["a", "b"]}, "c", ['f: Unsupported value: "c": supported values: "a", "b"']),
        ({"type": "integer", "enum": [1, 2]}, 1.0, []),
        ({"type": "string", "nullable": True, "enum": ["a"]}, None, ['f: Unsupported value: null: supported values: "a"']),
        ({"type": "object", "enum": [{"a": 1}]}, {"a": 2}, ['f: Unsupported value: {"a":2}: supported values: "{\\"a\\":1}"']),
        ({"type": "integer", "not": {"minimum": 3}}, 5, ['<nil>: Invalid value: "": "f" must not validate the schema (not)']),
        ({"type": "integer", "anyOf": [{"maximum": 1}, {"minimum": 9}]}, 5, [
            '<nil>: Invalid value: "": "f" must validate at least one schema (anyOf)',
            "f: Invalid value: 5: f in body should be less than or equal to 1",
        ]),
        ({"type": "integer", "oneOf": [{"maximum": 1}, {"minimum": 9}]}, 5, [
            '<nil>: Invalid value: "": "f" must validate one and only one schema (oneOf). Found none valid',
            "f: Invalid value: 5: f in body should be less than or equal to 1",
        ]),
        ({"type": "integer", "oneOf": [{"maximum": 9}, {"minimum": 1}]}, 5, [
            '<nil>: Invalid value: "": "f" must validate one and only one schema (oneOf). Found 2 valid alternatives',
        ]),
        ({"type": "integer", "allOf": [{"maximum": 1}, {"maximum": 9}]}, 5, [
            "f: Invalid value: 5: f in body should be less than or equal to 1",
            '<nil>: Invalid value: "": "f" must validate all the schemas (allOf)',
        ]),
        ({"type": "integer", "allOf": [{"maximum": 1}]}, 5, [
            "f: Invalid value: 5: f in body should be less than or equal to 1",
            '<nil>: Invalid value: "": "f" must validate all the schemas (allOf). None validated',
        ]),
    ],
)  # fmt: skip
def test_violations_have_messages_of_kubernetes(field: Any, value: Any, messages: list[str]) -> None:
    assert violations_of(field, value) == messages


def test_alternative_with_most_matches_explains_any_of() -> None:
    named = {"required": ["a"], "properties": {"a": {"type": "integer"}}}
    other = {"required": ["b"]}
    field = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {}}, "anyOf": [other, named]}
    messages = violations_of(field, {"a": "x"})
    assert 'f.a: Invalid value: "string": f.a in body must be of type integer: "string"' in messages
    assert "f.b: Required value" not in messages


def test_wrong_types_and_formats_have_reason_of_their_own() -> None:
    schema = compile_schema(
        {"type": "object", "properties": {"f": {"type": "string", "format": "uri"}, "g": {"type": "integer"}}}
    )
    assert [violation.reason for violation in validate_value({"f": "x", "g": "y"}, schema)] == [TYPE_INVALID] * 2


ITEM = {
    "type": "object",
    "properties": {"k": {"type": "string"}, "v": {"type": "string", "maxLength": 1}, "w": {"type": "string"}},
}
LIST_MAP = {"type": "array", "items": ITEM, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}


@pytest.mark.parametrize(
    ("field", "old", "new", "valid"),
    [
        ({"type": "string", "maxLength": 1}, "long", "long", True),
        ({"type": "string", "maxLength": 1}, "long", "long2", False),
        (LIST_MAP, [{"k": "a", "v": "long"}], [{"k": "b", "v": "x"}, {"k": "a", "v": "long"}], True),
        (LIST_MAP, [{"k": "a", "v": "long"}], [{"k": "a", "v": "long", "w": "new"}], True),
        (LIST_MAP, [{"k": "a", "v": "long"}], [{"k": "b", "v": "long"}], False),
        ({"type": "array", "items": ITEM}, [{"v": "long"}], [{"v": "long"}], True),
        ({"type": "array", "items": ITEM}, [{"v": "long"}], [{"v": "long"}, {"v": "x"}], False),
        ({**ITEM, "required": ["z"]}, {"k": "a"}, {"k": "a"}, True),
        ({**ITEM, "required": ["z"]}, {"k": "a"}, {"k": "b"}, False),
        ({"type": "object", "additionalProperties": ITEM}, {"a": {"v": "long"}}, {"a": {"v": "long"}, "b": {}}, True),
    ],
)
def test_update_tolerates_invalid_values_that_stay(field: Any, old: Any, new: Any, valid: bool) -> None:
    assert violations_of(field, deepcopy(old))
    assert (not violations_of(field, new, f=old)) == valid


@pytest.mark.parametrize(
    ("keys", "value", "messages"),
    [
        (["k"], [{"k": 1}, {"k": 1}, {"k": 1}, {"k": "1"}], ['f[1]: Duplicate value: {"k":1}']),
        (["k"], [{"v": 1}, {"v": 2}], ["f[1]: Duplicate value: {}"]),
        (["k", "v"], [{"k": 1, "v": 1}, {"k": 1, "v": 2}], []),
        (["k"], [{"k": 1}, 5], ["f[1]: Invalid value: 5: must be an object for an array of list-type map"]),
        (["k"], [None, {}], ["f[1]: Duplicate value: {}"]),
    ],
)
def test_items_of_list_map_are_unique_by_keys(keys: list[str], value: Any, messages: list[str]) -> None:
    field = {"type": "array", "items": {}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys}
    schema = compile_schema({"type": "object", "properties": {"f": field}})
    assert [str(violation) for violation in validate_list_types({"f": value}, schema)] == messages


def test_items_of_set_are_unique() -> None:
    field = {"type": "array", "items": {}, "x-kubernetes-list-type": "set"}
    schema = compile_schema({"type": "object", "properties": {"f": field}})
    value = {"f": [1, 1.0, True, "1", {"a": 1, "b": 2}, {"b": 2, "a": 1}]}
    assert [str(violation) for violation in validate_list_types(value, schema)] == [
        "f[1]: Duplicate value: 1",
        'f[5]: Duplicate value: {"a":1,"b":2}',
    ]


def test_duplicates_of_old_object_are_tolerated() -> None:
    schema = compile_schema(
        {"type": "object", "properties": {"f": {"type": "array", "items": {}, "x-kubernetes-list-type": "set"}}}
    )
    assert validate_object({"f": [1, 1, 2]}, schema, {"f": [1, 1]}) == []
    assert validate_object({"f": [1, 1, 2]}, schema, {"f": [1]})


def test_rules_are_not_evaluated_for_objects_of_wrong_types() -> None:
    schema = compile_schema({"type": "object", "properties": {"f": {"type": "integer", "maximum": 1}}})
    evaluated = list[Any]()
    assert len(validate_object({"f": "x"}, schema, evaluate_rules=lambda *arguments: evaluated.append(arguments) or [])) == 2
    assert evaluated == []
    assert len(validate_object({"f": 5}, schema, evaluate_rules=lambda *arguments: evaluated.append(arguments) or [])) == 1
    assert len(evaluated) == 1


def test_status_write_is_compared_with_schema_of_status() -> None:
    schema = compile_schema(
        {"type": "object", "properties": {"spec": {"type": "string"}, "status": {"type": "object", "required": ["a"]}}}
    )
    assert [str(item) for item in validate_object({"spec": 1, "status": {}}, schema, status=True)] == [
        "status.a: Required value"
    ]
    assert [str(item) for item in validate_object({"status": "x"}, schema, status=True)] == [
        'status: Invalid value: "string":  in body must be of type object: "string"'
    ]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"replicas": -1}, ".spec.replicas: Invalid value: -1: should be a non-negative integer"),
        ({"replicas": 1 << 31}, ".spec.replicas: Invalid value: 2147483648: should be less than or equal to 2147483647"),
        (
            {"replicas": "x"},
            ".spec.replicas: Invalid value: 0: .spec.replicas accessor error: x is of the type string, expected int64",
        ),
    ],
)
def test_replicas_of_scale_are_numbers(spec: Any, message: str) -> None:
    schema = compile_schema({"type": "object"})
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    assert [str(violation) for violation in validate_object({"spec": spec}, schema, scale=scale)] == [message]
