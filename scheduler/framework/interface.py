"""The plugin interface: a protocol for each extension point, and base classes for plugins that handle one node at a time.

A plugin has a `name` and the methods that it needs. `nodes` is the table of all nodes. An array for all nodes has `len(nodes)`
elements in row order. A plugin must not change its arguments (except `state`) or keep them after the call, and must return the
same result for the same arguments. An exception fails the attempt of the current pod, and an event names the plugin.
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
from pinnace.scheduler.cache.cache import Change, ClusterEvent
from pinnace.scheduler.cache.pod_info import PodInfo
from pinnace.scheduler.cache.table import FloatArray, NodeTable
from pinnace.scheduler.framework.results import Cost, CycleState, Diagnosis, FilterResult, Nominated, Proposed, Status, Wait


class Dependency(Enum):
    """The inputs of a plugin's result, which determine its reuse for equivalent pods.

    Plugins declare a dependency in the attributes `filter_depends_on` (PreFilter and Filter), `score_depends_on` (PreScore,
    Score and NormalizeScore) and `skip_depends_on` (for SKIP, if it is not always returned). The default is EVERYTHING.

    With any other value, the result may depend on the pod's spec, namespace, labels and controller, but on no other field of
    the pod. Data that the plugin stores in `state` is then available only to its own next method.
    """

    EVERYTHING = auto()
    """The plugin runs for every pod, on all nodes."""
    NODES = auto()
    """The result depends on nodes, other objects, and the set of terms of pods on nodes. It depends neither on the pods on
    nodes nor on the feasible nodes."""
    ROW = auto()
    """The result for a node depends on the node and its pods, but not on other nodes or on the feasible nodes. SKIP depends
    only on the pod. Not valid for `skip_depends_on`."""
    FREE_RESOURCES = auto()
    """As ROW, but of the pods on the node only the free resources matter (`free` and `free_for_scoring` of the table)."""


@runtime_checkable
class Plugin(Protocol):
    """The base of all plugin protocols.

    The constructor receives the keyword arguments that it names: `args` from the configuration, and `handle` (a `Handle`). For
    an invalid argument it raises ValueError with the path of the field. It must not start tasks or threads.
    """

    @property
    def name(self) -> str:
        """Unique name for configurations, metrics and events. It must be a class attribute."""
        ...


@runtime_checkable
class CompletesArgs(Protocol):
    """A plugin that adds default arguments, so that a written configuration contains them."""

    @staticmethod
    def complete(args: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments with defaults. Raise ValueError, as the constructor does."""
        ...


@runtime_checkable
class PreEnqueuePlugin(Plugin, Protocol):
    def pre_enqueue(self, pod: PodInfo) -> bool:
        """Return True if the pod may enter the active queue.

        A gated pod is checked again when it changes, and after events of the kinds in `helped_by` of EnqueueHint (`helps` is
        not called). Without `helped_by` it is checked after all events.
        """
        ...


@dataclass(frozen=True, slots=True)
class Gate:
    """The plugin that gates a pod."""

    plugin: str
    awaits: Change
    """The kinds of changes after which the plugin may release the pod. NONE requires a change of the pod itself."""


@runtime_checkable
class QueueSortPlugin(Plugin, Protocol):
    def sort_key(self, pod: PodInfo, since: float) -> Any:
        """Return the sort key of the pod. The pod with the smallest key is first.

        `since` is the time of the pod's arrival or last failure, in monotonic seconds. All profiles share the queue, so exactly
        one plugin sorts, and it must be the same in all profiles.
        """
        ...


@runtime_checkable
class EnqueueHint(Plugin, Protocol):
    """Declares the events that may help pods that this plugin refused or gates. Without it, any event may help."""

    @property
    def helped_by(self) -> Change: ...

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        """Return True if the pod may fit after an event of one of these kinds, or if this is unclear. Read only the pod's
        spec."""
        ...


@runtime_checkable
class PreFilterPlugin(Plugin, Protocol):
    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        """Prepare `filter`. Return SKIP to skip `filter`, a Status with a reason if no node fits, or None to continue."""
        ...


@runtime_checkable
class FilterPlugin(Plugin, Protocol):
    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
        """Return the nodes that fit the pod. All filters run on all nodes, so that the message covers all reasons."""
        ...


@runtime_checkable
class ResourceFilterPlugin(FilterPlugin, Protocol):
    """A filter with FREE_RESOURCES (`Dependency`) that can check a single node without arrays."""

    def lacking(self, pod: PodInfo, free: Callable[[str], int]) -> Sequence[str]:
        """Return the reasons why a node with these `free` amounts does not fit, as `filter` returns them, or an empty
        sequence."""
        ...


@runtime_checkable
class CostPlugin(Plugin, Protocol):
    """A PreFilter, Filter or Score plugin whose cost grows with the size of the pod's spec."""

    def cost(self, pod: PodInfo, nodes: NodeTable) -> Sequence[Cost]:
        """Return the estimated cost of the plugin. It is called before all other methods, only for large pods, and must
        be cheap."""
        ...


@runtime_checkable
class PostFilterPlugin(Plugin, Protocol):
    def post_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable, diagnosis: Diagnosis
    ) -> Nominated | Proposed | Status | None:
        """Handle a pod without a feasible node. `diagnosis` has the result of every filter on every node.

        Return Nominated if victims are being evicted; later plugins are then not called. Proposed is the same, but extenders
        may first change the candidates. A Status has the reason why this plugin cannot help, which is appended to the message.
        None has no reason. The plugin starts evictions without waiting for their completion.
        """
        ...


@runtime_checkable
class PreScorePlugin(Plugin, Protocol):
    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> Status | None:
        """Prepare `score`. Return SKIP to skip `score`, or None to continue."""
        ...


@runtime_checkable
class ScorePlugin(Plugin, Protocol):
    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        """Return the score of each node, from 0 to 100, or any range if the plugin also normalizes.

        Unlike in Kubernetes, scores are not rounded. Scores of infeasible nodes are ignored.
        """
        ...


@runtime_checkable
class NormalizePlugin(ScorePlugin, Protocol):
    def normalize(self, state: CycleState, scores: FloatArray, feasible: BoolArray) -> FloatArray:
        """Map the scores of feasible nodes to the range from 0 to 100."""
        ...


@runtime_checkable
class ReservePlugin(Plugin, Protocol):
    def reserve(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        """Reserve resources for the pod on its node.

        Return SKIP if nothing is reserved; `unreserve` is then not called. A Status with a reason refuses the pod.
        """
        ...

    def unreserve(self, state: CycleState, pod: PodInfo, node: str) -> None:
        """Undo `reserve` for a pod that will not be bound to the node.

        It is called in reverse order for all Reserve plugins if one of them refuses, so it must accept calls without `reserve`.
        It must not fail.
        """
        ...


@runtime_checkable
class PermitPlugin(Plugin, Protocol):
    def permit(self, state: CycleState, pod: PodInfo, node: str) -> Wait | Status | None:
        """Decide whether the pod may be bound. Return None to permit it, or a Status with a reason to refuse it.

        With Wait, the pod waits in `handle.waiting` until a plugin allows or rejects it. It is rejected after the timeout.
        """
        ...


@runtime_checkable
class PreFlightPlugin(Plugin, Protocol):
    """A PreBind or Bind plugin that handles only some pods. Pods that it skips are bound without a task."""

    def pre_flight(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        """Return SKIP to skip both `pre_bind` and `bind` for this pod, or None to call them."""
        ...


@runtime_checkable
class PreBindPlugin(Plugin, Protocol):
    async def pre_bind(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        """Do work before the bind, such as binding volumes. A Status with a reason refuses the pod."""
        ...


@runtime_checkable
class BindPlugin(Plugin, Protocol):
    async def bind(self, state: CycleState, pod: PodInfo, node: str, fence: Fence) -> Status | None:
        """Bind the pod. Return None if it is bound, SKIP to call the next Bind plugin, or a Status with a reason if it will not
        be bound.

        Do not catch API errors: after an ApiError or a timeout, the scheduler reads the pod to check whether it is bound. Any
        other exception means that it is not bound. Pass the fence to all writes, because it rejects the binds of a former
        leader.
        """
        ...


@runtime_checkable
class BatchBindPlugin(Plugin, Protocol):
    """The Bind plugin whose binds `pinnace.scheduler.binding_cycle` sends in batches. Later Bind plugins are never called."""

    @property
    def in_batches(self) -> Literal[True]: ...


@runtime_checkable
class PostBindPlugin(Plugin, Protocol):
    def post_bind(self, state: CycleState, pod: PodInfo, node: str) -> None:
        """Handle a bound pod. A failure is only logged."""
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
        """The read-only API object."""
        return self._nodes.nodes[self._row]

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels as a read-only map. Missing keys raise KeyError."""
        return ReadOnlyMap(self._nodes.raw[self._row].metadata.labels)

    @property
    def annotations(self) -> Mapping[str, str]:
        """The annotations as a read-only map. Missing keys raise KeyError."""
        return ReadOnlyMap(self._nodes.raw[self._row].metadata.annotations)

    def allocatable(self, resource: str) -> int:
        """Return the allocatable amount: millicores of CPU, bytes, or a count."""
        return int(self._nodes.allocatable(resource)[self._row])

    def free(self, resource: str) -> int:
        """Return the free amount after bound and assumed pods."""
        return int(self._nodes.free(resource)[self._row])

    def used(self, resource: str) -> int:
        return self.allocatable(resource) - self.free(resource)


class PerNodeFilter(ABC):
    """The base class of filters for one node at a time. Derived classes set `name` and implement `filter_node`."""

    name: str

    @abstractmethod
    def filter_node(self, pod: Pod, node: NodeView) -> str | None:
        """Return None if the node passes, or the reason, such as "node(s) were too loud". Equal reasons are counted."""

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
        reasons: dict[str | None, int] = {None: 0}
        codes = [reasons.setdefault(self.filter_node(pod.pod, NodeView(nodes, row)), len(reasons)) for row in range(len(nodes))]
        return FilterResult.coded(np.array(codes, np.int32), [str(reason) for reason in reasons])


class PerNodeScore(ABC):
    """The base class of scorers for one node at a time. Derived classes set `name` and implement `score_node`."""

    name: str

    @abstractmethod
    def score_node(self, pod: Pod, node: NodeView) -> float:
        """Return a score from 0 (worst) to 100. It is called only for feasible nodes."""

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        scores = np.zeros(len(nodes))
        for row in feasible.nonzero()[0].tolist():
            scores[row] = self.score_node(pod.pod, NodeView(nodes, row))
        return scores
