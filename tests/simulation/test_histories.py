"""A replay saves its history, with the planted bug, and `pinnace check` reads it."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from pinnace.history.records import RunInfo, read_history
from pinnace.verification.check.check import check_history
from tests.simulation.__main__ import main as simulate
from tests.simulation.hunt import main as hunt
from tests.simulation.run import JUDGED, play

BUG = "bind-without-fence"
MINE = """
from pinnace.client.election import LocalTerm
from tests.simulation.bugs import bug

@bug("without-clock-{number}", "I3")
def plant(surgery):
    surgery.replace(LocalTerm, "is_valid", lambda self, now: True)
"""


def test_found_seed_is_replayed_exactly_and_its_history_is_checked_as_the_run_was(tmp_path: Path) -> None:
    result, replayed = tmp_path / "found.jsonl", tmp_path / "replayed.jsonl"
    ended = CliRunner().invoke(hunt, ["--bug", BUG, "--seeds", "80", "--save", str(result)])
    assert ended.exit_code == 0, ended.output
    run = next(record for record in read_history(result) if isinstance(record, RunInfo))
    assert run.bug == BUG
    ended = CliRunner().invoke(simulate, ["--seed", str(run.seed), "--bug", BUG, "--save", str(replayed)])
    assert ended.exit_code == 10
    assert f"--seed {run.seed} --bug {BUG} -v" in ended.output
    assert replayed.read_bytes() == result.read_bytes()

    report = check_history(read_history(result))
    outcome = play(run.seed)
    assert [verdict.name for verdict in report.violated_verdicts] == ["I3"]
    assert {verdict.name for verdict in report.verdicts if verdict.status != "not checked"} == set(JUDGED[outcome.plan.kind])
    assert not outcome.problems and not outcome.history, "the bug is gone, and nothing is kept"


def test_bug_of_a_file_is_planted(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(MINE.format(number=1))
    ended = CliRunner().invoke(simulate, ["--seed", "5", "--file", str(file), "--bug", "without-clock-1"])
    assert ended.exit_code == 0, ended.output


@pytest.mark.parametrize(
    ("command", "arguments", "says"),
    [
        (simulate, ["--seed", "5", "--bug", "nonsense"], 'there is no bug "nonsense"; there are bind-without-fence,'),
        (simulate, ["--bug", BUG], "--bug and --save need --seed"),
        (hunt, ["--bug", "nonsense"], 'there is no bug "nonsense"'),
        (hunt, ["--save", "x"], "--save needs one --bug"),
    ],
)
def test_mistakes_are_named(command: click.Command, arguments: list[str], says: str) -> None:
    ended = CliRunner().invoke(command, arguments)
    assert ended.exit_code == 2 and says in ended.output
