"""TaintToleration and NodeUnschedulable: what keeps pods off a node on purpose."""

from collections.abc import Sequence

from pinnace.api.records import Remedy, listing
from scheduler.cache.table import Taint
from scheduler.explain.advice.advisor import Reasons, names_of, rows_of
from scheduler.explain.case import Case
from scheduler.plugins.nodes import CORDON_TAINT, HARD_EFFECTS, untolerated

_CONDITION = "node.kubernetes.io/"
"""Of taints that come and go with a node's conditions."""


class Tainted:
    def remedies(self, case: Case, reasons: Reasons) -> list[Remedy]:
        """One for each set of taints, that of the most nodes first."""
        by_taints: dict[tuple[Taint, ...], list[int]] = {}
        for row in rows_of(reasons):
            by_taints.setdefault(_taints(case, row), []).append(row)
        most_first = sorted(by_taints.items(), key=lambda item: (-len(item[1]), item[0]))
        return [Remedy(_remedy(taints), names_of(case, rows)) for taints, rows in most_first]

    def details(self, case: Case, row: int, reasons: Sequence[str]) -> list[str]:
        return [f"it does not tolerate the taint {_text(taint)}" for taint in _taints(case, row)]


class Cordoned:
    def remedies(self, case: Case, reasons: Reasons) -> list[Remedy]:
        names = names_of(case, rows_of(reasons))
        return [Remedy(f"uncordon {listing(names)}", names)]

    def details(self, case: Case, row: int, reasons: Sequence[str]) -> list[str]:
        return [f"the node is cordoned: `pinnace uncordon {case.nodes.names[row]}` lets pods onto it again"]


def _taints(case: Case, row: int) -> tuple[Taint, ...]:
    """Those in the pod's way. A cordoned node's own taint goes with the cordon, of which NodeUnschedulable tells. If there
    is no other, the profile is without that plugin, and it counts."""
    found = untolerated(case.nodes.taints.at(row), case.pod, HARD_EFFECTS)
    others = [taint for taint in found if taint != CORDON_TAINT] if case.nodes.unschedulable[row] else found
    return tuple(others or found)


def _remedy(taints: Sequence[Taint]) -> str:
    these = " and ".join(map(_text, taints))
    if all(key.startswith(_CONDITION) for key, _, _ in taints):
        return f"make the nodes well again, which ends {these}, or tolerate it"
    return f"tolerate {these}"


def _text(taint: Taint) -> str:
    key, value, effect = taint
    return f"{key}={value}:{effect}" if value else f"{key}:{effect}"
