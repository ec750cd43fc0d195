"""The plain form of a plugin, which speaks about one node at a time, adapted to the native one.

It costs a Python call for each node (about a microsecond and up), where the native form costs one for all of them: fine for
hundreds of nodes, felt with thousands.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np

from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.readonly import ReadOnlyMap
from pinnace.fit.table import BoolArray
from scheduler.cache.pod_info import PodInfo
from scheduler.cache.table import FloatArray, NodeTable
from scheduler.framework.results import CycleState, FilterResult


class NodeView:
    """One row of the table."""

    def __init__(self, nodes: NodeTable, row: int) -> None:
        self._nodes = nodes
        self._row = row

    @property
    def name(self) -> str:
        return self._nodes.names[self._row]

    @property
    def node(self) -> Node:
        """The API object, to read."""
        return self._nodes.nodes[self._row]

    @property
    def labels(self) -> Mapping[str, str]:
        """As a dict: KeyError for one that the node does not have."""
        return ReadOnlyMap(self._nodes.raw[self._row].metadata.labels)

    @property
    def annotations(self) -> Mapping[str, str]:
        """As `labels`."""
        return ReadOnlyMap(self._nodes.raw[self._row].metadata.annotations)

    def allocatable(self, resource: str) -> int:
        """What pods may use: millicores of cpu, bytes, or a count."""
        return int(self._nodes.allocatable(resource)[self._row])

    def free(self, resource: str) -> int:
        """What is left of it, with the pods that are there and those that are on their way."""
        return int(self._nodes.free(resource)[self._row])

    def used(self, resource: str) -> int:
        return self.allocatable(resource) - self.free(resource)


class PerNodeFilter(ABC):
    """Derive, set `name`, write `filter_node`."""

    name: str

    @abstractmethod
    def filter_node(self, pod: Pod, node: NodeView) -> str | None:
        """None: the node can take the pod. Else the reason why not, such as "node(s) were too loud": it is counted."""

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
        reasons: dict[str | None, int] = {None: 0}
        codes = [reasons.setdefault(self.filter_node(pod.pod, NodeView(nodes, row)), len(reasons)) for row in range(len(nodes))]
        return FilterResult.coded(np.array(codes, np.int32), [str(reason) for reason in reasons])


class PerNodeScore(ABC):
    """Derive, set `name`, write `score_node`. Only feasible nodes are asked about."""

    name: str

    @abstractmethod
    def score_node(self, pod: Pod, node: NodeView) -> float:
        """From 0 (worst) to 100."""

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        scores = np.zeros(len(nodes))
        for row in feasible.nonzero()[0].tolist():
            scores[row] = self.score_node(pod.pod, NodeView(nodes, row))
        return scores
