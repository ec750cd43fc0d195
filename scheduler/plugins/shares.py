"""The share of a node's cpu and memory that would be left with the pod on it: computed once a cycle, for all who need it."""

import numpy as np

from scheduler.cache.table import SCORED
from scheduler.framework import CycleState, FloatArray, NodeTable, PodInfo

_LEFT = "shares.left"


def shares_left(state: CycleState, pod: PodInfo, nodes: NodeTable) -> list[FloatArray]:
    """From 0 to 1, for each resource of SCORED. A container that requests none counts as a small one: many of them can be more
    than the node has; then nothing is left."""
    if _LEFT not in state:
        state[_LEFT] = [
            np.maximum((nodes.slack(scored) - pod.requests.scored[scored]) * nodes.inverse(scored), 0)
            for scored in range(len(SCORED))
        ]
    found: list[FloatArray] = state[_LEFT]
    return found
