"""python -m tests.model                    check the models within small bounds (about ten seconds)
python -m tests.model --large            also check them within larger bounds (many minutes, a few GB)
python -m tests.model --break NAME       remove a guard and print the shortest counterexample
python -m tests.model --list             list the guards
python -m tests.model --two-leaders      print how the terms of two candidates can overlap

The exit code of a check is 1 if an invariant fails. Otherwise it is 3 if a model exceeds the limit of states.
"""

import sys
import time
from collections.abc import Collection
from typing import Any

from tests.model.checker import Counterexample, TooManyStates, check
from tests.model.lease import Rule
from tests.model.rules import Guard
from tests.model.runs import BREAKS, LARGE, SMALL, TWO_LEADERS, Run, describe

LIMIT = 2_000_000
"""States, of about 1.5 KB each."""
FAILED, OPEN = 1, 3
"""Exit codes. A run that was not completed proves nothing, so scripts must be able to distinguish it from success."""


def main(arguments: list[str]) -> int:
    match arguments:
        case []:
            return _check(SMALL)
        case ["--large"]:
            return _check(SMALL + LARGE)
        case ["--list"]:
            for guard in (*Guard, *Rule):
                print(f"{guard.breaking:22} {guard.statement}")
            print(f"\n--break takes: {'  '.join(BREAKS)}")
        case ["--break", name] if name in BREAKS:
            run, broken = BREAKS[name]
            _print(run, broken)
        case ["--break", name]:
            print(f'unknown guard "{name}": see --list', file=sys.stderr)
            return 2
        case ["--two-leaders"]:
            _print(TWO_LEADERS, ())
        case _:
            print(__doc__)
            return 2
    return 0


def _check(runs: Collection[Run]) -> int:
    """Run the checks and return the exit code."""
    failed = unfinished = False
    for run in runs:
        started = time.monotonic()
        try:
            result = check(run.make(()), recovery=run.recovery, limit=LIMIT)
        except TooManyStates as error:
            print(f"open   {run.title}: {error}, no failure so far", flush=True)
            unfinished = True
            continue
        size = f"{result.states:,} states, {result.transitions:,} transitions, depth {result.depth}"
        verdict = "holds" if result.counterexample is None else "FAILS"
        print(f"{verdict}  {run.title}: {size}, {time.monotonic() - started:.1f} s", flush=True)
        if result.counterexample is not None:
            failed = True
            _print_trace(result.counterexample)
    return FAILED if failed else OPEN if unfinished else 0


def _print(run: Run, broken: Collection[Any]) -> None:
    for guard in broken:
        print(f"removed: {guard.statement}")
    result = check(run.make(broken), recovery=run.recovery, limit=LIMIT)
    if result.counterexample is None:
        print("no counterexample")
    else:
        _print_trace(result.counterexample)


def _print_trace(counterexample: Counterexample[Any]) -> None:
    for number, step in enumerate(counterexample.trace[1:], 1):
        print(f"{number:4}. {describe(step)}")
    print(f"      --> {counterexample.problem}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
