"""The plugin interface: a protocol for each extension point, and adapters for plugins that look at one node at a time.

A plugin has a `name` and the methods that it needs. `nodes` is the table of all nodes. An array "of all nodes" has
`len(nodes)` elements, in row order. A plugin must not change its arguments (except `state`), must not keep them after the
call, and must return the same result for the same arguments. An exception fails the attempt of that one pod, and an event
names the plugin.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.pods_pb2 import Fence
from pinnace.api.wire import ReadOnlyMap
from pinnace.fit.table import BoolArray
from scheduler.cache.cache import Change, ClusterEvent
from scheduler.cache.pod_info import PodInfo
from scheduler.cache.table import FloatArray, NodeTable
from scheduler.framework.results import Cost, CycleState, Diagnosis, FilterResult, Nominated, Proposed, Status, Wait


class Dependency(Enum):
    """What the result of a plugin depends on, so that equivalent pods can reuse it. Plugins declare it in the attributes
    `filter_depends_on` (PreFilter and Filter), `score_depends_on` (PreScore, Score and NormalizeScore) and `skip_depends_on`
    (whether it returns SKIP, if that is not always so). The default is EVERYTHING.

    Unless it is EVERYTHING, the result may depend on the spec, namespace, labels and controller of the pod, and on no other
    field. What the plugin stores in `state` is available to its own next method only.
    """

    EVERYTHING = auto()
    """Runs for every pod, on all nodes."""
    NODES = auto()
    """Depends on nodes, on other objects, and on the set of terms that pods on nodes state; not on pods on nodes, and not on
    which nodes are feasible."""
    ROW = auto()
    """The result for a node depends on that node and the pods on it, not on other nodes, and not on which nodes are feasible.
    It returns SKIP because of the pod alone. Not valid for `skip_depends_on`."""
    FREE_RESOURCES = auto()
    """As ROW, and of the pods on the node only the resources that they leave free matter (`free` and `slack` of the table)."""


@runtime_checkable
class Plugin(Protocol):
    """The constructor receives the keyword arguments that it names: `args` (from the configuration; it raises ValueError with
    the path of an invalid field) and `handle` (a `Handle`). A constructor must not start tasks or threads."""

    @property
    def name(self) -> str:
        """Unique, an attribute of the class; used in configurations, metrics and events."""
        ...


@runtime_checkable
class CompletesArgs(Protocol):
    """A plugin that fills in default arguments, so that a written configuration shows them."""

    @staticmethod
    def complete(args: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments with their defaults filled in. Raises ValueError, as the constructor does."""
        ...


@runtime_checkable
class PreEnqueuePlugin(Plugin, Protocol):
    def pre_enqueue(self, pod: PodInfo) -> bool:
        """Whether the pod may enter the active queue. A gated pod is checked again when it changes, and after events of the
        kinds in `helped_by` of EnqueueHint (`helps` is not called); without `helped_by`, after all events."""
        ...


@dataclass(frozen=True, slots=True)
class Gate:
    """Why a pod is gated."""

    plugin: str
    awaits: Change
    """The kinds of changes after which the plugin may release it; NONE: only a change of the pod."""


@runtime_checkable
class QueueSortPlugin(Plugin, Protocol):
    def sort_key(self, pod: PodInfo, since: float) -> Any:
        """The pod with the smallest key is first. `since`: when the pod arrived or failed last (monotonic seconds). All
        profiles share the queue, so exactly one plugin sorts, the same in all profiles."""
        ...


@runtime_checkable
class EnqueueHint(Plugin, Protocol):
    """The events that may make a pod schedulable that this plugin refused or gates. Without it, all events may."""

    @property
    def helped_by(self) -> Change: ...

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        """Whether the pod may fit after an event of one of these kinds. Reads the pod's spec only. True if in doubt."""
        ...


@runtime_checkable
class PreFilterPlugin(Plugin, Protocol):
    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        """Prepares `filter`. SKIP: `filter` is not called; a Status with a reason: no node fits; None: continue."""
        ...


@runtime_checkable
class FilterPlugin(Plugin, Protocol):
    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
        """Which nodes can take the pod. All filters run on all nodes, so that a failure can be explained in full."""
        ...


@runtime_checkable
class ResourceFilterPlugin(FilterPlugin, Protocol):
    """A filter with FREE_RESOURCES (`Dependency`) that can check a single node without arrays."""

    def lacking(self, pod: PodInfo, free: Callable[[str], int]) -> Sequence[str]:
        """Why a node with these `free` amounts refuses the pod: the reasons that `filter` returns for it. Empty: it passes."""
        ...


@runtime_checkable
class CostPlugin(Plugin, Protocol):
    """A PreFilter, Filter or Score plugin whose work grows with what a pod states."""

    def cost(self, pod: PodInfo, nodes: NodeTable) -> Sequence[Cost]:
        """The estimated cost of the plugin. Called for large pods only, before all other methods; must itself be cheap."""
        ...


@runtime_checkable
class PostFilterPlugin(Plugin, Protocol):
    def post_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable, diagnosis: Diagnosis
    ) -> Nominated | Proposed | Status | None:
        """Called when no node is feasible; `diagnosis` has the result of every filter on every node. Nominated: room is being
        made, and later plugins are not called. Proposed: the same, but extenders may change the candidates first. A Status
        has the reason why this plugin cannot help, which is appended to the message; None: no reason. The plugin starts to
        make room and does not wait for it."""
        ...


@runtime_checkable
class PreScorePlugin(Plugin, Protocol):
    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> Status | None:
        """Prepares `score`. SKIP: `score` is not called; None: continue."""
        ...


@runtime_checkable
class ScorePlugin(Plugin, Protocol):
    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        """The score of each node, from 0 to 100 (any range if the plugin also normalizes); unlike in Kubernetes, not rounded.
        Scores of infeasible nodes are ignored."""
        ...


@runtime_checkable
class NormalizePlugin(ScorePlugin, Protocol):
    def normalize(self, state: CycleState, scores: FloatArray, feasible: BoolArray) -> FloatArray:
        """Maps the scores of feasible nodes to the range from 0 to 100."""
        ...


@runtime_checkable
class ReservePlugin(Plugin, Protocol):
    def reserve(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        """Reserves what the pod will use on its node. SKIP: nothing, and `unreserve` is not called; a Status with a reason: the
        pod is refused."""
        ...

    def unreserve(self, state: CycleState, pod: PodInfo, node: str) -> None:
        """The pod will not be bound there. Called in reverse order, for all Reserve plugins if one of them refuses, so it must
        accept calls without `reserve`. It must not fail."""
        ...


@runtime_checkable
class PermitPlugin(Plugin, Protocol):
    def permit(self, state: CycleState, pod: PodInfo, node: str) -> Wait | Status | None:
        """Whether the pod may be bound. None: yes; a Status with a reason: no; Wait: the pod waits in `handle.waiting` until a
        plugin allows or rejects it. After the timeout it is rejected."""
        ...


@runtime_checkable
class PreFlightPlugin(Plugin, Protocol):
    """For a PreBind or Bind plugin that does nothing for most pods: pods that it skips are bound without a task."""

    def pre_flight(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        """SKIP: neither `pre_bind` nor `bind` is called for this pod; None: both are."""
        ...


@runtime_checkable
class PreBindPlugin(Plugin, Protocol):
    async def pre_bind(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        """Work before the pod is bound, such as binding its volumes. A Status with a reason: the pod is refused."""
        ...


@runtime_checkable
class BindPlugin(Plugin, Protocol):
    async def bind(self, state: CycleState, pod: PodInfo, node: str, fence: Fence) -> Status | None:
        """Binds the pod. None: it is bound. SKIP: the next Bind plugin is called. A Status with a reason: it is not bound,
        and will not be. Do not catch errors of the API: after an ApiError or a timeout the scheduler looks up whether the pod
        was bound; any other exception means that it was not. Without the fence, a deposed leader can bind."""
        ...


@runtime_checkable
class BatchBindPlugin(Plugin, Protocol):
    """The Bind plugin whose binds `scheduler.binding_cycle` sends in batches. Plugins after it are never called."""

    @property
    def in_batches(self) -> Literal[True]: ...


@runtime_checkable
class PostBindPlugin(Plugin, Protocol):
    def post_bind(self, state: CycleState, pod: PodInfo, node: str) -> None:
        """The pod is bound. Informational; a failure is only logged."""
        ...


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
        """What is left after the bound and the assumed pods."""
        return int(self._nodes.free(resource)[self._row])

    def used(self, resource: str) -> int:
        return self.allocatable(resource) - self.free(resource)


class PerNodeFilter(ABC):
    """Derive from it, set `name`, and implement `filter_node`."""

    name: str

    @abstractmethod
    def filter_node(self, pod: Pod, node: NodeView) -> str | None:
        """None: the node passes. Otherwise the reason, such as "node(s) were too loud", which is counted over the nodes."""

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
        reasons: dict[str | None, int] = {None: 0}
        codes = [reasons.setdefault(self.filter_node(pod.pod, NodeView(nodes, row)), len(reasons)) for row in range(len(nodes))]
        return FilterResult.coded(np.array(codes, np.int32), [str(reason) for reason in reasons])


class PerNodeScore(ABC):
    """Derive from it, set `name`, and implement `score_node`. It is called for feasible nodes only."""

    name: str

    @abstractmethod
    def score_node(self, pod: Pod, node: NodeView) -> float:
        """From 0 (worst) to 100."""

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        scores = np.zeros(len(nodes))
        for row in feasible.nonzero()[0].tolist():
            scores[row] = self.score_node(pod.pod, NodeView(nodes, row))
        return scores
