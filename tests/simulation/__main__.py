"""python -m tests.simulation --seeds 1000 [--first 0] [--jobs 2], or --seed N [-v] to replay one.

Exit code 0: everything holds; 10: something is violated, as of `pinnace check`.
"""

import sys
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing import get_context

import click

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
@click.option("--stop", default=10, help="Stop after so many seeds that failed.")
def main(seed: int | None, seeds: int, first: int, jobs: int, verbose: bool, stop: int) -> None:
    """Simulates clusters, one for each seed, and judges what happened in them."""
    if seed is not None:
        outcome = play(seed, say=print if verbose else None)
        print(describe(outcome))
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


def describe(outcome: Outcome) -> str:
    """What was found, and how to see it again."""
    plan = outcome.plan
    lines = [
        f"seed {plan.seed}: {'VIOLATED' if outcome.problems else 'holds'}; {plan.kind.value}, {plan.servers} API servers, "
        f"{outcome.seconds:.1f} s, {outcome.steps} steps, {outcome.records} records, digest {outcome.digest}",
        "  faults: " + (", ".join(f"{blow.fault} at {blow.at:.1f}" for blow in plan.blows) or "none"),
    ]
    lines += [f"  {problem}" for problem in outcome.problems]
    if outcome.problems:
        lines.append(f"  replay: python -m tests.simulation --seed {plan.seed} -v")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
