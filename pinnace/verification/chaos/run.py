"""Executes a chaos run on its own cluster (load, scheduled faults, recovery, verdict), and reports the result.

links -> cluster, every connection through a link -> recorder -> load -> faults -> all faults undone -> settle -> check
"""

import asyncio
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from pinnace.cluster.etcd import find_etcd
from pinnace.cluster.spec import ClusterSpec
from pinnace.cluster.startup import StartProgress
from pinnace.history import records
from pinnace.history.records import CallRecord, Record, WatchMessage
from pinnace.history.verdict import CheckReport as Check
from pinnace.history.verdict import Status, verdict_document
from pinnace.verification.bench.report import describe_machine
from pinnace.verification.chaos import host, workers
from pinnace.verification.chaos.clients import HistoryJournal
from pinnace.verification.chaos.engine import (
    FaultInjector,
    FaultOutcomes,
    ReportLine,
    build_run_record,
    find_unscheduled_kinds,
    schedule_faults,
)
from pinnace.verification.chaos.faults.base import FaultKind, FaultRequirement
from pinnace.verification.chaos.faults.environment import FULL
from pinnace.verification.chaos.host import WallClocks, find_library
from pinnace.verification.chaos.load import ChaosLoad, SettleResult
from pinnace.verification.chaos.log_scan import find_etcd_stalls, find_log_errors
from pinnace.verification.chaos.loop_report import HotStack, LongStep, find_hot_stacks, find_long_steps
from pinnace.verification.chaos.stage import JOURNAL, LOGS, PROFILES, ChaosOptions, read_run_history, start_chaos_cluster
from pinnace.verification.check.check import check_history

LEAST_RATE = 20.0
"""The minimum average of successful calls per second. A run with fewer calls is void."""
SHOWN = 5
"""The maximum number of violations per invariant in a text report."""
STEPS_SHOWN = 20
"""The maximum number of long steps in a text report."""
_MARKS = {"holds": "✓", "violated": "✗", "void": "○", "not checked": "-"}
STORE_STALL = "store-stall"
"""The name of a period in a history in which etcd was too slow."""
SETTLE = 60.0
"""Seconds after the last fault within which the cluster must be healthy."""
CATCH_UP = 30.0


@dataclass(slots=True)
class TrafficCounter:
    """Counts calls and watch messages in a stream of records."""

    calls: Counter[str] = field(default_factory=Counter)
    """Calls by verb."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """Calls by outcome: ok, refused, unknown."""
    words: int = 0
    """The number of messages that watchers received."""

    def count_records(self, records: Iterable[Record]) -> Iterator[Record]:
        for record in records:
            if isinstance(record, CallRecord):
                self.calls[record.verb] += 1
                self.outcomes[record.outcome] += 1
            elif isinstance(record, WatchMessage):
                self.words += 1
            yield record


@dataclass(slots=True)
class ChaosReport:
    """The result of a run. `seconds`: the duration of the load. `repeat`: the command that repeats the run. `skipped`: faults
    that are not possible on this machine, with the reason. `idle`: faults that the run was too short for. `attempts`: the
    counts of the adversary (workers.py). `steps`, `hot`: what the event loops executed (loop_report.py). `saved_folder`: the
    directory with the history and the logs, or "" if they were removed."""

    what: str
    repeat: str
    seed: int
    started: str
    seconds: float
    versions: Mapping[str, str]
    damage: FaultOutcomes
    skipped: Mapping[str, str]
    idle: tuple[str, ...]
    traffic: TrafficCounter
    attempts: Mapping[str, int]
    settled: SettleResult
    check: Check
    steps: Sequence[LongStep] = ()
    hot: Sequence[HotStack] = ()
    saved_folder: str = ""

    @property
    def violations(self) -> list[str]:
        """Failures of the run other than violated invariants."""
        result = [*self.damage.failures, *workers.find_wrongly_succeeded(self.attempts)]
        result += [f"not healthy {self.settled.seconds:.0f} s after the last fault: {what}" for what in self.settled.lacking]
        return result

    @property
    def void_reasons(self) -> list[str]:
        """The reasons why the run is void."""
        reasons = list(self.check.void)
        if not self.damage.fired:
            reasons.append("no fault fired")
        if self.rate(self.traffic.outcomes["ok"]) < LEAST_RATE:
            answered = self.rate(self.traffic.outcomes["ok"])
            reasons.append(f"only {answered:.1f} calls/s succeeded; at least {LEAST_RATE:g} are required")
        return reasons

    @property
    def status(self) -> Status:
        if self.violations or self.check.violated_verdicts:
            return "violated"
        return "void" if self.void_reasons else "holds"

    def rate(self, count: int) -> float:
        return count / self.seconds if self.seconds else 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "status": self.status,
            "what": self.what,
            "repeat": self.repeat,
            "seed": self.seed,
            "started": self.started,
            "seconds": round(self.seconds, 1),
            "versions": dict(self.versions),
            "verdicts": [verdict_document(verdict) for verdict in self.check.verdicts],
            "violations": self.violations,
            "void": self.void_reasons,
            "faults": {
                "fired": dict(sorted(self.damage.fired.items())),
                "missed": self.damage.missed,
                "skipped": dict(self.skipped),
                "idle": list(self.idle),
            },
            "calls": {
                "by_verb_per_s": {verb: round(self.rate(count), 2) for verb, count in self.traffic.calls.most_common()},
                "outcomes": dict(self.traffic.outcomes),
                "watch_words": self.traffic.words,
            },
            "attempts": dict(self.attempts),
            "settled": asdict(self.settled),
            "long_steps": [asdict(step) for step in self.steps],
            "hot_stacks": [asdict(hot) for hot in self.hot],
            "kept": self.saved_folder,
        }

    def to_junit(self) -> str:
        """Return the report as JUnit XML, with a test case for each invariant, for other failures, and for sufficient load."""
        suite = ElementTree.Element("testsuite", name="pinnace chaos", time=f"{self.seconds:.1f}", timestamp=self.started)
        properties = ElementTree.SubElement(suite, "properties")
        for name, value in {"seed": str(self.seed), "repeat": self.repeat, "kept": self.saved_folder, **self.versions}.items():
            ElementTree.SubElement(properties, "property", name=name, value=value)
        for verdict in self.check.verdicts:
            told = [violation.text for violation in verdict.violations]
            _add_test_case(
                suite, f"{verdict.name} {verdict.statement}", told, skipped=verdict.status in ("void", "not checked")
            )
        _add_test_case(suite, "no process ends unexpectedly, and the cluster is healthy after the faults", self.violations)
        _add_test_case(suite, "the run is not void", self.void_reasons)
        suite.set("tests", str(len(suite.findall("testcase"))))
        suite.set("failures", str(len(suite.findall("testcase/failure"))))
        ElementTree.indent(suite)
        return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)

    def to_text(self) -> str:
        return "\n".join(self._text_lines())

    def _text_lines(self) -> Iterator[str]:
        fired, outcomes = self.damage.fired, self.traffic.outcomes
        yield f"{sum(fired.values())} faults of {len(fired)} kinds in {self.seconds:.0f} s, seed {self.seed}"
        yield "  " + ", ".join(f"{name} {count}" for name, count in sorted(fired.items()))
        if self.damage.missed:
            yield f"  {len(self.damage.missed)} faults were not possible when they were due"
        if self.skipped:
            yield "  skipped: " + ", ".join(f"{name} ({reason})" for name, reason in self.skipped.items())
        if self.idle:
            yield f"  not scheduled in so short a run (see --minutes): {', '.join(self.idle)}"
        verbs = ", ".join(f"{verb} {self.rate(count):.0f}" for verb, count in self.traffic.calls.most_common())
        yield f"{self.rate(outcomes.total()):.0f} calls/s ({verbs}); {self.rate(self.traffic.words):.0f} watch events/s"
        yield f"  succeeded {outcomes['ok']:,}, refused {outcomes['refused']:,}, unknown {outcomes['unknown']:,}"
        yield "  attempts that must be refused: " + ", ".join(f"{name} {count}" for name, count in self.attempts.items())
        yield f"healthy {self.settled.seconds:.1f} s after the last fault; {self.settled.pods} pods"
        yield ""
        for verdict in self.check.verdicts:
            examined = f"({verdict.status}, {verdict.examined:,} examined)"
            yield f"{_MARKS[verdict.status]} {verdict.name:<8} {verdict.statement}  {examined}"
            yield from (f"      {violation.text}" for violation in verdict.violations[:SHOWN])
            if verdict.count > SHOWN:
                yield f"      ... and {verdict.count - SHOWN:,} more"
        yield from (f"✗ {violation}" for violation in self.violations)
        yield from (f"○ void: {reason}" for reason in self.void_reasons)
        yield ""
        if self.steps:
            yield "long steps of event loops:"
            yield from (f"  {step}" for step in self.steps[:STEPS_SHOWN])
            if len(self.steps) > STEPS_SHOWN:
                yield f"  ... and {len(self.steps) - STEPS_SHOWN} more stacks"
        if self.hot:
            yield "event loops during violations (seconds of the monotonic clock; samples and stack):"
            yield from (f"  {hot}" for hot in self.hot)
        yield f"verdict: {self.status}"
        yield f"repeat: {self.repeat}"
        if self.saved_folder:
            yield f"history and logs: {self.saved_folder}"
            yield f"check again: pinnace check {self.saved_folder}/*.jsonl"
            yield f"timeline: pinnace timeline open {self.saved_folder}/*.jsonl"


def _add_test_case(suite: ElementTree.Element, name: str, failures: list[str], *, skipped: bool = False) -> None:
    case = ElementTree.SubElement(suite, "testcase", classname="pinnace.chaos", name=name)
    if failures:
        ElementTree.SubElement(case, "failure", message=failures[0]).text = "\n".join(failures)
    elif skipped:
        ElementTree.SubElement(case, "skipped")


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of a run. `seconds`: the duration of the faults. `named`: the kinds were selected by name, so the run is void
    unless each of them fires; otherwise a short run may schedule only some. `repeat`: the command that repeats the run."""

    spec: ClusterSpec
    kinds: Sequence[FaultKind]
    named: bool
    seconds: float
    seed: int
    repeat: str


async def run_chaos(options: RunOptions, folder: Path, progress: StartProgress, say: ReportLine) -> ChaosReport:
    """Execute a run. Afterwards, the history and the logs are in `folder`, and no process of the cluster is left. Raises
    ChaosError, LoadError, ClusterError, HelperError, HistoryError."""
    skipped = {kind.name: reason for kind in options.kinds if (reason := find_missing_requirement(kind, options.spec))}
    kinds = [kind.for_cluster(options.spec) for kind in options.kinds if kind.name not in skipped]
    scheduled_faults = schedule_faults(options.seed, options.seconds, kinds, options.spec)
    idle = find_unscheduled_kinds(kinds, scheduled_faults)
    library = find_library() if _any_kind_requires(FaultRequirement.FAKETIME, kinds) else None
    clocks = WallClocks(library, folder) if library else None
    props = ChaosOptions(clocks, disks=int(_any_kind_requires(FaultRequirement.DISK, kinds)))
    started = datetime.now(UTC)
    with clocks or nullcontext(), HistoryJournal(folder / JOURNAL) as journal:
        what = f"{len(scheduled_faults)} faults in {options.seconds:g} s"
        faults = tuple(sorted(kind.name for kind in kinds if options.named or kind.name not in idle))
        journal.write(build_run_record(started.timestamp(), options.seed, what, SETTLE, faults))
        async with start_chaos_cluster(options.spec, folder, progress, props) as on:
            engine = FaultInjector(on.under_test, journal, say)
            began = time.monotonic()
            load_ = ChaosLoad(on.cluster.config, journal, on.nodes, seed=options.seed, gateways=on.gateways)
            async with on.bystander, on.start_gateway_bystander(), load_ as load:
                progress.waiting(f"{what}")
                await engine.inject_all(scheduled_faults)
                seconds = time.monotonic() - began
                progress.waiting("recovery")
                settled = await load.stop_and_settle(within=SETTLE)
                attempts = dict(load.attempts)
            await on.recorder.wait_for_revision(settled.revision, CATCH_UP)
        _record_etcd_stalls(journal, folder / LOGS, engine.damage, len(scheduled_faults))
    engine.damage.failures += find_log_errors(folder / LOGS, on.under_test.excuses)
    progress.waiting("the verdict")
    traffic = TrafficCounter()
    check_report = await asyncio.to_thread(lambda: check_history(traffic.count_records(read_run_history(folder))))
    steps = find_long_steps(folder / LOGS)
    hot = find_hot_stacks(folder / PROFILES, check_report, records.read_history(folder / JOURNAL))
    return ChaosReport(
        what, options.repeat, options.seed, started.isoformat(timespec="seconds"), seconds, _read_versions(), engine.damage,
        skipped, idle, traffic, attempts, settled, check_report, steps, hot,
    )  # fmt: skip


def _record_etcd_stalls(journal: HistoryJournal, logs: Path, damage: FaultOutcomes, last: int) -> None:
    """Add etcd's stalls to the faults of the history. `last`: the ID of the last injected fault. Raises OSError."""
    to_monotonic = time.monotonic() - time.time()
    for number, stall in enumerate(find_etcd_stalls(logs), last + 1):
        began, ended = stall.began + to_monotonic, stall.ended + to_monotonic
        details = f"{stall.member} was too slow for {stall.ended - stall.began:.1f} s"
        journal.write(records.FaultRecord(number, STORE_STALL, stall.member, began, ended, True, details))
        damage.fired[STORE_STALL] = damage.fired.get(STORE_STALL, 0) + 1


def find_missing_requirement(kind: FaultKind, spec: ClusterSpec) -> str:
    """Return the reason why a kind of fault is not possible on this machine and cluster, or ""."""
    there: Mapping[FaultRequirement, Callable[[], bool]] = {
        FaultRequirement.MEMBERS: lambda: spec.etcd_members > 1,
        FaultRequirement.FAKETIME: lambda: find_library() is not None,
        FaultRequirement.DISK: host.can_mount_tmpfs,
        FaultRequirement.DEV_FULL: FULL.exists,
        FaultRequirement.GATEWAYS: lambda: spec.gateways > 0,
        FaultRequirement.PROXY: lambda: spec.proxy,
        FaultRequirement.LIMITS: lambda: hasattr(resource, "prlimit"),
    }
    return next((need.value for need in kind.needs if not there[need]()), "")


def _any_kind_requires(need: FaultRequirement, kinds: Sequence[FaultKind]) -> bool:
    return any(need in kind.needs for kind in kinds)


def _read_versions() -> Mapping[str, str]:
    etcd = ".".join(map(str, find_etcd().version))
    machine = describe_machine()
    return {"commit": machine.commit, "python": machine.python, "etcd": etcd, "kernel": machine.kernel}
