"""The rules of schemas (x-kubernetes-validations) for the validation of definitions and custom objects."""

from collections.abc import Mapping, Sequence
from typing import Any

from pinnace.api.status import Violation
from pinnace.apiextensions.schema import StructuralSchema
from pinnace.apiextensions.validation import RuleEvaluation
from pinnace.cel.rule_checks import check_rules
from pinnace.cel.rules import compile_rules


def check_schema_rules(schema: Mapping[str, Any], path: str) -> Sequence[Violation]:
    """Check the rules of a new schema. Implements RuleCheck."""
    return check_rules(schema, path)


def object_rules(schema: StructuralSchema) -> RuleEvaluation | None:
    """Return the evaluation of the rules of a version; None if it has none."""
    rules = compile_rules(schema.props)
    if not rules.has_rules:
        return None
    return lambda _, value, old, path: rules.validate(value, old, path).violations
