"""The rules of custom resources, evaluated on objects."""

from types import SimpleNamespace
from typing import Any

import pytest

from pinnace.cel.rules import NO_BUDGET, CompiledRules, DefaultRules, Evaluation, compile_rules, field_path

Schema = dict[str, Any]
STRING, INTEGER, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}


def obj(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties}


def array(items: Schema, kind: str = "atomic", *keys: str) -> Schema:
    schema: Schema = {"type": "array", "items": items, "x-kubernetes-list-type": kind}
    return {**schema, "x-kubernetes-list-map-keys": list(keys)} if keys else schema


def with_rule(schema: Schema, rule: str, **more: Any) -> Schema:
    return {**schema, "x-kubernetes-validations": [{"rule": rule, **more}]}


def rules_of(schema: Schema) -> CompiledRules:
    return compile_rules(schema, resource_root=False)


def evaluate(schema: Schema, value: Any, old: Any = None) -> list[str]:
    return [str(violation) for violation in rules_of(schema).validate(value, old).violations]


def passes(schema: Schema, value: Any, rule: str, old: Any = None) -> bool:
    violations = evaluate(with_rule(schema, rule), value, old)
    assert not violations or "failed rule" in violations[0], violations
    return not violations


SCALARS = obj(
    n=INTEGER, x=NUMBER, s=STRING, b={"type": "boolean"}, d={"type": "string", "format": "duration"},
    t={"type": "string", "format": "date-time"},
    day={"type": "string", "format": "date"}, raw={"type": "string", "format": "byte"},
    either={"x-kubernetes-int-or-string": True}, maybe={"type": "string", "nullable": True},
)  # fmt: skip
VALUES = {
    "n": 5, "x": 2, "s": "kube", "b": True, "d": "1m30s", "t": "2026-01-02T03:04:05Z", "day": "2026-01-02",
    "raw": "aGk=", "either": "80%",
    "maybe": None,
}  # fmt: skip


@pytest.mark.parametrize(
    "rule",
    [
        "self.n == 5 && self.n + 1 > 5 && -self.n == -5",
        "self.x == 2.0 && self.x / 4.0 == 0.5",
        "self.x < 3 && self.n > 4.5",
        "self.s.startsWith('ku') && self.s.size() == 4 && self.s.matches('^k.*e$')",
        "self.b && !(!self.b)",
        "self.d == duration('90s') && self.d.getSeconds() == 90",
        "self.t == timestamp('2026-01-02T03:04:05Z') && self.t.getFullYear() == 2026",
        "self.day < self.t && self.day.getDayOfMonth() == 1",
        "self.raw == b'hi' && string(self.raw) == 'hi'",
        "type(self.either) == string && self.either == '80%'",
        "type(self.either) == string ? self.either.endsWith('%') : self.either > 3",
        "has(self.maybe)",
        "self.?n.orValue(0) == 5",
        "type(self.n) == int && type(self.x) == double && type(self.t) == google.protobuf.Timestamp",
        "dyn([1, 2]) == [1.0, 2.0]",
        "'%s has %d'.format([self.s, self.n]) == 'kube has 5'",
        "quantity('1Gi').isGreaterThan(quantity('1G'))",
        "ip('10.0.0.1').family() == 4 && cidr('10.0.0.0/8').containsIP('10.1.2.3')",
        "!format.dns1123Label().validate(self.s).hasValue()",
        "[3, 1, 2].max() == 3 && ['a', 'b'].isSorted() && [1, 2].sum() == 3",
        "{'a': 1}.transformMap(k, v, v + 1) == {'a': 2}",
        "[1, 2].all(i, v, v == i + 1)",
        "semver('1.2.3').isLessThan(semver('v1.3', true))",
        "url('https://example.com:80/a').getHost() == 'example.com:80'",
    ],
)
def test_rules_over_typed_fields(rule: str) -> None:
    assert passes(SCALARS, VALUES, rule)


def test_failed_rule_names_itself() -> None:
    assert evaluate(with_rule(SCALARS, "self.n > 9"), VALUES) == ["<nil>: Invalid value: failed rule: self.n > 9"]


def test_scalar_is_part_of_message() -> None:
    for schema, value, shown in (
        (INTEGER, 3, "3"),
        (STRING, 'a"b', '"a\\"b"'),
        (NUMBER, 1.5, "1.5"),
        ({"type": "boolean"}, True, "true"),
    ):
        nested = obj(a=with_rule(schema, "false", message="no"))
        assert evaluate(nested, {"a": value}) == [f"a: Invalid value: {shown}: no"]


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        (None, "Invalid value: no"),
        ("FieldValueInvalid", "Invalid value: no"),
        ("FieldValueForbidden", "Forbidden: no"),
        ("FieldValueRequired", "Required value: no"),
        ("FieldValueDuplicate", "Duplicate value"),
    ],
)
def test_reason_selects_kind_of_violation(reason: str | None, message: str) -> None:
    schema = obj(spec=with_rule(obj(a=STRING), "false", message=" no ", reason=reason, fieldPath=".a"))
    assert evaluate(schema, {"spec": {}}) == [f"spec.a: {message}"]


def test_message_expression_replaces_message() -> None:
    schema = with_rule(SCALARS, "self.n > 9", message="plain", messageExpression="'n is ' + string(self.n)")
    assert evaluate(schema, VALUES) == ["<nil>: Invalid value: n is 5"]


@pytest.mark.parametrize("expression", ["'a' + string(1 / (self.n - 5))", "' '", "'a\\nb'"])
def test_unusable_message_expression_falls_back_to_message(expression: str) -> None:
    schema = with_rule(SCALARS, "self.n > 9", message="plain", messageExpression=expression)
    assert evaluate(schema, VALUES) == ["<nil>: Invalid value: plain"]


def test_runtime_errors_name_rule() -> None:
    cases = {
        "1 / (self.n - 5) == 0": "division by zero evaluating rule: 1 / (self.n - 5) == 0",
        "[1][self.n] == 0": "index out of bounds: 5 evaluating rule: [1][self.n] == 0",
        "self.n + 9223372036854775807 > 0": "integer overflow evaluating rule: self.n + 9223372036854775807 > 0",
        "self.either > 3": "'no such overload': call arguments did not match a supported operator, function or macro "
        "signature for rule: self.either > 3",
    }
    for rule, detail in cases.items():
        assert evaluate(with_rule(SCALARS, rule), VALUES) == [f'<nil>: Invalid value: "object": {detail}']


def test_absent_field_is_no_such_key() -> None:
    assert evaluate(with_rule(SCALARS, "self.n > 1"), {}) == [
        '<nil>: Invalid value: "object": no such key: n evaluating rule: self.n > 1'
    ]


def test_names_that_are_no_identifiers_are_escaped() -> None:
    names = {
        "a.b": "a__dot__b",
        "a-b": "a__dash__b",
        "a/b": "a__slash__b",
        "a__b": "a__underscores__b",
        "namespace": "__namespace__",
    }
    schema = obj(**dict.fromkeys(names, INTEGER))
    rule = " && ".join(f"self.{escaped} == 1 && has(self.{escaped})" for escaped in names.values())
    assert passes(schema, dict.fromkeys(names, 1), rule)


def test_sets_and_maps_are_equal_in_any_order() -> None:
    key = obj(k=STRING, v=INTEGER)
    for kind, keys, first, second, equal in (
        ("set", (), ["a", "b"], ["b", "a"], True),
        ("atomic", (), ["a", "b"], ["b", "a"], False),
        ("set", (), ["a", "b"], ["b", "c"], False),
        ("map", ("k",), [{"k": "x", "v": 1}, {"k": "y", "v": 2}], [{"k": "y", "v": 2}, {"k": "x", "v": 1}], True),
        ("map", ("k",), [{"k": "x", "v": 1}, {"k": "y", "v": 2}], [{"k": "y", "v": 2}, {"k": "x", "v": 3}], False),
    ):
        items = key if kind == "map" else STRING
        schema = obj(a=array(items, kind, *keys), b=array(items, kind, *keys))
        assert passes(schema, {"a": first, "b": second}, "self.a == self.b") is equal


def test_lists_of_type_set_and_map_merge() -> None:
    schema = obj(s=array(STRING, "set"), m=array(obj(k=STRING, v=INTEGER), "map", "k"))
    value = {"s": ["a", "b"], "m": [{"k": "x", "v": 1}, {"k": "y", "v": 2}]}
    assert passes(schema, value, "self.s + ['b', 'c'] == ['a', 'b', 'c']")
    assert passes(schema, value, "(self.m + self.m).size() == 2")


def test_whole_objects_compare_converted_values() -> None:
    part = obj(t={"type": "string", "format": "date-time"}, x=NUMBER, s=array(STRING, "set"))
    schema = obj(a=part, b=part)
    value = {
        "a": {"t": "2026-01-01T00:00:00Z", "x": 1, "s": ["p", "q"]},
        "b": {"t": "2026-01-01T01:00:00+01:00", "x": 1.0, "s": ["q", "p"]},
    }
    assert passes(schema, value, "self.a == self.b")
    assert passes(schema, value, "[self.a, self.b].all(p, p.x == 1.0 && p == self.a)")


def test_items_of_lists_are_converted() -> None:
    schema = obj(times=array({"type": "string", "format": "date-time"}), parts=array(obj(x=NUMBER)), by_name={
        "type": "object", "additionalProperties": NUMBER})  # fmt: skip
    value = {"times": ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"], "parts": [{"x": 1}], "by_name": {"a": 3}}
    assert passes(schema, value, "self.times.isSorted() && self.times[0] < self.times[1]")
    assert passes(schema, value, "self.parts.all(p, p.x / 2.0 == 0.5) && self.by_name.all(k, self.by_name[k] / 2.0 == 1.5)")
    assert passes(schema, value, "self.?parts[?0].?x.orValue(0.0) == 1.0")


def test_root_and_embedded_resources_have_metadata() -> None:
    embedded = {**obj(spec=obj(a=STRING)), "x-kubernetes-embedded-resource": True}
    rule = "self.metadata.name == 'x' && self.kind == 'K' && self.apiVersion == 'v1'"
    value = {"apiVersion": "v1", "kind": "K", "metadata": {"name": "x"}}
    assert not compile_rules(with_rule(obj(), rule)).validate(value).violations
    assert evaluate(obj(e=with_rule(embedded, rule)), {"e": value}) == []
    assert "undefined field 'metadata'" in evaluate(with_rule(obj(a=STRING), rule), value)[0]


def test_unknown_fields_are_not_readable() -> None:
    schema = {**obj(a=STRING), "x-kubernetes-preserve-unknown-fields": True}
    assert "undefined field 'z'" in evaluate(with_rule(schema, "has(self.z)"), {"z": 1})[0]
    nested = obj(free={"x-kubernetes-preserve-unknown-fields": True})
    assert "undefined field 'free'" in evaluate(with_rule(nested, "has(self.free)"), {"free": 1})[0]


def test_rules_run_at_every_depth() -> None:
    leaf = with_rule(STRING, "self != 'bad'", message="bad")
    schema = obj(list=array(leaf), map={"type": "object", "additionalProperties": leaf}, deep=obj(leaf=leaf))
    value = {"list": ["ok", "bad"], "map": {"a": "bad"}, "deep": {"leaf": "bad"}}
    found = {violation.split(": ")[0] for violation in evaluate(schema, value)}
    assert found == {"list[1]", "map[a]", "deep.leaf"}


# Updates


def test_transition_rule_needs_old_value() -> None:
    schema = obj(a=with_rule(STRING, "self == oldSelf", message="immutable"))
    assert evaluate(schema, {"a": "y"}) == []
    assert evaluate(schema, {"a": "y"}, {}) == []
    assert evaluate(schema, {"a": "x"}, {"a": "x"}) == []
    assert evaluate(schema, {"a": "y"}, {"a": "x"}) == ['a: Invalid value: "y": immutable']


def test_optional_old_value_is_evaluated_at_creation() -> None:
    schema = obj(a=with_rule(STRING, "oldSelf.hasValue() || self == 'first'", message="m", optionalOldSelf=True))
    assert evaluate(schema, {"a": "second"}) == ['a: Invalid value: "second": m']
    assert evaluate(schema, {"a": "second"}, {"a": "x"}) == []
    ordered = obj(
        a=with_rule(
            {"type": "string", "format": "date-time"}, "oldSelf.optMap(o, o <= self).orValue(true)", optionalOldSelf=True
        )
    )
    assert evaluate(ordered, {"a": "2026-01-01T00:00:00Z"}, {"a": "2026-01-01T00:00:00+01:00"}) == []
    assert evaluate(ordered, {"a": "2026-01-01T00:00:00+01:00"}, {"a": "2026-01-01T00:00:00Z"}) != []


def test_items_of_map_lists_have_old_items() -> None:
    item = with_rule(obj(k=STRING, v=INTEGER), "self.v >= oldSelf.v", message="smaller")
    schema = obj(l=array(item, "map", "k"))
    old = {"l": [{"k": "a", "v": 5}, {"k": "b", "v": 1}]}
    new = {"l": [{"k": "b", "v": 2}, {"k": "a", "v": 4}, {"k": "c", "v": 0}]}
    assert evaluate(schema, new, old) == ["l[1]: Invalid value: smaller"]


def test_unchanged_violation_is_warning() -> None:
    schema = obj(spec=obj(a=with_rule(STRING, "self.size() < 3", message="long"), b=STRING))
    rules = rules_of(schema)
    old = {"spec": {"a": "toolong", "b": "x"}}
    assert rules.validate({"spec": {"a": "toolong", "b": "y"}}, old) == Evaluation(
        [], rules.validate({"spec": {"a": "toolong"}}).violations
    )
    assert rules.validate({"spec": {"a": "toolong2", "b": "x"}}, old).warnings == []


def test_violation_of_changed_parent_is_no_warning() -> None:
    schema = obj(spec=with_rule(obj(a=INTEGER, b=INTEGER), "self.a < 3", message="large"))
    rules = rules_of(schema)
    assert rules.validate({"spec": {"a": 5, "b": 2}}, {"spec": {"a": 5, "b": 1}}).violations != []
    assert rules.validate({"spec": {"a": 5, "b": 1}}, {"spec": {"a": 5, "b": 1}}).violations == []


def test_unchanged_items_of_lists_are_warnings() -> None:
    leaf = with_rule(obj(k=STRING, v=INTEGER), "self.v < 3", message="large")
    bad, good = {"k": "a", "v": 9}, {"k": "b", "v": 1}
    as_map = rules_of(obj(l=array(leaf, "map", "k")))
    assert as_map.validate({"l": [good, bad]}, {"l": [bad]}).violations == []
    atomic = rules_of(obj(l=array(leaf)))
    assert atomic.validate({"l": [good, bad]}, {"l": [bad]}).violations != []
    assert atomic.validate({"l": [bad]}, {"l": [bad]}).violations == []


def test_broken_rule_refuses_object() -> None:
    message = evaluate(with_rule(obj(a=STRING), "self.b"), {"a": "x"})[0]
    assert message.startswith(
        '<nil>: Invalid value: "object": rule compile error: compilation failed: ERROR: <input>:1:5: undefined field'
    )


def test_defaults_share_one_budget() -> None:
    leaf = with_rule(obj(a=INTEGER), "lists.range(4000).all(x, x >= 0) && self.a > 0", message="small")
    parts = [SimpleNamespace(props=obj(**{f"p{index}": leaf})) for index in range(20)]
    evaluate_defaults = DefaultRules()
    assert evaluate_defaults(parts[0], {"p0": {"a": 1}}, None, "x.default") == []
    assert [str(each) for each in evaluate_defaults(parts[1], {"p1": {"a": 0}}, None, "x.default")] == [
        "x.default.p1: Invalid value: small"
    ]
    messages = [evaluate_defaults(part, {f"p{index}": {"a": 1}}, None, "x") for index, part in enumerate(parts)]
    assert NO_BUDGET in messages[-1][0].message


@pytest.mark.parametrize(
    ("path", "field"),
    [
        (".spec.a", "spec.a"), ("['spec']['a']", "spec.a"), (".spec['a']", "spec.a"), (".map['x.y']", "map[x.y]"),
        (".map.x", "map[x]"),
        (".nope", None), ("spec", None), (".spec[0]", None), (".spec.", None), ("", ""), (".list[0]", None),
        (".spec['a\\z']", None),
    ],
)  # fmt: skip
def test_field_paths(path: str, field: str | None) -> None:
    schema = obj(spec=obj(a=STRING), map={"type": "object", "additionalProperties": STRING}, list=array(STRING))
    assert field_path(path, schema) == field
