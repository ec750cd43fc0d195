"""YAML as data with line numbers, and refused documents."""

import json
import time
from typing import Any

import pytest
import yaml

from pinnace.api import documents
from pinnace.api.documents import MAX_DEPTH, MAX_NODES, MAX_SIZE, DocumentError, is_string_unquoted, line_of, parse


@pytest.fixture(params=["CSafeLoader", "SafeLoader"], autouse=True)
def loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyYAML's C and Python loaders must agree."""
    monkeypatch.setattr(documents, "_LOADER", getattr(yaml, request.param))


def one(text: str) -> Any:
    (document,) = parse(text)
    return document.data


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a", "a"),
        ("'1'", "1"),
        ('"yes"', "yes"),
        ("1", 1),
        ("-5", -5),
        ("+5", 5),
        ("0", 0),
        ("0644", 0o644),
        ("0o644", 0o644),
        ("-0x1F", -31),
        ("08", 8),
        ("0.5", 0.5),
        (".5", 0.5),
        ("1e3", 1000),
        ("1.5Gi", "1.5Gi"),
        ("500m", "500m"),
        ("yes", True),
        ("Off", False),
        ("TRUE", True),
        ("y", True),
        ("Y", True),
        ("n", False),
        ("tRue", "tRue"),
        ("2026-01-31", "2026-01-31"),
        ("12:30:00", "12:30:00"),
        ("1.2.3", "1.2.3"),
        ("!!str 5", "5"),
        ("!!int 5", 5),
        ("! 5", "5"),
        ("|\n  yes\n", "yes\n"),
        ("1" * 65, "1" * 65),
    ],
)
def test_scalars(text: str, value: object) -> None:
    result = one(f"k: {text}")["k"]
    assert result == value
    assert type(result) is type(value)


@pytest.mark.parametrize("text", ["~", "null", "", "Null"])
def test_null_scalars(text: str) -> None:
    assert one(f"k: {text}") == {"k": None}


def test_keys_are_strings() -> None:
    assert one("on: 1\n1: 2\n") == {"on": 1, "1": 2}


def test_lines_of_values() -> None:
    data = one("# first\na:\n  b:\n  - c: 1\n    d: 2\n  - e\nf: {g: 1}\n")
    assert line_of(data, ("a",), 0) == 2
    assert line_of(data, ("a", "b", 0, "d"), 0) == 5
    assert line_of(data, ("a", "b", 1), 0) == 6
    assert line_of(data, ("f", "g"), 0) == 7
    assert line_of(data, ("a", "b", 0, "missing"), 0) == 4, "a missing field has the line of its parent"
    assert line_of(data, (), 9) == 9
    assert data.line == 2


def test_line_numbers_continue_across_documents() -> None:
    result = list(parse("a: 1\n---\n\n---\n# nothing\n---\nb: 2\n"))
    assert [(document.data, document.line) for document in result] == [({"a": 1}, 1), ({"b": 2}, 7)]


def test_aliases_are_expanded() -> None:
    assert one("a: &x [1, 2]\nb: *x\nc: &y 5\nd: *y\n") == {"a": [1, 2], "b": [1, 2], "c": 5, "d": 5}


def test_anchors_end_with_their_document() -> None:
    with pytest.raises(DocumentError, match="no preceding anchor"):
        list(parse("a: &x 1\n---\nb: *x\n"))


def test_first_of_duplicate_keys_counts() -> None:
    (document,) = parse("a: 1\nb:\n  c: 2\n  c: 3\na: 4\n")
    assert document.data == {"a": 1, "b": {"c": 2}}
    assert document.mistakes == (
        (4, '"c" is duplicated; first defined on line 3'),
        (5, '"a" is duplicated; first defined on line 1'),
    )


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("b: 1\na: ]\n", 2, "invalid YAML: "),
        ("a: 1\n b: 2\n", 2, "invalid YAML: "),
        ("a:\n\tb: 1\n", 2, "invalid YAML: "),
        ("a: @b\n", 1, "invalid YAML: "),
        ("a: 1\nb: \x07\n", 2, "invalid YAML: "),
        ("a: 1\nb: '\ud800'\n", 2, "not valid Unicode"),
        ("a: &x [*x]\n", 1, "the alias *x has no preceding anchor"),
        ("a: !!python/object/apply:os.system [ls]\n", 1, "the tag tag:yaml.org,2002:python/object/apply:os.system is not"),
        ("a: !secret x\n", 1, "the tag !secret is not supported"),
        ("b: 1\n? [a]\n: 1\n", 2, "a key must be a string"),
        ("y:\n  <<: 7\n", 2, "a merge key (<<) requires a mapping or a list of mappings"),
        ("[" * (MAX_DEPTH + 1), 1, f"nested more than {MAX_DEPTH} levels deep"),
        ("a:\n" + "- " * (MAX_DEPTH + 1) + "x", 2, f"nested more than {MAX_DEPTH} levels deep"),
    ],
)
def test_error_is_one_line_with_a_line_number(text: str, line: int, message: str) -> None:
    with pytest.raises(DocumentError) as caught:
        list(parse(text))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert caught.value.line == line


def test_maximum_depth_is_accepted() -> None:
    assert one("[" * MAX_DEPTH + "]" * MAX_DEPTH)


def test_oversized_text_is_refused() -> None:
    with pytest.raises(DocumentError, match=r"at most \d+ are allowed"):
        list(parse("#" * (MAX_SIZE + 1)))


def test_exponential_aliases_are_refused_quickly() -> None:
    laughs = "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
    for previous, name in zip("abcdefghi", "bcdefghij", strict=True):
        laughs += f"{name}: &{name} [{','.join([f'*{previous}'] * 10)}]\n"
    started = time.process_time()
    with pytest.raises(DocumentError, match="after alias expansion"):
        list(parse(laughs))
    assert time.process_time() - started < 5


def test_concatenated_json_objects() -> None:
    text = json.dumps({"a": 1, "b": [0.5, "1e3", None]}) + '{"a": 2}\n\n{\n "a": true,\n "a": "x"\n}\n'
    result = list(parse(text))
    assert [document.data for document in result] == [{"a": 1, "b": [0.5, "1e3", None]}, {"a": 2}, {"a": True}]
    assert [document.line for document in result] == [1, 1, 3]
    assert result[2].mistakes == ((3, '"a" is duplicated'),)


def test_json_that_is_not_valid_yaml() -> None:
    assert one(json.dumps({"a": "\U0001f600", "k" * 2000: 1})) == {"a": "\U0001f600", "k" * 2000: 1}
    assert one('{"a": "\\ud83d\\ude00", "b": 1e3, "c": %s}' % ("1" * 5000)) == {"a": "\U0001f600", "b": 1000.0, "c": "1" * 5000}


def test_flow_mapping_that_starts_like_json_is_yaml() -> None:
    assert [document.data for document in parse("{a: 1}\n---\nb: 2\n")] == [{"a": 1}, {"b": 2}]
    with pytest.raises(DocumentError, match="invalid YAML"):
        list(parse("{a: 1, b: ]}"))


@pytest.mark.parametrize(
    ("second", "line", "message"),
    [
        ('{"a": }', 2, "invalid JSON: Expecting value"),
        ('\n{"a": NaN}', 3, "invalid JSON: NaN is not a JSON number"),
        (r'{"a": ["\ud83d"]}', 2, "not valid Unicode"),
        (r'{"\ud83d": 1}', 2, "not valid Unicode"),
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), 2, f"nested more than {MAX_DEPTH} levels deep"),
        ("[" * 500_000, 2, f"nested more than {MAX_DEPTH} levels deep"),
        (f"[{'0,' * MAX_NODES}0]", 2, f"more than {MAX_NODES} values"),
    ],
    ids=["syntax", "constant", "lone surrogate", "lone surrogate in a key", "depth", "recursion", "nodes"],
)
def test_json_has_the_same_limits_as_yaml(second: str, line: int, message: str) -> None:
    documents = parse('{"a": 1}\n' + second)
    with pytest.raises(DocumentError, match=message) as caught:
        list(documents)
    assert caught.value.line == line


def test_merge_keys_add_missing_fields() -> None:
    text = "a: &a {x: 1, y: 2}\nb: &b {y: 3, z: 4}\nc:\n  <<: [*a, *b]\n  x: 5\nd: {<<: *a}\ne: {'<<': 1}\n"
    (document,) = parse(text)
    assert document.data["c"] == {"x": 5, "y": 2, "z": 4}
    assert document.data["d"] == {"x": 1, "y": 2}
    assert document.data["e"] == {"<<": 1}
    assert document.mistakes == ()
    assert line_of(document.data, ("c", "z"), 0) == 2, "the line of the merged mapping"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1_000", 1000),
        ("0b101", 5),
        ("-0b11", -3),
        ("0x1_f", 31),
        ("1_0.5", 10.5),
        ("0o17", 15),
        ("017", 15),
        ("08", 8),
        ("0X1F", 31),
        ("0B11", 3),
        ("0O17", 15),
        ("1e400", "1e400"),
        ("y", True),
        ("N", False),
    ],
)
def test_numbers_follow_go_yaml(text: str, value: float) -> None:
    (document,) = parse(f"a: {text}\nb: '{text}'\n")
    assert document.data == {"a": value, "b": text}
    assert not is_string_unquoted(text)


@pytest.mark.parametrize("text", ["_1", "1_a", "0b12", "a_b", "-_", "1.2.3"])
def test_text_that_looks_like_a_number_stays_text(text: str) -> None:
    (document,) = parse(f"a: {text}\n")
    assert document.data == {"a": text} and is_string_unquoted(text)
