"""python -m tests.model                    check the models within small bounds (some ten seconds)
python -m tests.model --large            and within larger ones (many minutes, a few GB)
python -m tests.model --break NAME       take a guard away, and print the shortest way in which that does harm
python -m tests.model --list             the guards
python -m tests.model --two-leaders      how two candidates can believe to lead for a moment

A check exits with 1 when something fails, and with 3 when nothing does but a model has more states than were looked at.
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
"""States; some 1.5 KB each."""
FAILED, OPEN = 1, 3
"""Exit codes: what was not looked at to its end is not proven, and whoever runs this in a script must not take it for that."""


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
            print(f'"{name}" cannot be taken away; --list says what can', file=sys.stderr)
            return 2
        case ["--two-leaders"]:
            _print(TWO_LEADERS, ())
        case _:
            print(__doc__)
            return 2
    return 0


def _check(runs: Collection[Run]) -> int:
    """The exit code."""
    failed = unfinished = False
    for run in runs:
        started = time.monotonic()
        try:
            result = check(run.make(()), recovery=run.recovery, limit=LIMIT)
        except TooManyStates as error:
            print(f"open   {run.title}: {error}, and nothing wrong with those", flush=True)
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
        print(f"taken away: {guard.statement}")
    result = check(run.make(broken), recovery=run.recovery, limit=LIMIT)
    if result.counterexample is None:
        print("nothing is wrong")
    else:
        _print_trace(result.counterexample)


def _print_trace(counterexample: Counterexample[Any]) -> None:
    for number, step in enumerate(counterexample.trace[1:], 1):
        print(f"{number:4}. {describe(step)}")
    print(f"      --> {counterexample.problem}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
