"""What is refused when a definition with rules is written. The messages are those of a Kubernetes API server 1.36.2."""

from typing import Any

import pytest

from pinnace.cel import rule_checks
from pinnace.cel.rule_checks import check_rules
from pinnace.cel.rules import compile_rules

Schema = dict[str, Any]
PATH = "spec.validation.openAPIV3Schema"
RULE = f"{PATH}.x-kubernetes-validations[0]"
STRING, INTEGER = {"type": "string"}, {"type": "integer"}
HINT = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
)


def with_rule(schema: Schema, rule: str, **more: Any) -> Schema:
    return {**schema, "x-kubernetes-validations": [{"rule": rule, **more}]}


def obj(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties}


def check(schema: Schema) -> list[tuple[str, str]]:
    return [(violation.field, violation.message) for violation in check_rules(schema, PATH)]


def shown(rule: str, **more: Any) -> str:
    values = {
        "Message": '""',
        "MessageExpression": '""',
        "Reason": "null",
        "FieldPath": '""',
        "OptionalOldSelf": "null",
        **more,
    }
    return f'{{"Rule":"{rule}",{",".join(f"{chr(34)}{key}{chr(34)}:{value}" for key, value in values.items())}}}'


def test_unknown_field_is_refused() -> None:
    escaped = "self.nope \\u003e 1"
    assert check(with_rule(obj(a=INTEGER), "self.nope > 1")) == [
        (
            f"{RULE}.rule",
            f"Invalid value: {shown(escaped)}: compilation failed: ERROR: <input>:1:5: undefined field 'nope'\n"
            " | self.nope > 1\n | ....^",
        )
    ]


def test_expensive_rule_is_refused() -> None:
    schema = with_rule(obj(l={"type": "array", "items": STRING}), "self.l.all(x, self.l.all(y, x == y))")
    assert check(schema) == [
        (f"{RULE}.rule", f"Forbidden: estimated rule cost exceeds budget by factor of more than 100x {HINT}"),
        (
            f"{RULE}.rule",
            "Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema",
        ),
        (
            PATH,
            "Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by "
            f"factor of more than 100x {HINT}",
        ),
    ]


def test_message_of_unlimited_number_is_refused() -> None:
    schema = with_rule(obj(n=INTEGER), "self.n > 1", messageExpression="'n is ' + string(self.n)")
    place = f"{RULE}.messageExpression"
    assert check(schema)[0] == (
        place,
        f"Forbidden: estimated messageExpression cost exceeds budget by factor of more than 100x {HINT}",
    )
    assert check(with_rule(obj(n=INTEGER), "self.n > 1", messageExpression="'n is %d'.format([self.n])")) == []


def test_factor_of_cost_is_shown() -> None:
    def factor(max_items: int) -> str:
        item = with_rule({"type": "string", "maxLength": 100_000}, "self.contains('some text')")
        return next((message for _, message in check(obj(l={"type": "array", "maxItems": max_items, "items": item}))), "")

    assert factor(249) == ""
    assert "by factor of 1.008025x" in factor(252)
    assert "by factor of 8.0x" in factor(2000)


def test_cost_counts_items_of_lists_that_have_no_limit() -> None:
    item = with_rule(STRING, "self.startsWith('x')")
    assert check(obj(l={"type": "array", "items": item})) == []
    deep: dict[str, Any] = {
        "type": "array",
        "items": {"type": "array", "items": with_rule({"type": "integer"}, "self > 0 || self < 7 || self > 3 || self < 1")},
    }
    assert "estimated rule cost exceeds budget" in check(obj(l=deep))[0][1]
    limited = {**deep, "maxItems": 10, "items": {**deep["items"], "maxItems": 10}}
    assert check(obj(l=limited)) == []


def test_most_expensive_rules_are_listed() -> None:
    item = with_rule({"type": "string", "maxLength": 100_000}, "self.contains('x')")
    schema = obj(**{f"l{index}": {"type": "array", "maxItems": 240, "items": item} for index in range(6)})
    found = check({**schema, "x-kubernetes-validations": []})
    assert found == []
    many = obj(**{f"l{index}": {"type": "array", "maxItems": 240, "items": item} for index in range(12)})
    messages = [message for _, message in check(many)]
    assert sum("contributed to estimated rule cost total" in message for message in messages) == 4
    assert f"exceeds budget by factor of 1.152029x {HINT}" in messages[-1]


@pytest.mark.parametrize(
    ("rule", "detail"),
    [
        ("self.a", "cel expression must evaluate to a bool"),
        ("dyn(self.a)", "cel expression must evaluate to a bool"),
        ("self.a +", "compilation failed: ERROR: <input>:1:9: Syntax error: mismatched input '<EOF>' expecting "),
        ("self.a == 'x'", "found no matching overload for '_==_' applied to '(int, string)'"),
        ("object.a", "undeclared reference to 'object' (in container '')"),
        ("self.a.foo()", "undeclared reference to 'foo' (in container '')"),
        ("'x'.matches('(')", "invalid matches argument"),
        ("[1, 'x'].size() > 0", "expected type 'int' but found 'string'"),
        ("self.l.all(x, x)", "expected type 'bool' but found 'string'"),
        ("self.a.all(x, true)", "expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)"),
        ("has(self)", "ERROR: <input>:1:5: has() argument must be a field selection"),
        ("(" * 33 + "true" + ")" * 33, "expression recursion limit exceeded"),
        ("true" + " " * 100_001, "expression code point size exceeds limit"),
    ],
)
def test_compile_errors(rule: str, detail: str) -> None:
    ((field, message), *_) = check(with_rule(obj(a=INTEGER, l={"type": "array", "items": STRING}), rule))
    assert field == f"{RULE}.rule"
    assert detail in message


def test_error_of_message_expression() -> None:
    for expression, detail in (
        ("self.b", "messageExpression compilation failed: ERROR: <input>:1:5: undefined field 'b'"),
        ("1", "messageExpression must evaluate to a string"),
    ):
        ((field, message),) = check(with_rule(obj(a=INTEGER), "self.a > 0", messageExpression=expression))
        assert field == f"{RULE}.messageExpression"
        assert detail in message


def test_optional_old_value_needs_old_value() -> None:
    schema = with_rule(obj(a=INTEGER), "true", optionalOldSelf=True)
    assert check(schema) == [(f"{RULE}.optionalOldSelf", "Invalid value: true: may not be set if oldSelf is not used in rule")]


def test_old_value_needs_correlation() -> None:
    item = with_rule(obj(k={"type": "string", "maxLength": 10}), "self.k == oldSelf.k")
    schema = obj(l={"type": "array", "items": item, "x-kubernetes-list-type": "atomic"})
    place = f"{PATH}.properties[l]"
    assert check(schema) == [
        (
            f"{place}.items.x-kubernetes-validations[0].rule",
            'Invalid value: "self.k == oldSelf.k": oldSelf cannot be used on the uncorrelatable portion of the schema within '
            f"{place}",
        )
    ]
    as_map = {
        "type": "array",
        "items": item,
        "maxItems": 10,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["k"],
    }
    assert check(obj(l=as_map)) == []


def test_rule_on_untyped_value_is_refused() -> None:
    schema = obj(free=with_rule({"x-kubernetes-preserve-unknown-fields": True}, "true"))
    ((field, message),) = check(schema)
    assert field == f"{PATH}.properties[free].x-kubernetes-validations"
    assert message.startswith("Internal error: internal error: failed to construct type information")


def test_all_errors_are_reported() -> None:
    schema = obj(a=with_rule(STRING, "self.x"), b=with_rule(STRING, "1"), c=with_rule(STRING, "self != ''"))
    assert [field for field, _ in check(schema)] == [
        f"{PATH}.properties[{name}].x-kubernetes-validations[0].rule" for name in ("a", "b")
    ]


def test_text_of_rules_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_checks, "MAX_TEXT", 20)
    schema = obj(a=with_rule(STRING, "self != 'aaaaaaaa'"), b=with_rule(STRING, "self != 'aaaaaaaa'"))
    assert check(schema)[-1][1] == "Forbidden: the rules of a version may have at most 20 characters"


def test_check_prepares_rules() -> None:
    schema = with_rule(obj(a=INTEGER), "self.a > 0")
    rules = compile_rules(schema)
    assert check_rules(schema, PATH, rules) == []
    assert rules.root is not None
    assert rules.root.rules[0].program is not None
