"""The scheduling cycle: which nodes can take the pod, and which is the best. Synchronous, one pod at a time."""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from pinnace.fit.table import BoolArray
from scheduler.cache.pod_info import PodInfo
from scheduler.cache.table import FloatArray, NodeTable
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.interface.plugin import Plugin
from scheduler.framework.results import Cost, CycleState, FilterResult, Nominated, Proposed, Status


@runtime_checkable
class PreFilterPlugin(Plugin, Protocol):
    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        """Prepares `filter`. SKIP: it need not be called; a Status with a reason: no node will do; None: go on."""
        ...


@runtime_checkable
class FilterPlugin(Plugin, Protocol):
    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
        """Which nodes can take the pod. All filters run on all nodes, so that a failure can be explained in full."""
        ...


@runtime_checkable
class RoomFilterPlugin(FilterPlugin, Protocol):
    """A filter that sees ROOM alone (`Sees`), and can be asked about a single node for less than an array costs."""

    def lacking(self, pod: PodInfo, free: Callable[[str], int]) -> Sequence[str]:
        """Why a node does not take the pod that has so much `free` of each resource: the reasons that `filter` gives for it.
        Empty: it passes."""
        ...


@runtime_checkable
class CostPlugin(Plugin, Protocol):
    """A PreFilter, Filter or Score plugin whose work grows with what a pod states."""

    def cost(self, pod: PodInfo, nodes: NodeTable) -> Sequence[Cost]:
        """Asked about large pods only, before all else. The answer costs far less than the work."""
        ...


@runtime_checkable
class PostFilterPlugin(Plugin, Protocol):
    def post_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable, diagnosis: Diagnosis
    ) -> Nominated | Proposed | Status | None:
        """Called when no node is left; `diagnosis` has every filter's verdict on every node. Nominated: room is being made,
        and the plugins after this one are not asked. Proposed: the same, but extenders have a say in it first. A Status says
        why this plugin cannot help, which is added to the message; None: nothing to say. It makes room by itself, and does not
        wait for it."""
        ...


@runtime_checkable
class PreScorePlugin(Plugin, Protocol):
    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> Status | None:
        """Prepares `score`. SKIP: it need not be called; None: go on."""
        ...


@runtime_checkable
class ScorePlugin(Plugin, Protocol):
    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        """How good each node is, from 0 to 100 (any range, if the plugin also normalizes); not rounded, unlike Kubernetes'.
        Values of nodes that are not feasible are ignored."""
        ...


@runtime_checkable
class NormalizePlugin(ScorePlugin, Protocol):
    def normalize(self, state: CycleState, scores: FloatArray, feasible: BoolArray) -> FloatArray:
        """Brings scores, of which only the feasible count, into the range from 0 to 100."""
        ...
