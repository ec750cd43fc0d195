"""Types of custom objects for server-side apply: which lists and maps have one owner, and which have one for each item.

Types are made on first use: a definition can have thousands of fields.

Source: https://kubernetes.io/docs/reference/using-api/server-side-apply/#custom-resources-and-server-side-apply and
k8s.io/kube-openapi/pkg/schemaconv of Kubernetes 1.36.
"""

from collections.abc import Mapping

from pinnace.api import schema as api_schema
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.schema import DEDUCED, Kind, List, Map, Scalar, Type
from pinnace.apiextensions.schema import StructuralSchema

_ASSOCIATIVE = frozenset({"set", "map"})
_ATOMIC = "atomic"
_SCALARS: Mapping[str, Type] = {
    "string": Scalar(Kind.STRING),
    "integer": Scalar(Kind.NUMBER),
    "number": Scalar(Kind.NUMBER),
    "boolean": Scalar(Kind.BOOLEAN),
}
_ANY_SCALAR = Scalar(Kind.ANY)
_META_TYPES: Mapping[str, Type] = {
    "apiVersion": _SCALARS["string"],
    "kind": _SCALARS["string"],
    "metadata": api_schema.type_of(ObjectMeta.DESCRIPTOR),
}


class _SchemaFields:
    """The declared fields of a node."""

    def __init__(self, schema: StructuralSchema, *, is_object: bool) -> None:
        self._schema = schema
        self._types: dict[str, Type] = dict(_META_TYPES) if is_object else {}

    def get(self, name: str, /) -> Type | None:
        of = self._types.get(name)
        if of is None and (child := self._schema.property_schema(name)) is not None:
            of = self._types[name] = _type_of(child)
        return of


def type_of(schema: StructuralSchema) -> Type:
    """Return the type of whole objects of a schema, for `pinnace.api.structured_merge`."""
    return _object_type(schema, is_object=True)


def _object_type(schema: StructuralSchema, *, is_object: bool) -> Type:
    unknown = DEDUCED if schema.preserve_unknown_fields or schema.additional is True else None
    element = _type_of(schema.values) if schema.values is not None else unknown
    return Map(_SchemaFields(schema, is_object=is_object), element, schema.map_type == _ATOMIC)


def _type_of(schema: StructuralSchema) -> Type:
    if schema.int_or_string:
        return _ANY_SCALAR
    if schema.type == "object":
        return _object_type(schema, is_object=schema.embedded_resource)
    if schema.type == "array":
        items = schema.items
        element = _type_of(items) if items is not None else DEDUCED
        is_map = schema.list_type == "map"
        keys = schema.list_map_keys if is_map else ()
        defaults = [
            (key, field.default)
            for key in keys
            if items is not None and (field := items.property_schema(key)) is not None and field.default is not None
        ]
        return List(element, schema.list_type not in _ASSOCIATIVE, keys, tuple(defaults))
    return _SCALARS.get(schema.type, DEDUCED)
