"""NodeResourcesFit: what the pod requests must be free; the emptier a node, the better (LeastAllocated).

The filter is pinnace.fit's. The score is the mean over cpu and memory of the share, in percent, that would be left.
"""

from functools import reduce

import numpy as np

from pinnace.fit.room import reason_of
from pinnace.fit.table import insufficient
from scheduler.framework import (
    MAX_SCORE,
    BoolArray,
    Change,
    ClusterEvent,
    CycleState,
    FilterResult,
    FloatArray,
    NodeTable,
    PodInfo,
    Verdicts,
)
from scheduler.plugins.shares import shares_left


class NodeResourcesFit:
    name = "NodeResourcesFit"
    helped_by = Change.NODE_ADDED | Change.NODE_ALLOCATABLE | Change.POD_FREED

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
        short = [lacking for _, lacking in insufficient(pod.requests, nodes.free)]

        def explain() -> Verdicts:
            """A code has one bit for each resource that is short."""
            codes = np.zeros(len(short[0]), np.int64)
            for bit, lacking in enumerate(short):
                codes |= lacking.astype(np.int64) << bit
            return Verdicts(codes, reasons)

        def reasons(code: int) -> list[str]:
            return [reason_of(resource) for bit, (resource, _) in enumerate(pod.requests.amounts) if code >> bit & 1]

        return FilterResult(~reduce(np.bitwise_or, short), explain)

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        row = nodes.row(event.node)
        return row is not None and all(nodes.free(resource)[row] >= amount for resource, amount in pod.requests.amounts)

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        cpu, memory = shares_left(state, pod, nodes)
        return (cpu + memory) * (MAX_SCORE / 2)
