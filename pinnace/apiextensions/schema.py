"""Structural schemas: the compiled form of `openAPIV3Schema`.

A node of the schema is compiled when somebody asks for it, so that a definition of 800 kB costs nothing until objects
use it, and then only the parts that they use. Regular expressions are RE2's, as Kubernetes' are: their time is linear
in the text.

No function here validates a definition: see `pinnace.apiextensions.definitions`. An invalid schema compiles, and
values of wrong types in it are as if they were absent.

Source:
https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema
"""

from collections.abc import Mapping, Sequence
from typing import Any


class StructuralSchema:
    """One node of a schema. Attributes are Kubernetes' names in snake_case, without "x-kubernetes-".

    `props`: the node's JSON. `default`: None if there is none (a default is never null). `additional`: the schema of
    the values of a map, True or False for a boolean, None if it is absent. `rules`: the JSON of x-kubernetes-validations.
    """

    props: Mapping[str, Any]
    type: str
    nullable: bool
    default: Any
    preserve_unknown_fields: bool
    embedded_resource: bool
    int_or_string: bool
    list_type: str
    list_map_keys: tuple[str, ...]
    map_type: str
    rules: Sequence[Mapping[str, Any]]

    @property
    def properties(self) -> Mapping[str, "StructuralSchema"]:
        raise NotImplementedError

    @property
    def items(self) -> "StructuralSchema | None":
        raise NotImplementedError

    @property
    def additional(self) -> "StructuralSchema | bool | None":
        raise NotImplementedError

    def child(self, name: str) -> "StructuralSchema | None":
        """Return the schema of a field of an object, or of a value of a map; None if the schema does not declare it."""
        raise NotImplementedError


def compile_schema(props: Mapping[str, Any]) -> StructuralSchema:
    """Return the compiled form of an `openAPIV3Schema`. It compiles its parts lazily, so it is cheap; compile once per
    version."""
    raise NotImplementedError
