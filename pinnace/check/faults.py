"""For how long faults last, and which time none of them covers."""

from collections.abc import Iterable

from pinnace.check.history import Fault


def end_of(fault: Fault) -> float:
    return float("inf") if fault.ended is None else fault.ended


def uncovered(since: float, until: float, faults: Iterable[Fault]) -> float:
    """Seconds of a time that are in no fault."""
    left, at = 0.0, since
    for began, ended in sorted((fault.began, end_of(fault)) for fault in faults):
        if began > at:
            left += max(0.0, min(began, until) - at)
        at = max(at, ended)
    return left + max(0.0, until - at)
