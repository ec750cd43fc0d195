"""One node as it would be without some of its pods, as far as room is concerned: a table of one row. It costs less than a
`WhatIf`, since nothing is counted in the table of all nodes."""

from pinnace.fit import Requests
from pinnace.fit.table import IntArray
from scheduler.cache.placed_pod import PlacedPod
from scheduler.cache.some_nodes import SomeNodes
from scheduler.cache.table import SCORED, FloatArray, NodeTable


class Freed(SomeNodes):
    """For the moment: nothing else may be written to it."""

    def __init__(self, nodes: NodeTable, row: int) -> None:
        super().__init__(nodes, slice(row, row + 1))
        self._before: dict[str, int] = {}
        self._freed: dict[str, int] = {}
        self._scored = [0] * len(SCORED)

    def lift(self, pod: PlacedPod) -> None:
        """As if the pod, which is on the node, were gone."""
        self._add(pod.requests, 1)

    def put_back(self, pod: PlacedPod) -> None:
        self._add(pod.requests, -1)

    def free(self, resource: str) -> IntArray:
        return super().free(resource) + self._freed.get(resource, 0)

    def free_at(self, row: int, resource: str) -> int:
        before = self._before.get(resource)
        if before is None:
            before = self._before[resource] = super().free_at(row, resource)
        return before + self._freed.get(resource, 0)

    def slack(self, scored: int) -> FloatArray:
        return super().slack(scored) + self._scored[scored]

    def _add(self, requests: Requests, pods: int) -> None:
        for resource, amount in requests.amounts:
            self._freed[resource] = self._freed.get(resource, 0) + pods * amount
        for scored, amount in enumerate(requests.scored):
            self._scored[scored] += pods * amount
