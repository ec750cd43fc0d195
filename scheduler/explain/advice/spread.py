"""PodTopologySpread: which constraint, and how many are there already."""

from collections.abc import Sequence

from pinnace.api.records import Remedy
from scheduler.explain.advice import general
from scheduler.explain.advice.advisor import Reasons, names_of
from scheduler.explain.case import Case
from scheduler.plugins.helper import per_domain
from scheduler.plugins.topology_spread import (
    HARD,
    LABEL_REASON,
    Constraint,
    Eligible,
    PodTopologySpread,
    counts,
    labelled,
    own_constraints,
)


class Skewed:
    def remedies(self, case: Case, reasons: Reasons) -> list[Remedy]:
        if not _constraints(case):  # a default one of the configuration
            return general.Unknown(PodTopologySpread.name).remedies(case, reasons)
        keys = " and ".join(dict.fromkeys(each.topology_key for each in _constraints(case)))
        skews = " and ".join(f"{each.max_skew} over {each.topology_key}" for each in _constraints(case))
        return [
            Remedy(
                f"label the nodes with {keys}"
                if reason == LABEL_REASON
                else f"allow more than a maxSkew of {skews}, or say ScheduleAnyway",
                names_of(case, rows),
            )
            for reason, rows in sorted(reasons.items(), key=lambda item: -len(item[1]))
        ]

    def details(self, case: Case, row: int, reasons: Sequence[str]) -> list[str]:
        found = [line for each in _constraints(case) if (line := _detail(case, row, each))]
        return found or list(reasons)


def _constraints(case: Case) -> list[Constraint]:
    return own_constraints(case.pod, HARD)


def _detail(case: Case, row: int, each: Constraint) -> str:
    labels = case.nodes.label(each.topology_key)
    value = labels.at(row)
    if value is None:
        return f"the node has no label {each.topology_key}, over which the pod is to be spread"
    if each.pods is None:
        return ""
    counting = labelled(_constraints(case), case.nodes) & Eligible(case.pod, case.nodes)(each)
    there = int(per_domain(counts(each, case.nodes) * counting, labels)[row])
    return f"maxSkew {each.max_skew} over {each.topology_key}: {value} has {there} of the pods with {each.pods.labels}"
