"""The extension points. A plugin has a `name` and those methods that it needs; the framework finds out which.

`nodes` is the table of all nodes; an array "of all nodes" has `len(nodes)` elements, in row order. A plugin must not change
its arguments, keeps nothing of them after the call, and must answer the same to the same question. What it raises fails
the attempt of that one pod, which is tried again later, and is told in an event that names the plugin.
"""

from typing import Any, Protocol, runtime_checkable

from pinnace.fit.table import BoolArray
from scheduler.cache.changes import Change, ClusterEvent
from scheduler.cache.pod_info import PodInfo
from scheduler.cache.table import FloatArray, NodeTable
from scheduler.framework.results import CycleState, FilterResult, Status


@runtime_checkable
class Plugin(Protocol):
    @property
    def name(self) -> str:
        """Unique; it stands in configurations, metrics and events."""
        ...


@runtime_checkable
class PreEnqueuePlugin(Plugin, Protocol):
    def pre_enqueue(self, pod: PodInfo) -> bool:
        """May the pod be considered at all? Asked again when the pod changes."""
        ...


@runtime_checkable
class QueueSortPlugin(Plugin, Protocol):
    def sort_key(self, pod: PodInfo, since: float) -> Any:
        """The least goes first. `since`: when the pod arrived, or failed last (monotonic seconds). Exactly one plugin sorts."""
        ...


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


@runtime_checkable
class EnqueueHint(Plugin, Protocol):
    """What can help a pod that this plugin's filter refused. A plugin without it is helped by anything."""

    @property
    def helped_by(self) -> Change: ...

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        """May the pod fit now, after an event of one of these kinds? Looks at the pod's spec only. When in doubt: True."""
        ...
