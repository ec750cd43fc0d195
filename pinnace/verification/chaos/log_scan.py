"""Searches the logs of a run for errors. An error that this project's code logs indicates a bug.

It also detects processes that fail at the end of the run. Errors of libraries are ignored, because gRPC logs one if a client
disconnects at the wrong moment. Errors of a process during a fault that takes its resources (memory, files) are ignored as
well: see Excuse.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path

from pinnace.cluster.spec import ETCD
from pinnace.runtime.logs import LogLine, read_log

SHOWN = 3
"""The number of reported lines per log. A log can contain thousands of similar errors."""
LENGTH = 300
AFTERWARDS = 3.0
"""Seconds after the end of an excuse in which a process may still log errors about it."""
_OURS = ("apiserver", "controllers", "kubelet", "pinnace", "proxy", "scheduler", "__main__")
"""Prefixes of logger names: the top-level packages. Logs of etcd are excluded, because faults cause its errors."""
STALL = 1.0
"""Seconds without progress of an etcd member that count as a stall. A candidate stands down after 1.9 s without an acknowledged
heartbeat."""
_TOOK_LONG = "apply request took too long"
_WAITING = "waiting for ReadIndex response took too long, retrying"
_WAITED = 0.5
"""Seconds after which etcd logs that it is still waiting."""


@dataclass(frozen=True, slots=True)
class ErrorExcuse:
    """A period (in Unix seconds) in which a process may log errors and, with `may_end`, exit."""

    process: str
    began: float
    ended: float
    may_end: bool = False

    def covers(self, at: float) -> bool:
        """Return whether an event at this time can be caused during the period."""
        return self.began - 1 <= at <= self.ended + AFTERWARDS


def find_log_errors(logs: Path, excuses: Sequence[ErrorExcuse] = ()) -> list[str]:
    """Return the problems in all logs of a directory. Raises OSError."""
    return [complaint for path in sorted(logs.glob("*.log")) for complaint in _scan_log(path, excuses)]


def _scan_log(path: Path, excuses: Sequence[ErrorExcuse]) -> Iterator[str]:
    if path.stem.startswith(ETCD):
        return
    if path.stat().st_size and not any(read_log(path)):
        yield f"{path.stem} contains no JSON lines and cannot be checked for errors; see {path.name}"
    own = [excuse for excuse in excuses if excuse.process == path.stem]
    errors = _unexcused_errors(read_log(path), own)
    for line in islice(errors, SHOWN):
        yield f"{path.stem} logged an error: {line.logger}: {line.message}"[:LENGTH]
    if more := sum(1 for _ in errors):
        yield f"{path.stem} logged {more:,} more errors; see {path.name}"


def _unexcused_errors(lines: Iterable[LogLine], excuses: Sequence[ErrorExcuse]) -> Iterator[LogLine]:
    for line in lines:
        ours = line.logger.partition(".")[0] in _OURS
        excused = any(excuse.covers(line.at) for excuse in excuses)
        if not excused and (line.severity == "CRITICAL" or (line.severity == "ERROR" and ours)):
            yield line


@dataclass(frozen=True, slots=True)
class StoreStall:
    """A period in which an etcd member did not apply writes or respond to reads. Times are Unix seconds."""

    member: str
    began: float
    ended: float


def find_etcd_stalls(logs: Path) -> list[StoreStall]:
    """Return the stalls of etcd members according to their logs. On a machine with insufficient CPU or disk performance, stalls
    occur without injected faults. Raises OSError."""
    return [stall for path in sorted(logs.glob(f"{ETCD}-*.log")) for stall in _find_stalls(path)]


def _find_stalls(path: Path) -> Iterator[StoreStall]:
    began = ended = 0.0
    for start, end in sorted(_parse_delays(path)):
        if start > ended + _WAITED:
            if ended - began >= STALL:
                yield StoreStall(path.stem, began, ended)
            began = start
        ended = max(ended, end)
    if ended - began >= STALL:
        yield StoreStall(path.stem, began, ended)


def _parse_delays(path: Path) -> Iterator[tuple[float, float]]:
    """Yield the start and end of each delay in the log."""
    with path.open(errors="replace") as log:
        for line in log:
            if _TOOK_LONG not in line and _WAITING not in line:
                continue
            with suppress(ValueError, KeyError, TypeError):
                result = json.loads(line)
                at = datetime.fromisoformat(result["ts"]).timestamp()
                yield at - (_parse_duration(result["took"]) if result["msg"] == _TOOK_LONG else _WAITED), at


def _parse_duration(duration: str) -> float:
    """Parse a duration of less than a minute in Go's notation: "1.67s", "588.5ms". Raises ValueError."""
    for unit, factor in (("ms", 1e-3), ("µs", 1e-6), ("s", 1.0)):
        if duration.endswith(unit):
            return float(duration.removesuffix(unit)) * factor
    raise ValueError(f'"{duration}" is not a duration')
