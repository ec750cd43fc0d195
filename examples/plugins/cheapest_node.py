"""A score plugin that prefers cheap nodes. The label `price` of a node is its cost.

kubectl label node node-1 price=3
pinnace-scheduler --server HOST:PORT --config examples/plugins/cheap.yaml
"""

from pinnace.api.core_v1_pb2 import Pod
from pinnace.scheduler.framework import NodeView, PerNodeScore


class CheapestNode(PerNodeScore):
    name = "CheapestNode"

    def score_node(self, pod: Pod, node: NodeView) -> float:
        """100 minus the price; 0 for nodes without a price."""
        return max(0.0, 100.0 - float(node.labels.get("price", 100)))
