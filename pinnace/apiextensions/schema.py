"""Structural schemas: the compiled form of `openAPIV3Schema`.

A node of the schema is compiled when somebody asks for it. A definition of 800 kB costs nothing until objects use it, and
then only the parts that they use.

No function here validates a definition: see `pinnace.apiextensions.definitions`. An invalid schema compiles, and values of
wrong types in it are as if they were absent.

Source:
https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

ABSENT = object()
"""Stands for a value that is not there; None is null."""
_NO_PROPS: Mapping[str, Any] = {}


class StructuralSchema:
    """One node of a schema. Attributes have Kubernetes' names in snake_case, without "x-kubernetes-".

    `props`: the node's JSON. `default`: None if there is none (a default is never null). `rules`: the JSON of
    x-kubernetes-validations. `list_type` and `map_type` are "" if they are absent.
    """

    def __init__(self, props: Mapping[str, Any]) -> None:
        self.props = props
        get = props.get
        self.type: str = text(get("type"))
        self.nullable: bool = get("nullable") is True
        self.default: Any = get("default")
        self.preserve_unknown_fields: bool = get("x-kubernetes-preserve-unknown-fields") is True
        self.embedded_resource: bool = get("x-kubernetes-embedded-resource") is True
        self.int_or_string: bool = get("x-kubernetes-int-or-string") is True
        self.validation: Any = None
        """The compiled restrictions of values, which `pinnace.apiextensions.validation` owns."""
        self._children: dict[str, StructuralSchema] = {}
        self._raw_properties = mapping(get("properties"))

    @cached_property
    def list_type(self) -> str:
        return text(self.props.get("x-kubernetes-list-type"))

    @cached_property
    def list_map_keys(self) -> tuple[str, ...]:
        return texts(self.props.get("x-kubernetes-list-map-keys"))

    @cached_property
    def map_type(self) -> str:
        return text(self.props.get("x-kubernetes-map-type"))

    @cached_property
    def rules(self) -> Sequence[Mapping[str, Any]]:
        return objects(self.props.get("x-kubernetes-validations"))

    @property
    def properties(self) -> Mapping[str, "StructuralSchema"]:
        """Compile all properties. `property_schema` compiles one."""
        return {name: schema for name in self._raw_properties if (schema := self.property_schema(name)) is not None}

    @property
    def property_names(self) -> Mapping[str, Any]:
        """The declared properties: their JSON by name."""
        return self._raw_properties

    def property_schema(self, name: str) -> "StructuralSchema | None":
        """Return the schema of a declared property."""
        child = self._children.get(name)
        if child is None and (props := self._raw_properties.get(name)) is not None:
            child = self._children[name] = StructuralSchema(mapping(props))
        return child

    @cached_property
    def items(self) -> "StructuralSchema | None":
        props = self.props.get("items")
        return StructuralSchema(props) if isinstance(props, dict) else None

    @cached_property
    def additional(self) -> "StructuralSchema | bool | None":
        """The schema of the values of a map; True or False for a boolean; None if it is absent."""
        props = self.props.get("additionalProperties")
        if isinstance(props, dict):
            return StructuralSchema(props)
        return props if isinstance(props, bool) else None

    @cached_property
    def values(self) -> "StructuralSchema | None":
        """The schema of the values of a map; None if there is none."""
        return self.additional if isinstance(self.additional, StructuralSchema) else None

    def child(self, name: str) -> "StructuralSchema | None":
        """Return the schema of a field, or of the values of a map; None if the schema does not declare the name."""
        return self.property_schema(name) or self.values

    @cached_property
    def default_size(self) -> int:
        """The size of the default in characters of JSON."""
        return len(json.dumps(self.default))

    @cached_property
    def default_fields(self) -> Sequence[tuple[str, "StructuralSchema"]]:
        """The properties that have a default."""
        return [
            (name, child)
            for name, props in self._raw_properties.items()
            if isinstance(props, dict)
            and props.get("default") is not None
            and (child := self.property_schema(name)) is not None
        ]

    def __iter__(self) -> Iterator["StructuralSchema"]:
        """The node and all nodes below it, without those of allOf, anyOf, oneOf and not."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(child for child in (node.items, node.values) if child is not None)
            waiting.extend(node.properties.values())


def compile_schema(props: Mapping[str, Any]) -> StructuralSchema:
    """Return the compiled form of an `openAPIV3Schema`. Parts are compiled lazily. Compile once per version of a definition."""
    return StructuralSchema(mapping(props))


def mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else _NO_PROPS


def text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def texts(value: Any) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def objects(value: Any) -> list[Mapping[str, Any]]:
    """Return the objects in a list; [] for another value."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
