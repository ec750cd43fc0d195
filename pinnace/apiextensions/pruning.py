"""Pruning: removes the fields of custom objects that their schema does not declare.

Source: https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#field-pruning
"""

from typing import Any

from pinnace.apiextensions.schema import StructuralSchema

META_FIELDS = frozenset({"apiVersion", "kind", "metadata"})
MAX_PATHS = 1_000
"""Maximum number of paths that are returned. All unknown fields are removed."""


def prune(obj: Any, schema: StructuralSchema | None, *, root: bool = True) -> list[str]:
    """Remove unknown fields in place, and return their paths, sorted: "spec.x", "spec.list[0].y".

    `root`: the value is a whole object, whose apiVersion, kind and metadata stay. An embedded resource's stay, too. `schema`
    None removes everything but those. Unknown fields inside metadata are not removed: see `pinnace.apiextensions.metadata`.
    """
    paths = list[str]()
    _prune(obj, schema, "", paths, embedded=root or (schema is not None and schema.embedded_resource))
    return sorted(paths)


def _prune(
    value: Any, schema: StructuralSchema | None, path: str, paths: list[str], *, embedded: bool, preserve: bool = False
) -> None:
    """`embedded`: the value has apiVersion, kind and metadata that stay. `preserve`: unknown fields stay, as in items of lists
    that preserve unknown fields."""
    preserve = preserve or (schema is not None and schema.preserve_unknown_fields)
    if isinstance(value, dict):
        unknown = list[str]()
        for name, child in value.items():
            if embedded and name in META_FIELDS:
                continue
            inner = schema.property_schema(name) if schema is not None else None
            if inner is None and schema is not None and schema.additional is not None:
                inner = schema.values
            elif inner is None:
                if not preserve:
                    unknown.append(name)
                continue
            if isinstance(child, dict | list):
                at = f"{path}.{name}" if path else name
                _prune(child, inner, at, paths, embedded=inner is not None and inner.embedded_resource)
        for name in unknown:
            del value[name]
            if len(paths) < MAX_PATHS:
                paths.append(f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        items = schema.items if schema is not None else None
        if items is None and preserve:
            return
        embedded = items is not None and items.embedded_resource
        for index, item in enumerate(value):
            if isinstance(item, dict | list):
                _prune(item, items, f"{path}[{index}]", paths, embedded=embedded, preserve=preserve)
