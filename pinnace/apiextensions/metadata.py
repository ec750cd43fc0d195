"""ObjectMeta and TypeMeta of embedded resources: coercion and validation.

Source: k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta of Kubernetes 1.36.
"""

from typing import Any

from pinnace.api.status import Violation
from pinnace.apiextensions.schema import StructuralSchema


def coerce_metadata(
    obj: Any, schema: StructuralSchema | None, *, root: bool = False, drop_invalid: bool = False
) -> tuple[Violation | None, list[str]]:
    """Remove unknown fields of the metadata of embedded resources (and, with `root`, of the object itself), in place.

    Return the first field of a wrong type, or None, and the paths of the removed fields, sorted. `drop_invalid`:
    remove fields of wrong types, too (Kubernetes does this for objects that it reads from the storage).
    """
    raise NotImplementedError


def validate_embedded(obj: Any, schema: StructuralSchema | None, *, root: bool = False, path: str = "") -> list[Violation]:
    """Return what is invalid in apiVersion, kind and metadata of embedded resources."""
    raise NotImplementedError
