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

from controllers.places import node_of
from controllers.podstates import active, ready, ready_since, restarts
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.times import to_seconds

COST_ANNOTATION = "controller.kubernetes.io/pod-deletion-cost"
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}
_MAX_COST = 2**31 - 1


def victims(pods: Sequence[Pod], count: int, related: Iterable[Pod], now: float) -> list[Pod]:
    """`related`: all pods of the same deployment, theirs included; `now` is Unix time."""
    if count >= len(pods):
        return list(pods)
    crowd = Counter(node_of(pod) for pod in related if active(pod))

    def rank(pod: Pod) -> tuple[object, ...]:
        since, created = ready_since(pod), to_seconds(pod.metadata.creationTimestamp)
        return (
            bool(node_of(pod)),
            _PHASES.get(pod.status.phase, 0),
            ready(pod),
            cost(pod),
            -crowd[node_of(pod)],
            _magnitude(now - since) if since is not None else -1,
            -restarts(pod),
            _magnitude(now - created),
            pod.metadata.uid,
        )

    return sorted(pods, key=rank)[:count]


def cost(pod: Pod) -> int:
    """What it would cost to lose it; 0 when it does not say, or says what is no 32-bit number."""
    text = pod.metadata.annotations.get(COST_ANNOTATION, "")
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > len(str(_MAX_COST)) or (digits[0] == "0" and digits != "0"):
        return 0
    return int(text) if -_MAX_COST - 1 <= int(text) <= _MAX_COST else 0


def _magnitude(seconds: float) -> int:
    return int(math.log2(seconds * 1e9)) if seconds > 0 else -1
