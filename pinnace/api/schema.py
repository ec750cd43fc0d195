"""The types of API objects for server-side apply: scalars, lists and maps, and the parts of an object that have one owner.

The types of built-in kinds are made from the descriptors of the messages, and those of custom objects from their schemas
(`Map.fields`, `DEDUCED` for unknown fields). The list types, keys and map types are Kubernetes', in
schema_extensions.json, by the name of a schema. OpenAPI documents and field sets are made from the same file.

    list type atomic (the default)   one owner for the whole list
    list type set                    an owner for each value
    list type map                    an owner for each field of an item; items are identified by their keys
    map type granular (the default)  an owner for each field or key
    map type atomic                  one owner for the whole map or object

Source: https://kubernetes.io/docs/reference/using-api/server-side-apply/#merge-strategy
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from pinnace.api.apiextensions_v1_pb2 import JSONSchemaProps
from pinnace.api.codec import SHOWN_WHEN_ZERO, Field, field_description, fields_of
from pinnace.api.go_form import SHOWN_AS_NULL, SHOWN_WHEN_EMPTY
from pinnace.api.merge import DEFAULTS
from pinnace.api.meta_v1_pb2 import FieldsV1
from pinnace.api.resources import CustomResource, Resource
from pinnace.api.runtime_v1_pb2 import RawExtension
from pinnace.api.scalars import SCALARS, zero_primitive

META_PACKAGE = "io.k8s.apimachinery.pkg.apis.meta.v1"
_PACKAGES: Mapping[str, str] = {
    "apiextensions.v1": "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1",
    "apiregistration.v1": "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1",
    "meta.v1": META_PACKAGE,
}
"""The packages that are not "io.k8s.api.<package>"."""
_FILE = Path(__file__).with_name("schema_extensions.json")
_LIST_TYPE, _LIST_KEYS, _MAP_TYPE = "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type"
_ATOMIC = "atomic"
_JSON_OBJECTS = frozenset(message.DESCRIPTOR.full_name for message in (FieldsV1, JSONSchemaProps, RawExtension))
"""Messages that are any JSON object."""
_STRUCTS = frozenset({"metadata", "spec", "status"})
"""Fields that are always present in Kubernetes' Go types, as empty objects."""
_MORE_STRUCTS: Mapping[str, tuple[str, ...]] = {
    "pinnace.apiextensions.v1.CustomResourceDefinitionSpec": ("names",),
    "pinnace.autoscaling.v1.HorizontalPodAutoscalerSpec": ("scaleTargetRef",),
    "pinnace.autoscaling.v2.HorizontalPodAutoscalerSpec": ("scaleTargetRef",),
    "pinnace.apps.v1.DaemonSetSpec": ("updateStrategy",),
    "pinnace.batch.v1.CronJobSpec": ("jobTemplate",),
    "pinnace.apps.v1.StatefulSetSpec": ("updateStrategy",),
    "pinnace.networking.v1.NetworkPolicySpec": ("podSelector",),
}
"""The same, by message."""
_OMITTED_WHEN_EMPTY = frozenset({"pinnace.admissionregistration.v1.ValidatingAdmissionPolicyBindingSpec.validationActions"})
"""Required lists that are absent in empty objects."""


class Kind(Enum):
    STRING = "string"
    NUMBER = "numeric (int or float)"
    BOOLEAN = "boolean"
    ANY = "scalar"
    """A number or a string: quantities, instants, and values of several types."""


@dataclass(frozen=True, slots=True)
class Scalar:
    kind: Kind


@dataclass(frozen=True, slots=True)
class List:
    """`keys`: of the items of a list map; empty for other lists. `defaults`: the values of keys that an item leaves out."""

    element: "Type"
    atomic: bool
    keys: tuple[str, ...] = ()
    defaults: tuple[tuple[str, Any], ...] = ()

    def default(self, key: str) -> Any:
        """Return the value of a key that an item leaves out; None if it has no default."""
        for name, value in self.defaults:
            if name == key:
                return value
        named = isinstance(self.element, Map) and self.element.field(key) is not None
        return DEFAULTS.get(key) if named else None


class Fields(Protocol):
    """The declared fields of an object, by JSON name. A dict is one. Other implementations can make the types on demand."""

    def get(self, name: str, /) -> "Type | None":
        """Return the type of a declared field; None if there is none."""
        ...


@dataclass(frozen=True, slots=True)
class Map:
    """An object with declared fields, a map with values of one type (`element`), or both: an object whose undeclared fields
    have the type `element`."""

    fields: Fields | None
    element: "Type | None"
    atomic: bool

    def field(self, name: str) -> "Type | None":
        """Return the type of a declared field; None if there is none."""
        return self.fields.get(name) if self.fields is not None else None

    def value(self, name: str) -> "Type | None":
        """Return the type of a field or of a map's value; None for a field that is not declared."""
        return self.field(name) or self.element

    @property
    def is_open(self) -> bool:
        """Whether fields that are not declared are accepted."""
        return self.fields is None or self.element is not None


@dataclass(frozen=True, slots=True)
class Deduced:
    """The type of fields without a schema: each value has the type of its content. Lists have one owner, objects are granular.

    Source: https://github.com/kubernetes-sigs/structured-merge-diff/blob/master/typed/parser.go (DeducedParseableType)
    """

    @property
    def atomic(self) -> bool:
        return False


DEDUCED = Deduced()
Type = Scalar | List | Map | Deduced

_ANY_SCALAR = Scalar(Kind.ANY)
_ANY_LIST = List(DEDUCED, atomic=True)
_ANY_MAP = Map(None, DEDUCED, atomic=False)


def resolve(of: Type, *values: object) -> Scalar | List | Map:
    """Return the type of values. Deduced types depend on them: if they differ in kind, they are compared as a whole."""
    if not isinstance(of, Deduced):
        return of
    kinds = {type(value) for value in values if value is not None and not isinstance(value, Enum)}
    if kinds == {dict}:
        return _ANY_MAP
    return _ANY_LIST if kinds == {list} else _ANY_SCALAR


class MessageFields:
    """The fields of a message. Types are made on first use, because messages can be recursive."""

    def __init__(self, message: Descriptor) -> None:
        self.message = message

    def get(self, name: str, /) -> Type | None:
        return _field_types(self.message).get(name)


_PRIMITIVES = {
    FieldDescriptor.TYPE_STRING: Scalar(Kind.STRING),
    FieldDescriptor.TYPE_BYTES: Scalar(Kind.STRING),
    FieldDescriptor.TYPE_BOOL: Scalar(Kind.BOOLEAN),
}


@cache
def load_extensions() -> Mapping[str, Any]:
    """Return Kubernetes' extensions of each schema, by its name: those of each property, and of the schema itself."""
    result: Mapping[str, Any] = json.loads(_FILE.read_text())
    return result


def schema_name(descriptor: Descriptor) -> str:
    """Return the name of a message in Kubernetes' OpenAPI: "io.k8s.api.core.v1.Pod" for pinnace.core.v1.Pod."""
    package, _, name = descriptor.full_name.removeprefix("pinnace.").rpartition(".")
    return f"{_PACKAGES.get(package, f'io.k8s.api.{package}')}.{name}"


@cache
def type_of(message: Descriptor, atomic: bool | None = None) -> Type:
    """Return the type of a message. `atomic`: the map type of the field that contains it; None: that of the message."""
    if message.full_name in _JSON_OBJECTS:
        return Map(None, None, atomic=True)
    if message.full_name in SCALARS:
        return Scalar(Kind.ANY)
    if atomic is None:
        atomic = load_extensions().get(schema_name(message), {}).get(_MAP_TYPE) == _ATOMIC
    return Map(MessageFields(message), None, atomic)


def type_of_resource(resource: Resource[Any]) -> Type:
    """Return the type of the objects of a resource."""
    if isinstance(resource, CustomResource) and resource.schema is not None:
        result: Type = resource.schema.ownership_type()
        return result
    return type_of(resource.message.DESCRIPTOR)


@cache
def _field_types(message: Descriptor) -> Mapping[str, Type]:
    return {name: _field_type(field) for name, field in fields_of(message).items()}


def _field_type(field: Field) -> Type:
    descriptor = field.descriptor
    assert descriptor.containing_type is not None
    parent = load_extensions().get(schema_name(descriptor.containing_type), {})
    said = parent.get("properties", {}).get(descriptor.json_name, {})
    atomic = said[_MAP_TYPE] == _ATOMIC if _MAP_TYPE in said else None
    if field.value is not None:
        return Map(None, _value_type(field.value), atomic or False)
    if descriptor.is_repeated:
        keys = tuple(said.get(_LIST_KEYS, ()))
        return List(_value_type(descriptor), said.get(_LIST_TYPE, _ATOMIC) == _ATOMIC, keys)
    return _value_type(descriptor, atomic)


def _value_type(field: FieldDescriptor, atomic: bool | None = None) -> Type:
    if field.message_type is not None:
        return type_of(field.message_type, atomic)
    return _PRIMITIVES.get(field.type, Scalar(Kind.NUMBER))


@cache
def _empty_form(message: Descriptor) -> Mapping[str, Any]:
    result: dict[str, Any] = {}
    for name, field in fields_of(message).items():
        descriptor = field.descriptor
        struct = descriptor.message_type if not descriptor.is_repeated else None
        if struct is not None and (name in _STRUCTS or (name == "template" and field_description(descriptor).required)):
            result[name] = _empty_form(struct)
        elif (
            descriptor.is_repeated
            and field_description(descriptor).required
            and descriptor.full_name not in _OMITTED_WHEN_EMPTY
        ):
            result[name] = None
    for name in SHOWN_WHEN_ZERO.get(message.full_name, ()):
        result.setdefault(name, zero_primitive(fields_of(message)[name].descriptor))
    for name in SHOWN_AS_NULL.get(message.full_name, ()):
        result.setdefault(name, None)
    for name in (*SHOWN_WHEN_EMPTY.get(message.full_name, ()), *_MORE_STRUCTS.get(message.full_name, ())):
        inner = fields_of(message)[name].descriptor.message_type
        result.setdefault(name, _empty_form(inner) if inner is not None else {})
    return result


def empty_object(message: Descriptor) -> dict[str, Any]:
    """Return the JSON form of an empty object, as Kubernetes' Go types write it: with the fields that are never left out."""
    result: dict[str, Any] = json.loads(json.dumps(_empty_form(message)))
    return result
