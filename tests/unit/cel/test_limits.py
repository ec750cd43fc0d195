"""No rule holds a server for long, whatever the rule and the object are."""

import random
import time
from functools import cache
from typing import Any

import pytest

from pinnace.cel import syntax
from pinnace.cel.meter import Meter
from pinnace.cel.programs import EvaluationError, compile_expression
from pinnace.cel.rules import NO_BUDGET, compile_rules

TEXTS = {"type": "array", "items": {"type": "string"}}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "l": TEXTS, "s": {"type": "string"}, "m": {"type": "object", "additionalProperties": {"type": "string"}},
        "o": {"type": "array", "items": {"type": "object", "properties": {"a": TEXTS}}},
        "n": {"type": "array", "items": {"type": "number"}},
        "set": {**TEXTS, "x-kubernetes-list-type": "set"},
    },
}  # fmt: skip
HOSTILE = [
    "self.l.all(x, self.l.exists(y, y != x || true))",
    "self.l.map(x, self.l.map(y, y + x)).size() > 0",
    "self.l.all(x, self.l + [x] != [])",
    "self.l.all(x, self.s.contains(x + 'b') || true)",
    "self.l.all(x, self.s.replace('a', 'bbbbbbbb').size() > 0)",
    "self.s.replace('', self.s).size() > 0",
    "self.l.all(x, self.s.split('').size() > 0)",
    "self.l.map(x, self.s).join().size() > 0",
    "self.s.matches('[ab]*a[ab]{1000}c') || true",
    "self.l.all(x, 'a'.matches('((' + x + '){10}){10}') || true)",
    "self.s.findAll('a').size() > 0",
    "self.o.all(x, self.o.all(y, x == y))",
    "self.o.all(x, self.o == self.o)",
    "self.l.all(x, self.l.isSorted())",
    "self.l.all(x, self.l.indexOf(x) >= 0)",
    "self.l.distinct().size() > 0",
    "self.l.all(x, self.l.sort().size() > 0)",
    "self.n.all(x, self.n.sum() > 0.0)",
    "lists.range(9000000000000000000).size() > 0",
    "self.l.all(x, '%s'.format([self.l]).size() > 0)",
    "self.set.all(x, self.set == self.set)",
    "self.set.all(x, self.set + self.set == self.set)",
    "self.l.all(x, url('http://a/' + self.s).getEscapedPath() != '')",
    "self.l.all(i, v, self.l.transformMap(j, w, w).size() > 0)",
    "self.l.all(x, format.dns1123Subdomain().validate(self.s).hasValue())",
    "self.l.all(x, self.l.all(y, 1 / 0 == 1))",
    "self.m.all(k, self.m.all(j, k != j || true))",
]


@cache
def large_value() -> dict[str, Any]:
    """Return an object that the rules do not change."""
    return {
        "l": [f"x{index:05}" for index in range(20_000)],
        "s": "".join(random.Random(1).choices("ab", k=500_000)),
        "m": {str(index): "v" for index in range(20_000)},
        "o": [{"a": ["b"] * 50} for _ in range(2_000)],
        "n": [1] * 100_000,
        "set": [f"x{index:05}" for index in range(20_000)],
    }


@pytest.mark.parametrize("rule", HOSTILE)
def test_hostile_rule_stops(rule: str) -> None:
    rules = compile_rules({**SCHEMA, "x-kubernetes-validations": [{"rule": rule}]})
    rules.prepare()
    best = 60.0
    for _ in range(3):
        started = time.thread_time()
        found = rules.validate(large_value()).violations
        best = min(best, time.thread_time() - started)
    assert len(found) == 1
    assert NO_BUDGET in found[0].message or "actual cost limit exceeded" in found[0].message
    assert best < 0.5  # 0.05 s on a machine that does nothing else


def test_many_rules_share_one_budget() -> None:
    contents = [{"rule": f"self.l.all(x, x != '{index}')"} for index in range(500)]
    found = compile_rules({**SCHEMA, "x-kubernetes-validations": contents}).validate(large_value()).violations
    assert [NO_BUDGET in violation.message for violation in found] == [True]


def test_usual_rules_cost_little() -> None:
    program = compile_expression("object.spec.containers.all(c, has(c.image) && c.image.matches('^[a-z0-9./:-]+$'))")
    meter = Meter()
    containers = [{"image": f"registry.example.com/app:{index}"} for index in range(20)]
    program.evaluate({"object": {"spec": {"containers": containers}}}, meter)  # compiles the pattern
    warm = Meter()
    assert program.evaluate({"object": {"spec": {"containers": containers}}}, warm) is True
    assert warm.work < warm.work_limit / 10  # a hundredth on a machine that does nothing else


def test_loop_builds_list_in_place() -> None:
    """cel-cpp copies the list for each item: its filter is quadratic."""
    program = compile_expression("object.filter(x, x >= 0).size()")
    works = []
    for size in (1_000, 4_000):
        meter = Meter()
        assert program.evaluate({"object": list(range(size))}, meter) == size
        works.append(meter.work)
    assert works[1] < 5 * works[0]


def test_chain_of_optional_macros_stays_linear() -> None:
    """The parser's macro copies its target: it needs 2^n steps for a chain of n."""
    node, _ = syntax.parse("a" + ".optMap(x, x)" * 20)
    count, stack = 0, [node]
    while stack:
        each: Any = stack.pop()
        count += 1
        for kind in type(each).__mro__:
            for name in getattr(kind, "__slots__", ()):
                child = getattr(each, name, None)
                stack.extend(part for part in (child if isinstance(child, list) else [child]) if isinstance(part, syntax.Node))
    assert count < 20 * 25


@pytest.mark.parametrize(
    "text",
    [
        "-" * 5_000 + "1",
        "!" * 5_000 + "true",
        "(" * 5_000,
        "[" * 5_000,
        "a." * 5_000 + "b",
        "a ? b : " * 5_000 + "c",
        "||".join(["a"] * 5_000),
    ],
)
def test_long_expressions_compile_or_fail(text: str) -> None:
    started = time.thread_time()
    try:
        compile_expression(text, {"a": "bool", "b": "bool", "c": "bool"})
    except syntax.CompileError as failure:
        assert str(failure).startswith("compilation failed: ERROR: <input>:")
    assert time.thread_time() - started < 5


def test_deep_value_is_error() -> None:
    value: Any = []
    for _ in range(100_000):
        value = [value]
    assert compile_expression("object == object").evaluate({"object": value}) in (
        EvaluationError("the value is nested too deeply"),
        EvaluationError("operation cancelled: actual cost limit exceeded"),
    )


DOUBLED = "[1]" + "".join(f".map(x{index}, [x{index}, x{index}])" for index in range(26))
"""A small value of 2^26 parts, all of them the same."""


@pytest.mark.parametrize(
    "text",
    [
        DOUBLED,
        f"{DOUBLED} == {DOUBLED}",
        f"'%s'.format([{DOUBLED}])",
        f"{DOUBLED}.flatten(30)",
        f"{{'a': optional.of({DOUBLED})}}",
        f"Object.x{{v: {DOUBLED}}}",
        f"[JSONPatch{{op: 'add', path: '/a', value: Object.x{{v: {DOUBLED}}}}}]",
    ],
)
def test_parts_that_are_the_same_are_counted(text: str) -> None:
    program = compile_expression(text)
    started = time.thread_time()
    assert program.evaluate({}) == EvaluationError("operation cancelled: actual cost limit exceeded")
    assert time.thread_time() - started < 0.5


def test_keys_of_set_are_counted() -> None:
    """An expression may add lists to a set."""
    schema = {"type": "array", "x-kubernetes-list-type": "set", "items": {"x-kubernetes-int-or-string": True}}
    rule = f"self + [{DOUBLED}] == self + [{DOUBLED}]"
    found = (
        compile_rules({**schema, "x-kubernetes-validations": [{"rule": rule}]}, resource_root=False).validate([1]).violations
    )
    assert NO_BUDGET in found[0].message


@pytest.mark.parametrize(
    "text",
    [
        "[1]" + "".join(f".map(x{index}, {{x{index}: x{index}}})" for index in range(26)),
        "[]" + "".join(f".map(x{index}, {{x{index}: x{index}}})" for index in range(26)),
        "[1]" + "".join(f".map(x{n}, [{{}}].map(y{n}, y{n}[x{n}] == x{n} ? y{n} : y{n})[0])" for n in range(20)),
    ],
)
def test_types_that_double_are_errors(text: str) -> None:
    started = time.thread_time()
    with pytest.raises(syntax.CompileError, match="types of the expression are too large"):
        compile_expression(text)
    assert time.thread_time() - started < 0.5
