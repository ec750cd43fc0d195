"""The rules of a structural schema (`x-kubernetes-validations`), and their evaluation on objects.

`pinnace.cel.rule_checks` checks them when they are defined.

Source: staging/src/k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel and pkg/apis/apiextensions/validation of Kubernetes
1.36
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, NoReturn, Protocol

from pinnace.api.status import Violation
from pinnace.cel import costs, libraries, syntax
from pinnace.cel.checker import check
from pinnace.cel.evaluation import Convert, Program
from pinnace.cel.meter import CALL_LIMIT, EXCEEDED, OBJECT_LIMIT, WORK_LIMIT, CostExceeded, Meter
from pinnace.cel.schemas import Converter, Schema, SchemaTypes
from pinnace.cel.syntax import CompileError, Ident, Node
from pinnace.cel.types import ABSENT, EvaluationFailure, Optional, Type, optional_of

MAX_MESSAGE = 5 * 1024
"""Maximum length of the result of a messageExpression in bytes."""
RULES = "x-kubernetes-validations"
NO_BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"
_PATH_TOKEN = re.compile(r"'(?:[^'\\]|\\.)*'|[.\[\]]|[^.\[\]']+|'", re.DOTALL)
_PATH_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "'": "'", "\\": "\\"}


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


class Exhausted(Exception):
    """The budget of the object is spent."""


def compile_rule(content: Mapping[str, Any], declared: Type, schema: Schema, convert: Convert | None = None) -> Rule:
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
        rule = rule._replace(
            program=Program(node, names, convert), cost=costs.estimate(node, declared), uses_old=_reads_old(node)
        )
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
    return rule._replace(message_program=Program(node, names, convert), message_cost=costs.estimate(node, declared))


def _compile(text: str, variables: Mapping[str, Type]) -> tuple[Node, Any]:
    libraries.load_libraries()
    try:
        node, source = syntax.parse(text)
        check(node, source, variables)
    except RecursionError:
        raise CompileError("ERROR: <input>:-1:0: expression recursion limit exceeded") from None
    return node, source


def _reads_old(node: Node) -> bool:
    return any(isinstance(each, Ident) and each.name == "oldSelf" for each in _walk_nodes(node))


def _walk_nodes(node: Node) -> Iterator[Node]:
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


class Correlation(NamedTuple):
    """A part of the new object and its counterpart in the old one."""

    old: Any
    new: Any

    def unchanged(self) -> bool:
        return bool(self.old == self.new)


class Ratchet(NamedTuple):
    """Whether a violation is older than the update: the part that has it, or the nearest part that has a counterpart, is
    unchanged."""

    current: Correlation | None
    parent: Correlation | None

    def is_old(self) -> bool:
        nearest = self.current if self.current is not None else self.parent
        return nearest is not None and nearest.unchanged()

    def child(self, old: Any, new: Any, *, known: bool) -> "Ratchet":
        if self.current is None:
            return self
        return Ratchet(Correlation(old, new) if known else None, self.current)


_NO_RATCHET = Ratchet(None, None)


class RuleNode:
    """A node of a schema that has rules, or that has nodes with rules below it. Its rules compile when they are first read.

    `items`, `values`: the node of the items of a list, of the values of a map. `properties`: the nodes of fields. `declared`:
    the type of `self`; None if no rule may read such a value.
    """

    def __init__(self, tree: "CompiledRules", schema: Schema, root: bool) -> None:
        self.schema = schema
        self.contents = [content for content in schema.get(RULES) or () if isinstance(content, Mapping)]
        self.declared = tree.types.type_of(schema, root=root)
        self.properties: dict[str, RuleNode] = {}
        self.items: RuleNode | None = None
        self.values: RuleNode | None = None
        for keyword, name, child in _child_schemas(schema):
            if not tree.contains(child):
                continue
            node = tree.node(child, root=_is_embedded(child))
            if keyword == "properties":
                self.properties[name] = node
            elif keyword == "items":
                self.items = node
            else:
                self.values = node
        self._convert = tree.converter.convert
        self._rules: list[Rule] | None = None

    @property
    def rules(self) -> list[Rule]:
        if self._rules is None:
            declared, schema, convert = self.declared, self.schema, self._convert
            self._rules = (
                [compile_rule(each, declared, schema, convert) for each in self.contents] if declared is not None else []
            )
        return self._rules

    def descendants(self) -> Iterator["RuleNode"]:
        """Yield the node and all below."""
        yield self
        for node in (*self.properties.values(), self.items, self.values):
            if node is not None:
                yield from node.descendants()


class CompiledRules:
    """The rules of one version of a custom resource. The rules of a part of the schema compile when an object has that part."""

    def __init__(self, schema: Schema, resource_root: bool) -> None:
        self._contains: dict[int, bool] = {}
        self.converter = Converter()
        self.types = SchemaTypes(self.converter)
        self._nodes: dict[tuple[int, bool], RuleNode] = {}
        self.root = self.node(schema, root=resource_root) if self.contains(schema) else None

    @property
    def has_rules(self) -> bool:
        return self.root is not None

    def validate(self, obj: Any, old: Any = None, path: str = "", *, work_limit: int = WORK_LIMIT) -> Evaluation:
        """Evaluate the rules at every depth of `obj`, which has defaults and is valid by its schema without the rules.

        `old`: the object before an update, or None. Never raises. The whole call is limited in its cost (`pinnace.cel.meter`),
        and ends with a violation if it exceeds the limit.
        """
        if self.root is None:
            return Evaluation([], [])
        return self.evaluate(self.root, obj, old, path, Meter(CALL_LIMIT, work_limit))

    def evaluate(self, node: RuleNode, obj: Any, old: Any, path: str, meter: Meter) -> Evaluation:
        """Evaluate the rules of a part of the schema. Several evaluations may share the work of a meter."""
        walk = _Walk(self.converter, meter)
        try:
            walk.visit(node, obj, old, path, Ratchet(Correlation(old, obj), None) if old is not None else _NO_RATCHET)
        except Exhausted:
            pass
        except RecursionError:
            walk.violations.append(_invalid_violation(path, "object", "the object is nested too deeply for its rules"))
        return Evaluation(walk.violations, walk.warnings)

    def node(self, schema: Schema, *, root: bool) -> RuleNode:
        """Return the node of a part of the schema. The caller keeps the part."""
        known = self._nodes.get((id(schema), root))
        if known is None:
            known = self._nodes[id(schema), root] = RuleNode(self, schema, root)
        return known

    def prepare(self) -> None:
        """Compile all rules now, 0.2 ms for each one. Call it in a thread if there may be many."""
        if self.root is not None:
            for node in self.root.descendants():
                _ = node.rules

    def contains(self, schema: Schema) -> bool:
        """Whether a node or a node below has rules."""
        known = self._contains.get(id(schema))
        if known is None:
            found = bool(schema.get(RULES)) or any(self.contains(child) for _, _, child in _child_schemas(schema))
            known = self._contains[id(schema)] = found
        return known


def compile_rules(schema: Mapping[str, Any], *, resource_root: bool = True) -> CompiledRules:
    """Return the rules of an `openAPIV3Schema`. `resource_root`: `apiVersion`, `kind` and `metadata` are fields of `self`."""
    return CompiledRules(schema, resource_root)


class _Part(Protocol):
    @property
    def props(self) -> Mapping[str, Any]: ...


class DefaultRules:
    """Evaluates the rules of the parts of one schema on the defaults in them, as pinnace.apiextensions calls it.

    Use one object for each check of a definition: all evaluations share one budget, and each rule compiles once.
    """

    def __init__(self, work_limit: int = WORK_LIMIT) -> None:
        self._rules = CompiledRules({}, False)
        self._meter = Meter(CALL_LIMIT, work_limit)

    def __call__(self, part: _Part, value: Any, old: Any, path: str) -> list[Violation]:
        """Return the violations of a default. `part`: the part of the schema; its JSON may not change."""
        if not self._rules.contains(part.props):
            return []
        node = self._rules.node(part.props, root=_is_embedded(part.props))
        return self._rules.evaluate(node, value, old, path, self._meter).violations


def _is_embedded(schema: Schema) -> bool:
    return bool(schema.get("x-kubernetes-embedded-resource"))


def _child_schemas(schema: Schema) -> Iterator[tuple[str, str, Schema]]:
    """Yield the nodes below: the keyword, the name of a field, and the node. Kubernetes permits no rules in `allOf`."""
    for keyword in ("additionalProperties", "items"):
        child = schema.get(keyword)
        if isinstance(child, Mapping):
            yield keyword, "", child
    for name, child in (schema.get("properties") or {}).items():
        if isinstance(child, Mapping):
            yield "properties", name, child


class _Walk:
    """One evaluation of all rules on one object."""

    def __init__(self, converter: Converter, meter: Meter) -> None:
        self._convert = converter.convert
        self._budget = OBJECT_LIMIT
        self._meter = meter
        self.violations: list[Violation] = []
        self.warnings: list[Violation] = []

    def visit(self, node: RuleNode, obj: Any, old: Any, path: str, ratchet: Ratchet) -> None:
        """Evaluate the rules of one node and of all below."""
        if obj is None or node.declared is None:
            return
        if node.contents:
            self._evaluate_node(node, obj, old, path, ratchet)
        if isinstance(obj, list):
            if node.items is not None:
                self._visit_list(node.items, node.schema, obj, old, path, ratchet)
        elif isinstance(obj, dict):
            old = old if isinstance(old, dict) else {}
            if node.values is not None:
                for name, item in obj.items():
                    self.visit(
                        node.values,
                        item,
                        old.get(name),
                        f"{path}[{name}]",
                        ratchet.child(old.get(name), item, known=name in old),
                    )
            for name, child in node.properties.items():
                if name in obj:
                    below = ratchet.child(old.get(name), obj[name], known=name in old)
                    if name in ("apiVersion", "kind") and ratchet.parent is None:
                        below = _NO_RATCHET
                    self.visit(child, obj[name], old.get(name), f"{path}.{name}" if path else name, below)

    def _visit_list(self, items: RuleNode, schema: Schema, obj: list[Any], old: Any, path: str, ratchet: Ratchet) -> None:
        find = _old_item_finder(schema, old)
        is_set = schema.get("x-kubernetes-list-type") == "set" and isinstance(old, list)
        for index, item in enumerate(obj):
            old_item = find(item)
            below = ratchet
            if ratchet.current is not None:
                known = old_item is not None or (is_set and item in old)
                below = ratchet.child(item if is_set else old_item, item, known=known)
            self.visit(items, item, old_item, f"{path}[{index}]", below)

    def _evaluate_node(self, node: RuleNode, obj: Any, old: Any, path: str, ratchet: Ratchet) -> None:
        shown_type = node.schema.get("type") or ""
        bindings = {"self": obj, "oldSelf": old} if old is not None else {"self": obj}
        for rule in node.rules:
            if rule.error:
                self.violations.append(_invalid_violation(path, shown_type, f"rule compile error: {rule.error}"))
                continue
            if rule.program is None or (rule.uses_old and old is None and not rule.optional_old):
                continue
            try:
                found = self._bind_optional(node, obj, old) if rule.optional_old else bindings
                passed = self._run(rule.program, found, path, shown_type, rule)
            except EvaluationFailure as failure:
                self.violations.append(_invalid_violation(path, shown_type, _describe_failure(str(failure), rule)))
                continue
            if passed is not True:
                self._refuse(rule, obj, shown_type, found, path, ratchet)

    def _bind_optional(self, node: RuleNode, obj: Any, old: Any) -> dict[str, Any]:
        if old is None:
            return {"self": obj, "oldSelf": ABSENT}
        return {"self": obj, "oldSelf": Optional(self._convert(self._meter, old, node.schema))}

    def _run(self, program: Program, bindings: Mapping[str, Any], path: str, shown_type: str, rule: Rule) -> Any:
        """Evaluate with the rest of the budget. Raises EvaluationFailure, or Exhausted after it has added a violation."""
        if self._budget <= 0:
            self._stop(path, shown_type, NO_BUDGET)
        meter = self._meter
        meter.cost = 0
        try:
            return program.evaluate(meter, bindings)
        except CostExceeded:
            if meter.cost <= meter.cost_limit:
                self._stop(path, shown_type, NO_BUDGET)
            reason = "no further validation rules will be run due to call cost exceeds limit for rule"
            self._stop(path, shown_type, f"'{EXCEEDED}': {reason}: {rule.shown}")
        finally:
            self._budget -= meter.cost

    def _stop(self, path: str, shown_type: str, detail: str) -> NoReturn:
        self.violations.append(_invalid_violation(path, shown_type, detail))
        raise Exhausted

    def _refuse(self, rule: Rule, obj: Any, shown_type: str, bindings: Mapping[str, Any], path: str, ratchet: Ratchet) -> None:
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


def _old_item_finder(schema: Schema, old: Any) -> Callable[[Any], Any]:
    """Return a function that finds the old counterpart of an item. Only lists of type map have counterparts."""
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    if schema.get("x-kubernetes-list-type") != "map" or not isinstance(old, list) or not keys:
        return lambda item: None

    def key_of(item: Any) -> str:
        return json.dumps([item.get(key) for key in keys]) if isinstance(item, dict) else ""

    by_key = {key_of(item): item for item in old if isinstance(item, dict)}
    return lambda item: by_key.get(key_of(item))


def _describe_failure(failure: str, rule: Rule) -> str:
    if failure.startswith("no such overload"):
        reason = "call arguments did not match a supported operator, function or macro signature for rule"
        return f"'{failure}': {reason}: {rule.shown}"
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


def _invalid_violation(path: str, shown_type: str | None, detail: str) -> Violation:
    return Violation(path or "<nil>", f'Invalid value: "{shown_type or ""}": {detail}')


def _format_value(value: Any) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# Paths


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
