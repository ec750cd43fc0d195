"""The evaluator of documents: blocks, matching, time limits, updates."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.labs.console import Mismatch, Runner, Shell, match, parse, updated

pytestmark = pytest.mark.processes


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    shell = Shell(tmp_path, os.environ)
    yield Runner(shell, tmp_path)
    shell.close()


def play(runner: Runner, text: str) -> None:
    for block in parse(text):
        runner.run(block)


def test_literal_output_must_be_equal() -> None:
    assert match(["a", "b"], "a\nb\n", {}) == {}
    assert match(["a"], "a\nb\n", {}) is None
    assert match([], "a\n", {}) is None
    assert match(["a.c"], "abc\n", {}) is None


def test_dots_match_any_lines_or_any_text_in_a_line() -> None:
    assert match(["a", "...", "z"], "a\nb\nc\nz\n", {}) == {}
    assert match(["a", "...", "z"], "a\nz\n", {}) == {}
    assert match(["...", "z"], "a\nb\n", {}) is None
    assert match(["took ... ms"], "took 17 ms\n", {}) == {}
    assert match(["took ... ms"], "took\n17 ms\n", {}) is None


def test_run_of_spaces_matches_another_run_but_no_single_space() -> None:
    assert match(["NAME   AGE"], "NAME       AGE\n", {}) == {}
    assert match(["NAME   AGE"], "NAME AGE\n", {}) is None


def test_placeholder_captures_a_word_and_must_match_it_later() -> None:
    assert match(["{pod} on {node}", "{pod} again"], "a on n\na again\n", {}) == {"pod": "a", "node": "n"}
    assert match(["{pod} on {node}", "{pod} again"], "a on n\nb again\n", {}) is None
    assert match(["{pod}"], "b\n", {"pod": "a"}) is None
    assert match(["{pod}"], "a\n", {"pod": "a"}) == {}


def test_captures_are_shell_variables(runner: Runner) -> None:
    play(runner, "```console\n$ echo leader is s-1\nleader is {who}\n$ echo $who\ns-1\n```\n")
    assert runner.captures == {"who": "s-1"}


def test_variables_and_directory_persist_across_blocks(runner: Runner) -> None:
    play(runner, "```console\n$ mkdir x && cd x; a=1\n```\ntext\n```console\n$ echo $a $(basename $PWD)\n1 x\n```\n")


def test_mismatch_reports_line_output_and_exit_code(runner: Runner) -> None:
    with pytest.raises(Mismatch, match=r"(?s)line 3: \$ echo b.*expected:\n    c\ngot:\n    b"):
        play(runner, "\n```console\n$ echo b\nc\n```\n")
    with pytest.raises(Mismatch, match="exit code 1, expected 0"):
        play(runner, "```console\n$ false\n```\n")
    play(runner, "```console exit=1\n$ false\n```\n")


def test_syntax_error_does_not_end_the_shell(runner: Runner) -> None:
    play(runner, "```console exit=any\n$ echo )\n...\n$ echo on\non\n```\n")


def test_eventually_repeats_until_the_output_matches(runner: Runner) -> None:
    play(runner, "```console\n$ n=0\n```\n```console eventually=5s\n$ n=$((n+1)); echo $n\n3\n```\n")
    began = time.monotonic()
    with pytest.raises(Mismatch):
        play(runner, "```console eventually=1s\n$ echo a\nb\n```\n")
    assert time.monotonic() - began >= 1


def test_timed_out_command_is_killed_with_its_children(runner: Runner, tmp_path: Path) -> None:
    with pytest.raises(Mismatch, match=r"did not end within 0\.5 s; it printed\nfirst"):
        play(runner, "```console timeout=0.5s\n$ echo first; sleep 60 & echo $! > pid; wait\n```\n")
    pid = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 5
    while Path(f"/proc/{pid}/stat").exists() and Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_hidden_blocks_files_and_continued_commands(runner: Runner, tmp_path: Path) -> None:
    play(runner, "<!-- console\n$ echo a\na\n-->\n")
    play(runner, "```yaml file=x.yaml\na: 1\n```\n```console\n$ cat x.yaml \\\n>   x.yaml\na: 1\na: 1\n```\n")
    assert (tmp_path / "x.yaml").read_text() == "a: 1\n"


def test_parse_assigns_steps_and_rejects_unknown_options() -> None:
    first, second = parse("```console\n$ a\n```\n<!-- step: taint -->\n```console timeout=2m\n$ b\n```\n")
    assert (first.step, second.step, second.line, second.seconds("timeout")) == ("", "taint", 5, 120)
    with pytest.raises(ValueError, match="line 1: unknown option eventualy"):
        parse("```console eventualy=3s\n$ a\n```\n")
    with pytest.raises(ValueError, match="begins with a command"):
        parse("```console\na\n```\n")


def test_update_rewrites_only_mismatched_lines(runner: Runner, tmp_path: Path) -> None:
    assert updated(["took ... ms", "old"], "took 5 ms\nnew\n", {}) == ["took ... ms", "new"]
    page = tmp_path / "page.md"
    before = "# Title\n```console\n$ echo new; echo took 7 ms\nold\ntook ... ms\n```\n"
    page.write_text(before + "\n```console\n$ echo b\n$ echo c\nc\n```\nend\n")
    runner.update = True
    play(runner, page.read_text())
    runner.rewrite(page)
    after = before.replace("old", "new") + "\n```console\n$ echo b\nb\n$ echo c\nc\n```\nend\n"
    assert page.read_text() == after
