"""What the processes of a run say in their logs that must not be: what our own code logs as an error is a bug, or shows one.

A process that fails when the run ends tells nobody else. What libraries call errors is left out: gRPC logs one when a client
goes away at the wrong moment. So is what a process says while a fault takes from it what it needs (memory, files): see Excuse.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from pinnace.cluster.spec import ETCD
from pinnace.runtime.logs import LogLine, read

SHOWN = 3
"""Lines of one log that are told; there may be thousands that are alike."""
LENGTH = 300
AFTERWARDS = 3.0
"""Seconds after an excuse has ended in which a process may still tell of it."""
_OURS = ("apiserver", "controllers", "kubelet", "pinnace", "scheduler", "__main__")
"""Top-level packages, as the names of loggers begin. The logs of etcd are left out: its errors are what faults make."""


@dataclass(frozen=True, slots=True)
class Excuse:
    """The time (Unix seconds) in which a process may log errors, and end by itself."""

    process: str
    began: float
    ended: float


def complaints(logs: Path, excuses: Sequence[Excuse] = ()) -> list[str]:
    """Of all logs of a folder. Raises OSError."""
    return [complaint for path in sorted(logs.glob("*.log")) for complaint in _of_log(path, excuses)]


def _of_log(path: Path, excuses: Sequence[Excuse]) -> Iterator[str]:
    if path.stem.startswith(ETCD):
        return
    if path.stat().st_size and not any(read(path)):
        yield f"{path.stem} has logged no JSON: its errors cannot be seen; see {path.name}"
    own = [excuse for excuse in excuses if excuse.process == path.stem]
    errors = _errors(read(path), own)
    for line in islice(errors, SHOWN):
        yield f"{path.stem} has logged an error: {line.logger}: {line.message}"[:LENGTH]
    if more := sum(1 for _ in errors):
        yield f"{path.stem} has logged {more:,} more errors; see {path.name}"


def _errors(lines: Iterable[LogLine], excuses: Sequence[Excuse]) -> Iterator[LogLine]:
    for line in lines:
        ours = line.logger.partition(".")[0] in _OURS
        excused = any(excuse.began - 1 <= line.at <= excuse.ended + AFTERWARDS for excuse in excuses)
        if not excused and (line.severity == "CRITICAL" or (line.severity == "ERROR" and ours)):
            yield line
