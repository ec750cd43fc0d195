"""The verb `check`."""

import gc
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from pinnace.cli.command import verb
from pinnace.cli.outcomes import ExitCode, Failure, usage_failure
from pinnace.cli.settings import Settings
from pinnace.cli.terminal import print_result
from pinnace.history import verdict as reports
from pinnace.history.records import HistoryError, Record, is_truncated, read_history
from pinnace.verification.check.check import NAMES
from pinnace.verification.check.check import check_history as judge


@verb(
    "check",
    examples="""
        pinnace check history.jsonl                  # one file
        pinnace check run/*.jsonl                    # the recordings of several processes of one run
        pinnace check run/*.jsonl --only I1 --only I3
        pinnace check run/*.jsonl -o json | jq '.verdicts[] | select(.status == "violated")'
    """,
)
@click.argument("histories", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--only", multiple=True, metavar="NAME", help=f"Check only this invariant: {', '.join(NAMES)}. Repeatable.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=reports.SHOWN,
    show_default=True,
    help="How many violations to show for each invariant.",
)
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="The output format."
)
def check(settings: Settings, histories: Sequence[Path], only: Sequence[str], limit: int, output: str) -> None:
    """Check the recorded history of a run.

    Several files of one run on one machine are merged. "void" means that there was nothing to examine. The exit code is 10
    when an invariant is violated, and when the run as a whole is void and therefore proves nothing. The last line says how
    many invariants were void or not checked, and which files end in the middle of a line.
    """
    if unknown := set(only) - set(NAMES):
        raise usage_failure(f"unknown invariant {', '.join(sorted(unknown))}", hint=f"the invariants are {', '.join(NAMES)}")
    for folder in filter(Path.is_dir, histories):
        raise usage_failure(
            f"{folder} is a directory", hint=f"`pinnace check {folder}/*.jsonl` checks the files that --save wrote"
        )
    gc.disable()  # no record becomes garbage, and collections of millions of records take longer than the check
    try:
        report = judge(_read_histories(histories), set(only) or None)
    except HistoryError as error:
        raise Failure(str(error), hint="specify files from a recorder of this version", code=ExitCode.INVALID) from None
    finally:
        gc.enable()
    cut = [path.name for path in histories if path.is_file() and is_truncated(path)]
    if output == "json":
        print_result(json.dumps(reports.report_document(report, cut), indent=2) + "\n")
    else:
        print_result("".join(f"{line}\n" for line in reports.report_lines(report, limit, cut)))
    if report.status != "holds":
        raise Failure(f"the check did not succeed: {reports.report_conclusion(report, cut)}", code=ExitCode.VERDICT)


def _read_histories(histories: Sequence[Path]) -> Iterator[Record]:
    for path in histories:
        yield from read_history(path)
