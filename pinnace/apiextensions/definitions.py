"""Defaults and validation of CustomResourceDefinitions, with Kubernetes' messages and paths.

The errors of a schema that all versions share (every definition of one version) have paths below
`spec.validation.openAPIV3Schema`.

Source: k8s.io/apiextensions-apiserver/pkg/apis/apiextensions (v1/defaults.go, v1/conversion.go, validation) of Kubernetes 1.36.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pinnace.api.status import Violation
from pinnace.apiextensions.validation import RuleEvaluation

RuleCheck = Callable[[Mapping[str, Any], str], Sequence[Violation]]
"""Compiles the rules of a whole openAPIV3Schema and estimates their cost: schema, its path
("spec.validation.openAPIV3Schema")."""

Definition = dict[str, Any]
CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"


def set_definition_defaults(crd: Definition) -> None:
    """Set singular, listKind, scope's and conversion's defaults in place. Call it before `validate_definition`."""
    raise NotImplementedError


def prepare_create(crd: Definition) -> None:
    """Clear the status of a new definition, and set its generation and stored version, in place."""
    raise NotImplementedError


def prepare_update(new: Definition, old: Definition) -> None:
    """Keep the old status, add the storage version to storedVersions, and count the generation if the spec changes, in
    place."""
    raise NotImplementedError


def prepare_status_update(new: Definition, old: Definition) -> None:
    """Keep the old spec and metadata, in place."""
    raise NotImplementedError


def validate_definition(
    new: Definition,
    old: Definition | None = None,
    *,
    check_rules: RuleCheck | None = None,
    evaluate_rules: RuleEvaluation | None = None,
) -> list[Violation]:
    """Return what is invalid in a definition, or in its update. `new` has defaults. Invalid parts of `old` that stay
    are tolerated where Kubernetes tolerates them."""
    raise NotImplementedError


def validate_definition_status(new: Definition, old: Definition) -> list[Violation]:
    """Return what is invalid in an update of the status subresource."""
    raise NotImplementedError


def definition_warnings(new: Definition, old: Definition | None = None) -> list[str]:
    """Return warnings for formats that validation ignores, without those of `old`."""
    raise NotImplementedError


def storage_version(crd: Definition) -> str:
    """Return the name of the version that is stored."""
    raise NotImplementedError


def version_schema(crd: Definition, version: str) -> Mapping[str, Any]:
    """Return the openAPIV3Schema of a version; {} if there is none."""
    raise NotImplementedError


def sort_versions(names: Sequence[str]) -> list[str]:
    """Return version names in Kubernetes' priority: v10, v2, v1, v11beta2, v10beta3, v3beta1, v12alpha1, foo1, foo10."""
    raise NotImplementedError
