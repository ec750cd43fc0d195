"""Patches: RFC 7386, and what all types of patches have in common."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.patch import PatchError, apply_any_patch, parse
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
    assert apply_any_patch(live, kind, patch) == result
    assert (live, patch) == before, "the arguments are left as they were"


def test_merge_patch_replaces_lists_and_ignores_directives() -> None:
    live = {"containers": [{"name": "a", "image": "1"}], "finalizers": ["x"]}
    patch = {"containers": [{"name": "b"}], "finalizers": ["y"], "$patch": "replace"}
    assert apply_any_patch(live, PatchRequest.MERGE, patch) == patch


VALUES = st.recursive(
    st.none() | st.integers(0, 2) | st.sampled_from(["replace", "delete", "a"]),
    lambda inner: (
        st.dictionaries(
            st.sampled_from(["containers", "finalizers", "name", "$patch", "$retainKeys", "$setElementOrder/containers"]),
            inner,
            max_size=3,
        )
        | st.lists(inner, max_size=3)
    ),
    max_leaves=10,
)
PATCHES = st.dictionaries(
    st.sampled_from(["spec", "metadata", "containers", "finalizers", "$patch", "$deleteFromPrimitiveList/finalizers"]),
    VALUES,
    max_size=4,
)


def test_unchanged_parts_are_copied_once() -> None:
    """They are not copied again for each enclosing object."""
    copied = 0

    class Value:
        def __deepcopy__(self, memo: object) -> "Value":
            nonlocal copied
            copied += 1
            return self

    live = {"spec": {"template": {"containers": [{"name": "a", "value": Value()}], "nodeName": "m"}}}
    apply_any_patch(live, PatchRequest.MERGE, {"spec": {"template": {"nodeName": "n"}}})
    assert copied == 1


@given(PATCHES, PATCHES, st.sampled_from(BOTH))
def test_any_patch_gives_an_object_or_a_patch_error(live: Data, patch: Data, kind: PatchRequest.Type) -> None:
    try:
        assert isinstance(apply_any_patch(live, kind, patch, Pod.DESCRIPTOR), dict)
    except PatchError:
        assert kind == PatchRequest.STRATEGIC_MERGE


@given(PATCHES, PATCHES)
def test_merge_patch_is_idempotent(live: Data, patch: Data) -> None:
    once = apply_any_patch(live, PatchRequest.MERGE, patch)
    assert apply_any_patch(once, PatchRequest.MERGE, patch) == once


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
        (b'{"a": [%b{}]}' % (b"{}," * 99_999), "more than 100,000 values: split the patch"),
        (b'{%b"b": {"c": 1}}' % b"".join(b'"%d": 1,' % number for number in range(99_999)), "more than 100,000 values"),
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
        apply_any_patch({}, kind, deep)


def test_patch_is_parsed_unchanged() -> None:
    patch = {"a": [1, None, "ü"], "b": {"c": True}}
    assert parse(json.dumps(patch).encode(), PatchRequest.MERGE) == patch
