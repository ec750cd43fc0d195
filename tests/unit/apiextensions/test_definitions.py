"""Validation of definitions, with the messages and paths of Kubernetes."""

from copy import deepcopy
from typing import Any

import pytest

from pinnace.api.status import Violation
from pinnace.apiextensions.definitions import (
    definition_warnings,
    prepare_status_update,
    prepare_update,
    read_schemas,
    sort_versions,
    validate_definition,
    validate_definition_status,
    version_schema,
)
from pinnace.apiextensions.structs import StructError
from tests.unit.apiextensions.definitions import establish, make_definition, make_schema, make_version

ROOT = "spec.validation.openAPIV3Schema"
SPEC = f"{ROOT}.properties[spec]"
FIELD = f"{SPEC}.properties[f]"
INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
EMPTY = "must be empty to be structural"


def messages(crd: dict[str, Any], old: dict[str, Any] | None = None, **functions: Any) -> list[str]:
    return [str(violation) for violation in validate_definition(crd, old, **functions)]


def field_messages(field: Any) -> list[str]:
    """Return the violations of a definition with this schema of a field."""
    return messages(make_definition(make_version(make_schema(f=field))))


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ({}, [f"{FIELD}.type: Required value: must not be empty for specified object fields"]),
        ({"x-kubernetes-int-or-string": True}, []),
        ({"x-kubernetes-preserve-unknown-fields": True}, []),
        ({"type": "text"}, [
            f'{FIELD}.type: Unsupported value: "text": supported values: "array", "boolean", "integer", "number", "object", '
            '"string"'
        ]),
        ({"type": "array"}, [f"{FIELD}.items: Required value: must be specified"]),
        ({"type": "array", "items": {}}, [f"{FIELD}.items.type: Required value: must not be empty for specified array items"]),
        ({"type": "array", "items": [{"type": "string"}]}, [
            f"{FIELD}.items: Forbidden: items must be a schema object and not an array"
        ]),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}}, [
            f"{FIELD}.additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive"
        ]),
        ({"type": "string", "pattern": "("}, [
            f'{FIELD}.pattern: Invalid value: "(": must be a valid regular expression, but isn\'t: error parsing regexp: '
            "missing closing ): `(`"
        ]),
        ({"type": "string", "uniqueItems": True}, [
            f"{FIELD}.uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        ]),
        ({"type": "string", "x-kubernetes-preserve-unknown-fields": False}, [
            f"{FIELD}.x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined"
        ]),
        ({"type": "string", "$ref": "#/x"}, [f"{FIELD}.$ref: Forbidden: $ref is not supported"]),
        ({"x-kubernetes-int-or-string": True, "x-kubernetes-embedded-resource": True, "type": "object",
          "properties": {"a": {"type": "string"}}}, [
            f"{FIELD}.x-kubernetes-embedded-resource: Invalid value: true: must be false if x-kubernetes-int-or-string is true"
        ]),
        ({"x-kubernetes-int-or-string": True, "anyOf": INT_OR_STRING}, []),
        ({"x-kubernetes-int-or-string": True, "allOf": [{"anyOf": INT_OR_STRING}, {"maximum": 1}]}, []),
        ({"type": "integer", "anyOf": [{"type": "integer"}, {"minimum": 1}]}, [f"{FIELD}.anyOf[0].type: Forbidden: {EMPTY}"]),
        ({"type": "object", "allOf": [{"properties": {"a": {"description": "x", "default": False}}}]}, [
            f"{FIELD}.allOf[0].properties[a].default: Forbidden: must be undefined to be structural",
            f"{FIELD}.allOf[0].properties[a].description: Forbidden: {EMPTY}",
        ]),
        ({"type": "object", "not": {"additionalProperties": True}}, [
            f"{FIELD}.not.additionalProperties: Forbidden: must be undefined to be structural"
        ]),
        ({"type": "object", "x-kubernetes-embedded-resource": True}, [
            f"{FIELD}.properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without "
            "x-kubernetes-preserve-unknown-fields"
        ]),
        ({"type": "string", "x-kubernetes-list-type": "set"}, [
            f'{FIELD}.type: Invalid value: "string": must be array if x-kubernetes-list-type is specified'
        ]),
        ({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "bag"}, [
            f'{FIELD}.x-kubernetes-list-type: Unsupported value: "bag": supported values: "atomic", "set", "map"'
        ]),
        ({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "set"}, [
            f"{FIELD}.items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with "
            "x-kubernetes-list-type=set"
        ]),
        ({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"}, [
            f"{FIELD}.x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map"
        ]),
        ({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}, [
            f'{FIELD}.x-kubernetes-list-map-keys: Invalid value: ["k"]: entries must all be names of item properties'
        ]),
        ({"type": "array", "items": {"type": "object", "properties": {"k": {"type": "string"}}},
          "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}, [
            f"{FIELD}.items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must "
            "have a default or be a required property"
        ]),
        ({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-map-keys": ["k"]}, [
            f"{FIELD}.x-kubernetes-list-type: Required value: must be map if x-kubernetes-list-map-keys is non-empty"
        ]),
        ({"type": "string", "x-kubernetes-map-type": "atomic"}, [
            f'{FIELD}.type: Invalid value: "string": must be object if x-kubernetes-map-type is specified'
        ]),
        ({"type": "string", "x-kubernetes-validations": [{"rule": " "}]}, [
            f"{FIELD}.x-kubernetes-validations[0].rule: Required value: rule is not specified"
        ]),
        ({"type": "string", "x-kubernetes-validations": [{"rule": "a\n", "reason": "No"}, {"rule": "a\n.b"}]}, [
            f'{FIELD}.x-kubernetes-validations[0].reason: Unsupported value: "No": supported values: "FieldValueDuplicate", '
            '"FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"',
            f"{FIELD}.x-kubernetes-validations[1].message: Required value: message must be specified if rule contains line "
            "breaks",
        ]),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "x-kubernetes-validations": [
            {"rule": "true", "fieldPath": ".a"}, {"rule": "true", "fieldPath": ".b"}, {"rule": "true", "fieldPath": "['a']"}
        ]}, [f'{FIELD}.x-kubernetes-validations[1].fieldPath: Invalid value: ".b": must be a valid path']),
        ({"type": "integer", "default": 1.5}, [
            f'{FIELD}.default: Invalid value: "number":  in body must be of type integer: "number"',
            f'{FIELD}.default: Invalid value: "": Checked value must be of type integer (default format) in ',
        ]),
        ({"type": "object", "default": {"a": 1}}, [f'{FIELD}.default: Invalid value: {{"a":1}}: must not have unknown fields']),
    ],
)  # fmt: skip
def test_schema_has_violations_of_kubernetes(field: Any, expected: list[str]) -> None:
    assert field_messages(field) == expected


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "array", "items": {"type": "string"}}, [f'{ROOT}.type: Invalid value: "array": must be object at the root']),
        ({"type": "object", "nullable": True}, [f"{ROOT}.nullable: Forbidden: nullable cannot be true at the root"]),
        ({"type": "object", "additionalProperties": {"type": "string"}}, [
            f"{ROOT}.additionalProperties: Forbidden: must not be used at the root"
        ]),
        ({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"name": {"type": "string"}}}}}, []),
        ({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}}, [
            f"{ROOT}.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata "
            "is implicitly specified"
        ]),
        ({"type": "object", "properties": {"kind": {"type": "integer"}}}, [
            f'{ROOT}.properties[kind].type: Invalid value: "integer": must be string'
        ]),
        ({"type": "object", "properties": {"kind": {"type": "string", "default": "W"}}}, [
            f"{ROOT}.properties[kind].default: Forbidden: must not be set in top-level kind"
        ]),
        ({"type": "object", "allOf": [{"properties": {"a": {"minimum": 1}}}]}, [
            f"{ROOT}.properties[a]: Required value: because it is defined in {ROOT}.allOf[0].properties[a]"
        ]),
        ({"type": "object", "properties": {"a": {"type": 1}}}, [
            'spec.versions[0].schema.openAPIV3Schema: Invalid value: "": json: cannot unmarshal number into Go struct field '
            "JSONSchemaProps.spec.versions.schema.openAPIV3Schema.properties.type of type string",
            f"{ROOT}.type: Required value: must not be empty at the root",
        ]),
    ],
)  # fmt: skip
def test_root_of_schema_has_rules_of_its_own(schema: Any, expected: list[str]) -> None:
    assert messages(make_definition(make_version(schema))) == expected


def test_root_of_schema_is_limited_by_status_subresource() -> None:
    schema = {"type": "object", "oneOf": [{"required": ["spec"]}], "properties": {"spec": {"type": "object"}}}
    assert messages(make_definition(make_version(schema))) == []
    [message] = messages(make_definition(make_version(schema, subresources={"status": {}})))
    assert message.startswith(f'{ROOT}: Invalid value: {{"ID":"","Schema":"","Ref":null,"Description":"","Type":"object"')
    assert message.endswith(
        "only [Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern "
        "MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields "
        "XValidations] fields are allowed at the root of the schema if the status subresource is enabled"
    )


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"group": "example"}, [
            'metadata.name: Invalid value: "widgets.example.com": must be spec.names.plural+"."+spec.group',
            'spec.group: Invalid value: "example": should be a domain with at least one dot',
        ]),
        ({"scope": "Galaxy"}, ['spec.scope: Unsupported value: "Galaxy": supported values: "Cluster", "Namespaced"']),
        ({"names": {"plural": "widgets", "kind": "Widget", "listKind": "Widget"}}, [
            'spec.names.listKind: Invalid value: "Widget": kind and listKind may not be the same'
        ]),
        ({"preserveUnknownFields": True}, [
            "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields to "
            "true in spec.versions[*].schema instead"
        ]),
        ({"conversion": {"strategy": "Webhook"}}, [
            "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
            "spec.conversion.conversionReviewVersions: Required value",
        ]),
        ({"conversion": {"strategy": "Webhook", "webhook": {
            "clientConfig": {"url": "http://u@h/?a#b"}, "conversionReviewVersions": ["v3"]}}}, [
            "spec.conversion.webhookClientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired "
            "format: https://host[/path]",
            'spec.conversion.webhookClientConfig.url: Invalid value: "u": user information is not permitted in the URL',
            'spec.conversion.webhookClientConfig.url: Invalid value: "b": fragments are not permitted in the URL',
            'spec.conversion.webhookClientConfig.url: Invalid value: "a": query parameters are not permitted in the URL',
            'spec.conversion.conversionReviewVersions: Invalid value: ["v3"]: must include at least one of v1, v1beta1',
        ]),
        ({"conversion": {"strategy": "None", "webhook": {"clientConfig": {}}}}, [
            "spec.conversion.webhookClientConfig: Forbidden: should not be set when strategy is not set to Webhook"
        ]),
    ],
)  # fmt: skip
def test_spec_has_violations_of_kubernetes(spec: Any, expected: list[str]) -> None:
    assert messages(make_definition(**spec)) == expected


def test_names_are_labels() -> None:
    kinds = {"plural": "widgets", "kind": "Widget", "shortNames": ["W"], "categories": ["All"]}
    fields = [violation.field for violation in validate_definition(make_definition(names=kinds))]
    assert fields == ["spec.names.shortNames[0]", "spec.names.categories[0]"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"subresources": {"scale": {"specReplicasPath": "spec.x", "statusReplicasPath": ".spec.y"}}}, [
            'spec.subresources.scale.specReplicasPath: Invalid value: "spec.x": must be a simple json path starting with .',
            'spec.subresources.scale.statusReplicasPath: Invalid value: ".spec.y": should be a json path under .status',
        ]),
        ({"additionalPrinterColumns": [{"name": "A", "type": "text", "jsonPath": "x"}, {}]}, [
            'spec.additionalPrinterColumns[0].type: Invalid value: "text": must be one of boolean,date,integer,number,string',
            'spec.additionalPrinterColumns[0].JSONPath: Invalid value: "x": must be a simple json path starting with .',
            "spec.additionalPrinterColumns[1].name: Required value",
            "spec.additionalPrinterColumns[1].type: Required value: must be one of boolean,date,integer,number,string",
            "spec.additionalPrinterColumns[1].JSONPath: Required value",
        ]),
        ({"selectableFields": [{"jsonPath": path} for path in (".spec.f", ".spec.f", ".spec.g", ".spec")]}, [
            'spec.selectableFields[1].jsonPath: Duplicate value: ".spec.f"',
            'spec.selectableFields[2].jsonPath: Invalid value: ".spec.g": is an invalid path: does not refer to a valid field',
            'spec.selectableFields[3].jsonPath: Invalid value: ".spec": must point to a field of type string, boolean or '
            "integer. Enum string fields and strings with formats are allowed.",
        ]),
        ({"deprecationWarning": "x"}, [
            'spec.versions[0].deprecationWarning: Invalid value: "x": can only be set for deprecated versions'
        ]),
    ],
)  # fmt: skip
def test_parts_of_single_version_stand_at_the_top(fields: Any, expected: list[str]) -> None:
    schema = make_schema(f={"type": "string"})
    assert messages(make_definition(make_version(schema, **fields))) == expected


def test_parts_that_versions_do_not_share_stand_below_versions() -> None:
    bad = make_schema(f={"type": "array"})
    crd = make_definition(make_version(), make_version(bad, name="v2", storage=False))
    where = "spec.versions[1].schema.openAPIV3Schema.properties[spec].properties[f]"
    assert messages(crd) == [f"{where}.items: Required value: must be specified"]
    crd = make_definition(make_version(bad), make_version(bad, name="v2", storage=False))
    assert messages(crd) == [f"{FIELD}.items: Required value: must be specified"]


def test_versions_are_unique_and_one_is_stored() -> None:
    shown = (
        '{"Name":"v1","Served":true,"Storage":true,"Deprecated":false,"DeprecationWarning":null,"Schema":null,"Subresources":null,'
        '"AdditionalPrinterColumns":null,"SelectableFields":null}'
    )
    assert messages(make_definition(make_version(), make_version())) == [
        f"spec.versions: Invalid value: [{shown},{shown}]: must contain unique version names",
        f"spec.versions: Invalid value: [{shown},{shown}]: must have exactly one version marked as storage version",
    ]


def test_group_of_community_needs_approval() -> None:
    crd = make_definition(group="x.k8s.io")
    crd["metadata"]["name"] = "widgets.x.k8s.io"
    assert messages(crd) == [
        "metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval annotation "
        '"api-approved.kubernetes.io", see https://github.com/kubernetes/enhancements/pull/1111'
    ]
    crd["metadata"]["annotations"] = {"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/1"}
    assert messages(crd) == []


def test_established_definition_keeps_kind_and_scope() -> None:
    old = establish(make_definition())
    new = make_definition(scope="Cluster", names={"plural": "widgets", "kind": "Gadget"})
    prepare_update(new, old)
    assert messages(new, old) == [
        'spec.scope: Invalid value: "Cluster": field is immutable',
        'spec.names.kind: Invalid value: "Gadget": field is immutable',
    ]


def test_stored_version_cannot_be_removed() -> None:
    old = make_definition()
    new = make_definition(make_version(name="v2"))
    prepare_update(new, old)
    assert new["status"]["storedVersions"] == ["v1", "v2"]
    assert messages(new, old) == [
        'status.storedVersions[0]: Invalid value: "v1": missing from spec.versions; v1 was previously a storage version, and '
        "must remain in spec.versions until a storage migration ensures no data remains persisted in v1 and removes v1 from "
        "status.storedVersions"
    ]


def test_update_counts_generation_only_for_spec() -> None:
    old = make_definition()
    new = deepcopy(old)
    new["metadata"]["labels"] = {"a": "b"}
    prepare_update(new, old)
    assert new["metadata"]["generation"] == 1
    new["spec"]["scope"] = "Cluster"
    prepare_update(new, old)
    assert new["metadata"]["generation"] == 2


def test_status_update_changes_status_alone() -> None:
    old = make_definition()
    new = deepcopy(old)
    new["spec"]["scope"] = "Cluster"
    new["metadata"] |= {"labels": {"a": "b"}, "resourceVersion": "5"}
    new["status"]["acceptedNames"] = {"plural": "A"}
    prepare_status_update(new, old)
    assert new["spec"] == old["spec"]
    assert new["metadata"] == old["metadata"] | {"resourceVersion": "5"}
    assert [violation.field for violation in validate_definition_status(new, old)] == ["status.acceptedNames.plural"]


def test_rules_are_checked_once_for_each_valid_schema() -> None:
    checked = list[str]()

    def check_rules(props: Any, path: str) -> list[Violation]:
        checked.append(path)
        return [Violation(path, "Forbidden: too expensive")]

    rule = {"type": "string", "x-kubernetes-validations": [{"rule": "true"}]}
    crd = make_definition(make_version(make_schema(f=rule)))
    assert messages(crd, check_rules=check_rules) == [f"{ROOT}: Forbidden: too expensive"]
    assert messages(crd, crd, check_rules=check_rules) == []
    invalid = make_definition(make_version(make_schema(f=rule, g={"type": "array"})))
    assert messages(invalid, check_rules=check_rules) == [f"{SPEC}.properties[g].items: Required value: must be specified"]
    assert checked == [ROOT]


def test_defaults_obey_rules() -> None:
    field = {"type": "integer", "default": 1, "x-kubernetes-validations": [{"rule": "self > 1"}]}
    crd = make_definition(make_version(make_schema(f=field)))

    def evaluate_rules(schema: Any, value: Any, old: Any, path: str) -> list[Violation]:
        return [Violation(path, f"Invalid value: {value}: failed rule: self > 1")]

    assert messages(crd, evaluate_rules=evaluate_rules) == [f"{FIELD}.default: Invalid value: 1: failed rule: self > 1"]


def test_defaults_in_embedded_metadata_are_valid_metadata() -> None:
    name = {"type": "string", "default": "a/b"}
    metadata = {"type": "object", "properties": {"name": name}}
    field = {"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"metadata": metadata}}
    assert field_messages(field) == [
        f'{FIELD}.properties[metadata].properties[name].default: Invalid value: "a/b": must result in valid metadata: '
        "metadata.name: Invalid value: \"a/b\": may not contain '/'"
    ]


def test_schemas_lose_unknown_fields_and_empty_values() -> None:
    crd = make_definition()
    crd["spec"]["versions"] = [
        make_version({"type": "object", "nope": 1, "properties": {}, "nullable": False, "minProperties": 0})
    ]
    assert read_schemas(crd) == ["spec.versions[0].schema.openAPIV3Schema.nope"]
    assert version_schema(crd, "v1") == {"type": "object", "minProperties": 0}
    crd["spec"]["versions"] = [make_version({"properties": {"a": {"maxLength": "x"}}})]
    with pytest.raises(StructError, match=r"^json: cannot unmarshal string into Go struct field JSONSchemaProps\.spec\."):
        read_schemas(crd)


def test_unknown_formats_have_warnings_once() -> None:
    crd = make_definition(
        make_version(make_schema(f={"type": "string", "format": "nope"}, g={"type": "string", "format": "uri"}))
    )
    assert definition_warnings(crd) == ['unrecognized format "nope"']
    assert definition_warnings(crd, crd) == []


def test_versions_are_sorted_by_priority() -> None:
    order = ["v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "v11alpha2", "foo1", "foo10"]
    assert sort_versions(sorted(order)) == order
