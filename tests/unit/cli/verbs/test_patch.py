"""What is read as a patch, before anybody is asked."""

import pytest

from pinnace.cli.main import run
from pinnace.cli.outcomes import ExitCode
from pinnace.cli.verbs.edit import read_patch

PATCH = {"spec": {"unschedulable": True, "taints": None}}


@pytest.mark.parametrize(
    "text", ['{"spec":{"unschedulable":true,"taints":null}}', "spec:\n  unschedulable: true\n  taints: null\n"]
)
def test_json_and_yaml(text: str) -> None:
    assert read_patch(text, "-p", "merge") == PATCH


def test_operations_are_a_list() -> None:
    operations = [{"op": "remove", "path": "/spec/taints/0"}]
    assert read_patch("- {op: remove, path: /spec/taints/0}", "-p", "json") == operations


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["pod", "a"], "must specify exactly one of -p and --patch-file"),
        (["pod", "a", "-p", "{}", "--patch-file", __file__], "must specify exactly one of -p and --patch-file"),
        (["pod", "a", "--patch-file", "/proc/self/mem"], "/proc/self/mem: input/output error"),
        (["pods", "-p", "{}"], "you must specify resources"),
        (["pod", "a", "-p", ""], "-p: not an object"),
        (["pod", "a", "-p", "[]"], "-p: not an object"),
        (["pod", "a", "-p", "a: 1\n---\nb: 1"], "-p: not an object"),
        (["pod", "a", "-p", '{"a'], "-p:1: invalid YAML"),
        (["pod", "a", "-p", "{a: 1, a: 2}"], '-p:1: "a" is duplicated'),
        (["pod", "a", "-p", "{}", "--type", "json"], "-p: not a list of operations"),
        (["pod", "a", "-p", "{}", "--type", "yaml"], "invalid value for '--type'"),
        (["pod", "a", "-p", "{}", "--subresource", "scale"], "invalid value for '--subresource'"),
    ],
)
def test_mistakes(words: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["patch", *words]) == ExitCode.USAGE
    assert capsys.readouterr().err.startswith(f"error: {line}")
