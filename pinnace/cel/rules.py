"""The rules of a structural schema (`x-kubernetes-validations`)."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from pinnace.api.status import Violation


class Evaluation(NamedTuple):
    """`violations`: what a write is refused for. `warnings`: violations that the old object had too (ratcheting)."""

    violations: list[Violation]
    warnings: list[Violation]


class CompiledRules:
    """The rules of one version of a custom resource. They compile when they are first evaluated."""

    has_rules: bool

    def validate(self, obj: Any, old: Any = None, path: str = "", *, root: bool = True) -> Evaluation:
        """Evaluate the rules at every depth of `obj`, which has defaults and is valid by its schema without the rules.

        `old`: the object before an update, or None. Never raises. The whole call is limited in its cost, and ends with a violation
        if it exceeds the limit.
        """
        raise NotImplementedError


def compile_rules(schema: Mapping[str, Any], *, resource_root: bool = True) -> CompiledRules:
    """Return the rules of an `openAPIV3Schema`. `resource_root`: `apiVersion`, `kind` and `metadata` are fields of `self`."""
    raise NotImplementedError


def check_rules(schema: Mapping[str, Any], path: str) -> list[Violation]:
    """Compile all rules of an `openAPIV3Schema` and estimate their cost. `path`: "spec.validation.openAPIV3Schema". Never raises."""
    raise NotImplementedError
