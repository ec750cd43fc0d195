"""NodePorts: the host ports that the pod asks for must be free. The rule is pinnace.fit's."""

from collections.abc import Sequence

import numpy as np

from pinnace.fit.room import PORTS_REASON
from scheduler.framework import SKIP, Change, ClusterEvent, Cost, CycleState, FilterResult, NodeTable, PodInfo, Sees, Status
from scheduler.framework.cost import BUDGET

_PORT, _USER = 12e-6, 0.3e-6
"""Seconds for a port, and for each node where it is taken."""


class NodePorts:
    name = "NodePorts"
    filter_sees = Sees.ROW
    helped_by = Change.NODE_ADDED | Change.POD_FREED

    def cost(self, pod: PodInfo, nodes: NodeTable) -> Sequence[Cost]:
        """What it takes to know the ports, and to look at the nodes where they are taken."""
        spec = pod.raw.spec
        ports = sum(len(each.ports) for each in spec.containers) + sum(len(each.ports) for each in spec.initContainers)
        seconds = ports * _PORT
        if 0 < seconds <= BUDGET:
            seconds += nodes.used_ports.users(pod.requests.ports) * _USER
        return [Cost(seconds, ports, "ports")]

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        return None if pod.requests.ports else SKIP

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
        refused = np.zeros(len(nodes), np.bool_)
        refused[nodes.rows(nodes.used_ports.taken(pod.requests.ports))] = True
        return FilterResult.refusing(refused, PORTS_REASON)

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        return event.node not in nodes.used_ports.taken(pod.requests.ports)
