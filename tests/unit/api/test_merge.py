"""Apply: applied fields change, and all other fields are kept."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinnace.api.merge import LAST_APPLIED, apply, last_applied, with_last_applied

Data = dict[str, Any]


@pytest.mark.parametrize(
    ("last", "live", "desired", "merged"),
    [
        pytest.param(None, {}, {"a": 1}, {"a": 1}, id="set"),
        pytest.param({"a": 1}, {"a": 1}, {"a": 2}, {"a": 2}, id="change"),
        pytest.param({"a": 1, "b": 1}, {"a": 1, "b": 1}, {"a": 1}, {"a": 1}, id="applied field is removed"),
        pytest.param(None, {"a": 1, "b": 1}, {"a": 1}, {"a": 1, "b": 1}, id="other field is kept"),
        pytest.param({"a": 1}, {}, {}, {}, id="already removed field"),
        pytest.param({"a": 1}, {"a": 5}, {"a": 1}, {"a": 1}, id="concurrent change is reverted"),
        pytest.param(None, {"a": 1}, {"a": None}, {}, id="null removes"),
        pytest.param(None, {"a": {"b": 1, "c": 2}}, {"a": {"b": None}}, {"a": {"c": 2}}, id="null removes a nested field"),
        pytest.param(
            {"a": {"b": 1, "c": 1}}, {"a": {"b": 1, "c": 1, "d": 1}}, {"a": {"b": 2}}, {"a": {"b": 2, "d": 1}}, id="nested"
        ),
        pytest.param({"a": {"b": 1}}, {"a": {"b": 1, "c": 1}}, {}, {}, id="whole object is removed"),
        pytest.param(None, {"a": 1}, {"a": {"b": 1}}, {"a": {"b": 1}}, id="another type"),
        pytest.param(None, {"args": ["a", "b"]}, {"args": ["c"]}, {"args": ["c"]}, id="plain lists are replaced"),
        pytest.param(
            None,
            {"tolerations": [{"key": "added"}]},
            {"tolerations": [{"key": "mine"}]},
            {"tolerations": [{"key": "mine"}]},
            id="tolerations are atomic",
        ),
        pytest.param(
            {"containers": [{"name": "a", "image": "1", "tty": True}, {"name": "b"}]},
            {"containers": [{"name": "a", "image": "1", "tty": True, "x": 1}, {"name": "b"}, {"name": "injected"}]},
            {"containers": [{"name": "c"}, {"name": "a", "image": "2"}]},
            {"containers": [{"name": "c"}, {"name": "a", "image": "2", "x": 1}, {"name": "injected"}]},
            id="containers merge by name",
        ),
        pytest.param(
            {"containers": [{"name": "a"}]},
            {"containers": [{"name": "injected"}, {"name": "a"}]},
            {"containers": [{"name": "a"}]},
            {"containers": [{"name": "injected"}, {"name": "a"}]},
            id="injected first container stays first",
        ),
        pytest.param(
            {"env": [{"name": "A"}, {"name": "B"}, {"name": "C"}, {"name": "D"}]},
            {"env": [{"name": "A"}, {"name": "B"}, {"name": "X"}, {"name": "Y"}, {"name": "C"}, {"name": "D"}]},
            {"env": [{"name": "B"}, {"name": "N"}, {"name": "A"}, {"name": "D"}]},
            {"env": [{"name": "B"}, {"name": "N"}, {"name": "A"}, {"name": "X"}, {"name": "Y"}, {"name": "D"}]},
            id="injected items keep their position",
        ),
        pytest.param(
            None,
            {"ports": [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 53, "protocol": "UDP"}]},
            {"ports": [{"containerPort": 80, "name": "http"}, {"containerPort": 53, "protocol": "TCP"}]},
            {
                "ports": [
                    {"containerPort": 80, "protocol": "TCP", "name": "http"},
                    {"containerPort": 53, "protocol": "TCP"},
                    {"containerPort": 53, "protocol": "UDP"},
                ]
            },
            id="ports merge by number and protocol",
        ),
        pytest.param(
            None,
            {"ports": [{"port": 80, "protocol": "TCP", "nodePort": 30080}]},
            {"ports": [{"port": 80, "protocol": ""}, {"port": 81, "protocol": None}]},
            {"ports": [{"port": 80, "protocol": "", "nodePort": 30080}, {"port": 81}]},
            id="empty protocol is the default",
        ),
        pytest.param(
            None,
            {"volumeMounts": [{"mountPath": "/a", "name": "v", "readOnly": True}]},
            {"volumeMounts": [{"mountPath": "/a", "name": "w"}]},
            {"volumeMounts": [{"mountPath": "/a", "name": "w", "readOnly": True}]},
            id="mounts merge by path",
        ),
        pytest.param(
            None,
            {"env": [{"name": "A", "value": "1"}]},
            {"env": [{"name": "A", "value": "2"}, {"name": "A", "value": "3"}]},
            {"env": [{"name": "A", "value": "2"}, {"name": "A", "value": "3"}]},
            id="items with duplicate names are replaced",
        ),
        pytest.param(
            {"finalizers": ["mine", "old"]},
            {"finalizers": ["mine", "old", "theirs"]},
            {"finalizers": ["mine"]},
            {"finalizers": ["mine", "theirs"]},
            id="finalizers are a set",
        ),
        pytest.param(
            None,
            {"status": {"phase": "Running"}, "metadata": {"uid": "u", "labels": {"theirs": "1"}}},
            {"metadata": {"labels": {"mine": "1"}}},
            {"status": {"phase": "Running"}, "metadata": {"uid": "u", "labels": {"theirs": "1", "mine": "1"}}},
            id="status and identity are kept",
        ),
        pytest.param(
            {},
            {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%"}}},
            {"strategy": {"type": "Recreate"}},
            {"strategy": {"type": "Recreate"}},
            id="changed strategy drops the defaults of the old one",
        ),
        pytest.param(
            {"strategy": {"type": "RollingUpdate"}},
            {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 5}}},
            {"strategy": {"type": "RollingUpdate"}},
            {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 5}}},
            id="unchanged strategy keeps fields of others",
        ),
        pytest.param(
            {"strategy": {"rollingUpdate": {"maxSurge": 1}}},
            {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": "25%"}}},
            {"strategy": {"rollingUpdate": {"maxSurge": 2}}},
            {"strategy": {"rollingUpdate": {"maxSurge": 2, "maxUnavailable": "25%"}}},
            id="unchanged strategy is merged",
        ),
        pytest.param(
            {"volumes": [{"name": "t"}, {"name": "u"}]},
            {"volumes": [{"name": "t", "emptyDir": {}}, {"name": "u", "emptyDir": {}}, {"name": "injected", "emptyDir": {}}]},
            {"volumes": [{"name": "t", "hostPath": {"path": "/x"}}, {"name": "u"}]},
            {
                "volumes": [
                    {"name": "t", "hostPath": {"path": "/x"}},
                    {"name": "u", "emptyDir": {}},
                    {"name": "injected", "emptyDir": {}},
                ]
            },
            id="volume has one source",
        ),
        pytest.param({"env": "spoilt"}, {"env": [{"name": "A"}]}, {"env": [{"name": "B"}]},
                     {"env": [{"name": "B"}, {"name": "A"}]}, id="malformed last configuration is ignored"),
    ],
)  # fmt: skip
def test_apply_cases(last: Data | None, live: Data, desired: Data, merged: Data) -> None:
    before = copy.deepcopy((last, live, desired))
    assert apply(last, live, desired) == merged
    assert (last, live, desired) == before, "the arguments are unchanged"


VALUES = st.recursive(
    st.integers(0, 2) | st.text("ab", max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3) | st.lists(inner, max_size=2),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from(["a", "b", "env", "metadata", "strategy", "volumes"]), VALUES, max_size=4)


@given(OBJECTS, OBJECTS, OBJECTS)
def test_apply_is_idempotent(last: Data, live: Data, desired: Data) -> None:
    once = apply(last, live, desired)
    assert apply(desired, once, desired) == once


@given(OBJECTS, OBJECTS)
def test_removing_all_applied_fields_leaves_none(live: Data, ours: Data) -> None:
    assert not apply(ours, {**live, **ours}, {}).keys() & ours.keys()


@given(OBJECTS)
def test_last_applied_configuration_is_stored(desired: Data) -> None:
    desired["metadata"] = {"name": "x", "annotations": {"mine": "1"}}
    stored = with_last_applied(desired)
    assert last_applied(stored) == desired
    assert stored["metadata"]["annotations"]["mine"] == "1"
    assert with_last_applied(stored) == stored, "the annotation does not contain itself"


@pytest.mark.parametrize("annotation", [None, "", "{", "[]", "7"])
def test_malformed_annotation_is_ignored(annotation: str | None) -> None:
    assert last_applied({"metadata": {"annotations": {LAST_APPLIED: annotation}}}) is None
    assert last_applied({}) is None


def test_annotation_is_compact_json() -> None:
    stored = with_last_applied({"spec": {"b": 1, "a": 2}})
    assert stored["metadata"]["annotations"][LAST_APPLIED] == '{"spec":{"a":2,"b":1}}'
    assert json.loads(stored["metadata"]["annotations"][LAST_APPLIED]) == {"spec": {"a": 2, "b": 1}}
