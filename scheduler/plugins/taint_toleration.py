"""TaintToleration: nodes keep away the pods that do not tolerate their taints; PreferNoSchedule only makes them less liked."""

from collections.abc import Sequence

import numpy as np

from scheduler.cache.table import Taint
from scheduler.framework import (
    MAX_SCORE,
    SKIP,
    BoolArray,
    Change,
    ClusterEvent,
    Cost,
    CycleState,
    FilterResult,
    FloatArray,
    NodeTable,
    PodInfo,
    Sees,
    Status,
    whole,
)
from scheduler.plugins.tolerations import untolerated

HARD = ("NoSchedule", "NoExecute")
SOFT = ("PreferNoSchedule",)
_TOLERATION = 1.5e-6
"""Seconds."""
_COUNTS = "TaintToleration.counts"


class TaintToleration:
    name = "TaintToleration"
    filter_sees = Sees.NODES
    skip_sees = Sees.NODES
    helped_by = Change.NODE_ADDED | Change.NODE_TAINTS

    def cost(self, pod: PodInfo, nodes: NodeTable) -> Sequence[Cost]:
        tolerations = len(pod.raw.spec.tolerations)
        return [Cost(tolerations * _TOLERATION, tolerations, "tolerations")]

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        return SKIP if nodes.taints.uniform else None

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
        reasons = {"": 0}

        def code(taints: tuple[Taint, ...]) -> int:
            found = untolerated(taints, pod, HARD)
            reason = f"node(s) had untolerated taint {{{found[0][0]}: {found[0][1]}}}" if found else ""
            return reasons.setdefault(reason, len(reasons))

        codes = nodes.taints.map(code, np.int32)
        return FilterResult.coded(codes, list(reasons))

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        row = nodes.row(event.node)
        return row is not None and not untolerated(nodes.taints.at(row), pod, HARD)

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> Status | None:
        if nodes.taints.uniform:
            return SKIP
        counts = nodes.taints.map(lambda taints: len(untolerated(taints, pod, SOFT)), np.float64)
        state[_COUNTS] = counts
        return None if counts.any() else SKIP

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        """How many taints the pod would rather avoid."""
        counts: FloatArray = state[_COUNTS]
        return counts

    def normalize(self, state: CycleState, scores: FloatArray, feasible: BoolArray) -> FloatArray:
        """The fewer the better: none is 100, the most is 0."""
        return MAX_SCORE - whole(scores * (MAX_SCORE / max(float(scores[feasible].max()), 1.0)))
