"""Verdicts on invariants, and their reports in text and JSON."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["holds", "violated", "void", "not checked"]
"""void: the history contains nothing to examine for the invariant."""

KEPT = 100
"""The maximum number of violations of an invariant that are stored with their text. Other violations are only counted."""
SHOWN = 10
"""The default number of violations per invariant in a text report."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A violation of an invariant. `text` contains the object, the observed value and the expected value."""

    text: str
    revision: int = 0
    """The etcd revision of the violation, or 0."""
    at: float = 0.0
    """Monotonic seconds, or 0.0 if only the revision is known."""


@dataclass(frozen=True, slots=True)
class Verdict:
    name: str
    """The name of the invariant, for example "I1"."""
    statement: str
    status: Status
    examined: int = 0
    """The number of checked items (binds, reads, events)."""
    count: int = 0
    """The total number of violations."""
    violations: Sequence[Violation] = ()
    """The first KEPT violations."""


@dataclass(frozen=True, slots=True)
class CheckReport:
    verdicts: Sequence[Verdict]
    void: Sequence[str] = ()
    """The reasons why the run is void, for example a fault that did not fire or an empty history."""

    @property
    def violated_verdicts(self) -> list[Verdict]:
        return [verdict for verdict in self.verdicts if verdict.status == "violated"]

    @property
    def status(self) -> Status:
        """The status of the run. "violated" takes precedence over "void". A void verdict alone does not make the run void."""
        if self.violated_verdicts:
            return "violated"
        return "void" if self.void else "holds"


@dataclass(slots=True)
class Findings:
    """The results of a checker for one invariant."""

    name: str
    statement: str
    examined: int = 0
    count: int = 0
    violations: list[Violation] = field(default_factory=list)
    void: list[str] = field(default_factory=list)
    """The reasons why this invariant makes the run void."""

    def add_violation(self, text: str, *, revision: int = 0, at: float = 0.0) -> None:
        self.count += 1
        if self.count <= KEPT:
            self.violations.append(Violation(text, revision, at))

    def make_verdict(self) -> Verdict:
        status: Status = "violated" if self.count else "holds" if self.examined else "void"
        return Verdict(self.name, self.statement, status, self.examined, self.count, self.violations)


def report_lines(report: CheckReport, shown: int = SHOWN, cut: Sequence[str] = ()) -> Iterator[str]:
    """Yield one line per invariant, followed by its violations, and the verdict on the run as the last line. `cut`: see
    `report_conclusion`."""
    for verdict in report.verdicts:
        yield f"{verdict.name:<4} {verdict.status:<12} {_violation_count(verdict):<24} {verdict.statement}"
        for violation in verdict.violations[:shown]:
            yield f"       {_violation_place(violation)}{violation.text}"
        if verdict.count > min(shown, len(verdict.violations)):
            yield f"       ... and {verdict.count - min(shown, len(verdict.violations)):,} more"
    yield f"the run: {report_conclusion(report, cut)}"


def report_conclusion(report: CheckReport, cut: Sequence[str] = ()) -> str:
    """Return the verdict on the run as one line. `cut`: names of the files whose last line is incomplete."""
    lost = f"; the last line of {', '.join(cut)} is incomplete: later records are missing" if cut else ""
    return _conclude(report) + lost


def _conclude(report: CheckReport) -> str:
    if report.violated_verdicts:
        return f"violated: {', '.join(f'{verdict.name} {verdict.count:,} times' for verdict in report.violated_verdicts)}"
    if report.void:
        return f"void: {'; '.join(report.void)}"
    result = Counter(verdict.status for verdict in report.verdicts)
    gaps = [f"{result['void']} void: nothing to examine"] if result["void"] else []
    gaps += [f"{result['not checked']} not checked"] if result["not checked"] else []
    if gaps:
        return f"{result['holds']} of {len(report.verdicts)} invariants hold; {'; '.join(gaps)}"
    return "all invariants hold"


def report_document(report: CheckReport, cut: Sequence[str] = ()) -> dict[str, Any]:
    """Return the report as JSON data. `cut`: see `report_conclusion`."""
    return {
        "status": report.status,
        "conclusion": report_conclusion(report, cut),
        "cut_off": list(cut),
        "void": list(report.void),
        "verdicts": [verdict_document(verdict) for verdict in report.verdicts],
    }


def verdict_document(verdict: Verdict) -> dict[str, Any]:
    """Return the JSON form of a verdict. All commands use it."""
    return {
        "name": verdict.name,
        "statement": verdict.statement,
        "status": verdict.status,
        "examined": verdict.examined,
        "violations": verdict.count,
        "details": [
            {"text": violation.text, "revision": violation.revision, "at": violation.at} for violation in verdict.violations
        ],
    }


def _violation_count(verdict: Verdict) -> str:
    if verdict.count:
        return f"{verdict.count:,} times in {verdict.examined:,}"
    return f"{verdict.examined:,} examined" if verdict.examined else ""


def _violation_place(violation: Violation) -> str:
    place = f"r{violation.revision}" if violation.revision else ""
    when = f"t={violation.at:.3f}" if violation.at else ""
    return f"[{' '.join(filter(None, (place, when)))}] " if place or when else ""
