"""What the processes of a run say in their logs that must not be: what our own code logs as an error is a bug, or shows one.

A process that fails when the run ends tells nobody else. What libraries call errors is left out: gRPC logs one when a client
goes away at the wrong moment. So is what a process says while a fault takes from it what it needs (memory, files): see Excuse.
"""

import re
from calendar import timegm
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from time import strptime

SHOWN = 3
"""Lines of one log that are told; there may be thousands that are alike."""
LENGTH = 300
AFTERWARDS = 3.0
"""Seconds after an excuse has ended in which a process may still tell of it."""
_OURS = r"(?:apiserver|controllers|kubelet|pinnace|scheduler|__main__)\b"
_ERROR = re.compile(rf"(\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d)\S*Z (?:C |E \S+ {_OURS})")
"""pinnace.runtime.logs. etcd's own lines look otherwise, and its errors are what faults make."""


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
    own = [excuse for excuse in excuses if excuse.process == path.stem]
    with path.open(errors="replace") as log:
        errors = _errors(log, own)
        yield from (f"{path.stem} has logged an error: {line[:LENGTH]}" for line in islice(errors, SHOWN))
        if more := sum(1 for _ in errors):
            yield f"{path.stem} has logged {more:,} more errors; see {path.name}"


def _errors(lines: Iterable[str], excuses: Sequence[Excuse]) -> Iterator[str]:
    for line in lines:
        if found := _ERROR.match(line):
            at = timegm(strptime(found[1], "%Y-%m-%dT%H:%M:%S"))
            if not any(excuse.began - 1 <= at <= excuse.ended + AFTERWARDS for excuse in excuses):
                yield line.rstrip()
