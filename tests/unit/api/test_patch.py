"""Patches: RFC 7386, and Kubernetes' strategic merge with its directives."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinnace.api import patch as patches
from pinnace.api.merge import Key, key_of
from pinnace.api.patch import PatchError, parse, patched
from pinnace.api.verbs_pb2 import PatchRequest

Data = dict[str, Any]
BOTH = (PatchRequest.MERGE, PatchRequest.STRATEGIC_MERGE)


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(
    ("live", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ({"a": 1}, {}, {"a": 1}),
    ],
)
def test_common_behavior_of_merge_and_strategic_patches(kind: PatchRequest.Type, live: Data, patch: Data, result: Data) -> None:
    """The examples of RFC 7386, appendix A, with objects on both sides."""
    before = copy.deepcopy((live, patch))
    assert patched(live, kind, patch) == result
    assert (live, patch) == before, "the arguments are left as they were"


def test_merge_patch_replaces_lists_and_ignores_directives() -> None:
    live = {"containers": [{"name": "a", "image": "1"}], "finalizers": ["x"]}
    patch = {"containers": [{"name": "b"}], "finalizers": ["y"], "$patch": "replace"}
    assert patched(live, PatchRequest.MERGE, patch) == patch


def strategic(live: Data, patch: Data) -> Data:
    before = copy.deepcopy((live, patch))
    result = patched(live, PatchRequest.STRATEGIC_MERGE, patch)
    assert (live, patch) == before, "the arguments are left as they were"
    return result


@pytest.mark.parametrize(
    ("name", "live", "patch", "result"),
    [
        pytest.param(
            "containers",
            [{"name": "a", "image": "1", "tty": True}, {"name": "b"}],
            [{"name": "b", "image": "2"}, {"name": "a", "tty": None}, {"name": "c"}],
            [{"name": "b", "image": "2"}, {"name": "a", "image": "1"}, {"name": "c"}],
            id="items have the order of the patch",
        ),
        pytest.param(
            "containers",
            [{"name": "a"}, {"name": "b"}, {"name": "c"}],
            [{"name": "c", "image": "1"}, {"name": "a", "image": "2"}],
            [{"name": "b"}, {"name": "c", "image": "1"}, {"name": "a", "image": "2"}],
            id="other items keep their position",
        ),
        pytest.param(
            "containers",
            [{"name": "a"}, {"name": "b"}],
            [{"name": "c"}, {"name": "b", "image": "2"}],
            [{"name": "c"}, {"name": "a"}, {"name": "b", "image": "2"}],
            id="new items come first",
        ),
        pytest.param(
            "containers",
            [{"name": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y"}]}],
            [{"name": "a", "env": [{"name": "X", "$patch": "delete"}, {"name": "Z"}]}],
            [{"name": "a", "env": [{"name": "Z"}, {"name": "Y"}]}],
            id="nested lists",
        ),
        pytest.param(
            "ports",
            [{"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53, "protocol": "TCP"}],
            [{"containerPort": 53, "name": "dns"}, {"containerPort": 53, "protocol": "UDP", "$patch": "delete"}],
            [{"containerPort": 53, "protocol": "TCP", "name": "dns"}],
            id="ports by number and protocol",
        ),
        pytest.param(
            "env",
            [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}],
            [{"name": "A", "value": "3"}],
            [{"name": "A", "value": "3"}, {"name": "A", "value": "2"}],
            id="first of duplicate names",
        ),
        pytest.param(
            "conditions",
            [{"type": "Ready", "status": "True"}],
            [{"type": "Ready", "status": "False"}, {"type": "Other"}],
            [{"type": "Ready", "status": "False"}, {"type": "Other"}],
            id="conditions by type",
        ),
        pytest.param(
            "ownerReferences",
            [{"uid": "1", "name": "a"}],
            [{"uid": "2"}],
            [{"uid": "2"}, {"uid": "1", "name": "a"}],
            id="owners",
        ),
        pytest.param("tolerations", [{"key": "a"}], [{"key": "b"}], [{"key": "b"}], id="tolerations are atomic"),
        pytest.param("taints", [{"key": "a"}], [{"key": "b"}], [{"key": "b"}], id="taints are atomic"),
        pytest.param("args", ["a", "b"], ["c"], ["c"], id="plain lists are replaced"),
        pytest.param("finalizers", ["b", "a"], ["a", "c", "c"], ["b", "a", "c"], id="finalizers are a set"),
        pytest.param("finalizers", ["a", "b", "c"], ["c", "a"], ["b", "c", "a"], id="finalizers have the order of the patch"),
        pytest.param(
            "volumes",
            [{"name": "a"}],
            [{"name": "b"}, {"$patch": "replace"}],
            [{"name": "b"}],
            id="list is replaced by a directive",
        ),
        pytest.param("volumes", [{"name": "a"}], [{"$patch": "replace"}], [], id="list is emptied by a directive"),
        pytest.param(
            "volumes",
            [{"name": "a", "emptyDir": {"medium": "Memory"}}],
            [{"name": "a", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}],
            [{"name": "a", "hostPath": {"path": "/"}}],
            id="only these fields are retained",
        ),
        pytest.param("volumes", [{"name": "a"}], ["b"], ["b"], id="non-object item is kept for validation"),
        pytest.param("volumes", [{"name": "a"}], 7, 7, id="non-list is kept for validation"),
    ],
)
def test_strategic_lists(name: str, live: Any, patch: Any, result: Any) -> None:
    assert strategic({name: live, "x": 1}, {name: patch}) == {name: result, "x": 1}


@pytest.mark.parametrize(
    ("live", "patch", "result"),
    [
        ({"a": {"b": 1, "c": 1}}, {"a": {"$patch": "replace", "c": 2}}, {"a": {"c": 2}}),
        ({"a": {"b": 1}, "c": 1}, {"a": {"$patch": "delete"}}, {"a": {}, "c": 1}),
        ({"a": 1, "b": 2, "c": 3}, {"$retainKeys": ["a", "d"], "d": 4}, {"a": 1, "d": 4}),
        ({"finalizers": ["a", "b"]}, {"$deleteFromPrimitiveList/finalizers": ["a", "x"]}, {"finalizers": ["b"]}),
        (
            {"finalizers": ["a", "b"]},
            {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"]},
            {"finalizers": ["c", "b"]},
        ),
        ({}, {"env": [{"name": "A", "$patch": "delete"}]}, {"env": []}),
    ],
)
def test_patch_directives(live: Data, patch: Data, result: Data) -> None:
    assert strategic(live, patch) == result


@pytest.mark.parametrize(
    "patch",
    [
        {"$patch": "merge"},
        {"$patch": ["replace"]},
        {"$retainKeys": "name"},
        {"$deleteFromPrimitiveList/finalizers": "a"},
        {"$deleteFromPrimitiveList/metadata": ["a"]},
        {"$setElementOrder/containers": "a"},
    ],
)
def test_malformed_directive_is_kept_as_a_field(patch: Data) -> None:
    assert strategic({"metadata": {}}, patch) == {"metadata": {}, **patch}


def test_set_element_order_sorts_items() -> None:
    """`kubectl set image` and `kubectl apply` send this directive."""
    live = {"containers": [{"name": "a", "image": "a:1"}, {"name": "b"}, {"name": "other"}]}
    order = [{"name": "new"}, {"name": "b"}, {"name": "a"}]
    patch = {"$setElementOrder/containers": order, "containers": [{"name": "a", "image": "a:2"}, {"name": "new"}]}
    found = strategic(live, patch)["containers"]
    assert [each["name"] for each in found if each["name"] != "other"] == ["new", "b", "a"]
    assert {"name": "other"} in found and {"name": "a", "image": "a:2"} in found


def test_set_element_order_alone_changes_no_item() -> None:
    live = {
        "ports": [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 81, "protocol": "TCP"}],
        "finalizers": ["x", "y"],
    }
    patch = {
        "$setElementOrder/ports": [{"containerPort": 81}, {"containerPort": 80}],
        "$setElementOrder/finalizers": ["y", "x"],
    }
    assert strategic(live, patch) == {"ports": live["ports"][::-1], "finalizers": ["y", "x"]}


VALUES = st.recursive(
    st.none() | st.integers(0, 2) | st.sampled_from(["replace", "delete", "a"]),
    lambda inner: (
        st.dictionaries(st.sampled_from(["a", "name", "$patch", "$retainKeys"]), inner, max_size=3)
        | st.lists(inner, max_size=3)
    ),
    max_leaves=10,
)
PATCHES = st.dictionaries(
    st.sampled_from(["a", "containers", "finalizers", "$patch", "$deleteFromPrimitiveList/finalizers"]), VALUES, max_size=4
)


def test_item_lookup_is_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    """With pairwise lookups, a patch of 60 KB would need a hundred million of them."""
    looks = 0

    def counted(name: str, item: Any) -> Key | None:
        nonlocal looks
        looks += 1
        return key_of(name, item)

    monkeypatch.setattr(patches, "key_of", counted)
    items = [{"name": f"{number}"} for number in range(500)]
    gone = [{"name": f"{number}", "$patch": "delete"} for number in range(500, 1000)]
    assert strategic({"containers": items}, {"containers": items + gone}) == {"containers": items}
    assert looks <= 10 * len(items)


class Counted(str):
    """Counts its comparisons."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


@pytest.mark.parametrize("name", ["finalizers", "$deleteFromPrimitiveList/finalizers", "$retainKeys"])
def test_list_values_are_not_compared_pairwise(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counted, "compared", 0)
    live = {"finalizers": [f"a{number}" for number in range(500)], **{f"c{number}": 1 for number in range(500)}}
    patched(live, PatchRequest.STRATEGIC_MERGE, {name: [Counted(f"b{number}") for number in range(500)]})
    assert Counted.compared <= 500


@pytest.mark.parametrize("kind", BOTH)
def test_unchanged_parts_are_copied_once(kind: PatchRequest.Type, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not copied again for each enclosing object."""
    copied = 0

    class Value:
        def __deepcopy__(self, memo: object) -> "Value":
            nonlocal copied
            copied += 1
            return self

    live = {"spec": {"template": {"containers": [{"name": "a", "image": "1", "env": [{"name": "x", "value": Value()}]}]}}}
    patched(live, kind, {"spec": {"template": {"containers": [{"name": "a", "image": "2"}, {"name": "b"}]}}})
    assert copied == (kind == PatchRequest.STRATEGIC_MERGE)
    patched(live, kind, {"spec": {"template": {"nodeName": "n"}}})
    assert copied == (kind == PatchRequest.STRATEGIC_MERGE) + 1


@given(PATCHES, PATCHES, st.sampled_from(BOTH))
def test_any_patch_gives_an_object(live: Data, patch: Data, kind: PatchRequest.Type) -> None:
    assert isinstance(patched(live, kind, patch), dict)


@given(PATCHES, PATCHES)
def test_merge_patch_is_idempotent(live: Data, patch: Data) -> None:
    once = patched(live, PatchRequest.MERGE, patch)
    assert patched(once, PatchRequest.MERGE, patch) == once


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"spec: {}", "not JSON"),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b"[]", "expected a JSON object"),
        (b"null", "expected a JSON object"),
        (b'{"a": "\xff"}', "not valid UTF-8"),
        (rb'{"\ud800": 1}', "not valid UTF-8"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b'{"a": [%b{}]}' % (b"{}," * 9_999), "more than 10,000 values: split the patch"),
        (b'{%b"b": {"c": 1}}' % b"".join(b'"%d": 1,' % number for number in range(9_999)), "more than 10,000 values"),
    ],
)
def test_malformed_patch_is_refused(text: bytes, message: str) -> None:
    with pytest.raises(PatchError, match=message):
        parse(text, PatchRequest.MERGE)


@pytest.mark.parametrize("kind", BOTH)
def test_deeply_nested_patch_is_refused(kind: PatchRequest.Type) -> None:
    deep: Data = {}
    for _ in range(5000):
        deep = {"a": deep}
    with pytest.raises(PatchError, match="nested too deeply"):
        patched({}, kind, deep)


def test_patch_is_parsed_unchanged() -> None:
    patch = {"a": [1, None, "ü"], "b": {"c": True}}
    assert parse(json.dumps(patch).encode(), PatchRequest.MERGE) == patch
