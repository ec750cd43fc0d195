"""Random expressions, mostly nonsense: each one compiles or is refused, and each evaluation has a result or an error."""

import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from pinnace.cel import costs, functions, libraries
from pinnace.cel.checker import TYPE_NAMES
from pinnace.cel.programs import ADMISSION_VARIABLES, compile_expression
from pinnace.cel.rules import compile_rules
from pinnace.cel.syntax import CompileError

ATOMS = [
    "object", "object.a", "object.l", "object.m", "object.s", "request", "params", "1", "-1", "0", "1u", "1.5", "'a'", "''",
    "'a.b-c/d'",
    "b'x'", "true", "false", "null", "[]", "[1]", "['a']", "{}", "{'a': 1}", "duration('1s')", "timestamp(0)",
    "optional.none()",
    "quantity('1Gi')", "ip('::1')", "semver('1.2.3')", "dyn(1)", "x", "9223372036854775807", "-9223372036854775808",
    "'%s %d'", "[[1]]",
    "'\\u00e9'", "type(1)", "int", "url('http://a/b')", "cidr('10.0.0.0/8')", "format.uuid()", "1e308",
]  # fmt: skip
OPERATORS = ["+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "&&", "||", "in"]
MACROS = ["all", "exists", "exists_one", "map", "filter", "transformList", "transformMap", "optMap", "sortBy"]
VALUES: list[Any] = [
    {"a": 1, "l": [1, "x", None, [True], {"k": 1.5}], "m": {"p": "q"}, "s": "text"}, None, [], "s", 0, {"l": list(range(50))},
]  # fmt: skip


class Generator:
    """Writes expressions of a limited depth."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._members = sorted({each.name for found in functions.FUNCTIONS.values() for each in found if each.member})
        self._globals = sorted({each.name for found in functions.FUNCTIONS.values() for each in found if not each.member})
        self._types = sorted(TYPE_NAMES)

    def write(self, depth: int) -> str:
        pick = self._random
        if depth == 0:
            return pick.choice(ATOMS)

        def below() -> str:
            return self.write(depth - 1 if pick.random() < 0.8 else 0)

        kinds: list[Callable[[], str]] = [
            lambda: f"({below()} {pick.choice(OPERATORS)} {below()})",
            lambda: f"{below()}.{pick.choice(self._members)}({', '.join(below() for _ in range(pick.randrange(3)))})",
            lambda: f"{pick.choice(self._globals)}({', '.join(below() for _ in range(pick.randrange(1, 3)))})",
            lambda: f"{below()}.{pick.choice(MACROS)}(x, {below()})",
            lambda: f"{below()}.{pick.choice(MACROS)}(i, x, {below()})",
            lambda: f"({below()} ? {below()} : {below()})",
            lambda: f"{below()}[{below()}]",
            lambda: f"{below()}[?{below()}]",
            lambda: f"{below()}.{pick.choice(['a', 'l', 'm', '?a', '?z'])}",
            lambda: f"has({below()}.a)",
            lambda: f"[{below()}, {below()}]",
            lambda: f"{{{below()}: {below()}}}",
            lambda: f"!{below()}",
            lambda: f"type({below()}) == {pick.choice(self._types)}",
            lambda: f"Object{{a: {below()}}}",
        ]
        return pick.choice(kinds)()


@pytest.mark.parametrize("seed", range(4))
def test_random_expressions_have_results_or_errors(seed: int) -> None:
    libraries.load_libraries()
    generator = Generator(seed)
    compiled = 0
    for _ in range(700):
        text = generator.write(3)
        try:
            program = compile_expression(text, {**ADMISSION_VARIABLES, "x": "dyn"})
        except CompileError as failure:
            assert "ERROR: <input>:" in str(failure)
            continue
        compiled += 1
        assert 0 <= program.cost <= costs.MAX
        for value in VALUES:
            started = time.thread_time()
            program.evaluate({"object": value, "request": {}, "params": None, "x": value})
            assert time.thread_time() - started < 1
    assert compiled > 50


@pytest.mark.parametrize("seed", range(2))
def test_random_rules_have_results_or_errors(seed: int) -> None:
    libraries.load_libraries()
    generator = Generator(100 + seed)
    texts = {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}
    fields = {
        "a": {"type": "number"},
        "l": texts,
        "m": {"type": "object", "additionalProperties": {"type": "integer"}},
        "s": {"type": "string"},
    }
    for _ in range(300):
        rule = generator.write(3).replace("object", "self")
        schema = {"type": "object", "properties": fields, "x-kubernetes-validations": [{"rule": rule}]}
        rules = compile_rules(schema)
        for value in ({"a": 1, "l": ["x"], "m": {"p": 1}, "s": "t"}, {}, {"a": "wrong", "l": 5, "m": [], "s": None}):
            rules.validate(value, value)
