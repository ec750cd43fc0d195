"""Defaulting of custom objects, at writes and at reads of objects that are older than a default.

Kubernetes calls `drop_invalid_nulls`, then `set_defaults`: a null in a field that is not nullable becomes the default, or
vanishes.

Source: https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#defaulting-and-nullable
"""

from typing import Any

from pinnace.apiextensions.schema import StructuralSchema

MAX_DEFAULTS = 8 << 20
"""Maximum size of all defaults of an object in characters of JSON. etcd stores no object of this size."""


class DefaultsTooLarge(ValueError):
    """The defaults of the schema make the object larger than any object that is stored."""


def drop_invalid_nulls(obj: Any, schema: StructuralSchema | None) -> None:
    """Remove, in place, nulls of fields that are neither nullable nor have a default. Nulls in lists stay."""
    if schema is None:
        return
    if isinstance(obj, dict):
        invalid = list[str]()
        for name, value in obj.items():
            if value is None:
                child = schema.child(name)
                if child is not None and not child.nullable and child.default is None:
                    invalid.append(name)
            elif isinstance(value, dict | list):
                drop_invalid_nulls(value, schema.child(name))
        for name in invalid:
            del obj[name]
    elif isinstance(obj, list):
        items = schema.items
        for item in obj:
            drop_invalid_nulls(item, items)


def set_defaults(obj: Any, schema: StructuralSchema | None) -> None:
    """Set, in place, the defaults of absent fields, and of nulls that are not nullable. Defaults are copied.

    Raises DefaultsTooLarge.
    """
    _set_defaults(obj, schema, MAX_DEFAULTS)


def _set_defaults(obj: Any, schema: StructuralSchema | None, room: int) -> int:
    """Return the rest of `room`, the size of the defaults that may be set."""
    if schema is None:
        return room
    if isinstance(obj, dict):
        for name, field in schema.default_fields:
            if name not in obj or (obj[name] is None and not field.nullable):
                room = _take_room(room, field)
                obj[name] = copy_json(field.default)
        for name, value in obj.items():
            child = schema.child(name)
            if value is None and child is not None and not child.nullable and child.default is not None:
                room = _take_room(room, child)
                obj[name] = value = copy_json(child.default)
            if isinstance(value, dict | list):
                room = _set_defaults(value, child, room)
    elif isinstance(obj, list) and (items := schema.items) is not None:
        for index, item in enumerate(obj):
            if item is None and not items.nullable and items.default is not None:
                room = _take_room(room, items)
                obj[index] = item = copy_json(items.default)
            if isinstance(item, dict | list):
                room = _set_defaults(item, items, room)
    return room


def _take_room(room: int, field: StructuralSchema) -> int:
    if room < field.default_size:
        raise DefaultsTooLarge(f"the defaults of the object have more than {MAX_DEFAULTS} bytes")
    return room - field.default_size


def copy_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: copy_json(child) for name, child in value.items()}
    return [copy_json(item) for item in value] if isinstance(value, list) else value
