"""The extension points: the protocols of plugins, and adapters for plugins that look at one node at a time.

A plugin has a `name` and the methods that it needs. `nodes` is the table of all nodes. An array "of all nodes" has `len(nodes)`
elements, in row order. A plugin does not change its arguments (except `state`), keeps nothing of them after the call, and gives
the same answer to the same question. An exception fails the attempt of that one pod, and an event names the plugin.
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
from scheduler.cache.changes import Change, ClusterEvent
from scheduler.cache.pod_info import PodInfo
from scheduler.cache.table import FloatArray, NodeTable
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.results import Cost, CycleState, FilterResult, Nominated, Proposed, Status, Wait


class Sees(Enum):
    """Said by a plugin in its attributes `filter_sees` (of PreFilter and Filter), `score_sees` (of PreScore, Score and
    NormalizeScore) and `skip_sees` (of whether it answers SKIP, where it does not SKIP always). Not said: EVERYTHING.

    Of the pod, an answer that does not see everything depends on the spec, the namespace, the labels and the controller. What
    such a plugin leaves in the state is found by its own next method only, not at a later point.
    """

    EVERYTHING = auto()
    """Asked for every pod, about all nodes."""
    NODES = auto()
    """Nodes, other objects, and which terms pods on nodes state; but not pods on nodes, nor which nodes are feasible."""
    ROW = auto()
    """The answer for a node depends on that node and the pods on it, not on other nodes, nor on whether they are feasible. It
    SKIPs because of the pod alone. Not for `skip_sees`."""
    ROOM = auto()
    """As ROW, and of the pods on the node it is only what they leave free that counts (`free` and `slack` of the table)."""


@runtime_checkable
class Plugin(Protocol):
    """The class is made with those of the keyword arguments `args` (its own, from the configuration; raise ValueError with the
    field's path when they are wrong) and `handle` (a `Handle`) that its constructor names. A constructor starts nothing.
    """

    @property
    def name(self) -> str:
        """Unique, an attribute of the class; it stands in configurations, metrics and events."""
        ...


@runtime_checkable
class CompletesArgs(Protocol):
    """A plugin whose class knows what its arguments are when they are left out: a configuration is shown with them."""

    @staticmethod
    def complete(args: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments with their defaults filled in. Raises ValueError, as the constructor does."""
        ...


@runtime_checkable
class PreEnqueuePlugin(Plugin, Protocol):
    def pre_enqueue(self, pod: PodInfo) -> bool:
        """May the pod be considered at all? A pod that may not is asked about again when it changes, and after events of the
        kinds that the plugin names (`helped_by` of EnqueueHint; `helps` is not asked). Who names none is asked after all."""
        ...


@dataclass(frozen=True, slots=True)
class Gate:
    """A pod is held back."""

    plugin: str
    awaits: Change
    """The kinds of changes after one of which the plugin may let it go; NONE: only a change of the pod helps."""


@runtime_checkable
class QueueSortPlugin(Plugin, Protocol):
    def sort_key(self, pod: PodInfo, since: float) -> Any:
        """The least goes first. `since`: when the pod arrived, or failed last (monotonic seconds). Exactly one plugin sorts,
        the same in all profiles: they share the queue."""
        ...


@runtime_checkable
class EnqueueHint(Plugin, Protocol):
    """What can help a pod that this plugin refused, or holds back. A plugin without it is helped by anything."""

    @property
    def helped_by(self) -> Change: ...

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        """May the pod fit now, after an event of one of these kinds? Looks at the pod's spec only. When in doubt: True."""
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


@runtime_checkable
class ReservePlugin(Plugin, Protocol):
    def reserve(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        """Sets aside what the pod will use on its node. SKIP: nothing, and `unreserve` need not be called; a Status with a
        reason: it cannot have it."""
        ...

    def unreserve(self, state: CycleState, pod: PodInfo, node: str) -> None:
        """The pod will not be bound there. Called in reverse order, for all Reserve plugins when one of them refuses: so it
        must bear being called without `reserve`. It must not fail."""
        ...


@runtime_checkable
class PermitPlugin(Plugin, Protocol):
    def permit(self, state: CycleState, pod: PodInfo, node: str) -> Wait | Status | None:
        """May the pod be bound? None: yes; a Status with a reason: no; Wait: ask `handle.waiting` later, where anybody may
        allow or reject it. When its time is over the pod is rejected."""
        ...


@runtime_checkable
class PreFlightPlugin(Plugin, Protocol):
    """For a PreBind or Bind plugin that has nothing to do for most pods: those it skips go the fast way, without a task."""

    def pre_flight(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        """SKIP: neither `pre_bind` nor `bind` need be called for this pod; None: call them."""
        ...


@runtime_checkable
class PreBindPlugin(Plugin, Protocol):
    async def pre_bind(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        """What must be done before the pod is bound, such as binding its volumes. A Status with a reason: it cannot be."""
        ...


@runtime_checkable
class BindPlugin(Plugin, Protocol):
    async def bind(self, state: CycleState, pod: PodInfo, node: str, fence: Fence) -> Status | None:
        """Binds the pod; None: it is bound. SKIP: the next Bind plugin is asked. A Status with a reason: it is not bound, and
        will not be. What the API answers should be let through: an ApiError, or the deadline, leaves it open whether the pod
        was bound, and is looked up; any other exception says that it was not. A bind without the fence may come from a leader
        that has been deposed."""
        ...


@runtime_checkable
class BatchBindPlugin(Plugin, Protocol):
    """The Bind plugin whose binds are sent by `scheduler.binding`, in batches. Those after it are never asked."""

    @property
    def in_batches(self) -> Literal[True]: ...


@runtime_checkable
class PostBindPlugin(Plugin, Protocol):
    def post_bind(self, state: CycleState, pod: PodInfo, node: str) -> None:
        """The pod is bound. For information: nothing can be changed any more, and a failure is only logged."""
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
