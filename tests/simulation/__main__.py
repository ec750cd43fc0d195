"""python -m tests.simulation --seeds 1000 [--first 0] [--jobs 2], or --seed N [-v] [--bug NAME] [--save FILE] to replay one.

Exit code 0: everything holds; 10: something is violated, as of `pinnace check`.
"""

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from multiprocessing import get_context
from pathlib import Path

import click

from tests.simulation.bugs import named
from tests.simulation.hunt import save
from tests.simulation.run import Outcome, play

VIOLATED = 10
BATCH = 10
"""Seeds that a worker takes at once."""
BATCHES = 20
"""After so many a worker is replaced: what thousands of simulated processes have left in its memory goes with it."""


@click.command()
@click.option("--seed", type=int, help="Replay this one.")
@click.option("--seeds", default=1000, help="How many seeds to run.")
@click.option("--first", default=0, help="The first of them.")
@click.option("--jobs", default=2, type=click.IntRange(min=1), help="Processes.")
@click.option("-v", "--verbose", is_flag=True, help="With --seed: print what happens.")
@click.option("--bug", help="With --seed: plant this bug.")
@click.option("--file", "files", multiple=True, type=click.Path(exists=True, path_type=Path), help="Python with more bugs.")
@click.option("--save", "saved", type=click.Path(path_type=Path), help="With --seed: save the history for `pinnace check`.")
@click.option("--stop", default=10, help="Stop after so many seeds that failed.")
def main(
    seed: int | None,
    seeds: int,
    first: int,
    jobs: int,
    verbose: bool,
    bug: str | None,
    files: tuple[Path, ...],
    saved: Path | None,
    stop: int,
) -> None:
    """Simulates clusters, one for each seed, and judges what happened in them."""
    if seed is None and (bug or saved):
        raise click.UsageError("--bug and --save need --seed")
    if seed is not None:
        with named(bug, files).planted() if bug else nullcontext():
            outcome = play(seed, say=print if verbose else None, bug=bug or "", keep=saved is not None)
        if saved:
            save(outcome, saved)
        print(describe(outcome, bug, files))
        sys.exit(VIOLATED if outcome.problems else 0)
    began = time.monotonic()
    failed, count, examined = 0, 0, Counter[str]()
    for outcome in _outcomes(range(first, first + seeds), jobs):
        count += 1
        examined.update({verdict.name: verdict.examined for verdict in outcome.verdicts})
        if outcome.problems:
            failed += 1
            print(describe(outcome), flush=True)
            if failed >= stop:
                break
    elapsed = time.monotonic() - began
    print("examined: " + ", ".join(f"{name} {number}" for name, number in examined.items()))
    print(f"{count} seeds from {first} on, {failed} failed; {elapsed:.1f} s, {count / elapsed:.1f} seeds/s")
    sys.exit(VIOLATED if failed else 0)


def _outcomes(seeds: range, jobs: int) -> Iterator[Outcome]:
    with get_context("fork").Pool(jobs, maxtasksperchild=BATCHES) as pool:
        yield from pool.imap_unordered(play, seeds, chunksize=BATCH)


def describe(outcome: Outcome, bug: str | None = None, files: Sequence[Path] = ()) -> str:
    """What was found, and how to see it again."""
    plan = outcome.plan
    lines = [
        f"seed {plan.seed}: {'VIOLATED' if outcome.problems else 'holds'}; {plan.kind.value}, {plan.servers} API servers, "
        f"{outcome.seconds:.1f} s, {outcome.steps} steps, {outcome.records} records, digest {outcome.digest}",
        "  faults: " + (", ".join(f"{blow.fault} at {blow.at:.1f}" for blow in plan.blows) or "none"),
    ]
    lines += [f"  {problem}" for problem in outcome.problems]
    if outcome.problems:
        planted = "".join(f" --file {file}" for file in files) + (f" --bug {bug}" if bug else "")
        lines.append(f"  replay: python -m tests.simulation --seed {plan.seed}{planted} -v")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
