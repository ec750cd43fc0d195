"""`pinnace check`: what it prints, and how it ends."""

import json
import random
from pathlib import Path

import pytest

from pinnace.cli.main import run_command_line
from pinnace.history.records import CallRecord, Record, encode_record
from pinnace.verification.check.check import NAMES
from tests.unit.check.mutations.binding import a_second_bind
from tests.unit.check.mutations.living import unfired
from tests.unit.check.world import World


@pytest.fixture
def history() -> list[Record]:
    return World(0).live()


def save(path: Path, records: list[Record]) -> str:
    with path.open("w") as file:
        file.writelines(map(encode_record, records))
    return str(path)


def test_line_for_each_invariant(tmp_path: Path, history: list[Record], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["check", save(tmp_path / "h", history)]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [[name, "holds"] for name in NAMES]
    assert last == "the run: all invariants hold"


def test_violation_is_shown_and_decides_the_exit_code(
    tmp_path: Path, history: list[Record], capsys: pytest.CaptureFixture[str]
) -> None:
    broken = save(tmp_path / "h", a_second_bind(history, random.Random(0)))
    assert run_command_line(["check", broken]) == 10
    captured = capsys.readouterr()
    assert "and again to" in captured.out
    assert captured.err == "error: the check did not succeed: violated: I1 1 times\n"

    assert run_command_line(["check", broken, "--only", "I2", "-o", "json"]) == 0
    verdicts = {verdict["name"]: verdict["status"] for verdict in json.loads(capsys.readouterr().out)["verdicts"]}
    assert verdicts["I2"] == "holds" and verdicts["I1"] == "not checked"


def test_void_run_proves_nothing(tmp_path: Path, history: list[Record], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["check", save(tmp_path / "h", unfired(history))]) == 10
    assert 'fault "clock-jump" did not fire' in capsys.readouterr().err


def test_unchecked_invariants_are_counted(tmp_path: Path, history: list[Record], capsys: pytest.CaptureFixture[str]) -> None:
    stored = save(tmp_path / "h", [record for record in history if not isinstance(record, CallRecord)])
    assert run_command_line(["check", stored, "--only", "I1"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"the run: 1 of {len(NAMES)} invariants hold; {len(NAMES) - 1} not checked"

    assert run_command_line(["check", stored, "-o", "json"]) in (0, 10)
    result = json.loads(capsys.readouterr().out)
    void = sum(verdict["status"] == "void" for verdict in result["verdicts"])
    assert void > 0 and result["cut_off"] == []
    assert result["status"] == "violated" or f"{void} void: nothing to examine" in result["conclusion"]


def test_history_that_is_cut_off_is_said_to_be(
    tmp_path: Path, history: list[Record], capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "h.jsonl"
    save(path, history)
    with path.open("a") as file:
        file.write('{"t":"phase","at":2.0,"na')
    assert run_command_line(["check", str(path)]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.endswith("; the last line of h.jsonl is incomplete: later records are missing")


def test_files_of_one_run_are_merged(tmp_path: Path, history: list[Record], capsys: pytest.CaptureFixture[str]) -> None:
    calls = save(tmp_path / "calls", [record for record in history if isinstance(record, CallRecord)])
    others = save(tmp_path / "others", [record for record in history if not isinstance(record, CallRecord)])
    assert run_command_line(["check", calls, others]) == 0
    assert "void" not in capsys.readouterr().out


def test_malformed_history_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "h"
    path.write_text("hello\n")
    assert run_command_line(["check", str(path)]) == 5
    assert f"error: {path}:1: not a record of a history" in capsys.readouterr().err
    path.write_bytes(b"\x7fELF" * 1000 + b"\n")
    assert run_command_line(["check", str(path)]) == 5
    assert capsys.readouterr().err.startswith(f"error: {path}:1: not a record of a history: invalid JSON\nhint: ")
    assert run_command_line(["check", str(tmp_path)]) == 2
    assert f"hint: `pinnace check {tmp_path}/*.jsonl`" in capsys.readouterr().err
    assert run_command_line(["check", str(path), "--only", "I99"]) == 2
    assert "unknown invariant I99" in capsys.readouterr().err
