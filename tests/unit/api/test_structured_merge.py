"""Merging, comparing and pruning by type: lists that are maps, sets or atomic, and atomic objects."""

import json
import random
from typing import Any

import pytest

from pinnace.api import schema
from pinnace.api.fieldset import FieldSet, text_of
from pinnace.api.resources import ALL, DEPLOYMENTS, PODS, SERVICES
from pinnace.api.structured_merge import ABSENT, TypeMismatch, check, compare, field_set, merge, remove, with_named_fields

POD, DEPLOYMENT, SERVICE = (schema.type_of(item.message.DESCRIPTOR) for item in (PODS, DEPLOYMENTS, SERVICES))


def pod(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"labels": {"app": "web"}}, "spec": spec}


def containers(*names: str, **fields: Any) -> list[dict[str, Any]]:
    return [{"name": name, **fields} for name in names]


def texts(fields: FieldSet) -> list[str]:
    return [text_of(path) for path in fields]


def test_field_set_contains_leaves_items_and_map_keys() -> None:
    value = pod(containers=containers("c", command=["x"]), nodeSelector={"disk": "ssd"}, securityContext={})
    assert texts(field_set(POD, value)) == [
        ".metadata.labels.app",
        ".spec.nodeSelector",
        ".spec.securityContext",
        '.spec.containers[name="c"]',
        '.spec.containers[name="c"].command',
        '.spec.containers[name="c"].name',
    ]


def test_defaults_are_part_of_keys() -> None:
    assert texts(field_set(SERVICE, {"spec": {"ports": [{"port": 80}]}})) == [
        '.spec.ports[port=80,protocol="TCP"]',
        '.spec.ports[port=80,protocol="TCP"].port',
    ]


def test_sets_and_atomic_objects() -> None:
    value = {"metadata": {"finalizers": ["a", "b"]}, "spec": {"selector": {"matchLabels": {"app": "web"}}}}
    assert texts(field_set(DEPLOYMENT, value)) == ['.metadata.finalizers[="a"]', '.metadata.finalizers[="b"]', ".spec.selector"]


@pytest.mark.parametrize(
    ("live", "applied", "merged"),
    [
        ("abc", "", "abc"),
        ("abc", "b", "abc"),
        ("abc", "cb", "acb"),
        ("", "ba", "ba"),
        ("abc", "xb", "axbc"),
        ("abc", "cxa", "bcxa"),
    ],
)
def test_list_map_items_follow_the_applied_order(live: str, applied: str, merged: str) -> None:
    result = merge(POD, pod(containers=containers(*live, image="i")), pod(containers=containers(*applied)))
    assert "".join(item["name"] for item in result["spec"]["containers"]) == merged
    assert all(("image" in item) == (item["name"] in live) for item in result["spec"]["containers"])


def test_atomic_values_are_replaced_and_maps_are_merged() -> None:
    live = pod(nodeSelector={"a": "1"}, tolerations=[{"key": "x"}])
    result = merge(POD, live, {"metadata": {"labels": {"tier": "db"}}, "spec": {"nodeSelector": {"b": "2"}, "tolerations": []}})
    assert result == {
        "metadata": {"labels": {"app": "web", "tier": "db"}},
        "spec": {"nodeSelector": {"b": "2"}, "tolerations": []},
    }


def test_compare_reports_added_modified_and_removed_fields() -> None:
    old = pod(containers=containers("a", "b"), nodeName="n", priority=1)
    new = pod(containers=containers("b", image="i") + containers("c"), priority=2)
    result = compare(POD, old, new)
    assert texts(result.added) == [
        '.spec.containers[name="c"]', '.spec.containers[name="b"].image', '.spec.containers[name="c"].name',
    ]  # fmt: skip
    assert texts(result.modified) == [".spec.priority"]
    assert texts(result.removed) == [".spec.nodeName", '.spec.containers[name="a"]', '.spec.containers[name="a"].name']
    assert not any(compare(POD, old, old).changed)


def test_boolean_differs_from_number() -> None:
    assert texts(compare(POD, pod(hostNetwork=True), pod(hostNetwork=1)).modified) == [".spec.hostNetwork"]


def test_remove_keeps_other_fields() -> None:
    value = pod(containers=containers("a", "b", image="i"), nodeName="n")
    gone = field_set(POD, {"spec": {"containers": containers("a"), "nodeName": "n"}})
    assert remove(POD, value, gone)["spec"] == {"containers": containers("b", image="i")}
    assert remove(POD, value, with_named_fields(POD, field_set(POD, value))) is ABSENT


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"spec": {"nope": 1}}, ".spec.nope: field not declared in schema"),
        ({"spec": {"priority": "x"}}, ".spec.priority: expected numeric (int or float), got string"),
        ({"spec": {"hostNetwork": 1}}, ".spec.hostNetwork: expected boolean, got number"),
        ({"spec": {"containers": {}}}, ".spec.containers: expected list, got map"),
        ({"spec": []}, ".spec: expected map, got list"),
        ({"spec": {"containers": containers("a", "a")}}, '.spec.containers: duplicate entries for key [name="a"]'),
        ({"spec": {"containers": [{"image": "i"}]}}, "omits all key fields"),
        ({"metadata": {"finalizers": [{}]}}, "has an element that's a map type"),
        ({"spec": {"a": 1, "b": 2}}, "errors:\n  .spec.a: field not declared in schema\n  .spec.b"),
    ],
)
def test_type_mismatch_is_refused(value: Any, problem: str) -> None:
    with pytest.raises(TypeMismatch) as caught:
        check(POD, value)
    assert problem in str(caught.value)


def test_nulls_and_numbers_for_quantities_are_accepted() -> None:
    check(POD, pod(nodeName=None, containers=[{"name": "c", "resources": {"requests": {"cpu": 1, "memory": "1Gi"}}}]))


def random_pod(rng: random.Random) -> dict[str, Any]:
    names = rng.sample("abcd", rng.randint(0, 4))
    result: dict[str, Any] = {
        "containers": [
            {"name": name, **rng.choice([{}, {"image": rng.choice("xy")}, {"args": [rng.choice("xy")]}])} for name in names
        ],
        "nodeSelector": rng.choice([{}, {"d": rng.choice("xy")}]),
    }
    labels = {key: rng.choice("xy") for key in rng.sample("kl", rng.randint(0, 2))}
    return {"metadata": {"labels": labels}, "spec": {key: each for key, each in result.items() if rng.random() < 0.8}}


@pytest.mark.parametrize("seed", range(200))
def test_merge_of_random_objects_is_idempotent(seed: int) -> None:
    """The merged object has all applied fields, and a second merge changes nothing."""
    rng = random.Random(seed)
    live, applied = random_pod(rng), random_pod(rng)
    before = json.dumps([live, applied])
    merged = merge(POD, live, applied)
    assert json.dumps([live, applied]) == before
    merged = {} if merged is ABSENT else merged
    again = merge(POD, merged, applied)
    result = compare(POD, merged, {} if again is ABSENT else again)
    assert not result.changed and not result.removed
    difference = compare(POD, live, merged)
    assert not difference.removed
    assert not difference.modified - field_set(POD, applied)


def test_key_fields_of_list_maps_exist() -> None:

    def walk(of: schema.Type, seen: set[str]) -> None:
        if isinstance(of, schema.List):
            if of.keys:
                assert isinstance(of.element, schema.Map) and all(of.element.field(key) for key in of.keys)
            walk(of.element, seen)
        elif isinstance(of, schema.Map):
            if of.element is not None:
                walk(of.element, seen)
            message = of.fields.message if isinstance(of.fields, schema.MessageFields) else None
            if message is not None and message.full_name not in seen:
                seen.add(message.full_name)
                for name in schema.fields_of(message):
                    inside = of.field(name)
                    assert inside is not None
                    walk(inside, seen)

    seen = set[str]()
    for resource in ALL:
        walk(schema.type_of(resource.message.DESCRIPTOR), seen)
    assert len(seen) > 100


PORT = {"port": schema.Scalar(schema.Kind.NUMBER), "protocol": schema.Scalar(schema.Kind.STRING)}
WIDGET = schema.Map(
    {
        "metadata": schema.Map(None, schema.DEDUCED, atomic=False),
        "spec": schema.Map(
            {
                "size": schema.Scalar(schema.Kind.NUMBER),
                "ports": schema.List(
                    schema.Map(
                        {"port": schema.Scalar(schema.Kind.NUMBER), "protocol": schema.Scalar(schema.Kind.STRING)}, None, False
                    ),
                    atomic=False,
                    keys=("port", "protocol"),
                    defaults=(("protocol", "UDP"),),
                ),
                "extra": schema.Map({}, schema.DEDUCED, atomic=False),
            },
            None,
            atomic=False,
        ),
    },
    None,
    atomic=False,
)
"""A type without a message, as a custom object has."""


def test_types_of_custom_objects_have_default_keys() -> None:
    owned = field_set(WIDGET, {"spec": {"ports": [{"port": 1}]}})
    assert texts(owned) == ['.spec.ports[port=1,protocol="UDP"]', '.spec.ports[port=1,protocol="UDP"].port']
    with pytest.raises(TypeMismatch, match="field not declared in schema"):
        check(WIDGET, {"spec": {"other": 1}})


def test_fields_without_schema_are_granular_objects_and_atomic_lists() -> None:
    live = {"spec": {"extra": {"map": {"a": 1, "b": [1]}, "kind": {"c": 1}}}}
    check(WIDGET, live)
    merged = merge(WIDGET, live, {"spec": {"extra": {"map": {"b": [2]}, "kind": 5}}})
    assert merged == {"spec": {"extra": {"map": {"a": 1, "b": [2]}, "kind": 5}}}
    assert texts(compare(WIDGET, live, merged).modified) == [".spec.extra.kind", ".spec.extra.map.b"]
    assert texts(field_set(WIDGET, live)) == [
        ".spec.extra.kind", ".spec.extra.map", ".spec.extra.kind.c", ".spec.extra.map.a", ".spec.extra.map.b",
    ]  # fmt: skip
    gone = FieldSet([("f:spec", "f:extra", "f:map", "f:a")])
    assert remove(WIDGET, live, gone) == {"spec": {"extra": {"map": {"b": [1]}, "kind": {"c": 1}}}}
