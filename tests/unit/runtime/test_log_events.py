"""Log events, from the call of a logger to the reader, and their declarations."""

import ast
import json
import logging
from pathlib import Path

import pytest

from pinnace.runtime import logs
from pinnace.runtime.logs import (
    EVENTS,
    LeadershipLost,
    NodesReclaimed,
    PluginFailed,
    TokenFenced,
    parse_line,
    read_log,
    select_events,
)

ROOT = Path(__file__).parents[3]
PRODUCT = ("apiserver", "scheduler", "kubelet", "controllers", "pinnace")


def test_json_line_has_the_event_and_its_fields(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure_logging("scheduler-0", form="json")
    logging.getLogger("a.b").warning("token %d is fenced", 7, extra=TokenFenced(7).extra)
    (text,) = capsys.readouterr().err.splitlines()
    document = json.loads(text)
    assert (document["event"], document["fields"]) == ("token.fenced", {"token": 7})
    line = parse_line(text)
    assert line is not None and line.event == TokenFenced(7)
    assert (line.severity, line.component, line.logger, line.message) == ("WARNING", "scheduler-0", "a.b", "token 7 is fenced")


def test_text_line_has_only_the_message(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure_logging("scheduler-0")
    logging.getLogger("a.b").warning("token %d is fenced", 7, extra=TokenFenced(7).extra)
    assert capsys.readouterr().err.endswith("W scheduler-0 a.b: token 7 is fenced\n")


@pytest.mark.parametrize(
    "line",
    [
        "",
        "Traceback (most recent call last):",
        '{"level":"fatal","ts":"2026-11-23T06:17:51Z"}',
        '{"ts": 1.5, "sever',
        "[]",
        "7",
    ],
)
def test_foreign_and_malformed_lines_are_ignored(line: str) -> None:
    assert parse_line(line) is None


def _line(name: str, fields: dict[str, object]) -> str:
    common = {"ts": 1.5, "severity": "INFO", "component": "c", "logger": "l", "msg": "m"}
    return json.dumps(common | {"event": name, "fields": fields})


def test_reader_ignores_events_and_fields_of_newer_versions() -> None:
    unknown, extended = parse_line(_line("no.such", {"a": 1})), parse_line(_line("token.fenced", {"token": 7, "new": 1}))
    assert unknown is not None and unknown.event is None
    assert extended is not None and extended.event == TokenFenced(7)


def test_log_is_filtered_by_kind_of_event(tmp_path: Path) -> None:
    log = tmp_path / "scheduler-0.log"
    lines = [_line("token.fenced", {"token": 7}), "Traceback", _line("nodes.reclaimed", {"count": 3})]
    log.write_text("\n".join(lines))
    assert select_events(read_log(log), NodesReclaimed) == [NodesReclaimed(3)]
    assert select_events(read_log(log), LeadershipLost) == []


def test_every_event_is_emitted() -> None:
    """No reader waits for an event that nothing logs. mypy checks the fields."""
    kinds = {kind.__name__ for kind in EVENTS.values()}
    emitted = {name for package in PRODUCT for path in (ROOT / package).rglob("*.py") for name in _emitted(path, kinds)}
    assert emitted == kinds


def _emitted(path: Path, kinds: set[str]) -> set[str]:
    """The kinds of event for which the file has `Kind(...).extra`."""
    text = path.read_text()
    if ".extra" not in text:
        return set()
    made = [n.value for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Attribute) and n.attr == "extra"]
    return {call.func.id for call in made if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)} & kinds


READERS = (
    "pinnace/verification/chaos",
    "pinnace/verification/check",
    "pinnace/verification/bench",
    "pinnace/cli/verbs/demo.py",
)
SEARCHES = (
    "startswith",
    "endswith",
    "find",
    "index",
    "count",
    "partition",
    "rpartition",
    "split",
    "removeprefix",
    "removesuffix",
)


def test_event_is_a_value_with_the_declared_fields() -> None:
    assert PluginFailed("A", "Filter", error="E") == PluginFailed("A", "Filter", "E", pod="")
    assert TokenFenced(7) != TokenFenced(8) and len({TokenFenced(7), TokenFenced(7)}) == 1
    for wrong in ({}, {"token": 7, "other": 1}):
        with pytest.raises(TypeError, match="TokenFenced"):
            TokenFenced(**wrong)
    with pytest.raises(TypeError, match="TokenFenced"):
        TokenFenced(7, token=7)


@pytest.mark.parametrize("place", READERS)
def test_readers_match_event_names_rather_than_messages(place: str) -> None:
    """Regression: verdicts of chaos runs depended on log messages, and a reworded message emptied a timeline."""
    files = [ROOT / place] if place.endswith(".py") else sorted((ROOT / place).rglob("*.py"))
    assert files
    result = [f"{path.relative_to(ROOT)}:{line}" for path in files for line in matches(ast.parse(path.read_text()))]
    assert result == []


@pytest.mark.parametrize(
    ("code", "caught"),
    [
        ("any('is lost' in line for line in log)", True),
        ("text == 'token 7 is lost'", True),
        ("text.startswith('token is')", True),
        ("any(word in line.message for word in words)", True),
        ("re.search('lost', text)", True),
        ("from re import compile", True),
        ("folder.log_tail(name)", True),
        ("kind == 'ended'", False),
        ("print('a sentence')", False),
        ("f'{name} says: {line.message}'", False),
        ("isinstance(line.event, LeadershipLost)", False),
    ],
)
def test_code_that_matches_log_messages_is_detected(code: str, caught: bool) -> None:
    assert bool(matches(ast.parse(code))) is caught


def matches(tree: ast.AST) -> list[int]:
    """The lines that compare or search text with a sentence, use regular expressions, or read the tail of a log."""

    def sentence(node: ast.expr) -> bool:
        spaced = isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip()
        return spaced or (isinstance(node, ast.Attribute) and node.attr == "message" and _name(node.value) == "line")

    result = []
    for node in ast.walk(tree):
        match node:
            case ast.Compare():
                caught = any(map(sentence, (node.left, *node.comparators)))
            case ast.Call(func=ast.Attribute(attr="log_tail")):
                caught = True
            case ast.Call(func=ast.Attribute(value=value, attr=attr)):
                caught = _name(value) == "re" or (attr in SEARCHES and (sentence(value) or any(map(sentence, node.args))))
            case ast.Import():
                caught = any(alias.name == "re" for alias in node.names)
            case ast.ImportFrom():
                caught = node.module == "re"
            case _:
                caught = False
        if caught:
            result.append(node.lineno)
    return result


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def test_documentation_lists_every_event() -> None:
    def row(name: str) -> str:
        columns = ", ".join(f"`{field}`" for field in EVENTS[name].fields)
        return f"| `{name}` | {columns} | {' '.join(str(EVENTS[name].__doc__).split())} |"

    assert "\n".join(map(row, sorted(EVENTS))) in (ROOT / "docs/observability.md").read_text()
