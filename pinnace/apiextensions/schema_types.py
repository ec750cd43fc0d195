"""Schemas (JSONSchemaProps) and versions of definitions as Kubernetes' Go types: how they are read, and how messages show them.

Source: k8s.io/apiextensions-apiserver/pkg/apis/apiextensions (types.go, types_jsonschema.go, v1/marshal.go) of Kubernetes 1.36.
"""

from collections.abc import Callable, Mapping
from typing import Any

from pinnace.apiextensions.schema import mapping
from pinnace.apiextensions.structs import (
    ANY,
    BOOLEAN,
    INTEGER,
    NUMBER,
    STRING,
    Choice,
    GoType,
    ListOf,
    MapOf,
    Pointer,
    Struct,
    StructError,
    read_struct,
)
from pinnace.apiextensions.violations import GoStruct

_RULE = Struct(
    "ValidationRule",
    {
        **dict.fromkeys(("rule", "message", "messageExpression", "fieldPath"), STRING),
        "reason": Pointer(STRING),
        "optionalOldSelf": Pointer(BOOLEAN),
    },
    frozenset({"rule"}),
)
_DOCS = Struct("ExternalDocumentation", {"description": STRING, "url": STRING})
SCHEMA = Struct("JSONSchemaProps")
_GO_PATH = "spec.versions.schema.openAPIV3Schema"
_ZEROS: Mapping[str, Any] = {"string": "", "bool": False}


def _schema_or_array(value: Any) -> GoType | None:
    return SCHEMA if isinstance(value, dict) else ListOf(SCHEMA) if isinstance(value, list) else None


def _schema_or_bool(value: Any) -> GoType | None:
    if isinstance(value, dict):
        return SCHEMA
    if isinstance(value, bool):
        return Pointer(BOOLEAN)
    raise StructError("boolean or JSON schema expected")


def _schema_or_strings(value: Any) -> GoType | None:
    return SCHEMA if isinstance(value, dict) else ListOf(STRING) if isinstance(value, list) else None


_OR_ARRAY, _OR_BOOL, _OR_STRINGS = Choice(_schema_or_array), Choice(_schema_or_bool), Choice(_schema_or_strings)
_FIELDS: Mapping[str, tuple[str, GoType]] = {
    "id": ("ID", STRING),
    "$schema": ("Schema", STRING),
    "$ref": ("Ref", Pointer(STRING)),
    "description": ("Description", STRING),
    "type": ("Type", STRING),
    "nullable": ("Nullable", BOOLEAN),
    "format": ("Format", STRING),
    "title": ("Title", STRING),
    "default": ("Default", ANY),
    "maximum": ("Maximum", Pointer(NUMBER)),
    "exclusiveMaximum": ("ExclusiveMaximum", BOOLEAN),
    "minimum": ("Minimum", Pointer(NUMBER)),
    "exclusiveMinimum": ("ExclusiveMinimum", BOOLEAN),
    "maxLength": ("MaxLength", Pointer(INTEGER)),
    "minLength": ("MinLength", Pointer(INTEGER)),
    "pattern": ("Pattern", STRING),
    "maxItems": ("MaxItems", Pointer(INTEGER)),
    "minItems": ("MinItems", Pointer(INTEGER)),
    "uniqueItems": ("UniqueItems", BOOLEAN),
    "multipleOf": ("MultipleOf", Pointer(NUMBER)),
    "enum": ("Enum", ListOf(ANY)),
    "maxProperties": ("MaxProperties", Pointer(INTEGER)),
    "minProperties": ("MinProperties", Pointer(INTEGER)),
    "required": ("Required", ListOf(STRING)),
    "items": ("Items", _OR_ARRAY),
    "allOf": ("AllOf", ListOf(SCHEMA)),
    "oneOf": ("OneOf", ListOf(SCHEMA)),
    "anyOf": ("AnyOf", ListOf(SCHEMA)),
    "not": ("Not", SCHEMA),
    "properties": ("Properties", MapOf(SCHEMA)),
    "additionalProperties": ("AdditionalProperties", _OR_BOOL),
    "patternProperties": ("PatternProperties", MapOf(SCHEMA)),
    "dependencies": ("Dependencies", MapOf(_OR_STRINGS)),
    "additionalItems": ("AdditionalItems", _OR_BOOL),
    "definitions": ("Definitions", MapOf(SCHEMA)),
    "externalDocs": ("ExternalDocs", _DOCS),
    "example": ("Example", ANY),
    "x-kubernetes-preserve-unknown-fields": ("XPreserveUnknownFields", Pointer(BOOLEAN)),
    "x-kubernetes-embedded-resource": ("XEmbeddedResource", BOOLEAN),
    "x-kubernetes-int-or-string": ("XIntOrString", BOOLEAN),
    "x-kubernetes-list-map-keys": ("XListMapKeys", ListOf(STRING)),
    "x-kubernetes-list-type": ("XListType", Pointer(STRING)),
    "x-kubernetes-map-type": ("XMapType", Pointer(STRING)),
    "x-kubernetes-validations": ("XValidations", ListOf(_RULE)),
}
"""The fields of JSONSchemaProps in Go's order: JSON name, Go name, type."""
SCHEMA.fields = {name: of for name, (_, of) in _FIELDS.items()}
GO_NAMES: Mapping[str, str] = {name: go_name for name, (go_name, _) in _FIELDS.items()}


def read_schema(props: Any, path: str = "") -> tuple[dict[str, Any], list[str]]:
    """Return a schema (an `openAPIV3Schema`) as Kubernetes writes it, and the paths of unknown fields, which it does not have.

    Empty values vanish: properties {}, nullable false, default null. `path`: of the schema, in the paths.

    Raises StructError: a value has the wrong type, or the schema is nested too deeply.
    """
    unknown = list[str]()
    try:
        return read_struct(props, SCHEMA, unknown, path, _GO_PATH), unknown
    except RecursionError:
        raise StructError("exceeded max depth") from None


def go_schema(props: Any) -> GoStruct | None:
    """Return a schema as Go marshals the internal type, for messages; None for what is no schema."""
    if not isinstance(props, dict):
        return None
    return GoStruct({go_name: _go_value(props.get(name), of) for name, (go_name, of) in _FIELDS.items()})


def _go_value(value: Any, of: GoType) -> Any:
    if value is None:
        return _ZEROS.get(of.go_type) if isinstance(of, type(STRING)) else None
    if of is _OR_ARRAY:
        is_schema = isinstance(value, dict)
        schemas = None if is_schema else [go_schema(item) for item in value]
        return GoStruct({"Schema": go_schema(value) if is_schema else None, "JSONSchemas": schemas})
    if of is _OR_BOOL:
        is_schema = isinstance(value, dict)
        return GoStruct({"Allows": is_schema or bool(value), "Schema": go_schema(value) if is_schema else None})
    if of is _OR_STRINGS:
        is_schema = isinstance(value, dict)
        return GoStruct({"Schema": go_schema(value) if is_schema else None, "Property": None if is_schema else value})
    if of is SCHEMA:
        return go_schema(value)
    if of is _DOCS:
        return GoStruct({"Description": value.get("description", ""), "URL": value.get("url", "")})
    if of is _RULE:
        return go_rule(value)
    if isinstance(of, ListOf):
        return [_go_value(item, of.of) for item in value]
    if isinstance(of, MapOf):
        return {name: _go_value(item, of.of) for name, item in value.items()}
    return value


def go_rule(rule: Mapping[str, Any]) -> GoStruct:
    """Return a rule (x-kubernetes-validations) as Go marshals the internal type, for messages."""
    names = {
        "Rule": "rule", "Message": "message", "MessageExpression": "messageExpression", "Reason": "reason",
        "FieldPath": "fieldPath", "OptionalOldSelf": "optionalOldSelf",
    }  # fmt: skip
    optional = ("Reason", "OptionalOldSelf")
    return GoStruct({go: rule.get(name, None if go in optional else "") for go, name in names.items()})


def go_version(version: Mapping[str, Any]) -> GoStruct:
    """Return a version of a definition as Go marshals the internal type, for messages."""
    schema, subresources = version.get("schema"), version.get("subresources")
    columns, fields = version.get("additionalPrinterColumns"), version.get("selectableFields")
    return GoStruct(
        {
            "Name": version.get("name", ""),
            "Served": version.get("served", False),
            "Storage": version.get("storage", False),
            "Deprecated": version.get("deprecated", False),
            "DeprecationWarning": version.get("deprecationWarning"),
            "Schema": None if schema is None else GoStruct({"OpenAPIV3Schema": go_schema(schema.get("openAPIV3Schema"))}),
            "Subresources": None if subresources is None else _go_subresources(subresources),
            "AdditionalPrinterColumns": [_go_column(column) for column in columns] if columns else None,
            "SelectableFields": [GoStruct({"JSONPath": field.get("jsonPath", "")}) for field in fields] if fields else None,
        }
    )


def _go_subresources(subresources: Mapping[str, Any]) -> GoStruct:
    status, scale = subresources.get("status"), subresources.get("scale")
    names = {"SpecReplicasPath": "specReplicasPath", "StatusReplicasPath": "statusReplicasPath"}
    return GoStruct(
        {
            "Status": None if status is None else GoStruct(),
            "Scale": None
            if scale is None
            else GoStruct(
                {go: mapping(scale).get(name, "") for go, name in names.items()}
                | {"LabelSelectorPath": mapping(scale).get("labelSelectorPath")}
            ),
        }
    )


def _go_column(column: Mapping[str, Any]) -> GoStruct:
    names: Mapping[str, Callable[[], Any]] = {"name": str, "type": str, "format": str, "description": str, "priority": int}
    values = {name.capitalize(): column.get(name, empty()) for name, empty in names.items()}
    return GoStruct(values | {"JSONPath": column.get("jsonPath", "")})
