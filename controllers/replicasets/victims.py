"""Which pods go first when there are too many. Pure.

In this order: unassigned, pending, not ready, cheap (pod-deletion-cost), on a node with many of their like, ready for a shorter
time, restarted more often, younger. Times are compared by their magnitude (powers of two), and pods that are as good as equal
by their uids, which are random: an order by time alone would always empty the same nodes.

Source: pkg/controller/controller_utils.go of Kubernetes, ActivePodsWithRanks; LogarithmicScaleDown. There the uids decide
before restarts and age are looked at, if two pods have been ready for about as long.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from controllers.podfacts import Facts
from pinnace.api.core_v1_pb2 import Pod

_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


def victims(pods: Sequence[Facts], count: int, related: Iterable[Facts], now: float) -> list[Pod]:
    """`related`: all pods of the same deployment, theirs included; `now` is Unix time."""
    if count >= len(pods) or not count:
        return [each.pod for each in pods[:count]]
    crowd = Counter(each.node for each in related if each.active)

    def rank(each: Facts) -> tuple[object, ...]:
        return (
            bool(each.node),
            _PHASES.get(each.phase, 0),
            each.ready,
            each.cost,
            -crowd[each.node],
            _magnitude(now - each.ready_since) if each.ready_since is not None else -1,
            -each.restarts,
            _magnitude(now - each.created),
            each.pod.metadata.uid,
        )

    return [each.pod for each in sorted(pods, key=rank)[:count]]


def _magnitude(seconds: float) -> int:
    return int(math.log2(seconds * 1e9)) if seconds > 0 else -1
