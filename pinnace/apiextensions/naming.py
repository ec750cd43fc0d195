"""The names and conditions of definitions: NamesAccepted, Established, NonStructuralSchema, Terminating,
KubernetesAPIApprovalPolicyConformant.

Source: k8s.io/apiextensions-apiserver/pkg/controller/{status,establish,nonstructuralschema,apiapproval,finalizer} of
Kubernetes 1.36.
"""

from collections.abc import Iterable
from typing import Any


def compute_status(crd: dict[str, Any], others: Iterable[dict[str, Any]], now: str) -> dict[str, Any] | None:
    """Return the new status of a definition; None if it stays. `others`: the definitions of its group (others are
    ignored, and so is itself). `now`: RFC 3339. Accepted names, NamesAccepted and Established are decided at once:
    Kubernetes' controllers take several writes for that."""
    raise NotImplementedError


def get_condition(crd: dict[str, Any], kind: str) -> dict[str, Any] | None:
    raise NotImplementedError


def is_established(crd: dict[str, Any]) -> bool:
    """Return whether the API serves the kind."""
    raise NotImplementedError


def set_condition(status: dict[str, Any], condition: dict[str, Any]) -> None:
    """Set a condition in place. lastTransitionTime changes only with the status of the condition."""
    raise NotImplementedError


def terminating_condition(reason: str, message: str, now: str, *, status: str = "True") -> dict[str, Any]:
    raise NotImplementedError
