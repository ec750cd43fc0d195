"""Sets of fields: their JSON form, and their algebra."""

import json
import random

import pytest

from pinnace.api.fieldset import (
    FieldSet,
    FieldSetError,
    Path,
    field_element,
    from_json,
    key_element,
    text_of,
    value_element,
)

DEEP = '{"f:a":' * 200 + "{}" + "}" * 200
CONTAINER = key_element({"name": "c"})
SPEC, REPLICAS = field_element("spec"), field_element("replicas")


def sample(rng: random.Random) -> FieldSet:
    """A set of few distinct elements, so that two samples overlap."""
    elements = [field_element("a"), field_element("b"), CONTAINER, value_element("x"), value_element(1), "i:0"]
    return FieldSet(tuple(rng.choices(elements, k=rng.randint(1, 4))) for _ in range(rng.randint(0, 12)))


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"f:spec":{"f:replicas":{}}}',
        '{"f:metadata":{"f:labels":{".":{},"f:app":{}}}}',
        '{"f:ports":{"k:{\\"containerPort\\":80,\\"protocol\\":\\"TCP\\"}":{".":{},"f:containerPort":{}}}}',
        '{"f:finalizers":{"v:\\"a/b\\"":{},"v:\\"c\\"":{}}}',
        '{"f:x":{"i:3":{}}}',
    ],
)
def test_json_round_trip(text: str) -> None:
    assert from_json(text).to_json() == text


def test_member_with_children_has_a_dot() -> None:
    field_set = FieldSet([(SPEC,), (SPEC, REPLICAS)])
    assert field_set.to_json() == '{"f:spec":{".":{},"f:replicas":{}}}'
    assert list(field_set) == [(SPEC,), (SPEC, REPLICAS)]


def test_keys_are_sorted_and_unknown_elements_are_ignored() -> None:
    text = json.dumps({'k:{"protocol":"TCP","port":1}': {}, "x:new": {}})
    assert list(from_json(text)) == [(key_element({"port": 1, "protocol": "TCP"}),)]


@pytest.mark.parametrize("text", ["", "[]", '{"f:a":1}', '{"k:{}":{}}', '{"k:no":{}}', "[" * 100_000, DEEP])
def test_invalid_json_is_refused(text: str) -> None:
    with pytest.raises(FieldSetError):
        from_json(text)


def test_path_text_follows_kubernetes() -> None:
    path = (SPEC, field_element("containers"), CONTAINER, field_element("args"), value_element("x"), "i:2")
    assert text_of(path) == '.spec.containers[name="c"].args[="x"][2]'


def test_order_is_by_kind_then_by_value() -> None:
    elements = ["i:10", "i:9", value_element("b"), value_element(2), CONTAINER, field_element("z"), field_element("Z")]
    assert [path[0] for path in FieldSet((element,) for element in elements)] == [
        "f:Z", "f:z", CONTAINER, value_element(2), value_element("b"), "i:9", "i:10",
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(200))
def test_operations_equal_those_of_sets_of_paths(seed: int) -> None:
    rng = random.Random(seed)
    one, other = sample(rng), sample(rng)
    left, right = set[Path](one), set[Path](other)
    assert set(one | other) == left | right
    assert set(one & other) == left & right
    assert set(one - other) == left - right
    assert set(one.without_trees(other)) == {path for path in left if not any(path[: len(item)] == item for item in right)}
    assert all(path in one for path in left) and bool(one) == bool(left)
    assert from_json(one.to_json()) == one == FieldSet(left)
