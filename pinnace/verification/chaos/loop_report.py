"""What the event loops of a run's processes executed: their long steps, according to the logs, and their most frequent stacks
while an invariant was violated, according to the profiles (pinnace/runtime/steps.py). Neither affects the verdict.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pinnace.cluster.spec import ETCD
from pinnace.history.records import FaultRecord, Record
from pinnace.history.verdict import CheckReport, Violation
from pinnace.runtime.logs import EventLoopStepLong, read_log, select_events

BEFORE = 5.0
"""Seconds before a violation of L2 or L3 whose stacks are reported."""
FRAMES = 4
"""The number of innermost functions of a stack in the report."""
BUSY = 0.1
"""The share of the samples below which the stacks of a process are not reported."""
STACKS = 3
"""The number of stacks of a process in the report."""
VIOLATIONS = 3
"""The number of violations of an invariant with stacks in the report."""


@dataclass(frozen=True, slots=True)
class LongStep:
    """The logged steps of a process with one stack. `lines`: the number of log lines. The other fields describe the longest."""

    process: str
    lines: int
    cpu_seconds: float
    seconds: float
    gc_seconds: float
    stack: str

    def __str__(self) -> str:
        collections = f", {self.gc_seconds * 1000:.0f} ms garbage collection" if self.gc_seconds else ""
        took = f"{self.cpu_seconds * 1000:.0f} ms of CPU in {self.seconds * 1000:.0f} ms{collections}"
        return f"{self.process}: {took}, {self.lines} in the log: {_innermost_frames(self.stack)}"


@dataclass(frozen=True, slots=True)
class HotStack:
    """The stacks of a process during a violation: the share of the samples in which the loop was busy, and the most frequent
    innermost functions with their number of samples."""

    invariant: str
    began: float
    ended: float
    process: str
    busy: float
    stacks: Mapping[str, int]

    def __str__(self) -> str:
        stacks = "; ".join(f"{count} {stack}" for stack, count in self.stacks.items())
        return f"{self.invariant} {self.began:.0f} to {self.ended:.0f} s, {self.process} busy {self.busy:.0%}: {stacks}"


def find_long_steps(logs: Path) -> list[LongStep]:
    """Return the long steps of all processes, the longest first. Raises OSError."""
    steps = [step for path in logs.glob("*.log") if not path.stem.startswith(ETCD) for step in _read_long_steps(path)]
    return sorted(steps, key=lambda step: -step.cpu_seconds)


def _read_long_steps(path: Path) -> Iterator[LongStep]:
    events = select_events(read_log(path), EventLoopStepLong)
    for stack, lines in Counter(event.stack for event in events).items():
        longest = max((event for event in events if event.stack == stack), key=lambda event: event.cpu_seconds)
        yield LongStep(path.stem, lines, longest.cpu_seconds, longest.seconds, longest.gc_seconds, stack)


def find_hot_stacks(profiles: Path, check: CheckReport, records: Iterator[Record]) -> list[HotStack]:
    """Return the stacks during violations of liveness. Raises OSError, HistoryError."""
    if not any(_liveness_windows(check, [])):
        return []
    faults = [record for record in records if isinstance(record, FaultRecord)]
    seconds = {path.stem: list(_read_loop_seconds(path)) for path in sorted(profiles.glob("*.jsonl"))}
    return [
        hot
        for name, began, ended in _liveness_windows(check, faults)
        for process, lines in seconds.items()
        if (hot := _find_hot_stacks(name, began, ended, process, lines)) is not None
    ]


def _liveness_windows(check: CheckReport, faults: Sequence[FaultRecord]) -> Iterator[tuple[str, float, float]]:
    for verdict in check.violated_verdicts:
        for violation in verdict.violations[:VIOLATIONS]:
            if verdict.name in ("L2", "L3"):
                yield verdict.name, violation.at - BEFORE, violation.at
            elif verdict.name in ("L4", "L5"):
                yield verdict.name, *_fault_duration(violation, faults)


def _fault_duration(violation: Violation, faults: Sequence[FaultRecord]) -> tuple[float, float]:
    """Return the duration of the fault in which users waited."""
    over = (fault for fault in faults if fault.ended is not None and fault.began <= violation.at <= fault.ended)
    fault = max(over, key=lambda fault: fault.began, default=None)
    return (violation.at - BEFORE, violation.at) if fault is None else (fault.began, fault.ended or violation.at)


@dataclass(frozen=True, slots=True)
class _LoopSecond:
    at: int
    busy: float
    stacks: Mapping[str, int]


def _read_loop_seconds(path: Path) -> Iterator[_LoopSecond]:
    with path.open() as file:
        for line in file:
            with suppress(ValueError, KeyError):  # a killed process leaves an incomplete line
                result = json.loads(line)
                yield _LoopSecond(result["at"], result["busy"], result["stacks"])


def _find_hot_stacks(name: str, began: float, ended: float, process: str, seconds: Sequence[_LoopSecond]) -> HotStack | None:
    during = [second for second in seconds if began - 1 < second.at <= ended]
    busy = sum(second.busy for second in during) / max(len(during), ended - began, 1)
    if busy < BUSY:
        return None
    stacks: Counter[str] = Counter()
    for second in during:
        for stack, count in second.stacks.items():
            stacks[_innermost_frames(stack)] += count
    return HotStack(name, began, ended, process, busy, dict(stacks.most_common(STACKS)))


def _innermost_frames(stack: str) -> str:
    return " < ".join(reversed(stack.split(";")[-FRAMES:])) or "unknown"
