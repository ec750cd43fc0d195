"""NodePorts: the host ports that the pod asks for must be free. The rule is pinnace.fit's."""

import numpy as np

from pinnace.fit.room import PORTS_REASON
from scheduler.framework import SKIP, Change, ClusterEvent, CycleState, FilterResult, NodeTable, PodInfo, Sees, Status


class NodePorts:
    name = "NodePorts"
    filter_sees = Sees.ROW
    helped_by = Change.NODE_ADDED | Change.POD_FREED

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        return None if pod.requests.ports else SKIP

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
        refused = np.zeros(len(nodes), np.bool_)
        refused[nodes.rows(nodes.used_ports.taken(pod.requests.ports))] = True
        return FilterResult.refusing(refused, PORTS_REASON)

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        return event.node not in nodes.used_ports.taken(pod.requests.ports)
