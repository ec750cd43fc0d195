"""NodeUnschedulable: no new pods on a cordoned node, but for those that tolerate it."""

import numpy as np

from pinnace.api.wellknown import UNSCHEDULABLE_TAINT
from scheduler.framework import SKIP, Change, ClusterEvent, CycleState, FilterResult, NodeTable, PodInfo, Sees, Status

REASON = "node(s) were unschedulable"
TAINT = (UNSCHEDULABLE_TAINT, "", "NoSchedule")


class NodeUnschedulable:
    name = "NodeUnschedulable"
    filter_sees = Sees.NODES
    helped_by = Change.NODE_ADDED | Change.NODE_TAINTS

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        if not np.count_nonzero(nodes.unschedulable):
            return SKIP
        return SKIP if pod.tolerations.tolerate(*TAINT) else None

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
        return FilterResult.refusing(nodes.unschedulable, REASON)

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        row = nodes.row(event.node)
        return row is not None and not nodes.unschedulable[row]
