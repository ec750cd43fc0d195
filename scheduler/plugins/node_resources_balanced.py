"""NodeResourcesBalancedAllocation: the closer the used shares of cpu and memory would be, the better.

The score is 100 less the standard deviation of the two shares, in percent. Like LeastAllocated it counts a container that
requests nothing as a small one, but it leaves pods alone that request nothing at all: what they really use is anyone's guess.
"""

import numpy as np

from scheduler.cache.table import SCORED
from scheduler.framework import MAX_SCORE, SKIP, BoolArray, CycleState, FloatArray, NodeTable, PodInfo, Status
from scheduler.plugins.shares import shares_left


class NodeResourcesBalancedAllocation:
    name = "NodeResourcesBalancedAllocation"

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> Status | None:
        requested = {resource for resource, _ in pod.requests.amounts}
        return None if requested.intersection(SCORED) else SKIP

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        cpu, memory = shares_left(state, pod, nodes)
        # The standard deviation of two numbers is half their difference; of shares used, the same as of shares left.
        scores: FloatArray = np.abs(cpu - memory)
        scores *= -MAX_SCORE / 2
        scores += MAX_SCORE
        return scores
