"""Costs of expressions in cel-go's units: an estimate before any data is known, and the cost of a call with its data.

Any change of an estimate changes which definitions are accepted.

Source: https://github.com/google/cel-go/blob/master/checker/cost.go, interpreter/runtimecost.go, ext/lists.go, ext/sets.go, and
staging/src/k8s.io/apiserver/pkg/cel/library/cost.go of Kubernetes 1.36
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pinnace.cel.functions import Overload
from pinnace.cel.syntax import Call, Comprehension, Ident, ListNode, Literal, MapNode, Node, Select, StructNode
from pinnace.cel.types import SCALARS, MapList, Optional, SetList, StructValue, Type, is_optional

MAX = 2**64 - 1
TRAVERSAL = 0.1
"""Cost of a character."""
REGEX = 0.25
"""Cost of a character of a regular expression."""
LIST, MAP, STRUCT = 10, 30, 40
"""Costs of a new container."""
CHECK = 350_000
"""Cost of a question to the authorizer."""
MAX_FORMAT_REGEX, MAX_FORMAT = 128, 64
_NOWHERE = Type("nowhere")
"""The path of values outside of the object, such as results of functions."""
_COMPARISONS = frozenset(
    f"{word}_{kind}" for word in ("less", "less_equals", "greater", "greater_equals") for kind in ("string", "bytes")
) | {"equals", "not_equals"}
_ACCESSORS = frozenset(
    {
        "serviceAccount", "path", "group", "resource", "subresource", "namespace", "name", "allowed", "reason",
        "error", "errored", "masked", "prefixLength", "family", "isUnspecified", "isLoopback", "isLinkLocalMulticast",
        "isLinkLocalUnicast", "isGlobalUnicast", "sign", "asInteger", "isInteger", "asApproximateFloat",
        "isGreaterThan", "isLessThan", "compareTo", "add", "sub", "major", "minor", "patch", "getScheme",
        "getHostname", "getHost", "getPort", "getEscapedPath", "getQuery", "format.named",
    }
)  # fmt: skip
_PARSERS = frozenset({"cidr", "isIP", "isCIDR", "ip", "ip.isCanonical", "quantity", "isQuantity", "semver", "isSemver"})
_SCANS = frozenset({"isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"})
_O1_TYPES = frozenset({"net.IP", "net.CIDR", "kubernetes.Quantity", "kubernetes.Semver"})
_COMPARABLE = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
_SIZED = frozenset({str, bytes, list, dict, SetList, MapList, StructValue})
CallCost = Callable[[Sequence[Any], Any], int]


class Range(NamedTuple):
    """A minimum and a maximum, of a size or of a cost. They do not exceed 2^64-1."""

    min: int
    max: int

    def plus(self, other: "Range") -> "Range":
        return Range(min(MAX, self.min + other.min), min(MAX, self.max + other.max))

    def times(self, other: "Range") -> "Range":
        return Range(min(MAX, self.min * other.min), min(MAX, self.max * other.max))

    def scaled(self, factor: float) -> "Range":
        return Range(_scale_cost(self.min, factor), _scale_cost(self.max, factor))

    def union(self, other: "Range") -> "Range":
        return Range(min(self.min, other.min), max(self.max, other.max))


def _scale_cost(value: int, factor: float) -> int:
    return min(MAX, math.ceil(float(value) * factor))


ZERO, ONE, UNKNOWN = Range(0, 0), Range(1, 1), Range(0, MAX)


class _Entry(NamedTuple):
    """Sizes of the keys and the values of a container."""

    kind: str
    key: Range
    value: Range


class _Local(NamedTuple):
    """What is known of a variable. `declared`: its place in the schema: a type, None if there is no such place, or _NOWHERE."""

    declared: Type | None
    size: Range | None
    entry: _Entry | None


class Operand(NamedTuple):
    """An operand of a call. `size` is None if it is not known."""

    node: Node
    type: Type
    declared: Type | None
    size: Range | None

    @property
    def bound(self) -> Range:
        """The size, by the schema if it is not known otherwise."""
        if self.size is not None:
            return self.size
        return _declared_size(self.declared) or UNKNOWN


class Estimate(NamedTuple):
    cost: Range
    size: Range | None = None


def _declared_size(declared: Type | None) -> Range | None:
    return None if declared is None or declared.max_elements is None else Range(0, declared.max_elements)


def estimate(node: Node, root: Type | None = None) -> int:
    """Return the maximum cost of a checked expression. `root`: the type of `self`. As in Kubernetes, it gives the size of every
    name outside of a loop, also of the names of types."""
    return _Estimator(root).cost(node).max


class _Estimator:
    def __init__(self, root: Type | None) -> None:
        self._root = root
        self._locals: dict[str, list[_Local]] = {}
        self._sizes: dict[int, Range] = {}
        self._entries: dict[int, _Entry] = {}
        self._declared: dict[int, Type | None] = {}
        self._costs: dict[type, Callable[[Any], Range]] = {
            Literal: lambda node: ZERO, Ident: self._estimate_ident, Select: self._estimate_select,
            Call: self._estimate_call, ListNode: self._estimate_list, MapNode: self._estimate_map,
            StructNode: self._estimate_struct, Comprehension: self._estimate_comprehension,
        }  # fmt: skip

    def cost(self, node: Node) -> Range:
        return self._costs[type(node)](node)

    # What is known of a node

    def _find_local(self, node: Node) -> _Local | None:
        stack = self._locals.get(node.name) if isinstance(node, Ident) else None
        return stack[-1] if stack else None

    def _declaration_of(self, node: Node) -> Type | None:
        local = self._find_local(node)
        return local.declared if local is not None else self._declared.get(node.id, _NOWHERE)

    def _place_of_part(self, declared: Type | None, found: Type | None) -> Type | None:
        """Return the place of a part. As in cel-go, a part of what is nowhere is where the object is."""
        return self._root if declared is _NOWHERE else found

    def _size_of_node(self, node: Node) -> Range | None:
        if node.id in self._sizes:
            return self._sizes[node.id]
        if isinstance(node, Literal):
            length = len(node.value) if isinstance(node.value, str | bytes) else 1
            return Range(length, length)
        if isinstance(node, ListNode):
            return Range(len(node.elements), len(node.elements))
        if isinstance(node, MapNode):
            return Range(len(node.entries), len(node.entries))
        declared = _declared_size(self._declaration_of(node))
        if declared is not None:
            self._sizes[node.id] = declared
            return declared
        if _is_scalar(node.type):
            return ONE
        local = self._find_local(node)
        return local.size if local is not None else None

    def _size_or_unknown(self, node: Node) -> Range:
        return self._size_of_node(node) or UNKNOWN

    def _entry_of(self, node: Node) -> _Entry | None:
        if node.id in self._entries:
            return self._entries[node.id]
        local = self._find_local(node)
        return local.entry if local is not None else None

    # Nodes

    def _estimate_ident(self, node: Ident) -> Range:
        local = self._find_local(node)
        self._declared[node.id] = local.declared if local is not None else self._root
        return ONE

    def _estimate_select(self, node: Select) -> Range:
        operand = self.cost(node.operand)
        if node.test:
            return operand
        declared = self._declaration_of(node.operand)
        field = declared.fields.get(node.field) if declared is not None and declared.fields is not None else None
        self._declared[node.id] = self._place_of_part(declared, field.type if field is not None else None)
        return operand.plus(ONE) if node.operand.type.kind in ("map", "struct", "param") else operand

    def _estimate_call(self, node: Call) -> Range:
        if node.function == "dyn":
            total = self.cost(node.args[0]).plus(ONE)
            self._copy(node, node.args[0])
            return total
        costs = [self.cost(arg) for arg in node.args]
        operands = [self._build_operand(arg) for arg in node.args]
        if node.function == "_?._":
            return costs[0].plus(ONE) if costs else ONE
        target, total = None, ZERO
        if node.target is not None:
            total = self.cost(node.target)
            target = self._build_operand(node.target)
        function_cost: Range | None = None
        size: Range | None = None
        for overload in node.overloads:
            found = self._estimate_overload(node, overload, target, operands, costs)
            function_cost = found.cost if function_cost is None else function_cost.union(found.cost)
            if found.size is not None:
                size = found.size if size is None else size.union(found.size)
            if overload.id in ("index_list", "index_map"):
                entry = self._entry_of(node.args[0])
                size = entry.value if entry is not None else None
                declared = self._declaration_of(node.args[0])
                found_type = declared.params[-1] if declared is not None and declared.params else None
                self._declared[node.id] = self._place_of_part(declared, found_type)
            if size is None:
                size = self._size_of_node(node)
        if size is not None:
            self._sizes[node.id] = size
        return total.plus(function_cost or ZERO)

    def _build_operand(self, node: Node) -> Operand:
        return Operand(node, node.type, self._declaration_of(node), self._size_of_node(node))

    def _copy(self, node: Node, source: Node) -> None:
        size, entry = self._size_of_node(source), self._entry_of(source)
        if size is not None:
            self._sizes[node.id] = size
        if entry is not None:
            self._entries[node.id] = entry

    def _estimate_list(self, node: ListNode) -> Range:
        total = Range(LIST, LIST)
        item = Range(MAX, 0) if node.elements else ZERO
        for element in node.elements:
            total = total.plus(self.cost(element))
            item = item.union(self._size_or_unknown(element))
        self._entries[node.id] = _Entry("list", ONE, item)
        return total

    def _estimate_map(self, node: MapNode) -> Range:
        total = Range(MAP, MAP)
        key_size = value_size = Range(MAX, 0) if node.entries else ZERO
        for key, value, _ in node.entries:
            total = total.plus(self.cost(key)).plus(self.cost(value))
            key_size = key_size.union(self._size_or_unknown(key))
            value_size = value_size.union(self._size_or_unknown(value))
        self._entries[node.id] = _Entry("map", key_size, value_size)
        return total

    def _estimate_struct(self, node: StructNode) -> Range:
        total = Range(STRUCT, STRUCT)
        for _, _, value, _ in node.fields:
            total = total.plus(self.cost(value))
        return total

    def _estimate_comprehension(self, node: Comprehension) -> Range:
        total = self.cost(node.range).plus(self.cost(node.init))
        init = _Local(self._declaration_of(node.init), self._size_of_node(node.init), self._entry_of(node.init))
        is_bind = isinstance(node.range, ListNode) and not node.range.elements and node.accumulator != "@result"
        self._push(node.accumulator, init)
        if is_bind:
            total = total.plus(self.cost(node.result))
            self._pop(node.accumulator)
            self._copy(node, node.result)
            return total
        names = self._push_items(node)
        step = self.cost(node.condition).plus(self.cost(node.step))
        for name in names:
            self._pop(name)
        total = total.plus(self.cost(node.result))
        self._pop(node.accumulator)
        count = self._size_or_unknown(node.range)
        total = total.plus(count.times(step))
        if isinstance(node.init, Literal):
            self._sizes[node.id] = self._size_or_unknown(node.init)
        elif isinstance(node.init, ListNode | MapNode):
            self._sizes[node.id] = count
            entry = self._entry_of(node.step)
            if entry is not None:
                self._entries[node.id] = entry
        return total

    def _push(self, name: str, local: _Local) -> None:
        self._locals.setdefault(name, []).append(local)

    def _pop(self, name: str) -> None:
        self._locals[name].pop()

    def _push_items(self, node: Comprehension) -> list[str]:
        entry, declared = self._entry_of(node.range), self._declaration_of(node.range)
        kind = entry.kind if entry is not None else node.range.type.kind
        params = declared.params if declared is not None and declared.params else (None,)
        key_size, value_size = (entry.key, entry.value) if entry is not None else (None, None)
        value = _Local(self._place_of_part(declared, params[-1]), value_size, None)
        key_type = None if kind == "list" or len(params) < 2 else params[0]
        key = _Local(self._place_of_part(declared, key_type), key_size, None)
        if not node.var2:
            self._push(node.var, value if kind == "list" else key)
            return [node.var]
        self._push(node.var, key)
        self._push(node.var2, value)
        return [node.var, node.var2]

    # Calls

    def _estimate_overload(
        self, node: Call, overload: Overload, target: Operand | None, args: Sequence[Operand], costs: Sequence[Range]
    ) -> Estimate:
        arguments = ZERO
        for cost in costs:
            arguments = arguments.plus(cost)
        found = _estimate_library_call(overload, target, args)
        if found is not None:
            return Estimate(found.cost.plus(arguments), found.size)
        name = overload.id

        def unknown(operand: Operand) -> Range:
            return operand.size or UNKNOWN

        if name == "string_format" and target is not None:
            return Estimate(unknown(target).scaled(TRAVERSAL).plus(arguments))
        if name == "string_to_bytes":
            size = unknown(args[0])
            return Estimate(size.scaled(TRAVERSAL).plus(arguments), Range(size.min, min(MAX, size.max * 4)))
        if name == "bytes_to_string":
            size = unknown(args[0])
            return Estimate(size.scaled(TRAVERSAL).plus(arguments), Range(size.min // 4, size.max))
        if name == "strings_quote":
            size = unknown(args[0])
            return Estimate(size.scaled(TRAVERSAL).plus(arguments), Range(size.min + 2, min(MAX, size.max * 2 + 2)))
        if name in ("starts_with_string", "ends_with_string"):
            return Estimate(unknown(args[0]).scaled(TRAVERSAL).plus(arguments))
        if name == "in_list":
            return Estimate(unknown(args[1]).plus(arguments))
        if name == "matches_string" and target is not None:
            text = unknown(target).plus(ONE).scaled(TRAVERSAL)
            return Estimate(text.times(unknown(args[0]).scaled(REGEX)).plus(arguments))
        if name == "contains_string" and target is not None:
            return Estimate(unknown(target).scaled(TRAVERSAL).times(unknown(args[0]).scaled(TRAVERSAL)).plus(arguments))
        if name in ("logical_or", "logical_and"):
            return Estimate(Range(costs[0].min, min(MAX, costs[0].max + costs[1].max)))
        if name == "conditional":
            size = unknown(args[1]).union(unknown(args[2]))
            first, second = self._entry_of(node.args[1]), self._entry_of(node.args[2])
            if first is not None and second is not None:
                self._entries[node.id] = _Entry(first.kind, first.key.union(second.key), first.value.union(second.value))
            return Estimate(costs[0].plus(costs[1].union(costs[2])), size)
        if name in ("add_string", "add_bytes", "add_list"):
            size = unknown(args[0]).plus(unknown(args[1]))
            first, second = self._entry_of(node.args[0]), self._entry_of(node.args[1])
            if first is not None and second is not None:
                self._entries[node.id] = _Entry(first.kind, first.key.union(second.key), first.value.union(second.value))
            return Estimate((ONE if name == "add_list" else size.scaled(TRAVERSAL)).plus(arguments), size)
        if name in _COMPARISONS:
            smallest = min(unknown(args[0]).max, unknown(args[1]).max)
            return Estimate(Range(1 if smallest > 0 else 0, smallest).scaled(TRAVERSAL).plus(arguments))
        return Estimate(ONE.plus(arguments))


def _is_scalar(found: Type) -> bool:
    return found.kind in SCALARS or (is_optional(found) and _is_scalar(found.params[0]))


def _selector_cost(size: Range) -> Range:
    return Range(LIST, LIST).plus(size.scaled(TRAVERSAL)).plus(size.scaled(0.5).scaled(LIST + STRUCT))


def _estimate_library_call(overload: Overload, target: Operand | None, args: Sequence[Operand]) -> Estimate | None:
    name = overload.name
    if overload.id in _LIST_ESTIMATES:
        return _LIST_ESTIMATES[overload.id](target, args)
    if name == "check":
        return Estimate(Range(CHECK, CHECK))
    if name in _ACCESSORS:
        return Estimate(ONE)
    if name in ("fieldSelector", "labelSelector"):
        return Estimate(_selector_cost(args[0].bound))
    if name in _SCANS and target is not None:
        return Estimate(_scan_cost(target))
    if name in ("url", "jsonpatch.escapeKey"):
        size = args[0].bound
        return Estimate(size.scaled(TRAVERSAL), size)
    if name in ("lowerAscii", "upperAscii", "substring", "trim") and target is not None:
        size = target.bound
        return Estimate(size.scaled(TRAVERSAL), size)
    if name == "replace" and target is not None:
        size = target.bound
        return Estimate(size.scaled(2 * TRAVERSAL), _replaced_size(size, args[0].bound, args[1].bound))
    if name == "split" and target is not None:
        size = target.bound
        limit = args[1].node.value if len(args) > 1 and isinstance(args[1].node, Literal) else size.max
        return Estimate(size.scaled(2 * TRAVERSAL), Range(0, limit if isinstance(limit, int) and limit >= 0 else MAX))
    if name == "join" and target is not None:
        size = _joined_size(target, args)
        return Estimate(size.scaled(TRAVERSAL), size)
    if name in ("find", "findAll") and target is not None:
        size = target.bound
        cost = size.plus(ONE).scaled(TRAVERSAL).times(args[0].bound.scaled(REGEX))
        return Estimate(cost, Range(0, size.max))
    if name == "containsIP" and target is not None:
        cost = Range(8, 32).scaled(TRAVERSAL)
        return Estimate(cost.plus(args[0].bound.scaled(TRAVERSAL)) if overload.id.endswith("string") else cost)
    if name == "containsCIDR" and target is not None:
        cost = Range(8, 32).scaled(TRAVERSAL).plus(Range(4, 16).scaled(TRAVERSAL)).plus(ONE)
        return Estimate(cost.plus(args[0].bound.scaled(TRAVERSAL)) if overload.id.endswith("string") else cost)
    if name == "ip" and target is not None:
        return Estimate(ONE)
    if name in _PARSERS:
        return Estimate(args[0].bound.scaled(2 * TRAVERSAL if name == "ip.isCanonical" else TRAVERSAL))
    if name == "validate" and target is not None:
        return Estimate(args[0].bound.scaled(TRAVERSAL).scaled(MAX_FORMAT_REGEX * REGEX))
    if name == "_==_" and args[0].type.same(args[1].type):
        return _estimate_equality(args[0].type.name)
    return None


def _estimate_equality(name: str) -> Estimate | None:
    if name in _O1_TYPES or name.startswith("kubernetes.authorization."):
        return Estimate(ONE)
    if name == "kubernetes.NamedFormat":
        return Estimate(Range(1, MAX_FORMAT).scaled(TRAVERSAL))
    return Estimate(ONE) if name == "kubernetes.URL" else None


def _scan_cost(target: Operand) -> Range:
    if not target.type.params:
        return target.bound.scaled(TRAVERSAL)
    item = target.type.params[0]
    cost = ONE
    if item.kind in ("string", "bytes"):
        declared = target.declared.params[0] if target.declared is not None and target.declared.params else None
        cost = cost.plus((_declared_size(declared) or UNKNOWN).scaled(TRAVERSAL))
    return target.bound.times(cost)


def _joined_size(target: Operand, args: Sequence[Operand]) -> Range:
    declared = target.declared.params[0] if target.declared is not None and target.declared.params else None
    items = target.bound
    size = items.times(_declared_size(declared) or UNKNOWN)
    if args:
        separators = Range(max(0, items.min - 1), max(0, items.max - 1))
        size = size.plus(args[0].bound.times(separators))
    return size


def _replaced_size(size: Range, old: Range, new: Range) -> Range:
    if old.min == 0:
        most, most_rest = min(MAX, size.max + 1), size.max
    elif new.max <= old.min:
        most, most_rest = 0, size.max
    else:
        most, most_rest = math.ceil(size.max / old.min), 0
    if old.max == 0:
        least, least_rest = min(MAX, size.min + 1), size.min
    elif old.max <= new.min:
        least, least_rest = 0, size.min
    else:
        least, least_rest = math.ceil(size.min / old.max), 0
    return Range(least, most).times(new).plus(Range(least_rest, most_rest))


def _literal_size(args: Sequence[Operand], index: int, default: int) -> int:
    node = args[index].node if index < len(args) else None
    return node.value if isinstance(node, Literal) and isinstance(node.value, int) and node.value >= 0 else default


def _new_list(factor: float, size: Range) -> Estimate:
    return Estimate(size.scaled(factor).plus(Range(1 + LIST, 1 + LIST)), size)


def _estimate_slice(target: Operand | None, args: Sequence[Operand]) -> Estimate:
    end = _literal_size(args, 1, target.bound.max if target is not None else MAX)
    size = max(0, end - _literal_size(args, 0, 0))
    return _new_list(1, Range(size, size))


def _estimate_range(target: Operand | None, args: Sequence[Operand]) -> Estimate:
    size = _literal_size(args, 0, MAX)
    return _new_list(1, Range(size, size))


def _quadratic_estimate(factor: float) -> Callable[[Operand | None, Sequence[Operand]], Estimate]:
    def estimate_list(target: Operand | None, args: Sequence[Operand]) -> Estimate:
        size = target.bound if target is not None else UNKNOWN
        return Estimate(_new_list(factor, size.times(size)).cost, size)

    return estimate_list


def _keys_squared(factor: float) -> Callable[[Operand | None, Sequence[Operand]], Estimate]:
    def estimate_list(target: Operand | None, args: Sequence[Operand]) -> Estimate:
        size = args[0].bound
        return Estimate(_new_list(factor, size.times(size)).cost, size)

    return estimate_list


def _estimate_flatten(target: Operand | None, args: Sequence[Operand]) -> Estimate:
    return _new_list(_literal_size(args, 0, MAX) if args else 1, target.bound if target is not None else UNKNOWN)


def _estimate_sets(factor: int) -> Callable[[Operand | None, Sequence[Operand]], Estimate]:
    return lambda target, args: Estimate(args[0].bound.times(args[1].bound).scaled(factor).plus(ONE))


def _compare_factor(kind: str) -> float:
    return 2 + (TRAVERSAL if kind in ("string", "bytes") else 0)


_LIST_ESTIMATES: dict[str, Callable[[Operand | None, Sequence[Operand]], Estimate]] = {
    "list_slice": _estimate_slice,
    "lists_range": _estimate_range,
    "list_reverse": lambda target, args: _new_list(1, target.bound if target is not None else UNKNOWN),
    "list_flatten": _estimate_flatten,
    "list_flatten_int": _estimate_flatten,
    "list_distinct": _quadratic_estimate(2),
    **{f"list_{kind}_sort": _quadratic_estimate(_compare_factor(kind)) for kind in _COMPARABLE},
    **{f"list_{kind}_sortByAssociatedKeys": _keys_squared(_compare_factor(kind)) for kind in _COMPARABLE},
    "list_sets_contains_list": _estimate_sets(1),
    "list_sets_intersects_list": _estimate_sets(1),
    "list_sets_equivalent_list": _estimate_sets(2),
}


# The cost of a call with its data


def size_of(value: Any) -> int:
    """Return the size of a text or a container, 1 for other values."""
    kind = type(value)
    if kind in _SIZED:
        return len(value)
    if kind is Optional:
        return size_of(value.value)
    return 1


def _per_character(value: Any) -> int:
    return (size_of(value) + 9) // 10


def _twice_per_character(value: Any) -> int:
    return (size_of(value) + 4) // 5


def _traversal_cost(value: Any) -> int:
    if isinstance(value, str | bytes):
        return int(len(value) * TRAVERSAL)
    if isinstance(value, list):
        return sum(int(len(item) * TRAVERSAL) if isinstance(item, str) else 1 for item in value)
    return 1


def _regex_cost(args: Sequence[Any], result: Any) -> int:
    return (len(args[0]) + 10) // 10 * ((len(args[1]) + 3) // 4)


def _smaller_size_cost(args: Sequence[Any], result: Any) -> int:
    return math.ceil(min(size_of(args[0]), size_of(args[1])) * TRAVERSAL)


def _comparison_cost(factor: int) -> Callable[[Sequence[Any], Any], int]:
    return lambda args, result: 1 + size_of(args[0]) * size_of(args[1]) * factor


def _self_compared(args: Sequence[Any], result: Any) -> int:
    return 1 + LIST + 2 * len(args[0]) ** 2


_FIRST: CallCost = lambda args, result: _per_character(args[0])  # noqa: E731
_DOUBLE: CallCost = lambda args, result: _twice_per_character(args[0])  # noqa: E731
_BY_ID: dict[str, CallCost] = {
    **dict.fromkeys(
        ("starts_with_string", "ends_with_string", "string_to_bytes", "bytes_to_string", "strings_quote", "string_format"),
        _FIRST,
    ),
    "in_list": lambda args, result: size_of(args[1]),
    **dict.fromkeys(_COMPARISONS, _smaller_size_cost),
    "add_string": lambda args, result: math.ceil((len(args[0]) + len(args[1])) * TRAVERSAL),
    "add_bytes": lambda args, result: math.ceil((len(args[0]) + len(args[1])) * TRAVERSAL),
    "matches": _regex_cost,
    "matches_string": _regex_cost,
    "contains_string": lambda args, result: _per_character(args[0]) * _per_character(args[1]),
    "list_sets_contains_list": _comparison_cost(1),
    "list_sets_intersects_list": _comparison_cost(1),
    "list_sets_equivalent_list": _comparison_cost(2),
    "list_distinct": _self_compared,
    "cidr_ip": lambda args, result: 1,
}
_BY_NAME: dict[str, CallCost] = {
    "check": lambda args, result: CHECK,
    **dict.fromkeys(("fieldSelector", "labelSelector"), lambda args, result: _selector_cost(Range(0, size_of(args[1]))).max),
    **dict.fromkeys(_SCANS, lambda args, result: _traversal_cost(args[0])),
    **dict.fromkeys(
        (
            "url",
            "lowerAscii",
            "upperAscii",
            "substring",
            "trim",
            "jsonpatch.escapeKey",
            "cidr",
            "isIP",
            "isCIDR",
            "ip",
            "quantity",
            "isQuantity",
            "semver",
            "isSemver",
        ),
        _FIRST,
    ),
    **dict.fromkeys(("replace", "split", "ip.isCanonical"), _DOUBLE),
    "join": lambda args, result: _twice_per_character(result),
    **dict.fromkeys(("find", "findAll"), _regex_cost),
    "validate": lambda args, result: math.ceil((1 + size_of(args[1])) * TRAVERSAL) * math.ceil(60 * REGEX),
    **dict.fromkeys(("containsIP", "containsCIDR"), lambda args, result: 3 + _per_character(args[1])),
    **dict.fromkeys(("lists.range", "slice", "reverse", "flatten"), lambda args, result: 1 + LIST + size_of(result)),
    "sort": _self_compared,
    "@sortByAssociatedKeys": _self_compared,
}


def call_cost(overload: Overload) -> CallCost | None:
    """Return the cost of a call by its arguments and its result. None: the cost is 1."""
    return _BY_ID.get(overload.id) or _BY_NAME.get(overload.name)
