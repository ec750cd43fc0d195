"""JSON patches: the examples of RFC 6902, and the limits for hostile patches."""

import copy
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinnace.api import patch
from pinnace.api.patch import JsonPatchError, PatchError, apply_any_patch, apply_json_patch, check_operations
from pinnace.api.verbs_pb2 import PatchRequest


def add(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


def remove(path: str) -> dict[str, Any]:
    return {"op": "remove", "path": path}


def replace(path: str, value: Any) -> dict[str, Any]:
    return {"op": "replace", "path": path, "value": value}


def move(source: str, path: str) -> dict[str, Any]:
    return {"op": "move", "from": source, "path": path}


def copied(source: str, path: str) -> dict[str, Any]:
    return {"op": "copy", "from": source, "path": path}


def test(path: str, value: Any) -> dict[str, Any]:
    return {"op": "test", "path": path, "value": value}


test.__test__ = False


@pytest.mark.parametrize(
    ("document", "patch", "result"),
    [
        pytest.param({"foo": "bar"}, [add("/baz", "qux")], {"baz": "qux", "foo": "bar"}, id="A.1"),
        pytest.param({"foo": ["bar", "baz"]}, [add("/foo/1", "qux")], {"foo": ["bar", "qux", "baz"]}, id="A.2"),
        pytest.param({"baz": "qux", "foo": "bar"}, [remove("/baz")], {"foo": "bar"}, id="A.3"),
        pytest.param({"foo": ["bar", "qux", "baz"]}, [remove("/foo/1")], {"foo": ["bar", "baz"]}, id="A.4"),
        pytest.param({"baz": "qux", "foo": "bar"}, [replace("/baz", "boo")], {"baz": "boo", "foo": "bar"}, id="A.5"),
        pytest.param(
            {"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
            [move("/foo/waldo", "/qux/thud")],
            {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}},
            id="A.6",
        ),
        pytest.param(
            {"foo": ["all", "grass", "cows", "eat"]},
            [move("/foo/1", "/foo/3")],
            {"foo": ["all", "cows", "eat", "grass"]},
            id="A.7",
        ),
        pytest.param(
            {"baz": "qux", "foo": ["a", 2, "c"]},
            [test("/baz", "qux"), test("/foo/1", 2)],
            {"baz": "qux", "foo": ["a", 2, "c"]},
            id="A.8",
        ),
        pytest.param(
            {"foo": "bar"}, [add("/child", {"grandchild": {}})], {"foo": "bar", "child": {"grandchild": {}}}, id="A.10"
        ),
        pytest.param({"foo": "bar"}, [add("/baz", "qux") | {"xyz": 123}], {"foo": "bar", "baz": "qux"}, id="A.11"),
        pytest.param({"/": 9, "~1": 10}, [test("/~01", 10)], {"/": 9, "~1": 10}, id="A.14"),
        pytest.param({"foo": ["bar"]}, [add("/foo/-", ["abc", "def"])], {"foo": ["bar", ["abc", "def"]]}, id="A.16"),
        ({"a": 1}, [add("/a", None)], {"a": None}),
        ({"a": 1}, [replace("", {"b": 2})], {"b": 2}),
        ({"a": 1}, [add("", {"b": 2})], {"b": 2}),
        ({"a": {"": 1}}, [replace("/a/", 2)], {"a": {"": 2}}),
        ({"a/b": 1}, [copied("/a~1b", "/c")], {"a/b": 1, "c": 1}),
        ({"a": [1]}, [copied("/a", "/b"), add("/b/-", 2)], {"a": [1], "b": [1, 2]}),
        ({"a": 1}, [copied("", "/b")], {"a": 1, "b": {"a": 1}}),
        ({"a": 1}, [copied("/b", "/a")], {"a": None}),
        ({"a": 1}, [move("/a", "/a")], {"a": 1}),
        ({"a": []}, [add("/a/0", 1)], {"a": [1]}),
        ({"a": 1, "b": [{"c": 1.0}]}, [test("", {"b": [{"c": 1}], "a": 1.0})], {"a": 1, "b": [{"c": 1.0}]}),
        # accepted by Kubernetes, but not by the RFC
        ({"a": {}}, [replace("/a/b", 1)], {"a": {"b": 1}}),
        ({"a": 1}, [test("/b", None), add("/b", 2)], {"a": 1, "b": 2}),
        ({"a": [1, 2]}, [test("/a/-1", 2), remove("/a/-2")], {"a": [2]}),
        ({"a": [1, {"b": 2}]}, [replace("/a/-1/b", 3), replace("/a/-2", 0)], {"a": [0, {"b": 3}]}),
        ({"a": [1, 2]}, [add("/a/-1", 3), add("/a/-2", 4), add("/a/-5", 5)], {"a": [5, 1, 2, 4, 3]}),
    ],
)
def test_patch_examples(document: Any, patch: list[dict[str, Any]], result: Any) -> None:
    before = copy.deepcopy((document, patch))
    assert apply_json_patch(document, check_operations(patch)) == result
    assert (document, patch) == before, "the arguments are unchanged"


@pytest.mark.parametrize(
    ("document", "patch", "message"),
    [
        pytest.param({"baz": "qux"}, [test("/baz", "bar")], "testing value /baz failed: test failed", id="A.9"),
        pytest.param({"foo": "bar"}, [add("/baz/bat", "qux")], 'add .* missing path: "/baz/bat"', id="A.12"),
        pytest.param({"/": 9, "~1": 10}, [test("/~01", "10")], "test failed", id="A.15"),
        ({"a": 1}, [test("/a", True)], "test failed"),
        ({"a": {}}, [test("/b/c", None)], 'missing path: "/b/c"'),
        ({"a": []}, [test("/a/0", None)], 'missing path: "/a/0"'),
        ({"a": None}, [test("/b", 1)], "testing value /b failed: test failed"),
        ({"a": 1}, [remove("/b")], 'remove .* missing path: "/b"'),
        ({"a": 1}, [remove("")], "cannot be removed"),
        ({"a": 1}, [replace("/b/c", 1)], 'replace .* missing path: "/b/c"'),
        ({"a": 1}, [move("/b", "/a")], 'move .* missing path: "/b"'),
        ({"a": 1}, [copied("/b/c", "/a")], 'copy .* missing path: "/b/c"'),
        ({"a": [1]}, [copied("/a/1", "/b")], 'copy .* missing path: "/a/1"'),
        ({"a": {"b": 1}}, [move("/a", "/a/b")], "moved into itself"),
        ({"a": "text"}, [add("/a/0", 1)], 'missing path: "/a/0"'),
        ({"a": [1]}, [add("/a/2", 1)], 'missing path: "/a/2"'),
        ({"a": [1]}, [replace("/a/1", 1)], 'missing path: "/a/1"'),
        ({"a": [1]}, [remove("/a/-")], "not an array index"),
        ({"a": [1]}, [remove("/a/-2")], 'missing path: "/a/-2"'),
        ({"a": [1]}, [add("/a/-3", 2)], 'missing path: "/a/-3"'),
        ({"a": [1]}, [remove("/a/-0")], "not an array index"),
        ({"a": [1, 2]}, [remove("/a/01")], "not an array index"),
        ({"a": [1]}, [remove("/a/1e0")], "not an array index"),
        ({"a": [1]}, [remove("/a/²")], "not an array index"),
        ({"a": [1]}, [remove("/a/" + "9" * 5000)], "not an array index"),
        ({}, [add("/a", 1), {"path": "/a"}], "operation 1: op: expected one of"),
        ({}, [{"op": ["add"], "path": "/a"}], "op: expected one of"),
        ({}, [{"op": "add", "path": "/a"}], "add requires a value"),
        ({}, [{"op": "remove"}], "path: expected a JSON pointer"),
        ({}, [remove("a")], "path: expected a JSON pointer"),
        ({}, [{"op": "move", "path": "/a"}], "from: expected a JSON pointer"),
        ({}, [remove("/a~2b")], '"~" must be escaped as "~0"'),
        ({}, [remove("/a~")], '"~" must be escaped as "~0"'),
        ({}, [remove("/a" * 101)], "more than 100 segments"),
    ],
)
def test_inapplicable_patch_is_refused(document: Any, patch: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(JsonPatchError, match=message):
        apply_json_patch(document, check_operations(patch))


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ({"op": "add"}, "expected a JSON array"),
        ("add", "expected a JSON array"),
        ([5], "operation 0: expected a JSON object"),
        ([remove("/a")] * 10_001, "maximum operations in a JSON patch is 10000, got 10001"),
        ([add("/a", [{}] * 99_998), add("/b", [1])], "more than 100,000 values: split the patch"),
    ],
)
def test_malformed_patch_is_refused(patch: Any, message: str) -> None:
    with pytest.raises(JsonPatchError, match=message):
        check_operations(patch)


def test_size_of_copies_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each copy doubles the document. Thirty of them would make 1 GB of one byte."""
    monkeypatch.setattr(patch, "MAX_COPIED", 1000)
    doubling = [copied("/a", "/a/-")] * 5
    assert apply_json_patch({"a": [1]}, check_operations(doubling[:2]))
    with pytest.raises(JsonPatchError, match="the copies exceed 1000 bytes"):
        apply_json_patch({"a": ["x" * 100]}, check_operations(doubling))


def test_nesting_of_copies_is_limited() -> None:
    with pytest.raises(PatchError, match="the copies exceed 10,000 values"):
        apply_any_patch({}, PatchRequest.JSON, check_operations([copied("", "/a")] * 1000))


def test_copies_of_empty_values_are_limited() -> None:
    """An empty object has three bytes of text, but needs a hundred times as much memory."""
    with pytest.raises(JsonPatchError, match="the copies exceed 10,000 values"):
        apply_json_patch({"a": [{}] * 1000}, check_operations([copied("/a", f"/{number}") for number in range(11)]))


NAMES = st.sampled_from(["a", "b", "0", "1", "-", "~0", "~1", ""])
PATHS = st.lists(NAMES, max_size=3).map(lambda names: "".join(f"/{name}" for name in names))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.text("ab", max_size=1),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "0", "~", "/", ""]), inner, max_size=3)
    ),
    max_leaves=8,
)
OPERATIONS = st.one_of(
    st.builds(add, PATHS, VALUES),
    st.builds(remove, PATHS),
    st.builds(replace, PATHS, VALUES),
    st.builds(move, PATHS, PATHS),
    st.builds(copied, PATHS, PATHS),
    st.builds(test, PATHS, VALUES),
)


@given(VALUES, st.lists(OPERATIONS, max_size=6))
def test_patch_never_changes_its_arguments(document: Any, patch: list[Any]) -> None:
    before = copy.deepcopy((document, patch))
    with suppress(JsonPatchError):
        apply_json_patch(document, check_operations(patch))
    assert (document, patch) == before


@given(st.dictionaries(st.text(max_size=3), VALUES, max_size=3), st.text(max_size=3), VALUES)
def test_added_value_can_be_tested_and_removed(document: dict[str, Any], name: str, value: Any) -> None:
    path = "/" + name.replace("~", "~0").replace("/", "~1")
    without = {key: each for key, each in document.items() if key != name}
    assert apply_json_patch(without, check_operations([add(path, value), test(path, value), remove(path)])) == without
