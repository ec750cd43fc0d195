"""python -m tests.simulation.hunt [--bug NAME [--file FILE]] [--seeds 1000] [--jobs 2]: is every planted bug found?

For each, the first seed whose verdict names an invariant that should notice. Exit code 10 when one is not found.
"""

import sys
import time
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import click

from pinnace.history.records import encode_record
from tests.simulation.bugs import BUGS, named
from tests.simulation.run import Outcome, play

NOT_FOUND = 10


@dataclass(frozen=True, slots=True)
class Find:
    bug: str
    seed: int | None
    """None: not found."""
    by: tuple[str, ...]
    """The invariants that were violated."""
    elsewhere: tuple[int, ...]
    """Seeds before that failed in another way."""
    seconds: float


def save(outcome: Outcome, file: Path) -> None:
    """Write the history, which was kept, for `pinnace check`."""
    with file.open("w") as lines:
        lines.writelines(map(encode_record, outcome.history))


def hunt(name: str, seeds: range, file: Path | None = None) -> Find:
    """The first seed that finds the bug. Its history is saved in the file."""
    bug, began = BUGS[name], time.monotonic()
    elsewhere: list[int] = []
    with bug.planted():
        for seed in seeds:
            outcome = play(seed, bug=name, keep=file is not None)
            by = tuple(verdict.name for verdict in outcome.verdicts if verdict.violations)
            if set(by) & set(bug.invariants):
                if file:
                    save(outcome, file)
                return Find(name, seed, by, tuple(elsewhere), time.monotonic() - began)
            if outcome.problems:
                elsewhere.append(seed)
    return Find(name, None, (), tuple(elsewhere), time.monotonic() - began)


@click.command()
@click.option("--bug", "names", multiple=True, help="Only this one; may be repeated.")
@click.option("--file", "files", multiple=True, type=click.Path(exists=True, path_type=Path), help="Python with more bugs.")
@click.option("--save", "saved", type=click.Path(path_type=Path), help="Save the history of the seed that finds the bug.")
@click.option("--seeds", default=1000, help="How many seeds to try for each.")
@click.option("--first", default=0, help="The first of them.")
@click.option("--jobs", default=2, type=click.IntRange(min=1), help="Processes.")
def main(names: tuple[str, ...], files: tuple[Path, ...], saved: Path | None, seeds: int, first: int, jobs: int) -> None:
    """Plants bugs, one at a time, and looks for a seed that finds each."""
    if saved and len(names) != 1:
        raise click.UsageError("--save needs one --bug")
    for name in names:
        named(name, files)
    tasks = [(name, range(first, first + seeds), saved) for name in names or BUGS]
    missed = 0
    with get_context("fork").Pool(min(jobs, len(tasks)), maxtasksperchild=1) as pool:
        for find in pool.imap(_hunt, tasks):
            missed += find.seed is None
            print(describe(find), flush=True)
    sys.exit(NOT_FOUND if missed else 0)


def describe(find: Find) -> str:
    where = f"seed {find.seed} ({', '.join(find.by)})" if find.seed is not None else "NOT FOUND"
    others = f"; {len(find.elsewhere)} other seeds failed otherwise, first {find.elsewhere[0]}" if find.elsewhere else ""
    expected = "/".join(BUGS[find.bug].invariants)
    return f"{find.bug:34} {expected:8} {where}{others}; {find.seconds:.0f} s"


def _hunt(task: tuple[str, range, Path | None]) -> Find:
    return hunt(*task)


if __name__ == "__main__":
    main()
