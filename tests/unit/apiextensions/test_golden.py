"""Recorded answers of kube-apiserver 1.36.2 about definitions and custom objects, as far as pure functions decide them."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from pinnace.api.status import Violation
from pinnace.apiextensions.columns import cells, columns_of
from pinnace.apiextensions.defaulting import drop_invalid_nulls, set_defaults
from pinnace.apiextensions.definitions import prepare_create, prepare_update, set_definition_defaults, validate_definition
from pinnace.apiextensions.naming import compute_status
from pinnace.apiextensions.pruning import prune
from pinnace.apiextensions.schema import StructuralSchema, compile_schema
from pinnace.apiextensions.schema_types import read_schema
from pinnace.apiextensions.subresources import ScaleError, scale_of, selectable_values
from pinnace.apiextensions.validation import validate_object
from pinnace.cel.rule_checks import check_rules
from pinnace.cel.rules import compile_rules

DATA = Path(__file__).parents[2] / "data/kubernetes-kinds-1.36.jsonl"
NOW = "2026-01-01T00:00:00Z"
EXCHANGES: dict[str, Any] = {row["name"]: row for row in map(json.loads, DATA.read_text().splitlines())}
WIDGET = EXCHANGES["crd: create"]["request"]["body"]
VERSION = WIDGET["spec"]["versions"][0]


def request_body(name: str) -> Any:
    return deepcopy(EXCHANGES[name]["request"]["body"])


def response_body(name: str) -> Any:
    return deepcopy(EXCHANGES[name]["response"]["body"])


def causes(violations: list[Violation]) -> list[tuple[str, str, str]]:
    return [(violation.field, violation.message, violation.reason) for violation in violations]


def expected_causes(name: str) -> list[tuple[str, str, str]]:
    """The reason is only compared if it does not follow from the message."""
    return [
        (cause["field"], cause["message"], cause["reason"] if cause["reason"] == "FieldValueTypeInvalid" else "")
        for cause in response_body(name)["details"]["causes"]
    ]


def make_definition(name: str) -> dict[str, Any]:
    crd: dict[str, Any] = request_body(name)
    set_definition_defaults(crd)
    prepare_create(crd)
    return crd


@pytest.fixture
def schema() -> StructuralSchema:
    return compile_schema(VERSION["schema"]["openAPIV3Schema"])


def write(name: str, schema: StructuralSchema) -> tuple[dict[str, Any], list[str], list[Violation]]:
    """Return the object of a request as it is stored, the unknown fields, and the violations."""
    obj = request_body(name)
    drop_invalid_nulls(obj, schema)
    set_defaults(obj, schema)
    unknown = prune(obj, schema)
    return obj, unknown, validate_object(obj, schema, scale=VERSION["subresources"]["scale"], evaluate_rules=evaluate_rules)


def evaluate_rules(schema: StructuralSchema, value: Any, old: Any, path: str) -> list[Violation]:
    return compile_rules(schema.props, resource_root=not path).validate(value, old, path).violations


def test_definition_is_valid_and_gets_defaults() -> None:
    crd = make_definition("crd: create")
    assert validate_definition(crd, check_rules=check_rules, evaluate_rules=evaluate_rules) == []
    expected = response_body("crd: create")
    assert crd["spec"] == expected["spec"]
    assert crd["status"]["storedVersions"] == expected["status"]["storedVersions"]
    assert crd["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    "name",
    [
        "crd invalid: name",
        "crd invalid: no schema",
        "crd invalid: empty spec",
        "crd invalid: default",
        "crd invalid: rule",
        "crd invalid: cost",
    ],
)
def test_invalid_definition_has_causes_of_kubernetes(name: str) -> None:
    violations = validate_definition(make_definition(name), check_rules=check_rules, evaluate_rules=evaluate_rules)
    assert causes(violations) == expected_causes(name)


def test_scope_of_established_definition_is_immutable() -> None:
    old = response_body("crd: established")
    new = deepcopy(old)
    new["spec"]["scope"] = "Cluster"
    prepare_update(new, old)
    assert causes(validate_definition(new, old)) == expected_causes("crd: scope immutable")


def test_first_status_accepts_names() -> None:
    status = compute_status(make_definition("crd: create"), [], "TIME")
    assert status == response_body("crd: established")["status"]


@pytest.mark.parametrize(
    "name",
    ["custom invalid: several", "custom invalid: types", "custom invalid: minimum", "custom invalid: duplicates"],
)
def test_invalid_object_has_causes_of_kubernetes(name: str, schema: StructuralSchema) -> None:
    _, _, violations = write(name, schema)
    assert sorted(causes(violations)) == sorted(expected_causes(name))


def test_transition_and_scale_obey_rules(schema: StructuralSchema) -> None:
    old = {"spec": {"size": 2, "once": "x", "replicas": 2}}
    new = {"spec": {"size": 2, "once": "y", "replicas": 2}}
    violations = validate_object(new, schema, old, evaluate_rules=evaluate_rules)
    assert causes(violations) == expected_causes("custom: transition refused")
    new = {"spec": {"size": 2, "once": "x", "replicas": 7}}
    violations = validate_object(new, schema, old, evaluate_rules=evaluate_rules)
    assert causes(violations) == expected_causes("custom: scale against a rule")


@pytest.mark.parametrize("name", ["custom: create, defaults", "custom: nulls, unknown fields", "custom: unknown field, warn"])
def test_valid_object_is_pruned_and_defaulted(name: str, schema: StructuralSchema) -> None:
    obj, unknown, violations = write(name, schema)
    assert violations == []
    assert obj["spec"] == response_body(name)["spec"]
    warnings = EXCHANGES[name]["response"]["warnings"]
    assert [f'299 - "unknown field \\"{path}\\""' for path in unknown] == warnings


def test_object_of_unknown_version_loses_everything_but_metadata() -> None:
    obj = request_body("custom: wrong version")
    assert prune(obj, None) == ["spec"]
    assert obj.keys() == {"apiVersion", "kind", "metadata"}


def test_table_has_columns_of_definition() -> None:
    table = response_body("custom: table")
    columns = columns_of(VERSION)
    assert [column.definition for column in columns] == table["columnDefinitions"][1:]
    assert cells(columns, response_body("custom: create, defaults"), now=0.0) == table["rows"][0]["cells"][1:]


def test_scale_needs_replicas() -> None:
    scale = VERSION["subresources"]["scale"]
    obj = {"spec": {"size": 1}, "status": {"replicas": 1, "selector": "app=a"}}
    with pytest.raises(ScaleError) as error:
        scale_of(obj, scale)
    assert response_body("custom: scale")["message"] == f"Internal error occurred: {error.value}"
    obj["spec"]["replicas"] = 2
    expected = response_body("custom: scale again")
    assert scale_of(obj, scale) == {"spec": expected["spec"], "status": expected["status"]}


def test_selectable_fields_have_values() -> None:
    assert selectable_values({"spec": {"color": "red"}}, VERSION) == {"spec.color": "red"}
    assert selectable_values({"spec": {}}, VERSION) == {"spec.color": ""}


def test_schema_is_read_as_kubernetes_writes_it() -> None:
    stored = response_body("crd: create")["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert read_schema(VERSION["schema"]["openAPIV3Schema"]) == (stored, [])
