"""The checks of lab 9: take a guard out. They read the histories of simulated clusters, in the folder lab-9."""

from collections.abc import Sequence
from pathlib import Path

from pinnace.history.records import CallRecord, HistoryError, Record, RunInfo, read_history
from pinnace.history.verdict import CheckReport
from pinnace.verification.check.check import check_history
from pinnace.verification.labs.checks import CheckFailed

CLUSTER = False
FOLDER = Path("lab-9")
FENCE, CLOCK = "bind-without-fence", "without-clock"
INVARIANT = "I3"


def _read_run(name: str, bug: str) -> tuple[RunInfo, Sequence[Record]]:
    """Return the records of a run. Raises CheckFailed unless it is one with this bug, or, for "", one of the correct code."""
    path = FOLDER / name
    try:
        records = list(read_history(path))
    except FileNotFoundError:
        raise CheckFailed(f"{path} does not exist in {Path.cwd()}") from None
    except (OSError, HistoryError) as error:
        raise CheckFailed(f"{path} is no history: {error}") from None
    run = next((record for record in records if isinstance(record, RunInfo)), None)
    if run is None:
        raise CheckFailed(f"{path} is empty")
    if run.bug != bug:
        raise CheckFailed(f"{path} is a run of {_name_code(run.bug)}, not of {_name_code(bug)}")
    return run, records


def _name_code(bug: str) -> str:
    return f'the code with the bug "{bug}"' if bug else "the correct code"


def _hunted_run() -> RunInfo:
    """Return the run that the hunt found. Raises CheckFailed."""
    run, records = _read_run("found.jsonl", FENCE)
    if not _count_violations(check_history(records)):
        raise CheckFailed(f"{FOLDER / 'found.jsonl'} does not violate {INVARIANT}")
    return run


def _same_seed(run: RunInfo, name: str) -> None:
    if run.seed != (seed := _hunted_run().seed):
        raise CheckFailed(f"{FOLDER / name} has the seed {run.seed}, not {seed} as found.jsonl")


def _count_violations(report: CheckReport) -> int:
    return next(verdict.count for verdict in report.verdicts if verdict.name == INVARIANT)


def _invariant_holds(records: Sequence[Record], name: str) -> None:
    if violated := check_history(records).violated_verdicts:
        raise CheckFailed(f"{FOLDER / name} violates {', '.join(verdict.name for verdict in violated)}")


def _count_refused(records: Sequence[Record]) -> int:
    calls = (record for record in records if isinstance(record, CallRecord) and record.verb == "bind")
    return sum(item.outcome == "refused" for call in calls for item in call.items)


async def check_right(_: object) -> str:
    run, records = _read_run("right.jsonl", "")
    _invariant_holds(records, "right.jsonl")
    return f"the cluster with seed {run.seed} violates nothing in {len(records)} records"


async def check_hunt(_: object) -> str:
    run = _hunted_run()
    return f"the cluster with seed {run.seed} found {FENCE}: it violates {INVARIANT}"


async def check_replay(_: object) -> str:
    run, records = _read_run("replay.jsonl", FENCE)
    _same_seed(run, "replay.jsonl")
    if records != _read_run("found.jsonl", FENCE)[1]:
        raise CheckFailed("replay.jsonl and found.jsonl differ: the code has changed between them")
    return f"the replay of seed {run.seed} has the same {len(records)} records"


async def check_blame(_: object) -> str:
    run, records = _read_run("fenced.jsonl", "")
    _same_seed(run, "fenced.jsonl")
    _invariant_holds(records, "fenced.jsonl")
    return f"with the fence, seed {run.seed} violates nothing: {_count_refused(records)} binds were refused"


async def check_clock(_: object) -> str:
    run, records = _read_run("clock.jsonl", CLOCK)
    _same_seed(run, "clock.jsonl")
    _invariant_holds(records, "clock.jsonl")
    return f"without the clock, seed {run.seed} violates nothing: {_count_refused(records)} binds were refused"


CHECKS = {"right": check_right, "hunt": check_hunt, "replay": check_replay, "blame": check_blame, "clock": check_clock}
