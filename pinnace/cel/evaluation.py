"""Compile checked expressions into closures, and evaluate them.

A closure takes a frame, a list: the meter, then the values of the variables. Every closure counts its cost in cel-go's units;
each iteration of a loop also counts the work of its body, and checks both limits (`pinnace.cel.meter`). So no data makes an
evaluation long.

Errors are exceptions of Python, which cost nothing until they happen. `&&`, `||`, `all` and `exists` absorb them as CEL does.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pinnace.cel.conversions import to_text
from pinnace.cel.costs import LIST, MAP, STRUCT, call_cost, size_of
from pinnace.cel.functions import Overload, equals
from pinnace.cel.meter import EXCEEDED, CostExceeded, Meter
from pinnace.cel.syntax import Call, Comprehension, Ident, ListNode, Literal, MapNode, Node, Select, StructNode, qualified_name
from pinnace.cel.types import (
    ABSENT,
    NAMES,
    Duration,
    EvaluationFailure,
    MapList,
    Optional,
    SetList,
    StructValue,
    Timestamp,
    Type,
    TypeValue,
    Uint,
    is_optional,
)

Frame = list[Any]
Closure = Callable[[Frame], Any]
Convert = Callable[[Meter, Any, Mapping[str, Any]], Any]
"""Makes a value of a part of an object and its schema."""

UNBOUND: Any = object()
"""The value of a variable that has none."""
NO_OVERLOAD = "no such overload"

_DIRECT = frozenset({"bool", "int", "uint", "double", "string", "bytes", "duration", "timestamp"})
_COMPARE = {"_<_": operator.lt, "_<=_": operator.le, "_>_": operator.gt, "_>=_": operator.ge}
_LIST_TYPES = frozenset({list, SetList, MapList})
_CLASSES: dict[str, frozenset[type]] = {
    "bool": frozenset({bool}), "int": frozenset({int}), "uint": frozenset({Uint}), "double": frozenset({float}),
    "string": frozenset({str}), "bytes": frozenset({bytes}), "null": frozenset({type(None)}), "list": _LIST_TYPES,
    "map": frozenset({dict}), "duration": frozenset({Duration}), "timestamp": frozenset({Timestamp}),
    "type": frozenset({TypeValue}),
}  # fmt: skip
_COST_BEFORE = frozenset({"matches", "find", "findAll", "contains", "check", "validate", "sort", "distinct"})
"""Functions that may take long: their cost does not depend on the result, and is counted before."""
_SLOW = frozenset({"url", "isURL", "validate", "semver", "isSemver", "strings.quote", "upperAscii", "lowerAscii"})
"""Functions that take about 10 ns for each character."""
_UNSIZED = frozenset({"startsWith", "endsWith", "matches", "find"})
"""Functions that count their work themselves, or that have none."""
_FAST = frozenset(
    {"size", "_+_", "_-_", "_*_", "_/_", "_%_", "-_", "_[_]", "_[?_]", "@in", "hasValue", "value", "optional.of", "type", "dyn"}
)
"""Functions that take less than a step of the interpreter."""


class Program:
    """A compiled expression over variables."""

    __slots__ = ("_closure", "_names", "_size")

    def __init__(self, node: Node, names: Sequence[str], convert: Convert | None = None) -> None:
        compiler = _Compiler(names, convert)
        self._closure = compiler.compile(node)
        self._names = tuple(names)
        self._size = compiler.size

    def evaluate(self, meter: Meter, bindings: Mapping[str, Any]) -> Any:
        """Return the value. Raises EvaluationFailure."""
        frame: Frame = [meter, *[bindings.get(name, UNBOUND) for name in self._names]]
        if self._size > len(frame):
            frame.extend([UNBOUND] * (self._size - len(frame)))
        try:
            value = self._closure(frame)
            meter.charge(0, 0)
        except EvaluationFailure:
            raise
        except RecursionError:
            raise EvaluationFailure("the value is nested too deeply") from None
        except (TypeError, AttributeError, ValueError, LookupError, ArithmeticError):
            raise EvaluationFailure(NO_OVERLOAD) from None
        return value


class _Compiler:
    def __init__(self, names: Sequence[str], convert: Convert | None) -> None:
        self._slots: dict[str, list[int]] = {name: [index + 1] for index, name in enumerate(names)}
        self._convert = convert
        self.size = len(names) + 1
        self._compilers: dict[type, Callable[[Any], Closure]] = {
            Literal: self._compile_literal, Ident: self._compile_ident, Select: self._compile_select,
            Call: self._compile_call, ListNode: self._compile_list, MapNode: self._compile_map,
            StructNode: self._compile_struct, Comprehension: self._compile_comprehension,
        }  # fmt: skip
        self._nodes = 0

    def compile(self, node: Node, *, whole: bool = True) -> Closure:
        """Compile a node. `whole`: its value is used as a whole, not for one field."""
        self._nodes += 1
        closure = self._compilers[type(node)](node)
        schema, convert = node.type.schema, self._convert
        if (
            schema is None
            or convert is None
            or not isinstance(node, Ident | Select)
            or (node.type.kind == "struct" and not whole)
        ):
            return closure

        def converted(frame: Frame) -> Any:
            return convert(frame[0], closure(frame), schema)

        return converted

    def _push(self, name: str) -> int:
        slot = self.size
        self.size += 1
        self._slots.setdefault(name, []).append(slot)
        return slot

    def _pop(self, name: str) -> None:
        self._slots[name].pop()

    # Values

    def _compile_literal(self, node: Literal) -> Closure:
        value = node.value
        return lambda frame: value

    def _compile_ident(self, node: Ident) -> Closure:
        slots = self._slots.get(node.name)
        if not slots:
            return _type_name(node.name)
        slot, name = slots[-1], node.name

        def read(frame: Frame) -> Any:
            frame[0].cost += 1
            value = frame[slot]
            if value is UNBOUND:
                raise EvaluationFailure(f"no such attribute(s): {name}")
            return value

        return read

    def _compile_select(self, node: Select) -> Closure:
        if not node.test and (name := qualified_name(node)) is not None:
            if self._slots.get(name):
                return self._compile_ident(Ident(node.id, name))
            if node.type.kind == "type" and not self._slots.get(name.partition(".")[0]):
                return _type_name(name)
        if not node.test and is_optional(node.operand.type):
            return self._select_optional(node, node.operand, node.field)
        operand, key = self.compile(node.operand, whole=False), _json_key(node.operand.type, node.field)
        return _compile_presence_test(operand, key) if node.test else _compile_select(operand, key)

    def _compile_list(self, node: ListNode) -> Closure:
        elements = [self.compile(element) for element in node.elements]
        optional = node.optional

        def create(frame: Frame) -> list[Any]:
            frame[0].charge(LIST, len(elements))
            if not optional:
                return [element(frame) for element in elements]
            items = []
            for index, element in enumerate(elements):
                value = element(frame)
                if index in optional:
                    if value is ABSENT:
                        continue
                    value = value.value
                items.append(value)
            return items

        return create

    def _compile_map(self, node: MapNode) -> Closure:
        entries = [(self.compile(key), self.compile(value), optional) for key, value, optional in node.entries]

        def create(frame: Frame) -> dict[Any, Any]:
            frame[0].charge(MAP, len(entries))
            result = dict[Any, Any]()
            for key, value, optional in entries:
                name, item = key(frame), value(frame)
                if name in result:
                    raise EvaluationFailure(f"Failed with repeated key: {to_text(name)}")
                if not optional:
                    result[name] = item
                elif item is not ABSENT:
                    result[name] = item.value
            return result

        return create

    def _compile_struct(self, node: StructNode) -> Closure:
        fields = [(name, self.compile(value), optional) for _, name, value, optional in node.fields]
        type_name = node.name

        def create(frame: Frame) -> Any:
            frame[0].charge(STRUCT, len(fields))
            values = StructValue(type_name)
            for field, value, optional in fields:
                item = value(frame)
                if not optional:
                    values[field] = item
                elif item is not ABSENT:
                    values[field] = item.value
            return values

        return create

    # Calls

    def _compile_call(self, node: Call) -> Closure:
        function = node.function
        operands = [*([node.target] if node.target is not None else []), *node.args]
        if function == "_?._":
            return self._optional_select(node)
        closures = [self.compile(operand) for operand in operands]
        if function == "_&&_":
            return _compile_logical(closures[0], closures[1], stop=False)
        if function == "_||_":
            return _compile_logical(closures[0], closures[1], stop=True)
        if function == "_?_:_":
            return _compile_conditional(*closures)
        if function in ("_==_", "_!=_"):
            return self._compile_equality(operands, closures, negate=function == "_!=_")
        if function == "@not_strictly_false":
            return _not_strictly_false(closures[0])
        if function in ("or", "orValue"):
            return _optional_or(closures[0], closures[1], unwrap=function == "orValue")
        if function == "!_":
            return _compile_not(closures[0])
        kinds = [operand.type.kind for operand in operands]
        if function in _COMPARE and kinds[0] == kinds[1] and kinds[0] in _DIRECT:
            return _compile_comparison(closures[0], closures[1], _COMPARE[function], sized=kinds[0] in ("string", "bytes"))
        return _invoke(node.overloads, closures, [operand.type for operand in operands])

    def _compile_equality(self, operands: Sequence[Node], closures: Sequence[Closure], *, negate: bool) -> Closure:
        kinds = {operand.type.kind for operand in operands}
        if len(kinds) == 1 and kinds <= _DIRECT:
            compare = operator.ne if negate else operator.eq
            return _compile_comparison(closures[0], closures[1], compare, sized=bool(kinds & {"string", "bytes"}))
        left, right = closures

        def compare_any(frame: Frame) -> bool:
            a, b = left(frame), right(frame)
            meter = frame[0]
            meter.charge(max(1, math.ceil(min(size_of(a), size_of(b)) * 0.1)), 1)
            return equals(meter, a, b) is not negate

        return compare_any

    def _optional_select(self, node: Call) -> Closure:
        field = node.args[1]
        assert isinstance(field, Literal)
        return self._select_optional(node, node.args[0], field.value)

    def _select_optional(self, node: Node, container: Node, field: str) -> Closure:
        """Select a field that may be absent, or a field of an optional value."""
        operand, key = self.compile(container, whole=False), _json_key(container.type, field)
        schema, convert = (node.type.params[0].schema if node.type.params else None), self._convert

        def select(frame: Frame) -> Optional:
            value = operand(frame)
            frame[0].cost += 1
            if type(value) is Optional:
                if value is ABSENT:
                    return ABSENT
                value = value.value
            if not isinstance(value, dict):
                raise EvaluationFailure(NO_OVERLOAD)
            if key not in value:
                return ABSENT
            item = value[key]
            return Optional(item if schema is None or convert is None else convert(frame[0], item, schema))

        return select

    # Comprehensions

    def _compile_comprehension(self, node: Comprehension) -> Closure:
        range_, init = self.compile(node.range), self.compile(node.init)
        accumulator = self._push(node.accumulator)
        if isinstance(node.range, ListNode) and not node.range.elements and node.accumulator != "@result":
            result = self.compile(node.result)
            self._pop(node.accumulator)
            return _bind(init, accumulator, result)
        before = self._nodes
        first = self._push(node.var)
        second = self._push(node.var2) if node.var2 else 0
        quantifier = _quantifier_of(node)
        if quantifier is not None:
            stop, predicate = quantifier
            body = self.compile(predicate)
            work = self._nodes - before + 3
            closure = _compile_quantifier(range_, body, first, second, work, stop=stop)
        else:
            condition = (
                None if isinstance(node.condition, Literal) and node.condition.value is True else self.compile(node.condition)
            )
            step = self._step(node.step, node, accumulator)
            work = self._nodes - before + 3
            result = self.compile(node.result)
            closure = _compile_loop(range_, init, condition, step, result, accumulator, first, second, work)
        self._pop(node.var)
        if node.var2:
            self._pop(node.var2)
        self._pop(node.accumulator)
        return closure

    def _step(self, step: Node, loop: Comprehension, accumulator: int) -> Closure:
        """Compile a step. A list or a map that the loop builds is changed in place: nothing else sees it before the loop
        ends."""
        if not isinstance(step, Call) or not isinstance(loop.init, ListNode | MapNode):
            return self.compile(step)
        if step.function == "_?_:_" and all(_is_step(branch, loop.accumulator) for branch in step.args[1:]):
            condition, *branches = step.args
            return _compile_conditional(
                self.compile(condition), *[self._step(branch, loop, accumulator) for branch in branches]
            )
        if isinstance(loop.init, ListNode) and step.function == "_+_" and _is_ident(step.args[0], loop.accumulator):
            return _append(self.compile(step.args[1]), accumulator)
        if isinstance(loop.init, MapNode) and step.function == "cel.@mapInsert" and _is_ident(step.args[0], loop.accumulator):
            return _insert([self.compile(arg) for arg in step.args[1:]], accumulator)
        return self.compile(step)


def _is_ident(node: Node, name: str) -> bool:
    return isinstance(node, Ident) and node.name == name


def _is_step(node: Node, name: str) -> bool:
    return _is_ident(node, name) or (
        isinstance(node, Call) and bool(node.args) and node.function in ("_?_:_", "_+_", "cel.@mapInsert")
    )


def _quantifier_of(node: Comprehension) -> tuple[bool, Node] | None:
    """Return the value that ends the loop, and the predicate, if the loop is `all` or `exists`."""
    step = node.step
    if not (isinstance(node.init, Literal) and isinstance(step, Call) and _is_ident(node.result, node.accumulator)):
        return None
    if step.function == "_&&_" and node.init.value is True and _is_ident(step.args[0], node.accumulator):
        return False, step.args[1]
    if step.function == "_||_" and node.init.value is False and _is_ident(step.args[0], node.accumulator):
        return True, step.args[1]
    return None


def _json_key(operand: Type, field: str) -> str:
    if is_optional(operand):
        operand = operand.params[0]
    if operand.kind == "struct" and operand.fields is not None and field in operand.fields:
        return operand.fields[field].key
    return field


def _type_name(name: str) -> Closure:
    value = TypeValue(name)

    def read(frame: Frame) -> Any:
        frame[0].cost += 1
        return value

    return read


def _compile_select(operand: Closure, key: str) -> Closure:
    def select(frame: Frame) -> Any:
        container = operand(frame)
        frame[0].cost += 1
        try:
            return container[key]
        except (KeyError, TypeError, IndexError):
            raise EvaluationFailure(f"no such key: {key}") from None

    return select


def _compile_presence_test(operand: Closure, key: str) -> Closure:
    def test(frame: Frame) -> bool:
        container = operand(frame)
        if type(container) is Optional:
            container = container.value
        if not isinstance(container, dict):
            raise EvaluationFailure(f"no such key: {key}")
        return key in container

    return test


def _compile_logical(left: Closure, right: Closure, *, stop: bool) -> Closure:
    """`&&` stops at False, `||` at True. An error of one operand does not matter if the other one decides."""

    def evaluate(frame: Frame) -> Any:
        try:
            value = left(frame)
        except CostExceeded:
            raise
        except EvaluationFailure as failure:
            frame[0].work += 20
            if right(frame) is stop:
                return stop
            raise failure
        if value is stop:
            return stop
        if value is not (not stop):
            if right(frame) is stop:
                return stop
            raise EvaluationFailure(NO_OVERLOAD)
        value = right(frame)
        if value is True or value is False:
            return value
        raise EvaluationFailure(NO_OVERLOAD)

    return evaluate


def _compile_conditional(condition: Closure, first: Closure, second: Closure) -> Closure:
    def choose(frame: Frame) -> Any:
        value = condition(frame)
        if value is True:
            return first(frame)
        if value is False:
            return second(frame)
        raise EvaluationFailure(NO_OVERLOAD)

    return choose


def _compile_not(operand: Closure) -> Closure:
    def negate(frame: Frame) -> bool:
        value = operand(frame)
        frame[0].cost += 1
        if value is True:
            return False
        if value is False:
            return True
        raise EvaluationFailure(NO_OVERLOAD)

    return negate


def _not_strictly_false(operand: Closure) -> Closure:
    def test(frame: Frame) -> bool:
        frame[0].cost += 1
        try:
            return operand(frame) is not False
        except CostExceeded:
            raise
        except EvaluationFailure:
            return True

    return test


def _optional_or(left: Closure, right: Closure, *, unwrap: bool) -> Closure:
    def choose(frame: Frame) -> Any:
        value = left(frame)
        frame[0].cost += 1
        if type(value) is not Optional:
            raise EvaluationFailure(NO_OVERLOAD)
        if value is ABSENT:
            return right(frame)
        return value.value if unwrap else value

    return choose


def _compile_comparison(left: Closure, right: Closure, compare: Callable[[Any, Any], Any], *, sized: bool) -> Closure:
    if sized:

        def compare_sized(frame: Frame) -> Any:
            a, b = left(frame), right(frame)
            frame[0].cost += (min(len(a), len(b)) + 9) // 10
            return compare(a, b)

        return compare_sized

    def compare_scalars(frame: Frame) -> Any:
        a, b = left(frame), right(frame)
        frame[0].cost += 1
        return compare(a, b)

    return compare_scalars


def _invoke(overloads: Sequence[Overload], closures: Sequence[Closure], types: Sequence[Type]) -> Closure:
    dynamic = len(overloads) > 1 or any(found.kind in ("dyn", "param") for found in types)
    if not dynamic:
        return _invoke_one(overloads[0], closures)
    candidates = [([_value_classes(param) for param in overload.params], _overload_runner(overload)) for overload in overloads]

    def invoke(frame: Frame) -> Any:
        values = [closure(frame) for closure in closures]
        for params, run in candidates:
            if all(classes is None or type(value) in classes for classes, value in zip(params, values, strict=True)):
                return run(frame[0], values)
        raise EvaluationFailure(NO_OVERLOAD)

    return invoke


def _invoke_one(overload: Overload, closures: Sequence[Closure]) -> Closure:
    implementation = overload.impl
    if overload.name in _FAST and call_cost(overload) is None and not overload.takes_meter and implementation is not None:
        if len(closures) == 1:
            (only,) = closures

            def invoke_one(frame: Frame) -> Any:
                value = only(frame)
                frame[0].cost += 1
                return implementation(value)

            return invoke_one
        if len(closures) == 2:
            first, second = closures

            def invoke_two(frame: Frame) -> Any:
                a, b = first(frame), second(frame)
                frame[0].cost += 1
                return implementation(a, b)

            return invoke_two
    run = _overload_runner(overload)
    if len(closures) == 2:
        target, argument = closures
        return lambda frame: run(frame[0], [target(frame), argument(frame)])
    return lambda frame: run(frame[0], [closure(frame) for closure in closures])


def _overload_runner(overload: Overload) -> Callable[[Meter, list[Any]], Any]:
    """Return a function that calls an overload, and counts its cost and its work."""
    implementation, takes_meter, cost = overload.impl, overload.takes_meter, call_cost(overload)
    if implementation is None:
        return _run_nothing
    before = cost is not None and overload.name in _COST_BEFORE
    per_step = 4 if overload.name in _SLOW else 200 if cost is not None and overload.name not in _UNSIZED else 0
    """Characters for each step of work; 0: the size does not matter."""

    def run(meter: Meter, values: list[Any]) -> Any:
        meter.work += 15
        if before and cost is not None:
            meter.cost += cost(values, None)
        if per_step:
            meter.charge(0, sum(map(size_of, values)) // per_step)
        result = implementation(meter, *values) if takes_meter else implementation(*values)
        if cost is None:
            meter.cost += 1
        elif not before:
            meter.cost += cost(values, result)
        return result

    return run


def _run_nothing(meter: Meter, values: list[Any]) -> Any:
    raise EvaluationFailure(NO_OVERLOAD)


def _value_classes(param: Type) -> frozenset[type] | None:
    """Return the classes of the values of a type; None for any."""
    if param.kind in ("dyn", "param"):
        return None
    found = _CLASSES.get(param.kind)
    if found is None:
        found = frozenset(each for each, name in NAMES.items() if name == param.name) or None
    return found


def _bind(init: Closure, slot: int, result: Closure) -> Closure:
    def bind(frame: Frame) -> Any:
        frame[0].charge(LIST, 1)
        frame[slot] = init(frame)
        return result(frame)

    return bind


def _append(items: Closure, slot: int) -> Closure:
    def append(frame: Frame) -> Any:
        frame[0].cost += 2
        accumulated = frame[slot]
        accumulated.extend(items(frame))
        return accumulated

    return append


def _insert(closures: Sequence[Closure], slot: int) -> Closure:
    def insert(frame: Frame) -> Any:
        frame[0].cost += 2
        accumulated = frame[slot]
        values = [closure(frame) for closure in closures]
        added = {values[0]: values[1]} if len(values) == 2 else values[0]
        for key in added:
            if key in accumulated:
                raise EvaluationFailure(f"insert failed: key '{to_text(key)}' already exists")
        accumulated.update(added)
        return accumulated

    return insert


def _iterate_container(container: Any, meter: Meter, *, pairs: bool) -> Any:
    """Return the elements that a loop iterates over: the items of a list, the keys of a map, or pairs."""
    kind = type(container)
    if kind in _LIST_TYPES:
        meter.charge(0, len(container))
        return enumerate(container) if pairs else container
    if kind is dict:
        meter.charge(0, len(container))
        return container.items() if pairs else container
    raise EvaluationFailure(NO_OVERLOAD)


def _compile_quantifier(range_: Closure, body: Closure, first: int, second: int, work: int, *, stop: bool) -> Closure:
    cost = 4 if stop else 3

    def quantify(frame: Frame) -> Any:
        meter = frame[0]
        failure: EvaluationFailure | None = None
        for item in _iterate_container(range_(frame), meter, pairs=second > 0):
            if second:
                frame[first], frame[second] = item
            else:
                frame[first] = item
            meter.cost += cost
            meter.work += work
            if meter.cost > meter.cost_limit or meter.work > meter.work_limit:
                raise CostExceeded(EXCEEDED)
            try:
                value = body(frame)
            except CostExceeded:
                raise
            except EvaluationFailure as error:
                meter.work += 20
                failure = failure or error
                continue
            if value is stop:
                return stop
            if value is not (not stop):
                failure = failure or EvaluationFailure(NO_OVERLOAD)
        if failure is not None:
            raise failure
        return not stop

    return quantify


def _compile_loop(
    range_: Closure,
    init: Closure,
    condition: Closure | None,
    step: Closure,
    result: Closure,
    slot: int,
    first: int,
    second: int,
    work: int,
) -> Closure:
    def loop(frame: Frame) -> Any:
        meter = frame[0]
        items = _iterate_container(range_(frame), meter, pairs=second > 0)
        accumulated = init(frame)
        frame[slot] = accumulated
        for item in items:
            if second:
                frame[first], frame[second] = item
            else:
                frame[first] = item
            meter.work += work
            if meter.cost > meter.cost_limit or meter.work > meter.work_limit:
                raise CostExceeded(EXCEEDED)
            if condition is not None and condition(frame) is False:
                break
            frame[slot] = accumulated = step(frame)
        return result(frame)

    return loop
