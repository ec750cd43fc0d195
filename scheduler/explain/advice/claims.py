"""Claims that a pod names, and that are not there: whichever of the volume plugins says so."""

from collections.abc import Sequence

from pinnace.api.explanation import Remedy
from scheduler.explain.advice.advisor import Reasons, names_of
from scheduler.explain.advice.general import Unknown
from scheduler.explain.case import Case
from scheduler.plugins.claims import missing


class Claims:
    def __init__(self, plugin: str) -> None:
        self._general = Unknown(plugin)

    def remedies(self, case: Case, reasons: Reasons) -> list[Remedy]:
        created = [
            Remedy(f"create the PersistentVolumeClaim {name}", names_of(case, rows))
            for reason, rows in reasons.items()
            if (name := missing(reason))
        ]
        others = {reason: rows for reason, rows in reasons.items() if not missing(reason)}
        return [*created, *self._general.remedies(case, others)]

    def details(self, case: Case, row: int, reasons: Sequence[str]) -> list[str]:
        return self._general.details(case, row, reasons)
