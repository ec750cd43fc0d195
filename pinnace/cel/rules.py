"""The rules of a structural schema (`x-kubernetes-validations`): evaluation on objects, and the checks of a definition.

Source: staging/src/k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel and pkg/apis/apiextensions/validation of Kubernetes 1.36
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from pinnace.api.status import Violation
from pinnace.cel import costs, libraries, syntax
from pinnace.cel.checker import check
from pinnace.cel.evaluation import Program
from pinnace.cel.meter import CALL_LIMIT, EXCEEDED, OBJECT_LIMIT, WORK_LIMIT, CostExceeded, Meter
from pinnace.cel.schemas import MAX_REQUEST, Converter, Schema, SchemaTypes
from pinnace.cel.syntax import CompileError, Ident, Node
from pinnace.cel.types import ABSENT, EvaluationFailure, Optional, Type, optional_of

EXPRESSION_LIMIT = 10_000_000
"""Maximum estimated cost of one rule of a definition, as in Kubernetes: StaticEstimatedCostLimit."""
DEFINITION_LIMIT = 100_000_000
"""Maximum estimated cost of all rules of a definition: StaticEstimatedCRDCostLimit."""
MAX_TEXT = 500_000
"""Maximum number of characters of all rules of a definition. Kubernetes has no such limit."""
MAX_MESSAGE = 5 * 1024
"""Maximum length of the result of a messageExpression in bytes."""
MAX_EXPENSIVE = 4
"""Maximum number of rules that are listed as expensive."""
RULES = "x-kubernetes-validations"
REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
NO_BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"
_HINT = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
)
_NEWLINES = re.compile(r"[\n\r]")


class Evaluation(NamedTuple):
    """`violations`: what a write is refused for. `warnings`: violations that the old object had too (ratcheting)."""

    violations: list[Violation]
    warnings: list[Violation]


class Rule(NamedTuple):
    """A compiled rule. `program` is None if it is empty or does not compile; `error` then says why."""

    text: str
    message: str
    reason: str | None
    field_path: str
    optional_old: bool
    uses_old: bool
    program: Program | None = None
    error: str = ""
    cost: int = 0
    message_program: Program | None = None
    message_error: str = ""
    message_cost: int = 0

    @property
    def shown(self) -> str:
        return (self.message or self.text).strip()


def compile_rule(content: Mapping[str, Any], declared: Type, schema: Schema) -> Rule:
    """Compile one rule over `self` of the declared type. Never raises."""
    text, message = str(content.get("rule") or ""), str(content.get("message") or "")
    optional_old = bool(content.get("optionalOldSelf"))
    path = field_path(str(content.get("fieldPath") or ""), schema) or ""
    rule = Rule(text, message, content.get("reason"), path, optional_old, False)
    if not text.strip():
        return rule
    variables = {"self": declared, "oldSelf": optional_of(declared) if optional_old else declared}
    names = tuple(variables)
    try:
        node, _ = _compile(text, variables)
        if node.type.kind != "bool":
            return rule._replace(error="cel expression must evaluate to a bool")
        rule = rule._replace(program=Program(node, names), cost=costs.estimate(node, declared), uses_old=_reads_old(node))
    except CompileError as error:
        return rule._replace(error=f"compilation failed: {error}")
    expression = str(content.get("messageExpression") or "")
    if not expression:
        return rule
    try:
        node, _ = _compile(expression, variables)
    except CompileError as error:
        return rule._replace(message_error=f"messageExpression compilation failed: {error}")
    if node.type.kind != "string":
        return rule._replace(message_error="messageExpression must evaluate to a string")
    return rule._replace(message_program=Program(node, names), message_cost=costs.estimate(node, declared))


def _compile(text: str, variables: Mapping[str, Type]) -> tuple[Node, Any]:
    libraries.load_libraries()
    try:
        node, source = syntax.parse(text)
        check(node, source, variables)
    except RecursionError:
        raise CompileError("ERROR: <input>:-1:0: expression recursion limit exceeded") from None
    return node, source


def _reads_old(node: Node) -> bool:
    return any(isinstance(each, Ident) and each.name == "oldSelf" for each in _descendants(node))


def _descendants(node: Node) -> Iterator[Node]:
    stack: list[Any] = [node]
    while stack:
        each = stack.pop()
        if isinstance(each, Node):
            yield each
            stack.extend(
                getattr(each, name)
                for kind in type(each).__mro__
                for name in getattr(kind, "__slots__", ())
                if name != "overloads" and hasattr(each, name)
            )
        elif isinstance(each, list | tuple):
            stack.extend(each)


# Evaluation


class _Correlation(NamedTuple):
    """A part of the new object and its counterpart in the old one."""

    old: Any
    new: Any

    def unchanged(self) -> bool:
        return bool(self.old == self.new)


class _Ratchet(NamedTuple):
    """Whether a violation is older than the update: the part that has it, or the nearest part that has a counterpart, is unchanged."""

    current: _Correlation | None
    parent: _Correlation | None

    def is_old(self) -> bool:
        nearest = self.current if self.current is not None else self.parent
        return nearest is not None and nearest.unchanged()

    def child(self, old: Any, new: Any, *, known: bool) -> "_Ratchet":
        if self.current is None:
            return self
        return _Ratchet(_Correlation(old, new) if known else None, self.current)


_NO_RATCHET = _Ratchet(None, None)


class _Exhausted(Exception):
    """The budget of the object is spent."""


class CompiledRules:
    """The rules of one version of a custom resource. The rules of a part of the schema compile when an object has that part."""

    def __init__(self, schema: Schema, resource_root: bool) -> None:
        self._schema, self._resource_root = schema, resource_root
        self._contains: dict[int, bool] = {}
        self._types = SchemaTypes()
        self._converter = Converter()
        self._rules: dict[int, list[Rule]] = {}
        self.has_rules = self._has_rules(schema)

    def validate(self, obj: Any, old: Any = None, path: str = "", *, work_limit: int = WORK_LIMIT) -> Evaluation:
        """Evaluate the rules at every depth of `obj`, which has defaults and is valid by its schema without the rules.

        `old`: the object before an update, or None. Never raises. The whole call is limited in its cost (`pinnace.cel.meter`), and
        ends with a violation if it exceeds the limit.
        """
        if not self.has_rules:
            return Evaluation([], [])
        walk = _Walk(self, work_limit)
        ratchet = _Ratchet(_Correlation(old, obj), None) if old is not None else _NO_RATCHET
        convert = self._converter.convert
        try:
            value, old_value = convert(obj, self._schema), convert(old, self._schema)
            walk.visit(self._schema, self._schema, obj, value, old, old_value, path, ratchet, root=self._resource_root)
        except _Exhausted:
            pass
        except RecursionError:
            walk.violations.append(_invalid(path, self._schema.get("type"), "the object is nested too deeply for its rules"))
        return Evaluation(walk.violations, walk.warnings)

    def prepare(self) -> None:
        """Compile all rules now. This may take long; call it in a thread."""
        self._prepare(self._schema, self._schema, self._resource_root)

    def _prepare(self, rules: Schema, schema: Schema, root: bool) -> None:
        if not self._has_rules(rules):
            return
        self.rules_of(rules, schema, root)
        for _, child_rules, child in _children(rules, schema):
            self._prepare(child_rules, child, bool(child.get("x-kubernetes-embedded-resource")))
        for part in _all_of(rules):
            self._prepare(part, schema, root)

    def rules_of(self, rules: Schema, schema: Schema, root: bool) -> list[Rule]:
        """Return the rules of one node. `rules`: the node, or a part of its `allOf`; `schema`: the node."""
        known = self._rules.get(id(rules))
        if known is None:
            declared = self._types.type_of(schema, root=root)
            contents = [each for each in rules.get(RULES) or () if isinstance(each, Mapping)]
            known = [compile_rule(content, declared, schema) for content in contents] if declared is not None else []
            self._rules[id(rules)] = known
        return known

    def is_exposed(self, schema: Schema, root: bool) -> bool:
        return self._types.type_of(schema, root=root) is not None

    def min_size(self, schema: Schema, root: bool) -> int:
        """Return the minimum size in JSON of a value of a node, in bytes."""
        declared = self._types.type_of(schema, root=root)
        return declared.min_size if declared is not None else 0

    def _has_rules(self, schema: Schema) -> bool:
        known = self._contains.get(id(schema))
        if known is None:
            children = [*(child for _, child, _ in _children(schema, schema)), *_all_of(schema)]
            known = self._contains[id(schema)] = bool(schema.get(RULES)) or any([self._has_rules(child) for child in children])
        return known

    def contains(self, schema: Schema) -> bool:
        """Whether a node or a node below has rules."""
        return self._has_rules(schema)


def _all_of(schema: Schema) -> list[Schema]:
    return [part for part in schema.get("allOf") or () if isinstance(part, Mapping)]


def _children(rules: Schema, schema: Schema) -> Iterator[tuple[tuple[str, str], Schema, Schema]]:
    """Yield the parts of a node that both `rules` and `schema` have: the keyword and the name, and the two nodes."""
    for keyword in ("additionalProperties", "items"):
        first, second = rules.get(keyword), schema.get(keyword)
        if isinstance(first, Mapping) and isinstance(second, Mapping):
            yield (keyword, ""), first, second
    properties = schema.get("properties") or {}
    for name, first in (rules.get("properties") or {}).items():
        second = properties.get(name)
        if isinstance(first, Mapping) and isinstance(second, Mapping):
            yield ("properties", name), first, second


class _Walk:
    """One evaluation of all rules on one object."""

    def __init__(self, rules: CompiledRules, work_limit: int) -> None:
        self._rules = rules
        self._budget = OBJECT_LIMIT
        self._meter = Meter(CALL_LIMIT, work_limit)
        self.violations: list[Violation] = []
        self.warnings: list[Violation] = []

    def visit(
        self,
        rules: Schema,
        schema: Schema,
        obj: Any,
        value: Any,
        old: Any,
        old_value: Any,
        path: str,
        ratchet: _Ratchet,
        *,
        root: bool,
    ) -> None:
        """Evaluate the rules of one node and of all below. `value` and `old_value` are converted; `obj` and `old` are not."""
        if obj is None or not self._rules.contains(rules):
            return
        if rules.get(RULES):
            self._evaluate_node(rules, schema, obj, value, old, old_value, path, ratchet, root)
        for part in _all_of(rules):
            self.visit(part, schema, obj, value, old, old_value, path, _Ratchet(None, ratchet.parent), root=root)
        if isinstance(obj, list):
            self._visit_list(rules, schema, obj, value, old, old_value, path, ratchet)
        elif isinstance(obj, dict):
            self._visit_object(rules, schema, obj, value, old, old_value, path, ratchet)

    def _visit_object(
        self, rules: Schema, schema: Schema, obj: Any, value: Any, old: Any, old_value: Any, path: str, ratchet: _Ratchet
    ) -> None:
        additional, properties = rules.get("additionalProperties"), rules.get("properties") or {}
        old = old if isinstance(old, dict) else {}
        old_value = old_value if isinstance(old_value, dict) else {}
        for name, item in obj.items():
            if isinstance(additional, Mapping):
                child_rules, child, place = additional, schema.get("additionalProperties"), f"{path}[{name}]"
            elif name in properties:
                child_rules, child = properties[name], (schema.get("properties") or {}).get(name)
                place = f"{path}.{name}" if path else name
            else:
                continue
            if not isinstance(child, Mapping) or not self._rules.contains(child_rules):
                continue
            embedded = bool(child.get("x-kubernetes-embedded-resource"))
            if not self._rules.is_exposed(child, embedded):
                continue
            if ratchet.parent is None and ratchet.current is not None and name in ("apiVersion", "kind"):
                below = _NO_RATCHET
            else:
                below = ratchet.child(old.get(name), item, known=name in old)
            self.visit(child_rules, child, item, value[name], old.get(name), old_value.get(name), place, below, root=embedded)

    def _visit_list(
        self, rules: Schema, schema: Schema, obj: Any, value: Any, old: Any, old_value: Any, path: str, ratchet: _Ratchet
    ) -> None:
        child_rules, child = rules.get("items"), schema.get("items")
        if not isinstance(child_rules, Mapping) or not isinstance(child, Mapping) or not self._rules.contains(child_rules):
            return
        embedded = bool(child.get("x-kubernetes-embedded-resource"))
        if not self._rules.is_exposed(child, embedded):
            return
        find = _correlate(schema, old, old_value)
        is_set = schema.get("x-kubernetes-list-type") == "set"
        for index, item in enumerate(obj):
            old_item, old_item_value = find(item)
            known = old_item is not None or (is_set and isinstance(old, list) and item in old)
            below = ratchet.child(item if is_set else old_item, item, known=known)
            self.visit(
                child_rules, child, item, value[index], old_item, old_item_value, f"{path}[{index}]", below, root=embedded
            )

    def _evaluate_node(
        self,
        rules: Schema,
        schema: Schema,
        obj: Any,
        value: Any,
        old: Any,
        old_value: Any,
        path: str,
        ratchet: _Ratchet,
        root: bool,
    ) -> None:
        shown_type = schema.get("type") or ""
        with_old = {"self": value, "oldSelf": old_value} if old is not None else {"self": value}
        with_optional = {"self": value, "oldSelf": Optional(old_value) if old is not None else ABSENT}
        for rule in self._rules.rules_of(rules, schema, root):
            if rule.error:
                self.violations.append(_invalid(path, shown_type, f"rule compile error: {rule.error}"))
                continue
            if rule.program is None or (rule.uses_old and old is None and not rule.optional_old):
                continue
            bindings = with_optional if rule.optional_old else with_old
            try:
                passed = self._run(rule.program, bindings, path, shown_type, rule)
            except EvaluationFailure as failure:
                self.violations.append(_invalid(path, shown_type, _describe_failure(str(failure), rule)))
                continue
            if passed is not True:
                self._refuse(rule, obj, shown_type, bindings, path, ratchet)

    def _run(self, program: Program, bindings: Mapping[str, Any], path: str, shown_type: str, rule: Rule) -> Any:
        """Evaluate with the rest of the budget. Raises EvaluationFailure, or _Exhausted after it has added a violation."""
        if self._budget <= 0:
            self._stop(path, shown_type, NO_BUDGET)
        meter = self._meter
        meter.cost = 0
        try:
            return program.evaluate(meter, bindings)
        except CostExceeded:
            if meter.cost > meter.cost_limit:
                detail = f"'{EXCEEDED}': no further validation rules will be run due to call cost exceeds limit for rule: {rule.shown}"
                self._stop(path, shown_type, detail)
            self._stop(path, shown_type, NO_BUDGET)
        finally:
            self._budget -= meter.cost
            if self._budget < 0:
                self._stop(path, shown_type, NO_BUDGET)

    def _stop(self, path: str, shown_type: str, detail: str) -> None:
        violation = _invalid(path, shown_type, detail)
        if violation not in self.violations[-1:]:
            self.violations.append(violation)
        raise _Exhausted

    def _refuse(self, rule: Rule, obj: Any, shown_type: str, bindings: Mapping[str, Any], path: str, ratchet: _Ratchet) -> None:
        detail = ""
        if rule.message_program is not None:
            try:
                detail = _clean_message(self._run(rule.message_program, bindings, path, shown_type, rule))
            except EvaluationFailure:
                detail = ""
        detail = detail or rule.message.strip() or f"failed rule: {rule.shown}"
        place = path
        if rule.field_path:
            place = f"{path}.{rule.field_path}" if path else rule.field_path
        shown = "" if shown_type in ("object", "array") else _format_value(obj)
        message = _describe_refusal(rule.reason, shown, detail)
        found = Violation(place or "<nil>", message)
        if not rule.uses_old and ratchet.is_old():
            self.warnings.append(found)
        else:
            self.violations.append(found)


def _correlate(schema: Schema, old: Any, old_value: Any) -> Callable[[Any], tuple[Any, Any]]:
    """Return what finds the old counterpart of an item, and its converted value. Only lists of type map have counterparts."""
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    if (
        schema.get("x-kubernetes-list-type") != "map"
        or not isinstance(old, list)
        or not isinstance(old_value, list)
        or not keys
    ):
        return lambda item: (None, None)

    def key_of(item: Any) -> str:
        return json.dumps([item.get(key) for key in keys]) if isinstance(item, dict) else ""

    by_key = {key_of(item): (item, converted) for item, converted in zip(old, old_value, strict=True) if isinstance(item, dict)}
    return lambda item: by_key.get(key_of(item), (None, None))


def _describe_failure(failure: str, rule: Rule) -> str:
    if failure.startswith("no such overload"):
        return f"'{failure}': call arguments did not match a supported operator, function or macro signature for rule: {rule.shown}"
    return f"{failure} evaluating rule: {rule.shown}"


def _describe_refusal(reason: str | None, shown: str, detail: str) -> str:
    if reason == "FieldValueForbidden":
        return f"Forbidden: {detail}"
    if reason == "FieldValueRequired":
        return f"Required value: {detail}"
    if reason == "FieldValueDuplicate":
        return f"Duplicate value: {shown}" if shown else "Duplicate value"
    return f"Invalid value: {shown}: {detail}" if shown else f"Invalid value: {detail}"


def _clean_message(message: Any) -> str:
    """Return the message that an expression made, or "" if it is not usable."""
    if not isinstance(message, str):
        return ""
    message = message.strip()
    return "" if "\n" in message or len(message.encode(errors="replace")) > MAX_MESSAGE else message


def _invalid(path: str, shown_type: str | None, detail: str) -> Violation:
    return Violation(path or "<nil>", f'Invalid value: "{shown_type or ""}": {detail}')


def _format_value(value: Any) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text


def compile_rules(schema: Mapping[str, Any], *, resource_root: bool = True) -> CompiledRules:
    """Return the rules of an `openAPIV3Schema`. `resource_root`: `apiVersion`, `kind` and `metadata` are fields of `self`."""
    return CompiledRules(schema, resource_root)


# Paths


_PATH_TOKEN = re.compile(r"'(?:[^'\\]|\\.)*'|[.\[\]]|[^.\[\]']+|'", re.DOTALL)
_PATH_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "'": "'", "\\": "\\"}


def field_path(path: str, schema: Schema) -> str | None:
    """Return the field that the `fieldPath` of a rule names, e.g. ".a['b']" -> "a.b"; None if the schema has no such field."""
    result, tokens, at = "", _PATH_TOKEN.findall(path), 0
    node: Any = schema
    while at < len(tokens):
        if tokens[at] == "." and at + 1 < len(tokens):
            name, at = tokens[at + 1], at + 2
        elif (
            tokens[at : at + 1] == ["["]
            and tokens[at + 2 : at + 3] == ["]"]
            and re.fullmatch(r"'.*'", tokens[at + 1], re.DOTALL)
        ):
            if any(escape not in _PATH_ESCAPES for escape in re.findall(r"\\(.)", tokens[at + 1][1:-1])):
                return None
            name, at = re.sub(r"\\(.)", lambda match: _PATH_ESCAPES[match[1]], tokens[at + 1][1:-1]), at + 3
        else:
            return None
        properties, additional = node.get("properties"), node.get("additionalProperties")
        if properties:
            if name not in properties:
                return None
            node, result = properties[name], f"{result}.{name}" if result else name
        elif isinstance(additional, Mapping):
            node, result = additional, f"{result}[{name}]"
        else:
            return None
    return result


# Checks of a definition


class _Cost(NamedTuple):
    path: str
    cost: int


class _Definition:
    """The check of all rules of one schema."""

    def __init__(self, rules: CompiledRules) -> None:
        self.rules = rules
        self.violations: list[Violation] = []
        self.total = 0
        self.expensive: list[_Cost] = []
        self.text = 0

    def observe_cost(self, path: str, cost: int) -> None:
        self.total = min(costs.MAX, self.total + cost)
        if cost >= DEFINITION_LIMIT // 100:
            self.expensive = sorted([*self.expensive, _Cost(path, cost)], key=lambda each: -each.cost)[:MAX_EXPENSIVE]

    def visit(
        self, rules: Schema, schema: Schema, path: str, cardinality: int | None, uncorrelatable: str, *, root: bool
    ) -> None:
        """`cardinality`: how often an object has this node at most, by the schema; None if the schema does not limit it."""
        if not self.rules.contains(rules):
            return
        below = _multiply(cardinality, _max_elements(schema))
        for (keyword, name), child_rules, child in _children(rules, schema):
            place = f"{path}.{keyword}[{name}]" if name else f"{path}.{keyword}"
            atomic = keyword == "items" and schema.get("x-kubernetes-list-type") != "map"
            embedded = bool(child.get("x-kubernetes-embedded-resource"))
            self.visit(child_rules, child, place, below, uncorrelatable or (path if atomic else ""), root=embedded)
        for index, part in enumerate(_all_of(rules)):
            self.visit(part, schema, f"{path}.allOf[{index}]", cardinality, uncorrelatable, root=root)
        if rules.get(RULES):
            self._check_node(rules, schema, path, cardinality, uncorrelatable, root)

    def _check_node(
        self, rules: Schema, schema: Schema, path: str, cardinality: int | None, uncorrelatable: str, root: bool
    ) -> None:
        contents = [each for each in rules[RULES] if isinstance(each, Mapping)]
        shapes = [
            found
            for index, content in enumerate(contents)
            for found in _check_shape(content, schema, f"{path}.{RULES}[{index}]")
        ]
        self.violations.extend(shapes)
        if shapes:
            return
        self.text += sum(len(str(content.get("rule"))) + len(str(content.get("messageExpression", ""))) for content in contents)
        if self.text > MAX_TEXT:
            self.violations.append(
                Violation(path, f"Forbidden: the rules of a definition may have at most {MAX_TEXT:,} characters")
            )
            raise _Exhausted
        if not self.rules.is_exposed(schema, root):
            detail = "internal error: failed to construct type information for x-kubernetes-validations rules: "
            detail += "unable to convert structural schema to CEL declarations"
            self.violations.append(Violation(f"{path}.{RULES}", f"Internal error: {detail}"))
            return
        min_size = self.rules.min_size(schema, root)
        times = cardinality if cardinality is not None else MAX_REQUEST // (min_size + 1)
        for index, rule in enumerate(self.rules.rules_of(rules, schema, root)):
            self._check_rule(rule, contents[index], f"{path}.{RULES}[{index}]", times, uncorrelatable)

    def _check_rule(self, rule: Rule, content: Mapping[str, Any], path: str, times: int, uncorrelatable: str) -> None:
        cost = min(costs.MAX, rule.cost * times)
        if cost > EXPRESSION_LIMIT:
            self._forbid(f"{path}.rule", _describe_cost("estimated rule cost", cost, EXPRESSION_LIMIT))
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
                self._forbid(f"{path}.messageExpression", detail)
            self.observe_cost(f"{path}.messageExpression", rule.message_cost)
        if rule.uses_old:
            if uncorrelatable:
                detail = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {uncorrelatable}"
                self.violations.append(Violation(f"{path}.rule", f"Invalid value: {_quote(rule.text)}: {detail}"))
        elif content.get("optionalOldSelf") is not None:
            shown = "true" if content["optionalOldSelf"] else "false"
            detail = "may not be set if oldSelf is not used in rule"
            self.violations.append(Violation(f"{path}.optionalOldSelf", f"Invalid value: {shown}: {detail}"))

    def _forbid(self, path: str, detail: str) -> None:
        self.violations.append(Violation(path, f"Forbidden: {detail}"))

    def finish(self, path: str) -> list[Violation]:
        if self.total > DEFINITION_LIMIT:
            for each in self.expensive:
                self._forbid(
                    each.path, "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
                )
            name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
            self._forbid(path, _describe_cost(name, self.total, DEFINITION_LIMIT))
        return self.violations


def check_rules(schema: Mapping[str, Any], path: str, rules: CompiledRules | None = None) -> list[Violation]:
    """Compile all rules of an `openAPIV3Schema` and estimate their cost. `path`: "spec.validation.openAPIV3Schema". Never raises.

    It takes about 0.2 ms for each rule: call it in a thread. `rules`: those of this schema, which then are compiled.
    """
    definition = _Definition(rules if rules is not None else compile_rules(schema))
    try:
        definition.visit(schema, schema, path, 1, "", root=True)
    except _Exhausted:
        return definition.violations
    except RecursionError:
        return [Violation(path, "Forbidden: the schema is nested too deeply for its rules")]
    return definition.finish(path)


def _check_shape(content: Mapping[str, Any], schema: Schema, path: str) -> list[Violation]:
    """Check the fields of a rule without compiling it."""
    found = []
    rule, message = str(content.get("rule") or ""), str(content.get("message") or "")
    expression, place = str(content.get("messageExpression") or ""), str(content.get("fieldPath") or "")
    if not rule.strip():
        found.append(Violation(f"{path}.rule", "Required value: rule is not specified"))
    elif message and not message.strip():
        found.append(Violation(f"{path}.message", f"Invalid value: {_quote(message)}: message must be non-empty if specified"))
    elif _NEWLINES.search(message.strip()):
        found.append(Violation(f"{path}.message", f"Invalid value: {_quote(message)}: message must not contain line breaks"))
    elif _NEWLINES.search(rule.strip()) and not message.strip():
        found.append(Violation(f"{path}.message", "Required value: message must be specified if rule contains line breaks"))
    if expression and not expression.strip():
        found.append(Violation(f"{path}.messageExpression", "Required value: messageExpression must be non-empty if specified"))
    reason = content.get("reason")
    if reason is not None and reason not in REASONS:
        supported = ", ".join(map(_quote, REASONS))
        found.append(Violation(f"{path}.reason", f"Unsupported value: {_quote(str(reason))}: supported values: {supported}"))
    for wrong, detail in (
        (bool(place) and not place.strip(), "fieldPath must be non-empty if specified"),
        (bool(_NEWLINES.search(place)), "fieldPath must not contain line breaks"),
        (bool(place) and field_path(place, schema) is None, "fieldPath must be a valid path"),
    ):
        if wrong:
            found.append(Violation(f"{path}.fieldPath", f"Invalid value: {_quote(place)}: {detail}"))
    return found


def _max_elements(schema: Schema) -> int | None:
    kind = schema.get("type")
    if kind == "object" and schema.get("additionalProperties") is not None:
        limit = schema.get("maxProperties")
    elif kind == "array":
        limit = schema.get("maxItems")
    else:
        return 1
    return None if limit is None else max(0, limit)


def _multiply(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else min(costs.MAX, a * b)


def _describe_cost(name: str, cost: int, limit: int) -> str:
    factor = cost / limit
    shown = "more than 100x" if factor > 100 else f"{factor:f}x" if factor < 1.5 else f"{factor:.1f}x"
    return f"{name} exceeds budget by factor of {shown} {_HINT}"


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


_HTML = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def _format_rule(content: Mapping[str, Any]) -> str:
    """Return a rule as Kubernetes shows it: the JSON of its internal type."""
    shown = {
        "Rule": content.get("rule") or "", "Message": content.get("message") or "",
        "MessageExpression": content.get("messageExpression") or "", "Reason": content.get("reason"),
        "FieldPath": content.get("fieldPath") or "", "OptionalOldSelf": content.get("optionalOldSelf"),
    }  # fmt: skip
    return json.dumps(shown, ensure_ascii=False, separators=(",", ":")).translate(_HTML)
