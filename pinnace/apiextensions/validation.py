"""Validation of custom objects against their schema, with Kubernetes' messages.

Errors that the update does not introduce are tolerated (ratcheting): a value that equals the old value may be invalid.

Source: k8s.io/apiextensions-apiserver/pkg/apiserver/validation and k8s.io/kube-openapi/pkg/validation/validate of
Kubernetes 1.36.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from pinnace.api.status import Violation
from pinnace.apiextensions.schema import StructuralSchema

RuleEvaluation = Callable[[StructuralSchema, Any, Any, str], Sequence[Violation]]
"""Evaluates the rules (x-kubernetes-validations) of a schema: schema, new value, old value or None, path ("" is the
object itself)."""

ABSENT: Final = object()


def validate_value(value: Any, schema: StructuralSchema, old: Any = ABSENT, *, path: str = "") -> list[Violation]:
    """Return what is invalid in a value by its schema alone. `old`: the value before an update, for ratcheting."""
    raise NotImplementedError


def validate_list_types(value: Any, schema: StructuralSchema, *, path: str = "") -> list[Violation]:
    """Return the duplicates in lists of type set and map, at any depth."""
    raise NotImplementedError


def validate_object(
    obj: dict[str, Any],
    schema: StructuralSchema,
    old: dict[str, Any] | None = None,
    *,
    scale: "dict[str, Any] | None" = None,
    evaluate_rules: RuleEvaluation | None = None,
    status: bool = False,
) -> list[Violation]:
    """Return what is invalid in a whole custom object except in its own metadata, apiVersion and kind.

    In this order: the schema, the paths of the scale subresource, embedded metadata, list types, and the rules. Rules are not
    evaluated if an error of a type (or a missing field, or a limit of size) makes them meaningless; a violation says
    so. `status`: the write is one of the status subresource: only the status is compared with the schema.
    """
    raise NotImplementedError
