"""The checks of rules when a definition is written: their types, and an estimate of their cost.

The form of rules (`message`, `reason`, `fieldPath`) is a part of the schema, which is checked before.

Source: staging/src/k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation of Kubernetes 1.36
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from pinnace.api.status import Violation
from pinnace.cel import costs
from pinnace.cel.rules import RULES, CompiledRules, Exhausted, Rule, RuleNode, compile_rules
from pinnace.cel.schemas import MAX_REQUEST, Schema

EXPRESSION_LIMIT = 10_000_000
"""Maximum estimated cost of one rule of a definition, as in Kubernetes: StaticEstimatedCostLimit."""
DEFINITION_LIMIT = 100_000_000
"""Maximum estimated cost of all rules of a definition: StaticEstimatedCRDCostLimit."""
MAX_TEXT = 150_000
"""Maximum number of characters of all rules of a version. Kubernetes has no such limit. Large versions of well-known projects
have 10,000."""
MAX_EXPENSIVE = 4
"""Maximum number of rules that are listed as expensive."""
_HINT = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
)
_HTML = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


class _Cost(NamedTuple):
    path: str
    cost: int


class _Definition:
    """The check of all rules of one schema."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.total = 0
        self.expensive: list[_Cost] = []
        self.text = 0

    def observe_cost(self, path: str, cost: int) -> None:
        self.total = min(costs.MAX, self.total + cost)
        if cost >= DEFINITION_LIMIT // 100:
            self.expensive = sorted([*self.expensive, _Cost(path, cost)], key=lambda each: -each.cost)[:MAX_EXPENSIVE]

    def visit(self, node: RuleNode, path: str, cardinality: int | None, uncorrelatable: str) -> None:
        """`cardinality`: how often an object has this node at most, by the schema; None if the schema does not limit it."""
        below = _multiply_bounded(cardinality, _max_elements(node.schema))
        if node.values is not None:
            self.visit(node.values, f"{path}.additionalProperties", below, uncorrelatable)
        for name, child in node.properties.items():
            self.visit(child, f"{path}.properties[{name}]", below, uncorrelatable)
        if node.items is not None:
            is_correlatable = node.schema.get("x-kubernetes-list-type") == "map"
            self.visit(node.items, f"{path}.items", below, uncorrelatable or ("" if is_correlatable else path))
        if node.contents:
            self._check_node(node, path, cardinality, uncorrelatable)

    def _check_node(self, node: RuleNode, path: str, cardinality: int | None, uncorrelatable: str) -> None:
        places = [f"{path}.{RULES}[{index}]" for index in range(len(node.contents))]
        self.text += sum(
            len(str(content.get("rule"))) + len(str(content.get("messageExpression", ""))) for content in node.contents
        )
        if self.text > MAX_TEXT:
            self._add_forbidden(path, f"the rules of a version may have at most {MAX_TEXT:,} characters")
            raise Exhausted
        if node.declared is None:
            detail = "internal error: failed to construct type information for x-kubernetes-validations rules: "
            detail += "unable to convert structural schema to CEL declarations"
            self.violations.append(Violation(f"{path}.{RULES}", f"Internal error: {detail}"))
            return
        times = cardinality if cardinality is not None else MAX_REQUEST // (node.declared.min_size + 1)
        for rule, content, place in zip(node.rules, node.contents, places, strict=True):
            self._check_rule(rule, content, place, times, uncorrelatable)

    def _check_rule(self, rule: Rule, content: Mapping[str, Any], path: str, times: int, uncorrelatable: str) -> None:
        cost = min(costs.MAX, rule.cost * times)
        if cost > EXPRESSION_LIMIT:
            self._add_forbidden(f"{path}.rule", _describe_cost("estimated rule cost", cost, EXPRESSION_LIMIT))
        self.observe_cost(f"{path}.rule", cost)
        if rule.error:
            self.violations.append(Violation(f"{path}.rule", f"Invalid value: {_format_rule(content)}: {rule.error}"))
        if rule.message_error:
            self.violations.append(
                Violation(f"{path}.messageExpression", f"Invalid value: {_format_rule(content)}: {rule.message_error}")
            )
        elif rule.message_program is not None:
            if rule.message_cost > EXPRESSION_LIMIT:
                detail = _describe_cost("estimated messageExpression cost", rule.message_cost, EXPRESSION_LIMIT)
                self._add_forbidden(f"{path}.messageExpression", detail)
            self.observe_cost(f"{path}.messageExpression", rule.message_cost)
        if rule.uses_old:
            if uncorrelatable:
                detail = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {uncorrelatable}"
                self.violations.append(Violation(f"{path}.rule", f"Invalid value: {_quote(rule.text)}: {detail}"))
        elif content.get("optionalOldSelf") is not None:
            shown = "true" if content["optionalOldSelf"] else "false"
            detail = "may not be set if oldSelf is not used in rule"
            self.violations.append(Violation(f"{path}.optionalOldSelf", f"Invalid value: {shown}: {detail}"))

    def _add_forbidden(self, path: str, detail: str) -> None:
        self.violations.append(Violation(path, f"Forbidden: {detail}"))

    def finish(self, path: str) -> list[Violation]:
        if self.total > DEFINITION_LIMIT:
            for each in self.expensive:
                self._add_forbidden(
                    each.path, "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
                )
            name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
            self._add_forbidden(path, _describe_cost(name, self.total, DEFINITION_LIMIT))
        return self.violations


def check_rules(schema: Mapping[str, Any], path: str, rules: CompiledRules | None = None) -> list[Violation]:
    """Compile all rules of an `openAPIV3Schema` and estimate their cost. `path`: "spec.validation.openAPIV3Schema". Never
    raises.

    It takes about 0.3 ms for each rule: call it in a thread. `rules`: the compiled rules of this schema, which then are
    prepared.
    """
    definition = _Definition()
    try:
        root = (rules if rules is not None else compile_rules(schema)).root
        if root is not None:
            definition.visit(root, path, 1, "")
    except Exhausted:
        return definition.violations
    except RecursionError:
        return [Violation(path, "Forbidden: the schema is nested too deeply for its rules")]
    return definition.finish(path)


def _max_elements(schema: Schema) -> int | None:
    kind = schema.get("type")
    if kind == "object" and schema.get("additionalProperties") is not None:
        limit = schema.get("maxProperties")
    elif kind == "array":
        limit = schema.get("maxItems")
    else:
        return 1
    return None if limit is None else max(0, limit)


def _multiply_bounded(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else min(costs.MAX, a * b)


def _describe_cost(name: str, cost: int, limit: int) -> str:
    factor = cost / limit
    shown = "more than 100x" if factor > 100 else f"{factor:f}x" if factor < 1.5 else f"{factor:.1f}x"
    return f"{name} exceeds budget by factor of {shown} {_HINT}"


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _format_rule(content: Mapping[str, Any]) -> str:
    """Return a rule as Kubernetes shows it: the JSON of its internal type."""
    shown = {
        "Rule": content.get("rule") or "", "Message": content.get("message") or "",
        "MessageExpression": content.get("messageExpression") or "", "Reason": content.get("reason"),
        "FieldPath": content.get("fieldPath") or "", "OptionalOldSelf": content.get("optionalOldSelf"),
    }  # fmt: skip
    return json.dumps(shown, ensure_ascii=False, separators=(",", ":")).translate(_HTML)
