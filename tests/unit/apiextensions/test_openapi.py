"""OpenAPI schemas of custom kinds."""

from typing import Any

from pinnace.apiextensions.openapi import schema_name, schemas_v2, schemas_v3
from tests.unit.apiextensions.definitions import make_definition, make_schema, make_version

NAME, LIST_NAME = "com.example.v1.Widget", "com.example.v1.WidgetList"
OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]


def spec_schemas(**properties: Any) -> tuple[Any, Any]:
    """Return the schemas of spec in version 2 and 3."""
    crd = make_definition(make_version(make_schema(**properties)))
    return tuple(schemas(crd, "v1")[NAME]["properties"]["spec"]["properties"] for schemas in (schemas_v2, schemas_v3))


def test_kind_and_list_have_names_and_group_version_kind() -> None:
    crd = make_definition(make_version(selectableFields=[{"jsonPath": ".spec.f"}]))
    schemas = schemas_v3(crd, "v1")
    assert schemas.keys() == {NAME, LIST_NAME} == {schema_name(crd, "v1"), schema_name(crd, "v1", of_list=True)}
    assert schemas[NAME]["x-kubernetes-group-version-kind"] == [{"group": "example.com", "kind": "Widget", "version": "v1"}]
    assert schemas[LIST_NAME]["x-kubernetes-group-version-kind"][0]["kind"] == "WidgetList"
    assert schemas[LIST_NAME]["properties"]["items"]["items"] == {"$ref": f"#/components/schemas/{NAME}"}
    assert schemas[NAME]["x-kubernetes-selectable-fields"] == [{"fieldPath": "spec.f"}]


def test_metadata_refers_to_object_meta() -> None:
    crd = make_definition()
    metadata = schemas_v2(crd, "v1")[NAME]["properties"]["metadata"]
    assert metadata["$ref"] == f"#/definitions/{OBJECT_META}"
    metadata = schemas_v3(crd, "v1")[NAME]["properties"]["metadata"]
    assert metadata["allOf"] == [{"$ref": f"#/components/schemas/{OBJECT_META}"}]


def test_version_2_loses_what_it_cannot_say() -> None:
    nullable = {"type": "object", "nullable": True, "properties": {"a": {"type": "string"}}}
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"a": {"type": "string"}}}
    either = {"type": "object", "required": ["n"], "properties": {"n": nullable}, "anyOf": [{"required": ["n"]}]}
    v2, v3 = spec_schemas(nullable=nullable, free=free, either=either)
    assert v2["nullable"] == {}
    assert v2["free"] == {"x-kubernetes-preserve-unknown-fields": True}
    assert v2["either"] == {"type": "object", "properties": {"n": {}}}
    assert (v3["nullable"], v3["free"], v3["either"]) == (nullable, free, either)


def test_int_or_string_is_unfolded_in_version_3() -> None:
    v2, v3 = spec_schemas(port={"x-kubernetes-int-or-string": True})
    assert v2["port"] == {"x-kubernetes-int-or-string": True}
    assert v3["port"] == {"x-kubernetes-int-or-string": True, "anyOf": INT_OR_STRING}


def test_topology_stays_and_embedded_resources_have_metadata() -> None:
    items = {"type": "object", "properties": {"k": {"type": "string"}}}
    list_map = {"type": "array", "items": items, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}
    template = {"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"spec": {"type": "object"}}}
    v2, v3 = spec_schemas(l=list_map, t=template)
    assert v2["l"] == v3["l"] == list_map
    for properties in (v2, v3):
        assert properties["t"]["properties"].keys() == {"spec", "apiVersion", "kind", "metadata"}
        assert properties["t"]["required"] == ["kind", "apiVersion"]


def test_schema_that_preserves_unknown_fields_at_its_root_is_open_in_version_2() -> None:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"spec": {"type": "object"}}}
    crd = make_definition(make_version(schema))
    assert "properties" not in schemas_v2(crd, "v1")[NAME]
    assert "spec" in schemas_v3(crd, "v1")[NAME]["properties"]
