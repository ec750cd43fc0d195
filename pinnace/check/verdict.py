"""Verdicts on invariants, and reports for people and programs."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["holds", "violated", "void", "not checked"]
"""void: nothing was there to examine, so nothing is proven."""

KEPT = 100
"""Violations of one invariant that are kept in words; the others are counted."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One place where an invariant does not hold: who, what, and what it should have been."""

    text: str
    revision: int = 0
    """Of etcd; 0 where that is not what tells the place."""
    at: float = 0.0
    """Monotonic seconds; 0.0 where only the revision is known."""


@dataclass(frozen=True, slots=True)
class Verdict:
    name: str
    """As in the list of invariants: "I1"."""
    statement: str
    status: Status
    examined: int = 0
    """How many binds, reads, events ... the invariant was tried on."""
    count: int = 0
    """Violations, all of them."""
    violations: Sequence[Violation] = ()
    """The first KEPT of them."""


@dataclass(frozen=True, slots=True)
class CheckReport:
    verdicts: Sequence[Verdict]
    void: Sequence[str] = ()
    """Why the run as a whole proves nothing, if so: a fault that never fired, a history that is empty."""

    @property
    def violated(self) -> list[Verdict]:
        return [verdict for verdict in self.verdicts if verdict.status == "violated"]

    @property
    def status(self) -> Status:
        """Of the run: violated wins over void. A single void verdict does not make the run void."""
        if self.violated:
            return "violated"
        return "void" if self.void else "holds"


@dataclass(slots=True)
class Findings:
    """What a checker has found so far about one invariant."""

    name: str
    statement: str
    examined: int = 0
    count: int = 0
    violations: list[Violation] = field(default_factory=list)
    void: list[str] = field(default_factory=list)
    """Why the run proves nothing about it."""

    def violated(self, text: str, *, revision: int = 0, at: float = 0.0) -> None:
        self.count += 1
        if self.count <= KEPT:
            self.violations.append(Violation(text, revision, at))

    def verdict(self) -> Verdict:
        status: Status = "violated" if self.count else "holds" if self.examined else "void"
        return Verdict(self.name, self.statement, status, self.examined, self.count, self.violations)


SHOWN = 10
"""Violations of one invariant that people are shown, unless they ask for more."""


def lines(report: CheckReport, shown: int = SHOWN, cut: Sequence[str] = ()) -> Iterator[str]:
    """One line for each invariant, its violations below it; last the verdict on the run. `cut`: as of `conclusion`."""
    for verdict in report.verdicts:
        yield f"{verdict.name:<4} {verdict.status:<12} {_count(verdict):<24} {verdict.statement}"
        for violation in verdict.violations[:shown]:
            yield f"       {_place(violation)}{violation.text}"
        if verdict.count > min(shown, len(verdict.violations)):
            yield f"       ... and {verdict.count - min(shown, len(verdict.violations)):,} more"
    yield f"the run: {conclusion(report, cut)}"


def conclusion(report: CheckReport, cut: Sequence[str] = ()) -> str:
    """One line. `cut`: names of the files of which the last line was cut off."""
    lost = f"; the last line of {', '.join(cut)} is cut off: what came after it is not known" if cut else ""
    return _conclusion(report) + lost


def _conclusion(report: CheckReport) -> str:
    if report.violated:
        return f"violated: {', '.join(f'{verdict.name} {verdict.count:,} times' for verdict in report.violated)}"
    if report.void:
        return f"void, it proves nothing: {'; '.join(report.void)}"
    found = Counter(verdict.status for verdict in report.verdicts)
    gaps = [f"{found['void']} void: nothing was there to examine"] if found["void"] else []
    gaps += [f"{found['not checked']} not checked"] if found["not checked"] else []
    if gaps:
        return f"{found['holds']} of {len(report.verdicts)} invariants hold; {'; '.join(gaps)}"
    return "everything that was examined holds"


def document(report: CheckReport, cut: Sequence[str] = ()) -> dict[str, Any]:
    """`cut`: as of `conclusion`."""
    return {
        "status": report.status,
        "conclusion": conclusion(report, cut),
        "cut_off": list(cut),
        "void": list(report.void),
        "verdicts": [verdict_document(verdict) for verdict in report.verdicts],
    }


def verdict_document(verdict: Verdict) -> dict[str, Any]:
    """One verdict, in the form that all commands share."""
    return {
        "name": verdict.name,
        "statement": verdict.statement,
        "status": verdict.status,
        "examined": verdict.examined,
        "violations": verdict.count,
        "details": [{"text": each.text, "revision": each.revision, "at": each.at} for each in verdict.violations],
    }


def _count(verdict: Verdict) -> str:
    if verdict.count:
        return f"{verdict.count:,} times in {verdict.examined:,}"
    return f"{verdict.examined:,} examined" if verdict.examined else ""


def _place(violation: Violation) -> str:
    place = f"r{violation.revision}" if violation.revision else ""
    when = f"t={violation.at:.3f}" if violation.at else ""
    return f"[{' '.join(filter(None, (place, when)))}] " if place or when else ""
