"""What a daemon set needs on one node. All functions are pure; times are Unix time.

    node, pods on it --> NodeView: its part of the status, the pods to create or delete, its role in a rollout --sum--> Totals

A change of a pod or of a node changes one view. The controller keeps the sum of all views, so that the cost of a change is
independent of the number of nodes.

Where pods run:

    a taint without toleration: NoSchedule            no new pod; a pod that runs stays
    a taint without toleration: NoExecute             no pod
    node selector or required affinity do not match   no pod

A rollout without surge deletes the old pods that are unavailable, and available ones while fewer than maxUnavailable nodes are
unavailable. With surge, it creates a new pod beside each old one that is unavailable, and on at most maxSurge nodes beside an
available one, which is deleted when the new pod is available.

Source: pkg/controller/daemon (daemon_controller.go, update.go and util) of Kubernetes 1.36.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pinnace.api.apps_v1_pb2 import DaemonSet
from pinnace.api.core_v1_pb2 import Node, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, Toleration
from pinnace.api.pods import Tolerations, ended
from pinnace.api.resources import DAEMON_SETS
from pinnace.api.wellknown import (
    DISK_PRESSURE_TAINT,
    MEMORY_PRESSURE_TAINT,
    NETWORK_UNAVAILABLE_TAINT,
    NOT_READY_TAINT,
    PID_PRESSURE_TAINT,
    TEMPLATE_GENERATION_ANNOTATION,
    UNREACHABLE_TAINT,
    UNSCHEDULABLE_TAINT,
)
from pinnace.controllers.podcontrol import build_pod_from_template
from pinnace.controllers.pods import PodProperties, compute_pod_properties, pod_available_in
from pinnace.controllers.revisions import REVISION_LABEL
from pinnace.controllers.runtime import get_controller_of, scaled_value
from pinnace.fit.room import matches_node

GENERATION_LABEL = "pod-template-generation"
"""A label of pods: the number of their template."""
_NODE_NAME = "metadata.name"
_NO_EXECUTE, _NO_SCHEDULE = "NoExecute", "NoSchedule"
_TOLERATED = (
    (NOT_READY_TAINT, _NO_EXECUTE),
    (UNREACHABLE_TAINT, _NO_EXECUTE),
    (DISK_PRESSURE_TAINT, _NO_SCHEDULE),
    (MEMORY_PRESSURE_TAINT, _NO_SCHEDULE),
    (PID_PRESSURE_TAINT, _NO_SCHEDULE),
    (UNSCHEDULABLE_TAINT, _NO_SCHEDULE),
)
"""The taints that all daemon pods tolerate, as key and effect."""


def add_daemon_tolerations(spec: PodSpec) -> None:
    """Add the tolerations of daemon pods that the spec lacks."""
    tolerated = [*_TOLERATED, *([(NETWORK_UNAVAILABLE_TAINT, _NO_SCHEDULE)] if spec.hostNetwork else [])]
    for key, effect in tolerated:
        wanted = Toleration(key=key, operator="Exists", effect=effect)
        like = next((item for item in spec.tolerations if _is_same_toleration(item, wanted)), None)
        if like is None:
            spec.tolerations.append(wanted)
        else:
            like.CopyFrom(wanted)


def _is_same_toleration(one: Toleration, other: Toleration) -> bool:
    return (one.key, one.operator, one.effect, one.value) == (other.key, other.operator, other.effect, other.value)


class NodeDecision(NamedTuple):
    should_run: bool
    """A pod is created."""
    may_stay: bool
    """A pod that exists stays."""


class DaemonPlacement:
    """Which nodes run a pod of a daemon set with this template."""

    def __init__(self, daemon_set: DaemonSet) -> None:
        self._spec = PodSpec()
        self._spec.CopyFrom(daemon_set.spec.template.spec)
        add_daemon_tolerations(self._spec)
        self._tolerations = Tolerations(self._spec.tolerations)

    def decide(self, node: Node) -> NodeDecision:
        if self._spec.nodeName not in ("", node.metadata.name) or not matches_node(self._spec, node):
            return NodeDecision(False, False)
        untolerated = {
            taint.effect for taint in node.spec.taints if not self._tolerations.tolerate(taint.key, taint.value, taint.effect)
        }
        if _NO_EXECUTE in untolerated:
            return NodeDecision(False, False)
        return NodeDecision(_NO_SCHEDULE not in untolerated, True)


def build_daemon_pod(daemon_set: DaemonSet, hash_: str) -> Pod:
    """Return a pod of the daemon set without its node (`assign_node`). `hash_` is that of the revision."""
    pod = build_pod_from_template(daemon_set.spec.template, DAEMON_SETS, daemon_set)
    add_daemon_tolerations(pod.spec)
    if generation := daemon_set.metadata.annotations.get(TEMPLATE_GENERATION_ANNOTATION):
        pod.metadata.labels[GENERATION_LABEL] = generation
    pod.metadata.labels[REVISION_LABEL] = hash_
    return pod


def assign_node(pod: Pod, node: str) -> Pod:
    """Return a copy of the pod that the scheduler can bind to this node only. Its other required node affinity is dropped,
    because the node fulfills it."""
    assigned = Pod()
    assigned.CopyFrom(pod)
    required = assigned.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution
    del required.nodeSelectorTerms[:]
    requirement = NodeSelectorRequirement(key=_NODE_NAME, operator="In", values=[node])
    required.nodeSelectorTerms.append(NodeSelectorTerm(matchFields=[requirement]))
    return assigned


def target_node(pod: Pod) -> str:
    """Return the node to which the pod is or will be bound, or "" if there is no such node."""
    if pod.spec.nodeName:
        return pod.spec.nodeName
    for term in pod.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms:
        for requirement in term.matchFields:
            if (requirement.key, requirement.operator, len(requirement.values)) == (_NODE_NAME, "In", 1):
                return requirement.values[0]
    return ""


def daemon_node_key(pod: Pod) -> str:
    """Return an index key: "namespace/UID of the daemon set/node" of its pods, else "". Pods that have ended and are being
    deleted do not count."""
    reference = get_controller_of(pod)
    if reference is None or reference.kind != DAEMON_SETS.kind:
        return ""
    node = target_node(pod)
    if not node or (ended(pod) and pod.metadata.HasField("deletionTimestamp")):
        return ""
    return f"{pod.metadata.namespace}/{reference.uid}/{node}"


class NodeCounts(NamedTuple):
    """Numbers of nodes."""

    desired: int = 0
    current: int = 0
    ready: int = 0
    available: int = 0
    updated: int = 0
    misscheduled: int = 0
    unavailable: int = 0
    """Count against maxUnavailable."""
    surging: int = 0
    """Count against maxSurge."""
    serving: int = 0
    """Have an available pod, wherever pods should run."""

    def plus(self, other: "NodeCounts") -> "NodeCounts":
        return NodeCounts(*map(int.__add__, self, other))

    def minus(self, other: "NodeCounts") -> "NodeCounts":
        return NodeCounts(*map(int.__sub__, self, other))


NO_COUNTS = NodeCounts()


@dataclass(frozen=True, slots=True)
class NodeView:
    """What a daemon set needs on a node, without regard to other nodes."""

    counts: NodeCounts = NO_COUNTS
    create: bool = False
    delete: Sequence[Pod] = ()
    ended: Sequence[Pod] = ()
    """Pods that have failed or succeeded, which are replaced."""
    replace: Pod | None = None
    """An unavailable pod of an old revision."""
    candidate: Pod | None = None
    """An available pod of an old revision. It may be replaced if the bounds allow it."""
    may_run: bool = True
    """A pod of the new revision may run here."""
    finished: Pod | None = None
    """A pod of an old revision whose successor is available."""
    available_at: float | None = None
    """The time at which a ready pod becomes available."""


def view_node(daemon_set: DaemonSet, hash_: str, decision: NodeDecision | None, pods: Iterable[Pod], now: float) -> NodeView:
    """`decision` is None if the node does not exist. `pods` are those with this target node."""
    properties = sorted(map(compute_pod_properties, pods), key=_pod_order)
    if decision is None:
        return NodeView(delete=[pod.pod for pod in properties if not pod.node and not pod.deleting])
    view = _NodeViewer(daemon_set, hash_, decision, properties, now)
    return view.build_view()


def _pod_order(pod: PodProperties) -> tuple[bool, float, str]:
    """Bound pods first, then the oldest."""
    return not pod.node, pod.created, pod.pod.metadata.name


@dataclass(slots=True)
class _NodeViewer:
    daemon_set: DaemonSet
    hash_: str
    decision: NodeDecision
    pods: Sequence[PodProperties]
    """Sorted by `_pod_order`."""
    now: float
    ended: list[Pod] = field(default_factory=list)

    def build_view(self) -> NodeView:
        create, delete = self._plan_pod_changes()
        counts = self._status_counts()
        waits = [wait for pod in self.pods if not pod.deleting and (wait := self._available_in(pod))]
        available_at = self.now + min(waits) if waits else None
        new, old = self._pods_by_revision()
        view = NodeView(counts, create, delete, self.ended, available_at=available_at, may_run=self.decision.should_run)
        if len(new) > 1 or len(old) > 1:
            return _view_with_rollout_role(view, counts=counts._replace(unavailable=1, surging=1))
        return self._add_rollout_role(view, new[0] if new else None, old[0] if old else None)

    def _add_rollout_role(self, view: NodeView, new: PodProperties | None, old: PodProperties | None) -> NodeView:
        """Add the role in a rollout of a node with at most one pod of each sort."""
        counts = view.counts
        serving = old or new
        if serving is not None and self._is_available(serving):
            counts = counts._replace(serving=1)
        if (new is None) == (old is None):
            if new is None and not self.pods and not self.decision.should_run:
                return view
            is_surging = new is not None and not self._is_available(new)
            finished = old.pod if new is not None and old is not None and self._is_available(new) else None
            return _view_with_rollout_role(
                view, counts=counts._replace(unavailable=1, surging=int(is_surging)), finished=finished
            )
        if old is None:
            assert new is not None
            return _view_with_rollout_role(view, counts=counts._replace(unavailable=int(not self._is_available(new))))
        if self._is_available(old):
            return _view_with_rollout_role(view, counts=counts, candidate=old.pod)
        return _view_with_rollout_role(view, counts=counts._replace(unavailable=1), replace=old.pod)

    def _plan_pod_changes(self) -> tuple[bool, Sequence[Pod]]:
        """Return whether to create a pod, and the pods to delete whatever the rollout."""
        if self.decision.should_run and not self.pods:
            return True, ()
        if not self.decision.may_stay:
            return False, [pod.pod for pod in self.pods if not pod.deleting]
        running = list[PodProperties]()
        for pod in self.pods:
            if pod.deleting:
                continue
            if pod.phase in ("Failed", "Succeeded"):
                self.ended.append(pod.pod)
            else:
                running.append(pod)
        if not self._has_surge():
            return False, [pod.pod for pod in running[1:]]
        if len(running) <= 1:
            return False, ()
        new = [pod for pod in running if self._has_current_hash(pod)]
        old = [pod for pod in running if not self._has_current_hash(pod)]
        surplus = [pod.pod for pod in (*new[1:], *old[1:])]
        if new and old and (not old[0].ready or self._is_available(new[0])):
            surplus.append(old[0].pod)
        return False, surplus

    def _status_counts(self) -> NodeCounts:
        if not self.decision.should_run:
            return NodeCounts(misscheduled=int(bool(self.pods)))
        if not self.pods:
            return NodeCounts(desired=1)
        pod = self.pods[0]
        is_available = self._is_available(pod)
        return NodeCounts(1, 1, int(pod.ready), int(is_available), int(self._is_updated(pod)))

    def _pods_by_revision(self) -> tuple[list[PodProperties], list[PodProperties]]:
        new, old = list[PodProperties](), list[PodProperties]()
        for pod in self.pods:
            if not pod.deleting:
                (new if self._is_updated(pod) else old).append(pod)
        return new, old

    def _has_surge(self) -> bool:
        return max_surge(self.daemon_set, 1) > 0

    def _has_current_hash(self, pod: PodProperties) -> bool:
        return pod.pod.metadata.labels.get(REVISION_LABEL) == self.hash_

    def _is_updated(self, pod: PodProperties) -> bool:
        generation = self.daemon_set.metadata.annotations.get(TEMPLATE_GENERATION_ANNOTATION)
        return self._has_current_hash(pod) or (
            generation is not None and pod.pod.metadata.labels.get(GENERATION_LABEL) == generation
        )

    def _available_in(self, pod: PodProperties) -> float | None:
        return pod_available_in(pod, self.daemon_set.spec.minReadySeconds, self.now)

    def _is_available(self, pod: PodProperties) -> bool:
        return self._available_in(pod) == 0


def _view_with_rollout_role(
    view: NodeView,
    *,
    counts: NodeCounts,
    replace: Pod | None = None,
    candidate: Pod | None = None,
    finished: Pod | None = None,
) -> NodeView:
    return NodeView(counts, view.create, view.delete, view.ended, replace, candidate, view.may_run, finished, view.available_at)


def max_surge(daemon_set: DaemonSet, desired: int) -> int:
    """Return the number of nodes that may run two pods."""
    strategy = daemon_set.spec.updateStrategy
    if strategy.type != "RollingUpdate":
        return 0
    return scaled_value(strategy.rollingUpdate.maxSurge, desired, up=True)


def max_unavailable(daemon_set: DaemonSet, desired: int) -> int:
    """Return the number of nodes whose pod may be unavailable. If both bounds are 0, it is 1."""
    strategy = daemon_set.spec.updateStrategy
    if strategy.type != "RollingUpdate":
        return 0
    bound = scaled_value(strategy.rollingUpdate.maxUnavailable, desired, up=True)
    return 1 if desired and not bound and not max_surge(daemon_set, desired) else bound
