"""What a check says."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

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
class Report:
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
