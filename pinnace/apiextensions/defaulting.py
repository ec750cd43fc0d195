"""Defaulting of custom objects, at writes and at reads of objects that are older than a default.

Kubernetes calls `drop_invalid_nulls`, then `set_defaults`: a null in a field that is not nullable becomes the default,
or vanishes.

Source: https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#defaulting-and-nullable
"""

from typing import Any

from pinnace.apiextensions.schema import StructuralSchema


def drop_invalid_nulls(obj: Any, schema: StructuralSchema | None) -> None:
    """Remove, in place, nulls of fields that are neither nullable nor have a default. Nulls in lists stay."""
    raise NotImplementedError


def set_defaults(obj: Any, schema: StructuralSchema | None) -> None:
    """Set, in place, the defaults of absent fields, and of nulls that are not nullable. Defaults are copied."""
    raise NotImplementedError
