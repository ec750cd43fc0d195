"""What the processes of a run say in their logs that must not be: what our own code logs as an error is a bug, or shows one.

A process that fails when the run ends tells nobody else. What libraries call errors is left out: gRPC logs one when a client
goes away at the wrong moment.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

SHOWN = 3
"""Lines of one log that are told; there may be thousands that are alike."""
LENGTH = 300
_ERROR = re.compile(r"\d{4}-\S+Z (?:C |E \S+ (?:apiserver|controllers|kubelet|pinnace|scheduler|__main__)\b)")
"""pinnace.runtime.logs. etcd's own lines look otherwise, and its errors are what faults make."""


def complaints(logs: Path) -> list[str]:
    """Of all logs of a folder. Raises OSError."""
    return [complaint for path in sorted(logs.glob("*.log")) for complaint in _of_log(path)]


def _of_log(path: Path) -> Iterator[str]:
    with path.open(errors="replace") as log:
        errors = _errors(log)
        yield from (f"{path.stem} has logged an error: {line[:LENGTH]}" for line in islice(errors, SHOWN))
        if more := sum(1 for _ in errors):
            yield f"{path.stem} has logged {more:,} more errors; see {path.name}"


def _errors(lines: Iterable[str]) -> Iterator[str]:
    return (line.rstrip() for line in lines if _ERROR.match(line))
