"""Templates and paths: the table of https://kubernetes.io/docs/reference/kubectl/jsonpath/, and what it leaves open."""

import json
from typing import Any

import pytest

from pinnace.cli.jsonpath import parse, parse_path
from pinnace.cli.outcomes import ExitCode, Failure

MANY = "9" * 5000

DATA: Any = {
    "kind": "List",
    "items": [
        {
            "kind": "None",
            "metadata": {"name": "127.0.0.1", "labels": {"kubernetes.io/hostname": "127.0.0.1"}},
            "status": {"capacity": {"cpu": "4"}, "addresses": [{"type": "LegacyHostIP", "address": "127.0.0.1"}]},
        },
        {
            "kind": "None",
            "metadata": {"name": "127.0.0.2"},
            "status": {
                "capacity": {"cpu": "8"},
                "addresses": [
                    {"type": "LegacyHostIP", "address": "127.0.0.2"},
                    {"type": "another", "address": "127.0.0.3"},
                ],
            },
        },
    ],
    "users": [
        {"name": "myself", "user": {}},
        {"name": "e2e", "user": {"username": "admin", "password": "secret"}},
    ],
    "numbers": [1, 2, 3, 4, 5],
    "ready": True,
    "none": None,
}


@pytest.mark.parametrize(
    ("template", "result"),
    [
        ("kind is {.kind}", "kind is List"),
        ("{.kind}", "List"),
        ("{['kind']}", "List"),
        ("{$.kind}{@.kind}{$['kind']}{.['kind']}", "List" * 4),
        (r"{.items[0].metadata.labels.kubernetes\.io/hostname}", "127.0.0.1"),
        (r"{.items[0].metadata.labels['kubernetes\.io/hostname']}", "127.0.0.1"),
        ("{..name}", "127.0.0.1 127.0.0.2 myself e2e"),
        ("{.items[*].metadata.name}", "127.0.0.1 127.0.0.2"),
        ("{.users[0].name}", "myself"),
        ("{.items[*]['metadata.name', 'status.capacity']}", '127.0.0.1 127.0.0.2 {"cpu":"4"} {"cpu":"8"}'),
        ('{.users[?(@.name=="e2e")].user.password}', "secret"),
        (
            "{range .items[*]}[{.metadata.name}, {.status.capacity}] {end}",
            '[127.0.0.1, {"cpu":"4"}] [127.0.0.2, {"cpu":"8"}] ',
        ),
        (r'{range .items[*]}{.metadata.name}{"\t"}{end}', "127.0.0.1\t127.0.0.2\t"),
        ("{.users[-1].name} {.users[-2:].name} {.users[:1].name}", "e2e myself e2e myself"),
        ("{.numbers[]} {.items[].metadata.name}", "1 127.0.0.1"),
        ("{.numbers[1:4]} {.numbers[::2]} {.numbers[0,3]} {.numbers[9:]}", "2 3 4 1 3 5 1 4 "),
    ],
)  # fmt: skip
def test_the_table_of_kubernetes(template: str, result: str) -> None:
    assert parse(template).render(DATA) == result


@pytest.mark.parametrize("whole", ["{@}", "{$}", "{.}", "{ . }"])
def test_the_whole_is_json(whole: str) -> None:
    assert json.loads(parse(whole).render(DATA)) == DATA


@pytest.mark.parametrize(
    ("template", "result"),
    [
        ("{.nothing}{.kind.deeper}{.nothing[3]}{.none[0]}{.users[*].user.username}", "admin"),
        ("{.ready} {.none} {.numbers[0]} {.numbers}", "true null 1 [1,2,3,4,5]"),
        ("{range .nothing[*]}never{end}after", "after"),
        ("{range .users[*]}{.name};", "myself;e2e;"),
        ("{range .items[*]}{range .status.addresses[*]}{.type};{end}|{end}", "LegacyHostIP;|LegacyHostIP;another;|"),
        ("{range .users[*]}{.name}{'\\n'}{end}", "myself\ne2e\n"),
        (r'{"a \"quoted\" \u0041"}{"}"}{1.5}{true}', 'a "quoted" A}1.5true'),
        ("", ""),
    ],
)
def test_what_is_not_there_and_what_is_no_text(template: str, result: str) -> None:
    assert parse(template).render(DATA) == result


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("@.a==1", ["one"]),
        ("@.a!=1", ["two", "text"]),
        ("@.a > 1", ["two"]),
        ("@.a>=1", ["one", "two"]),
        ("@.a<2", ["one"]),
        ("@.a <= 2", ["one", "two"]),
        ("@.a=='x y]) }'", ["text"]),
        ("@.b", ["bare", "list"]),
        ("@.b[0]==true", ["list"]),
        ("2==@.a", ["two"]),
    ],
)
def test_filters(condition: str, found: list[str]) -> None:
    items = [
        {"name": "one", "a": 1},
        {"name": "two", "a": 2},
        {"name": "text", "a": "x y]) }"},
        {"name": "bare", "b": None},
        {"name": "list", "b": [True]},
    ]
    assert parse(f"{{[?({condition})].name}}").render(items).split() == found


@pytest.mark.parametrize(
    "text", ["{.metadata.name}", ".metadata.name", "metadata.name", "$.metadata.name", "['metadata.name']"]
)
def test_a_path_needs_neither_braces_nor_a_dot(text: str) -> None:
    assert parse_path(text).find(DATA["items"][:1]) == ["127.0.0.1"]


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("a{.kind", 'expected "}", not the end at character 8'),
        ("{}", "expected a path, such as .metadata.name at character 2"),
        ("{.a..}", "expected a field name at character 6"),
        ("{.a[b]}", "expected a number, a slice, *, 'name' or ?(...) at character 5"),
        ("{.a[1}", 'expected "]", not "}" at character 6'),
        ("{.a[::0]}", "the step of a slice must be > 0"),
        ("{.a['x}", "unterminated quoted string at character 5"),
        ("{.a['']}", '"" is not a field name at character 5'),
        ("{.a[?(@.b=1)]}", 'expected ")", not "=" at character 10'),
        ("{kind}", 'unrecognized identifier "kind": a path begins with a dot at character 2'),
        ("{.a}{end}", "{end} without a {range} at character 5"),
        (f"{{.a[{MANY}]}}", "a number of 5000 digits at character 5 of {.a[999"),
        (f"{{.a[1:{MANY}]}}", "a number of 5000 digits at character 5"),
        (f"{{{MANY}}}", "a number of 5000 digits at character 2"),
    ],
)
def test_mistakes_are_shown_with_their_place(template: str, message: str) -> None:
    with pytest.raises(Failure) as caught:
        parse(template)
    assert message in str(caught.value) and caught.value.report.code is ExitCode.USAGE
    assert len(str(caught.value)) < 300


def test_half_of_a_character_is_none() -> None:
    assert parse(r'{"\ud83d"}{"\u00fc"}{"\xd8"}').render(DATA) == "\ufffdü\xd8"


@pytest.mark.parametrize("text", ["", "{.a", ".a b", ".a}"])
def test_wrong_paths(text: str) -> None:
    with pytest.raises(Failure, match=r"jsonpath: .* at character"):
        parse_path(text)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{.users[2]}", "array index out of bounds: index 2, length 2"),
        ("{.users[-3]}", "array index out of bounds: index -3, length 2"),
        ("{.kind[0]}", "List is not a list"),
        ('{.items[?(@..type=="another")]}', "one value at a time"),
    ],
)
def test_paths_that_lead_nowhere(template: str, message: str) -> None:
    with pytest.raises(Failure) as caught:
        parse(template).render(DATA)
    assert message in str(caught.value) and caught.value.report.code is ExitCode.NOT_FOUND
