"""Pruning: removes the fields of custom objects that their schema does not declare.

Source: https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#field-pruning
"""

from typing import Any

from pinnace.apiextensions.schema import StructuralSchema


def prune(obj: Any, schema: StructuralSchema | None, *, root: bool = True) -> list[str]:
    """Remove unknown fields in place, and return their paths, sorted: "spec.x", "spec.list[0].y".

    `root`: the value is a whole object, whose apiVersion, kind and metadata stay. An embedded resource's stay, too.
    `schema` None removes everything but those. Unknown fields inside metadata are not removed: see
    `pinnace.apiextensions.metadata`.
    """
    raise NotImplementedError
