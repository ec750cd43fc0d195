"""What knows more about a plugin's refusals than their reasons say."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from pinnace.api.records import Remedy
from scheduler.explain.case import Case

Reasons = Mapping[str, Sequence[int]]
"""The rows that are refused, by reason. There is at least one."""


class Advisor(Protocol):
    def remedies(self, case: Case, reasons: Reasons) -> list[Remedy]:
        """What would let the pod past the plugin, on some of these nodes: for all else they could take it. The best first,
        at least one."""
        ...

    def details(self, case: Case, row: int, reasons: Sequence[str]) -> list[str]:
        """What is wrong with one node, with numbers: a line or more."""
        ...


def rows_of(reasons: Reasons) -> list[int]:
    """All that are refused, each once."""
    return sorted({row for rows in reasons.values() for row in rows})


def names_of(case: Case, rows: Sequence[int]) -> list[str]:
    """Sorted."""
    return sorted(case.nodes.names[row] for row in rows)
