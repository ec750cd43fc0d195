"""Check the types of an expression, with cel-go's rules and messages.

The checker sets `type` of each node and the possible `overloads` of each call. It is linear in the size of the expression.

Source: https://github.com/google/cel-go/blob/master/checker/checker.go
"""

from collections.abc import Callable, Mapping
from typing import Any

from pinnace.cel import syntax, types
from pinnace.cel.conversions import compile_pattern, parse_duration, parse_timestamp
from pinnace.cel.functions import FUNCTIONS, Overload
from pinnace.cel.syntax import (
    Call,
    CompileError,
    Comprehension,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Node,
    Select,
    Source,
    StructNode,
)
from pinnace.cel.types import DYN, ERROR, EvaluationFailure, Type, is_optional, list_of, map_of, optional_of, type_of

MAX_TYPE_SIZE = 200
"""Maximum number of types in a type: 3 in map(string, int)."""
MAX_STEPS = 20_000
"""Maximum number of comparisons of types, in addition to 100 per part of the expression."""
ConstructedType = Callable[[str], Type | None]
"""Finds the type of a literal like `Object.spec{...}`; it has fields, or None for any."""

_LITERALS: dict[type, Type] = {
    bool: types.BOOL, int: types.INT, types.Uint: types.UINT, float: types.DOUBLE, str: types.STRING, bytes: types.BYTES,
    type(None): types.NULL,
}  # fmt: skip
_A, _B = Type("param", "A"), Type("param", "B")
TYPE_NAMES: dict[str, Type] = {
    "bool": types.BOOL, "bytes": types.BYTES, "double": types.DOUBLE, "int": types.INT, "uint": types.UINT,
    "string": types.STRING,
    "null_type": types.NULL, "type": types.TYPE, "list": list_of(DYN), "map": map_of(DYN, DYN),
    "optional_type": optional_of(DYN),
    "google.protobuf.Timestamp": types.TIMESTAMP, "google.protobuf.Duration": types.DURATION,
}  # fmt: skip
"""Identifiers that are types. Libraries add theirs."""
_CHECKED_ARGUMENTS: dict[str, Callable[[str], Any]] = {
    "duration": parse_duration, "timestamp": parse_timestamp, "matches": compile_pattern,
}  # fmt: skip
"""Functions whose last argument is checked if it is a literal."""
_NULLABLE = frozenset({"opaque", "struct", "duration", "timestamp"})


def check(node: Node, source: Source, variables: Mapping[str, Type], constructed: ConstructedType | None = None) -> None:
    """Set the types in a tree. Raises CompileError, which lists all errors."""
    checker = _Checker(source, variables, constructed)
    try:
        checker.check(node)
        if not checker.errors:
            checker.finish()
    except _TooComplex:
        raise CompileError(source.format_error(node.id, "types of the expression are too large")) from None
    if checker.errors:
        ordered = sorted(checker.errors, key=lambda error: source.position(error[0]))
        raise CompileError("\n".join(source.format_error(node_id, message) for node_id, message in ordered))


class _TooComplex(Exception):
    """Types of an expression are too large. They may double with each macro."""


class _Checker:
    def __init__(self, source: Source, variables: Mapping[str, Type], constructed: ConstructedType | None) -> None:
        self.errors: list[tuple[int, str]] = []
        self._source = source
        self._variables = variables
        self._constructed = constructed
        self._scopes: list[dict[str, Type]] = []
        self._bound: dict[str, Type] = {}
        self._trail: list[tuple[str, Type | None]] = []
        self._variable_count = 0
        self._nodes: list[Node] = []
        self._literals: list[ListNode | MapNode] = []
        self._format_depth = 0
        self._steps = 0
        self._checks: dict[type, Callable[[Any], Type]] = {
            Literal: self._check_literal, Ident: self._check_ident, Select: self._check_select,
            Call: self._check_function_call, ListNode: self._check_list, MapNode: self._check_map,
            StructNode: self._check_struct, Comprehension: self._check_comprehension,
        }  # fmt: skip

    def check(self, node: Node) -> Type:
        found = node.type = self._checks[type(node)](node)
        self._nodes.append(node)
        if found.size > MAX_TYPE_SIZE:
            raise _TooComplex
        return node.type

    def finish(self) -> None:
        """Replace type variables by what they are bound to, or by dyn."""
        for node in self._nodes:
            node.type = self._substitute(node.type, to_dyn=True)
        for literal in self._literals:
            self._check_homogeneous(literal)

    def _check_homogeneous(self, node: ListNode | MapNode) -> None:
        """The items of a literal have one type, except in the arguments of `format`."""
        if isinstance(node, ListNode):
            columns = [[(element, index in node.optional) for index, element in enumerate(node.elements)]]
        else:
            columns = [[(key, False) for key, _, _ in node.entries], [(value, optional) for _, value, optional in node.entries]]
        for column in columns:
            shown = [each.type.params[0] if optional and each.type.params else each.type for each, optional in column]
            other = next((index for index, each in enumerate(shown) if not each.same(shown[0])), None)
            if other is not None:
                self._add_error(column[other][0].id, f"expected type '{shown[0]}' but found '{shown[other]}'")

    def _add_error(self, node_id: int, message: str) -> Type:
        self.errors.append((node_id, message))
        return ERROR

    # Nodes

    def _check_literal(self, node: Literal) -> Type:
        return _LITERALS[type(node.value)]

    def _find_type(self, name: str) -> Type | None:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        if name in self._variables:
            return self._variables[name]
        return type_of(TYPE_NAMES[name]) if name in TYPE_NAMES else None

    def _check_ident(self, node: Ident) -> Type:
        node.name = node.name.removeprefix(".")
        found = self._find_type(node.name)
        return found or self._add_error(node.id, f"undeclared reference to '{node.name}' (in container '')")

    def _check_select(self, node: Select) -> Type:
        name = None if node.test else syntax.qualified_name(node)
        if name is not None and (found := self._variables.get(name) or TYPE_NAMES.get(name)) is not None:
            part = node.operand
            while isinstance(part, Select):
                part.type, part = DYN, part.operand
            part.type = DYN
            return found if name in self._variables else type_of(found)
        result = self._check_field(node.id, node.operand, node.field, optional=False)
        return types.BOOL if node.test else self._substitute(result)

    def _check_field(self, node_id: int, operand: Node, field: str, *, optional: bool) -> Type:
        operand_type = self._substitute(self.check(operand))
        target = operand_type.params[0] if is_optional(operand_type) else operand_type
        if target.kind == "map":
            result = target.params[1]
        elif target.kind == "struct":
            if target.fields is None:
                result = DYN
            elif field in target.fields:
                result = target.fields[field].type
            else:
                result = self._add_error(node_id, f"undefined field '{field}'")
        elif target.kind == "param":
            self._is_assignable(DYN, target)
            result = DYN
        else:
            if target.kind not in ("dyn", "!error!"):
                self._add_error(node_id, f"type '{target}' does not support field selection")
            result = DYN
        return optional_of(result) if optional or is_optional(operand_type) else result

    def _check_function_call(self, node: Call) -> Type:
        if node.function == "_?._":
            field = node.args[1]
            if not (isinstance(field, Literal) and isinstance(field.value, str)):
                return self._add_error(field.id, "unsupported optional field selection")
            field.type = types.STRING
            return self._substitute(self._check_field(node.id, node.args[0], field.value, optional=True))
        self._format_depth += node.function == "format"
        try:
            return self._check_call(node)
        finally:
            self._format_depth -= node.function == "format"

    def _check_call(self, node: Call) -> Type:
        arguments = [self.check(arg) for arg in node.args]
        if node.target is not None:
            prefix = syntax.qualified_name(node.target)
            if prefix is not None and (name := f"{prefix.removeprefix('.')}.{node.function}") in FUNCTIONS:
                node.target, node.function = None, name
            else:
                arguments.insert(0, self.check(node.target))
        node.function = node.function.removeprefix(".")
        declared = FUNCTIONS.get(node.function)
        if declared is None:
            return self._add_error(node.id, f"undeclared reference to '{node.function}' (in container '')")
        if node.function in ("_&&_", "_||_"):
            return self._check_logical(node, declared, arguments)
        return self._resolve(node, declared, arguments)

    def _check_logical(self, node: Call, declared: list[Overload], arguments: list[Type]) -> Type:
        node.overloads = tuple(declared)
        failed = False
        for argument, found in zip(node.args, arguments, strict=True):
            if not self._is_assignable(found, types.BOOL):
                self._add_error(argument.id, f"expected type 'bool' but found '{self._substitute(found)}'")
                failed = True
        return ERROR if failed else types.BOOL

    def _resolve(self, node: Call, declared: list[Overload], arguments: list[Type]) -> Type:
        member = node.target is not None
        result: Type | None = None
        matching = []
        for overload in declared:
            if overload.member != member or len(overload.params) != len(arguments):
                continue
            params, returned = overload.params, overload.result
            if overload.variables:
                fresh = {name: self._new_variable() for name in overload.variables}
                params = tuple(_rename(param, fresh) for param in params)
                returned = _rename(returned, fresh)
            if not self._are_assignable(arguments, params):
                continue
            matching.append(overload)
            found = self._substitute(returned)
            if result is None:
                result = found
            elif result.kind != "dyn" and not found.same(result):
                result = DYN
        if result is None:
            shown = [str(self._substitute(argument, to_dyn=True)) for argument in arguments]
            signature = f"{shown[0]}.({', '.join(shown[1:])})" if member else f"({', '.join(shown)})"
            return self._add_error(node.id, f"found no matching overload for '{node.function}' applied to '{signature}'")
        node.overloads = tuple(matching)
        if node.function in _CHECKED_ARGUMENTS:
            self._check_argument(node)
        return result

    def _check_argument(self, node: Call) -> None:
        parse = _CHECKED_ARGUMENTS[node.function]
        argument = node.args[-1]
        if isinstance(argument, Literal) and isinstance(argument.value, str):
            try:
                parse(argument.value)
            except EvaluationFailure:
                self._add_error(argument.id, f"invalid {node.function} argument")

    def _check_list(self, node: ListNode) -> Type:
        joined: Type | None = None
        for index, element in enumerate(node.elements):
            found = self._unwrap(element, self.check(element), index in node.optional)
            joined = self._join(joined, found)
        if not self._format_depth:
            self._literals.append(node)
        return list_of(joined or self._new_variable())

    def _unwrap(self, node: Node, found: Type, optional: bool) -> Type:
        if not optional:
            return found
        if is_optional(found):
            return found.params[0]
        if found.kind != "dyn":
            self._add_error(node.id, f"expected type 'optional_type({found})' but found '{found}'")
        return found

    def _check_map(self, node: MapNode) -> Type:
        key_type: Type | None = None
        value_type: Type | None = None
        for key, value, optional in node.entries:
            key_type = self._join(key_type, self.check(key))
            value_type = self._join(value_type, self._unwrap(value, self.check(value), optional))
        if not self._format_depth:
            self._literals.append(node)
        return map_of(key_type or self._new_variable(), value_type or self._new_variable())

    def _check_struct(self, node: StructNode) -> Type:
        node.name = node.name.removeprefix(".")
        found = self._constructed(node.name) if self._constructed is not None else None
        if found is None:
            return self._add_error(node.id, f"undeclared reference to '{node.name}' (in container '')")
        for field_id, name, value, optional in node.fields:
            value_type = self._unwrap(value, self.check(value), optional)
            if found.fields is None:
                continue
            if name not in found.fields:
                self._add_error(field_id, f"undefined field '{name}'")
            elif not self._is_assignable(found.fields[name].type, value_type):
                declared = found.fields[name].type
                self._add_error(
                    field_id, f"expected type of field '{name}' is '{declared}' but provided type is '{value_type}'"
                )
        return found

    def _check_comprehension(self, node: Comprehension) -> Type:
        range_type = self._substitute(self.check(node.range))
        init = self.check(node.init)
        self._scopes.append({node.accumulator: init})
        if range_type.kind == "list":
            first, second = (types.INT, range_type.params[0]) if node.var2 else (range_type.params[0], DYN)
        elif range_type.kind == "map":
            first, second = range_type.params
        elif range_type.kind in ("dyn", "!error!", "param"):
            self._is_assignable(DYN, range_type)
            first = second = DYN
        else:
            first = second = self._add_error(
                node.range.id,
                f"expression of type '{range_type}' cannot be range of a comprehension (must be list, map, or dynamic)",
            )
        variables = {node.var: first}
        if node.var2:
            variables[node.var2] = second
        self._scopes.append(variables)
        self._expect_type(node.condition, types.BOOL)
        self._expect_type(node.step, init)
        self._scopes.pop()
        result = self.check(node.result)
        self._scopes.pop()
        return self._substitute(result)

    def _expect_type(self, node: Node, wanted: Type) -> None:
        found = self.check(node)
        if not self._is_assignable(wanted, found):
            self._add_error(node.id, f"expected type '{self._substitute(wanted)}' but found '{self._substitute(found)}'")

    def _join(self, previous: Type | None, current: Type) -> Type:
        if previous is None:
            return current
        return _most_general(previous, current) if self._is_assignable(previous, current) else DYN

    # Type variables

    def _new_variable(self) -> Type:
        self._variable_count += 1
        return Type("param", f"_var{self._variable_count}")

    def _substitute(self, found: Type, *, to_dyn: bool = False) -> Type:
        while found.kind == "param":
            bound = self._bound.get(found.name)
            if bound is None:
                return DYN if to_dyn else found
            found = bound
        if not found.params:
            return found
        params = tuple(self._substitute(param, to_dyn=to_dyn) for param in found.params)
        if all(new is old for new, old in zip(params, found.params, strict=True)):
            return found
        new = Type(found.kind, found.name, params, found.fields, found.max_elements, found.min_size)
        if new.size > MAX_TYPE_SIZE:
            raise _TooComplex
        return new

    def _is_assignable(self, a: Type, b: Type) -> bool:
        return self._are_assignable((a,), (b,))

    def _are_assignable(self, all_a: Any, all_b: Any) -> bool:
        start = len(self._trail)
        if all(self._is_assignable_internally(a, b) for a, b in zip(all_a, all_b, strict=True)):
            return True
        while len(self._trail) > start:
            name, old = self._trail.pop()
            if old is None:
                del self._bound[name]
            else:
                self._bound[name] = old
        return False

    def _count(self) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS + 100 * len(self._nodes):
            raise _TooComplex

    def _bind(self, variable: Type, value: Type) -> None:
        self._trail.append((variable.name, self._bound.get(variable.name)))
        self._bound[variable.name] = value

    def _is_assignable_internally(self, a: Type, b: Type) -> bool:
        self._count()
        if b.kind == "param":
            valid, has_substitution = self._valid_substitution(a, b)
            if valid:
                return True
            if has_substitution:
                return False
        if a.kind == "param":
            return self._valid_substitution(b, a)[0]
        if a.kind in ("dyn", "!error!") or b.kind in ("dyn", "!error!"):
            return True
        if a.kind == "null":
            return b.kind in _NULLABLE or b.kind == "null"
        if b.kind == "null":
            return a.kind in _NULLABLE
        if a.kind == "type":
            return b.kind == "type"
        if a.kind != b.kind or a.name != b.name or len(a.params) != len(b.params):
            return False
        return all(self._is_assignable_internally(x, y) for x, y in zip(a.params, b.params, strict=True))

    def _valid_substitution(self, found: Type, variable: Type) -> tuple[bool, bool]:
        if found.same(variable):
            return True, True
        bound = self._bound.get(variable.name)
        if bound is not None:
            if found.same(bound):
                return True, True
            if self._is_assignable_internally(found, bound):
                general = _most_general(found, bound)
                if not self._occurs_within(variable, general):
                    self._bind(variable, general)
                return True, True
            return False, True
        if not self._occurs_within(variable, found):
            self._bind(variable, found)
            return True, False
        return False, False

    def _occurs_within(self, variable: Type, within: Type) -> bool:
        self._count()
        if variable.same(within):
            return True
        if within.kind == "param":
            bound = self._bound.get(within.name)
            return bound is not None and self._occurs_within(variable, bound)
        return any(self._occurs_within(variable, param) for param in within.params)


def _rename(found: Type, names: Mapping[str, Type]) -> Type:
    if found.kind == "param":
        return names[found.name]
    if not found.params:
        return found
    return Type(found.kind, found.name, tuple(_rename(param, names) for param in found.params), found.fields)


def _most_general(a: Type, b: Type) -> Type:
    return a if _less_specific(a, b) else b


def _less_specific(a: Type, b: Type) -> bool:
    if a.kind in ("dyn", "param"):
        return True
    if b.kind in ("dyn", "param") or a.kind != b.kind:
        return False
    if a.kind in ("opaque", "list", "map"):
        return a.name == b.name and all(_less_specific(x, y) for x, y in zip(a.params, b.params, strict=True))
    return a.kind == "type" or a.same(b)
