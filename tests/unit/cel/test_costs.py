"""Estimates of costs, which decide whether a definition is accepted. The values are those of Kubernetes 1.36."""

from typing import Any

import pytest

from pinnace.cel import costs, libraries, syntax
from pinnace.cel.checker import check
from pinnace.cel.evaluation import Program
from pinnace.cel.meter import Meter
from pinnace.cel.rules import compile_rules
from pinnace.cel.types import DYN

Schema = dict[str, Any]


def array(items: Schema, limit: int | None) -> Schema:
    return _limited({"type": "array", "items": items}, "maxItems", limit)


def mapping(values: Schema, limit: int | None) -> Schema:
    return _limited({"type": "object", "additionalProperties": values}, "maxProperties", limit)


def text(limit: int | None, **more: Any) -> Schema:
    return _limited({"type": "string", **more}, "maxLength", limit)


def _limited(schema: Schema, keyword: str, limit: int | None) -> Schema:
    return schema if limit is None else {**schema, keyword: limit}


def estimate(schema: Schema, rule: str) -> int:
    rules = compile_rules({**schema, "x-kubernetes-validations": [{"rule": rule}]}, resource_root=False)
    assert rules.root is not None
    (compiled,) = rules.root.rules
    assert not compiled.error
    return compiled.cost


NUMBER, STRING, BOOLEAN, INTEGER = {"type": "number"}, {"type": "string"}, {"type": "boolean"}, {"type": "integer"}
INT_OR_STRING = {"x-kubernetes-int-or-string": True}
DURATION, DATE, TIME = (text(None, format=form) for form in ("duration", "date", "date-time"))
OBJECT = {"type": "object", "required": ["required"], "properties": {"required": STRING, "optional": STRING}}


@pytest.mark.parametrize(
    ("items", "rule", "unlimited", "limit", "limited"),
    [
        (NUMBER, "self.all(x, true)", 4718591, 10, 32),
        (STRING, "self.all(x, true)", 3145727, 20, 62),
        (BOOLEAN, "self.all(x, true)", 1887437, 5, 17),
        (array(NUMBER, None), "self.all(x, true)", 3145727, 100, 302),
        (INT_OR_STRING, "self.all(x, true)", 4718591, 10, 32),
        (DURATION, "self.all(x, true)", 2359295, 5, 17),
        (DATE, "self.all(x, true)", 725936, 15, 47),
        (TIME, "self.all(x, true)", 428963, 25, 77),
        (NUMBER, "self.all(x, x == 0.0)", 6291454, 3 * 1024 * 2048, 25165826),
        (NUMBER, "self[1] == 0.0", 2, 5000, 2),
        (NUMBER, "self[3] == 0.0", 2, 0, 2),
        (STRING, "self[1] == self[1]", 314577, 8, 314577),
        (INT_OR_STRING, "self[0] == 5", 3, 10, 3),
        (BOOLEAN, "self[0] == false", 2, 25, 2),
        (array(NUMBER, None), "self[0][0] == -1.0", 3, 51, 3),
        (DURATION, "self[0].getHours() == 2", 4, 525, 4),
        (DATE, "self[2].getDayOfMonth() == 13", 4, 42, 4),
        (TIME, "self[2].getMinutes() == 45", 4, 99, 4),
        (mapping(NUMBER, None), "self.all(x, x.y == 25.2)", 6291452, 12, 74),
        (mapping(NUMBER, None), "self[0].x > 2.0", 4, 3000, 4),
    ],
)
def test_list_estimates(items: Schema, rule: str, unlimited: int, limit: int, limited: int) -> None:
    assert estimate(array(items, None), rule) == unlimited
    assert estimate(array(items, limit), rule) == limited


@pytest.mark.parametrize(
    ("values", "rule", "unlimited", "limit", "limited"),
    [
        (NUMBER, "self.all(x, true)", 1348169, 10, 32),
        (STRING, "self.all(x, true)", 1179647, 3, 11),
        (BOOLEAN, "self.all(x, true)", 943718, 100, 302),
        (INT_OR_STRING, "self.all(x, true)", 1348169, 15, 47),
        (OBJECT, "self.all(x, true)", 428963, 20, 62),
        (mapping(NUMBER, None), "self.all(x, true)", 1179647, 10, 32),
        (array(NUMBER, None), "self.all(x, true)", 1179647, 25, 77),
        (DURATION, "self.all(x, true)", 1048577, 5, 17),
        (DATE, "self.all(x, true)", 524288, 10, 32),
        (TIME, "self.all(x, true)", 349526, 25, 77),
        (NUMBER, 'self["x"] == 0.0', 2, 0, 2),
        (INTEGER, "oldSelf.size() == self.size()", 5, 10, 5),
        (TIME, 'self["a"] == self["b"]', 8, 7, 8),
        (DURATION, 'self["c"] == self["d"]', 8, 42, 8),
    ],
)
def test_map_estimates(values: Schema, rule: str, unlimited: int, limit: int, limited: int) -> None:
    assert estimate(mapping(values, None), rule) == unlimited
    assert estimate(mapping(values, limit), rule) == limited


@pytest.mark.parametrize(
    ("rule", "unlimited", "limit", "limited"),
    [
        ("self.contains('test')", 314574, 10, 5),
        ("self.startsWith('test')", 2, 15, 2),
        ("self.endsWith('test')", 2, 30, 2),
        ('size(self + "hello") > size("hello")', 314578, 4, 7),
        ('self.matches("x")', 314574, 50, 22),
        ('"".matches("(((((((((())))))))))[0-9]")', 7, 10, 7),
        ('self.matches("")', 1, 100, 1),
        ('self == "x"', 2, 0, 1),
        ("self.find('[0-9]+') == ''", 629147, 10, 11),
        ("self.lowerAscii() == 'lower!'", 314575, 10, 6),
    ],
)
def test_text_estimates(rule: str, unlimited: int, limit: int, limited: int) -> None:
    assert estimate(text(None), rule) == unlimited
    assert estimate(text(limit), rule) == limited


def test_nested_loops_exceed_limit_without_max_items() -> None:
    rule = "self.all(x, self.all(y, true))"
    assert estimate(array(NUMBER, None), rule) > 10_000_000
    assert estimate(array(NUMBER, 10), rule) == 352
    assert estimate(array(NUMBER, 10), "self.all(x, self.all(y, self.all(z, true)))") == 3552


def test_enum_bounds_text() -> None:
    values = ["A", "B", "C", "LongValue"]
    assert estimate(text(None, enum=values), "self.contains('A')") == 2
    assert estimate(text(1000, enum=values), "self.contains('A')") == 401


def test_values_of_map_have_their_size() -> None:
    rule = "self.all(x, x.contains(self[x]))"
    assert estimate(mapping(STRING, None), rule) == 2752507
    assert estimate(mapping(text(10), 10), rule) == 72


@pytest.mark.parametrize(
    ("limit", "rule", "cost"),
    [
        (None, "self.join(' ') == 'aa bb'", 329853068905),
        (10, "self.join(' ') == 'aa bb'", 43),
        (None, "self.isSorted() == true", 329854432052),
        (10, "self.isSorted() == true", 52),
    ],
)
def test_texts_of_lists_have_their_size(limit: int | None, rule: str, cost: int) -> None:
    assert estimate(array(text(limit), limit), rule) == cost


def test_replacement_has_size_of_result() -> None:
    rule = "self.str.replace(self.before, self.after) == 'does not matter'"
    for limit, cost in ((None, 629154), (4, 12)):
        schema = {"type": "object", "properties": {"str": text(limit), "before": text(2), "after": text(4)}}
        assert estimate(schema, rule) == cost


def test_split_has_size_of_text() -> None:
    for limit, cost in ((None, 629160), (10, 22)):
        schema = {"type": "object", "properties": {"str": text(limit), "separator": text(limit)}}
        assert estimate(schema, "self.str.split(self.separator) == []") == cost


def test_text_of_number_has_no_limit() -> None:
    schema = {"type": "object", "properties": {"n": INTEGER}}
    assert estimate(schema, "'a' + string(self.n) != ''") > 10_000_000
    assert estimate(schema, "string(self.n) != ''") < 100


def cost_of(expression: str) -> tuple[int, int]:
    """Return the estimated maximum and the actual cost of an expression without data."""
    libraries.load_libraries()
    node, source = syntax.parse(expression)
    check(node, source, {"x": DYN})
    meter = Meter()
    Program(node, ("x",)).evaluate(meter, {"x": 1})
    return costs.estimate(node), meter.cost


FIFTY = "'01234567890123456789012345678901234567890123456789'"


@pytest.mark.parametrize(
    ("expression", "estimated", "actual"),
    [
        ("[1, 2, 3, 4, 5].sum()", 15, 15),
        ("[uint(1), uint(2), uint(3), uint(4), uint(5)].sum()", 20, 20),
        ("[1, 2, 3, 4, 5].indexOf(3)", 15, 15),
        (f"{FIFTY}.indexOf('123')", 5, 5),
        ("url('https:://kubernetes.io/').getHost()", 4, 4),
        ("ip('192.168.0.1')", 2, 2),
        ("ip('2001:db8:3333:4444:5555:6666:7777:8888').family()", 5, 5),
        ("ip.isCanonical('2001:db8::abcd')", 3, 3),
        ("cidr('192.168.0.0/16').prefixLength()", 3, 3),
        ("'ABCDEFGHIJ abcdefghij'.lowerAscii() == 'abcdefghij ABCDEFGHIJ'.lowerAscii()", 9, 9),
        ("strings.quote('ABCDEFGHIJ abcdefghij')", 3, 3),
        ("'abc 123 def 123'.replace('123', '456')", 3, 3),
        ("'abc 123 def 123'.split(' ')", 3, 3),
        ("'abc 123 def 123'.substring(5, 8)", 2, 2),
        ("'  abc 123 def 123  '.trim()", 2, 2),
        ("'abc 123 def 123'.find('123')", 2, 2),
        ("quantity('50k').add(20).sub(quantity('100k')).sub(-50000).asInteger() > 0", 7, 7),
        ("quantity('50M').isLessThan(quantity('50Mi'))", 3, 3),
        ("sets.contains([1, 2, 3, 4], [2, 3])", 29, 29),
        ("sets.equivalent([1], [1, 1])", 25, 25),
        ("!sets.contains([1], [2])", 23, 23),
    ],
)
def test_library_costs(expression: str, estimated: int, actual: int) -> None:
    assert cost_of(expression) == (estimated, actual)
