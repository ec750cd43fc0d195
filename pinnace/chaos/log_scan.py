"""Searches the logs of a run for errors. An error that our own code logs is a bug, or a sign of one.

It also finds processes that fail at the end of the run. Errors of libraries are ignored: gRPC logs one when a client
disconnects at the wrong moment. So are errors of a process while a fault deprives it of what it needs (memory, files): see
Excuse.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
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
    """A time (Unix seconds) in which a process may log errors and, with `may_end`, may end."""

    process: str
    began: float
    ended: float
    may_end: bool = False

    def covers(self, at: float) -> bool:
        """Return whether an effect at this time has its cause in the excused time."""
        return self.began - 1 <= at <= self.ended + AFTERWARDS


def scan_logs(logs: Path, excuses: Sequence[Excuse] = ()) -> list[str]:
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
        excused = any(excuse.covers(line.at) for excuse in excuses)
        if not excused and (line.severity == "CRITICAL" or (line.severity == "ERROR" and ours)):
            yield line


STALL = 1.0
"""Seconds in which a member of etcd does not carry out what it is sent. A candidate gives its place up after 1.9 s without an
answer to its heartbeats."""
_TOOK_LONG = "apply request took too long"
_WAITING = "waiting for ReadIndex response took too long, retrying"
_WAITED = 0.5
"""Seconds after which etcd says that it still waits."""


@dataclass(frozen=True, slots=True)
class StoreStall:
    """A member of etcd took no writes, or answered no reads, for so long. Times are Unix seconds."""

    member: str
    began: float
    ended: float


def store_stalls(logs: Path) -> list[StoreStall]:
    """When the members of etcd were too slow to work, by their own logs: on a machine without enough CPU or disk this happens
    without any fault that is injected. Raises OSError."""
    return [stall for path in sorted(logs.glob(f"{ETCD}-*.log")) for stall in _stalls_of(path)]


def _stalls_of(path: Path) -> Iterator[StoreStall]:
    began = ended = 0.0
    for start, end in sorted(_delays(path)):
        if start > ended + _WAITED:
            if ended - began >= STALL:
                yield StoreStall(path.stem, began, ended)
            began = start
        ended = max(ended, end)
    if ended - began >= STALL:
        yield StoreStall(path.stem, began, ended)


def _delays(path: Path) -> Iterator[tuple[float, float]]:
    """From when until when, of each line that tells of a delay."""
    with path.open(errors="replace") as log:
        for line in log:
            if _TOOK_LONG not in line and _WAITING not in line:
                continue
            with suppress(ValueError, KeyError, TypeError):
                found = json.loads(line)
                at = datetime.fromisoformat(found["ts"]).timestamp()
                yield at - (_seconds(found["took"]) if found["msg"] == _TOOK_LONG else _WAITED), at


def _seconds(duration: str) -> float:
    """Of a duration below a minute, as Go writes it: "1.67s", "588.5ms". Raises ValueError."""
    for unit, factor in (("ms", 1e-3), ("µs", 1e-6), ("s", 1.0)):
        if duration.endswith(unit):
            return float(duration.removesuffix(unit)) * factor
    raise ValueError(f'"{duration}" is no duration')
