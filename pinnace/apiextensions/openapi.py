"""OpenAPI schemas of valid definitions, versions 2 and 3, as `kubectl explain` and clients read them.

Version 2 leaves out what clients of swagger 2.0 cannot read: allOf, anyOf, oneOf, not, nullable, and the fields below nodes
that are nullable or that preserve unknown fields.

Source: k8s.io/apiextensions-apiserver/pkg/controller/openapi (builder, v2) of Kubernetes 1.36.
"""

from collections.abc import Mapping
from typing import Any

from pinnace.apiextensions.definitions import version_schema
from pinnace.apiextensions.schema import mapping, objects, text

Schema = dict[str, Any]

_V2, _V3 = "#/definitions/", "#/components/schemas/"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_CONVENTIONS = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
_API_VERSION = (
    "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to "
    f"the latest internal value, and may reject unrecognized values. More info: {_CONVENTIONS}#resources"
)
_KIND = (
    "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint "
    f"the client submits requests to. Cannot be updated. In CamelCase. More info: {_CONVENTIONS}#types-kinds"
)
_EMBEDDED_API_VERSION = (
    f"apiVersion defines the versioned schema of this representation of an object. More info: {_CONVENTIONS}#resources"
)
_EMBEDDED_KIND = (
    f"kind is a string value representing the type of this object. In CamelCase. More info: {_CONVENTIONS}#types-kinds"
)
_METADATA = f"Standard object's metadata. More info: {_CONVENTIONS}#metadata"
_LIST_METADATA = f"Standard list metadata. More info: {_CONVENTIONS}#types-kinds"
_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
_JUNCTORS = ("allOf", "oneOf", "anyOf", "not")
_PRESERVE, _EMBEDDED = "x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"
_IOS = "x-kubernetes-int-or-string"


def schema_name(crd: Mapping[str, Any], version: str, *, of_list: bool = False) -> str:
    """Return the name of the kind's schema, or of its list: "com.example.v1.Widget"."""
    spec = mapping(crd.get("spec"))
    kinds = mapping(spec.get("names"))
    kind = text(kinds.get("kind"))
    group = ".".join(reversed(text(spec.get("group")).split(".")))
    return f"{group}.{version}.{text(kinds.get('listKind')) or f'{kind}List' if of_list else kind}"


def schemas_v3(crd: Mapping[str, Any], version: str) -> dict[str, Schema]:
    """Return the schemas of a version by name: those of the kind and of its list. They refer to ObjectMeta and ListMeta by
    "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"."""
    return _build_schemas(crd, version, _V3)


def schemas_v2(crd: Mapping[str, Any], version: str) -> dict[str, Schema]:
    """Return the definitions for swagger 2.0, by name. References begin with "#/definitions/"."""
    return _build_schemas(crd, version, _V2)


def _build_schemas(crd: Mapping[str, Any], version: str, prefix: str) -> dict[str, Schema]:
    spec = mapping(crd.get("spec"))
    kinds = mapping(spec.get("names"))
    kind, list_kind = text(kinds.get("kind")), text(kinds.get("listKind"))
    name, list_name = schema_name(crd, version), schema_name(crd, version, of_list=True)
    of_kind = _kind_schema(version_schema(crd, version), bool(spec.get("preserveUnknownFields")), prefix)
    of_list: Schema = {
        "description": f"{list_kind} is a list of {kind}",
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string", "description": _API_VERSION},
            "kind": {"type": "string", "description": _KIND},
            "metadata": _reference_to(f"{prefix}{_META}ListMeta", _LIST_METADATA, prefix),
            "items": {
                "type": "array",
                "description": f"List of {text(kinds.get('plural'))}. More info: {_CONVENTIONS}",
                "items": {"$ref": f"{prefix}{name}"},
            },
        },
    }
    for schema, of in ((of_kind, kind), (of_list, list_kind)):
        group_version_kind = {"group": text(spec.get("group")), "kind": of, "version": version}
        schema["x-kubernetes-group-version-kind"] = [group_version_kind]
        if fields := _selectable_fields(crd, version):
            schema["x-kubernetes-selectable-fields"] = fields
    return {name: of_kind, list_name: of_list}


def _selectable_fields(crd: Mapping[str, Any], version: str) -> list[dict[str, str]]:
    versions = objects(mapping(crd.get("spec")).get("versions"))
    fields = next((objects(item.get("selectableFields")) for item in versions if item.get("name") == version), [])
    return [{"fieldPath": text(field.get("jsonPath")).removeprefix(".")} for field in fields]


def _reference_to(target: str, description: str, prefix: str) -> Schema:
    """Version 3 ignores keywords next to a reference."""
    reference = {"$ref": target}
    return {"description": description} | (reference if prefix == _V2 else {"allOf": [reference]})


def _kind_schema(props: Mapping[str, Any], preserve: bool, prefix: str) -> Schema:
    is_v2 = prefix == _V2
    if not props or (is_v2 and (preserve or props.get(_PRESERVE))):
        return {"type": "object"}
    result = _convert(props, prefix)
    result["properties"] = {
        **result.get("properties", {}),
        "apiVersion": {"type": "string", "description": _API_VERSION},
        "kind": {"type": "string", "description": _KIND},
        "metadata": _reference_to(f"{prefix}{_META}ObjectMeta", _METADATA, prefix),
    }
    return result


def _convert(props: Mapping[str, Any], prefix: str) -> Schema:
    """Return the schema of a node and of all nodes below it."""
    is_v2 = prefix == _V2
    schema = dict(props)
    if schema.get(_IOS):
        _unfold_int_or_string(schema)
    if is_v2:
        _strip_for_v2(schema)
    for name in ("items", "additionalProperties"):
        if isinstance(child := schema.get(name), dict):
            schema[name] = _convert(child, prefix)
    if properties := mapping(schema.get("properties")):
        schema["properties"] = {name: _convert(mapping(child), prefix) for name, child in properties.items()}
    if schema.get(_EMBEDDED) and not (is_v2 and schema.get(_PRESERVE)):
        _add_embedded(schema, prefix)
    return schema


def _unfold_int_or_string(schema: Schema) -> None:
    all_of = objects(schema.get("allOf"))
    if schema.get("anyOf") == _INT_OR_STRING or (all_of and all_of[0].get("anyOf") == _INT_OR_STRING):
        return
    if not schema.get("anyOf"):
        schema["anyOf"] = _INT_OR_STRING
    else:
        schema["allOf"] = [{"anyOf": _INT_OR_STRING}, *all_of]


def _strip_for_v2(schema: Schema) -> None:
    for name in _JUNCTORS:
        schema.pop(name, None)
    preserve = bool(schema.get(_PRESERVE))
    if schema.pop("nullable", False):
        schema.pop("type", None)
        schema.pop("items", None)
        schema.pop("properties", None)
    if preserve:
        schema.pop("items", None)
        schema.pop("properties", None)
    if (schema.get("type") == "array" and "items" not in schema) or (preserve and schema.get("type") == "object"):
        del schema["type"]
    properties, additional = mapping(schema.get("properties")), mapping(schema.get("additionalProperties"))
    if schema.get("required"):
        required = [name for name in schema["required"] if not mapping(properties.get(name)).get("nullable")]
        schema["required"] = required if not additional.get("nullable") else []
        if not schema["required"]:
            del schema["required"]


def _add_embedded(schema: Schema, prefix: str) -> None:
    schema["properties"] = {
        **schema.get("properties", {}),
        "apiVersion": {"type": "string", "description": _EMBEDDED_API_VERSION},
        "kind": {"type": "string", "description": _EMBEDDED_KIND},
        "metadata": _reference_to(f"{prefix}{_META}ObjectMeta", _METADATA, prefix),
    }
    required = list(schema.get("required", ()))
    schema["required"] = [*required, *(name for name in ("kind", "apiVersion") if name not in required)]
