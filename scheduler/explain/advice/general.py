"""Plugins of which nothing more is known than what they say."""

from collections.abc import Sequence

from pinnace.api.records import Remedy
from scheduler.explain.advice.advisor import Reasons, names_of
from scheduler.explain.case import Case


class Unknown:
    def __init__(self, plugin: str) -> None:
        self._plugin = plugin

    def remedies(self, case: Case, reasons: Reasons) -> list[Remedy]:
        most_first = sorted(reasons, key=lambda reason: -len(reasons[reason]))
        return [Remedy(f"get past {self._plugin}: {reason}", names_of(case, reasons[reason])) for reason in most_first]

    def details(self, case: Case, row: int, reasons: Sequence[str]) -> list[str]:
        return list(reasons)
