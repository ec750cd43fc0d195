"""The table of nodes as it would be with one more pod on every node."""

from pinnace.fit import Requests
from pinnace.fit.table import IntArray
from scheduler.cache.table import FloatArray, NodeTable


class OneMore(NodeTable):
    """As far as room is concerned: `free` and `slack`. For the moment: nothing may be written to it."""

    def __init__(self, nodes: NodeTable, requests: Requests) -> None:
        self.__dict__.update(nodes.__dict__)
        self._nodes = nodes
        self._requests = requests
        self._added = dict(requests.amounts)

    def free(self, resource: str) -> IntArray:
        return self._nodes.free(resource) - self._added.get(resource, 0)

    def slack(self, scored: int) -> FloatArray:
        return self._nodes.slack(scored) - self._requests.scored[scored]
