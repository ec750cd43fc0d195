"""Cheap nodes are liked. Say what nodes cost (pinnace label node node-1 price=3), and start a scheduler with
--config examples/plugins/cheap.yaml."""

from pinnace.api.core_v1_pb2 import Pod
from scheduler.framework import NodeView, PerNodeScore


class CheapestNode(PerNodeScore):
    name = "CheapestNode"

    def score_node(self, pod: Pod, node: NodeView) -> float:
        """100 for a node that costs nothing, one less for each unit of its price; without a price, 0."""
        return max(0.0, 100.0 - float(node.labels.get("price", 100)))
