"""The scheduler's cache: nodes, bound and assumed pods, and cluster events.

The states of one pod, by UID:

                     observe (it is bound)
       +--------------------------------------------+
       |                                            v
    absent ---- assume ---> ASSUMED --- confirm ---> BOUND
       ^                       |      (or observe)     |
       |        forget         |                       |
       +-----------------------+                       |
       |                remove |                remove |   deleted or terminated
       +-----------------------+-----------------------+

* An assumed pod uses the resources of its node, so that the next decision counts it.
* The informer calls `confirm_assumption` and `add_pod` for every bound pod, including pods that other clients bind. The calls
  override an assumption: a pod that is assumed on one node and observed on another is moved. They may arrive before or after
  the response to the bind, or twice.
* Only `confirm_assumption`, `add_pod`, `forget_pod` and `remove_pod` end an assumption. There is no expiry, because a bind
  without a response may have committed, and to forget it allocates its resources twice (kubernetes#106361). The binder resolves
  the bind and then calls `forget_pod`.
* `forget_pod` only undoes an assumption. It has no effect on a bound pod.
* The cache accepts pods before their node. It keeps the pods of a removed node and counts them again when the node returns.
* A nomination ends when the pod is placed on any node or removed.

A `ClusterEvent` names a node and the kinds of its changes. Plugins declare the kinds that may make a pod schedulable.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Flag, auto

from pinnace import fit
from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.resources import Object
from pinnace.fit.table import IntArray
from pinnace.scheduler.cache.pod_index import PodGroup
from pinnace.scheduler.cache.pod_info import PlacedPod, PodInfo
from pinnace.scheduler.cache.table import NodeTable
from pinnace.scheduler.cache.what_if import WhatIf, add_usage, create_placed_pod, remove_usage


class Change(Flag):
    """Kinds of changes. An event may combine several."""

    NONE = 0
    NODE_ADDED = auto()
    NODE_ALLOCATABLE = auto()
    """The node has more of at least one resource."""
    NODE_LABELS = auto()
    NODE_TAINTS = auto()
    """Taints or spec.unschedulable."""
    NODE_ANNOTATIONS = auto()
    NODE_CONDITIONS = auto()
    """The status of a condition. Changes of its timestamps, reason and message are ignored."""
    NODE_REMOVED = auto()
    POD_FREED = auto()
    """A pod left the node or terminated, which freed its resources and ports."""
    VOLUMES_FREED = auto()
    """Set in addition to POD_FREED if the pod used claims or disks."""
    POD_PLACED = auto()
    """A pod was bound to the node."""
    POD_LABELS = auto()
    """A bound or nominated pod has new labels or a deletion timestamp."""
    RESERVATION_ENDED = auto()
    """Reservations that plugins made for a pod in Reserve were released."""
    OBJECT = auto()
    """An object of another resource that a plugin `needs` was added, changed or deleted."""


ANY = ~Change.NONE


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    change: Change
    node: str = ""
    """The node; empty for an OBJECT."""
    pod: PodGroup | None = field(default=None, compare=False)
    """The pod that was freed, placed or relabelled, or None if it is unknown."""
    was: PodGroup | None = field(default=None, compare=False)
    """The pod before it was relabelled."""
    resource: str = ""
    """The plural resource name of the OBJECT."""
    obj: Object | None = None
    """The OBJECT in its current or last state."""


def node_changes(old: Node, new: Node) -> Change:
    """Return the kinds of changes between two versions of a node that may help a pod."""
    change = Change.NONE
    if old.status != new.status:  # comparing the whole message takes a tenth of the time
        before, after = fit.allocatable_amounts(old), fit.allocatable_amounts(new)
        if any(amount > before.get(resource, 0) for resource, amount in after.items()):
            change |= Change.NODE_ALLOCATABLE
        if _condition_statuses(old) != _condition_statuses(new):
            change |= Change.NODE_CONDITIONS
    if old.metadata.labels != new.metadata.labels:
        change |= Change.NODE_LABELS
    if old.metadata.annotations != new.metadata.annotations:
        change |= Change.NODE_ANNOTATIONS
    if old.spec.unschedulable != new.spec.unschedulable or old.spec.taints != new.spec.taints:
        change |= Change.NODE_TAINTS
    return change


def _condition_statuses(node: Node) -> dict[str, str]:
    return {condition.type: condition.status for condition in node.status.conditions}


class Cache:
    """Methods return a ClusterEvent if their change may help a pending pod."""

    def __init__(self) -> None:
        self.nodes = NodeTable()
        self._pods: dict[str, PlacedPod] = {}
        self._on_node: dict[str, dict[str, PlacedPod]] = {}
        self._changes = 0

    def set_node(self, node: Node) -> ClusterEvent:
        """Add or update a node."""
        name = node.metadata.name
        row = self.nodes.row(name)
        if row is None:
            pods = self._on_node.get(name, {}).values()
            self.nodes.add_node(node, [placed.requests for placed in pods], [placed.group for placed in pods])
            for placed in pods:
                self.nodes.by_priority.add_requests(placed, 1)
            self._mark_changed(name)
            return ClusterEvent(Change.NODE_ADDED, name)
        event = ClusterEvent(node_changes(self.nodes.raw[row], node), name)
        self.nodes.update_node(node)
        self._mark_changed(name)
        return event

    def remove_node(self, name: str) -> ClusterEvent | None:
        if self.nodes.row(name) is None:
            return None
        self.nodes.remove_node(name)
        return ClusterEvent(Change.NODE_REMOVED, name)

    def assume_pod(self, info: PodInfo, node: str) -> None:
        """Assume the pod on `node`. Raise ValueError if the cache contains the pod, which prevents a double bind
        (kubernetes#26043)."""
        if info.uid in self._pods:
            raise ValueError(f'pod "{info.key}" is already in the cache and cannot be assumed')
        self._place_pod(info, node).assumed = info

    def confirm_assumption(self, uid: str, node: str) -> bool:
        """Confirm that the pod is bound to `node`. Return False if it was not cached there; the caller then calls `add_pod`."""
        placed = self._pods.get(uid)
        if placed is None or placed.node != node:
            return False
        placed.assumed = None
        return True

    def add_pod(self, info: PodInfo, node: str) -> ClusterEvent | None:
        """Place a pod that the informer reports as bound to `node`. This overrides any assumption."""
        if self.confirm_assumption(info.uid, node):
            return None
        moved = self.remove_pod(info.uid)
        change = Change.POD_PLACED if moved is None else Change.POD_PLACED | moved.change
        return ClusterEvent(change, node if moved is None else moved.node, self._place_pod(info, node).group)

    def placement_event(self, uid: str) -> ClusterEvent:
        """Return the event for a confirmed assumption. The cache must contain the pod."""
        placed = self._pods[uid]
        return ClusterEvent(Change.POD_PLACED, placed.node, placed.group)

    def update_labels(self, pod: Pod) -> ClusterEvent:
        """Handle new labels or a deletion timestamp. The cache must contain the pod."""
        placed = self._pods[pod.metadata.uid]
        was = placed.group
        self.nodes.pods.remove_pod(was, placed.node)
        placed.group = self.nodes.pods.add_pod(pod, placed.node)
        self.nodes.mark_dirty(placed.node)
        self._mark_changed(placed.node)
        return ClusterEvent(Change.POD_LABELS, placed.node, placed.group, was)

    def update_requests(self, info: PodInfo) -> ClusterEvent | None:
        """Update the requests of a cached pod. Return an event if a request has decreased."""
        placed = self._pods[info.uid]
        before, after = placed.requests, info.requests
        if after == before:
            return None
        remove_usage(self.nodes, placed)
        self.nodes.by_priority.add_requests(placed, -1)
        placed.requests = after
        add_usage(self.nodes, placed)
        self.nodes.by_priority.add_requests(placed, 1)
        self._mark_changed(placed.node)
        amounts = dict(after.amounts)
        if all(amounts.get(resource, 0) >= amount for resource, amount in before.amounts):
            return None
        return ClusterEvent(Change.POD_FREED, placed.node, placed.group)

    def set_start_time(self, uid: str, seconds: float) -> None:
        """Set the time at which the kubelet started the pod, in Unix seconds."""
        placed = self._pods.get(uid)
        if placed is not None:
            placed.started = seconds
            self._mark_changed(placed.node)

    def nominate_pod(self, info: PodInfo, node: str) -> ClusterEvent | None:
        """Nominate the current version of the pod to `node` only, or to no node if it is empty."""
        before = self.nodes.nominated.node_of(info.uid)
        if before == node:
            return self._update_nomination(info, node)
        self.nodes.nominated.remove_nomination(info.uid)
        if node:
            self.nodes.nominated.set_nomination(info, node)
            self.nodes.mark_dirty(node)
            self._mark_changed(node)
        return self._end_nomination(before)

    def forget_pod(self, uid: str) -> ClusterEvent | None:
        """Forget an assumption whose bind can no longer commit. Return None if the pod was not assumed."""
        return self.remove_pod(uid) if self.is_assumed(uid) else None

    def remove_pod(self, uid: str) -> ClusterEvent | None:
        """Remove a deleted or terminated pod. Return None if it had neither a node nor a nomination."""
        ended = self._end_nomination(self.nodes.nominated.remove_nomination(uid))
        placed = self._pods.pop(uid, None)
        if placed is None:
            return ended
        pods = self._on_node[placed.node]
        del pods[uid]
        if not pods:
            del self._on_node[placed.node]
        remove_usage(self.nodes, placed)
        self.nodes.pods.remove_pod(placed.group, placed.node)
        self.nodes.by_priority.add_requests(placed, -1)
        self._mark_changed(placed.node)
        change = Change.POD_FREED if placed.volumes is None else Change.POD_FREED | Change.VOLUMES_FREED
        return ClusterEvent(change, placed.node, placed.group)

    def node_of(self, uid: str) -> str | None:
        """Return the node of an assumed or bound pod."""
        placed = self._pods.get(uid)
        return placed.node if placed is not None else None

    def is_assumed(self, uid: str) -> bool:
        placed = self._pods.get(uid)
        return placed is not None and placed.assumed is not None

    def usage_of_pods(self) -> list[tuple[str, str, tuple[tuple[str, int], ...]]]:
        """Return (UID, node, requested amounts) of all assumed and bound pods."""
        return [(uid, placed.node, placed.requests.amounts) for uid, placed in self._pods.items()]

    def assumed_pods(self) -> list[PodInfo]:
        """Return all assumed pods. Thread-safe, because it copies the pods in one step."""
        return [placed.assumed for placed in tuple(self._pods.values()) if placed.assumed is not None]

    def pods_on(self, node: str) -> Collection[PlacedPod]:
        """Return the assumed and bound pods of the node."""
        return self._on_node.get(node, {}).values()

    def requests_below(self, priority: int) -> dict[str, IntArray]:
        """Return the requests of pods with a lower priority on each node, by resource."""
        return self.nodes.by_priority.requests_below(priority, self._pods.values())

    def what_if(self) -> WhatIf:
        return WhatIf(self.nodes)

    def node_version(self, node: str) -> int:
        """Return the node's value of `NodeTable.versions`, or 0 if the node does not exist."""
        row = self.nodes.row(node)
        return 0 if row is None else int(self.nodes.versions[row])

    def __len__(self) -> int:
        """Return the number of assumed and bound pods."""
        return len(self._pods)

    def _mark_changed(self, node: str) -> None:
        row = self.nodes.row(node)
        if row is not None:
            self._changes += 1
            self.nodes.versions[row] = self._changes

    def _update_nomination(self, info: PodInfo, node: str) -> ClusterEvent | None:
        """Return the event for a changed nominated pod."""
        if not self.nodes.nominated.update_pod(info):
            return None
        self.nodes.mark_dirty(node)
        self._mark_changed(node)
        return ClusterEvent(Change.POD_LABELS, node)

    def _end_nomination(self, node: str) -> ClusterEvent | None:
        """Return the event for the end of a nomination to a node."""
        if not node:
            return None
        self.nodes.mark_dirty(node)
        self._mark_changed(node)
        return ClusterEvent(Change.POD_FREED, node)

    def _place_pod(self, info: PodInfo, node: str) -> PlacedPod:
        self._end_nomination(self.nodes.nominated.remove_nomination(info.uid))
        placed = create_placed_pod(self.nodes, info, node)
        add_usage(self.nodes, placed)
        self._pods[info.uid] = placed
        self._on_node.setdefault(node, {})[info.uid] = placed
        self.nodes.by_priority.add_requests(placed, 1)
        self._mark_changed(node)
        return placed
