"""NodeName: a pod that names its node goes there or nowhere."""

import numpy as np

from scheduler.framework import SKIP, Change, ClusterEvent, CycleState, FilterResult, NodeTable, PodInfo, Sees, Status

REASON = "node(s) didn't match the requested node name"


class NodeName:
    name = "NodeName"
    filter_sees = Sees.NODES
    helped_by = Change.NODE_ADDED

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        return None if pod.raw.spec.nodeName else SKIP

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
        refused = np.ones(len(nodes), np.bool_)
        refused[nodes.rows([pod.raw.spec.nodeName])] = False
        return FilterResult.refusing(refused, REASON)

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        return event.node == pod.raw.spec.nodeName
