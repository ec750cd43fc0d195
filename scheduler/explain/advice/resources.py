"""NodeResourcesFit: how much is missing, and where it is the least."""

from collections.abc import Sequence

import numpy as np

from pinnace.api.quantity import format_amount
from pinnace.api.records import Remedy, listing
from pinnace.fit.requests import PODS
from pinnace.fit.room import reason_of
from pinnace.fit.table import IntArray
from scheduler.cache.table import FloatArray
from scheduler.explain.advice.advisor import Reasons, rows_of
from scheduler.explain.case import Case

_BYTES = ("memory", "ephemeral-storage")


class Short:
    def remedies(self, case: Case, reasons: Reasons) -> list[Remedy]:
        """About the nearest node: the one of which the smallest share of what the pod asks for is missing."""
        wanted = [(resource, amount) for resource, amount in case.pod.requests.amounts if reason_of(resource) in reasons]
        rows = np.array(rows_of(reasons))
        enough = np.logical_and.reduce([case.nodes.allocatable(resource)[rows] >= amount for resource, amount in wanted])
        if not enough.any():
            return [self._too_large(case, rows, wanted)]
        rows = rows[enough]
        row = _least(case, rows, _missing_share([(case.nodes.free(resource)[rows], amount) for resource, amount in wanted]))
        node = case.nodes.names[row]
        missing = [
            f"{size(resource, short)} {resource}" if resource != PODS else f"room for {short} pod"
            for resource, amount in wanted
            if (short := amount - case.nodes.free_at(row, resource)) > 0
        ]
        stated = "; ".join(
            _stated(case, row, resource, amount) for resource, amount in wanted if case.nodes.free_at(row, resource) < amount
        )
        nearest = f", the nearest of {len(rows)} nodes" if len(rows) > 1 else ""
        less = "" if missing == ["room for 1 pod"] else ", or ask for that much less"
        return [Remedy(f"free {' and '.join(missing)} on {node}{nearest}{less}: {stated}", [node])]

    def details(self, case: Case, row: int, reasons: Sequence[str]) -> list[str]:
        return [
            f"{reason_of(resource)}: {_stated(case, row, resource, amount)}{_missing(case, row, resource, amount)}"
            for resource, amount in case.pod.requests.amounts
            if reason_of(resource) in reasons
        ]

    def _too_large(self, case: Case, rows: IntArray, wanted: Sequence[tuple[str, int]]) -> Remedy:
        """Not even an empty node would do."""
        row = _least(
            case, rows, _missing_share([(case.nodes.allocatable(resource)[rows], amount) for resource, amount in wanted])
        )
        beyond = [(r, amount) for r, amount in wanted if case.nodes.allocatable(r)[row] < amount]
        asked = " and ".join(f"{size(resource, amount)} {resource}" for resource, amount in beyond)
        there = " and ".join(f"{size(resource, int(case.nodes.allocatable(resource)[row]))}" for resource, _ in beyond)
        nearest = f", which comes nearest of {len(rows)} nodes," if len(rows) > 1 else ""
        return Remedy(
            f"ask for less, or add a larger node: it asks for {asked}, and {case.nodes.names[row]}{nearest} has {there}", []
        )


def size(resource: str, amount: int) -> str:
    """As people write it; bytes that are no whole number of Mi are rounded."""
    if resource in _BYTES and amount % (1 << 20):
        return next((f"{amount / unit:.1f}{name}" for name, unit in _UNITS if abs(amount) >= unit), str(amount))
    return format_amount(resource, amount)


_UNITS = (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))


def _stated(case: Case, row: int, resource: str, amount: int) -> str:
    free, there = case.nodes.free_at(row, resource), int(case.nodes.allocatable(resource)[row])
    ahead = case.nodes.nominated.ahead_of(case.pod, case.nodes.names[row])
    keeping = sorted(each.key for each in ahead if dict(each.requests.amounts).get(resource))
    kept = f"room is kept for {listing(keeping)}" if keeping else ""
    if resource == PODS:
        return f"it runs {there - free - len(keeping)} of at most {there} pods{kept and f', and {kept}'}"
    stated = f"it asks for {size(resource, amount)} {resource}, {size(resource, free)} of {size(resource, there)} is free"
    return f"{stated}{kept and f', as {kept}'}"


def _missing(case: Case, row: int, resource: str, amount: int) -> str:
    """ ", 200m is missing"; not of pods: it is always one."""
    short = amount - case.nodes.free_at(row, resource)
    return f", {size(resource, short)} is missing" if short > 0 and resource != PODS else ""


def missing_share(case: Case, row: int) -> float:
    """Of what the pod asks for, the largest share over the resources that one node lacks."""
    amounts = case.pod.requests.amounts
    return max((max(0.0, 1 - case.nodes.free_at(row, resource) / amount) for resource, amount in amounts), default=0.0)


def _missing_share(amounts: Sequence[tuple[IntArray, int]]) -> FloatArray:
    """The largest share, over the resources, that is missing of what is asked for."""
    shares: FloatArray = np.maximum.reduce([(asked - there) / asked for there, asked in amounts])
    return shares


def _least(case: Case, rows: IntArray, shares: FloatArray) -> int:
    """The row with the least; of several that whose name comes first."""
    return int(min(rows[shares == shares.min()].tolist(), key=lambda row: case.nodes.names[row]))
