"""The scheduler's cache: nodes, and the pods that take room on them, assumed ones included.

The life of one pod, by uid:

                     observe (it is bound)
       +--------------------------------------------+
       |                                            v
    absent ---- assume ---> ASSUMED --- confirm ---> BOUND
       ^                       |      (or observe)     |
       |        forget         |                       |
       +-----------------------+                       |
       |                remove |                remove |   deleted, or finished
       +-----------------------+-----------------------+

* An assumed pod takes room at once, so that the next decision counts it.
* `confirm` and `observe` are the informer seeing the pod on a node, whoever bound it. That wins over an assumption: a pod
  assumed on one node and observed on another is moved. It may come before the bind's answer, after it, or twice.
* Only `confirm`, `observe`, `forget` and `remove` end an assumption; no timer does. A bind whose answer was lost may still have
  happened: forgetting it would hand out its room twice (kubernetes#106361). The binder finds out, and then calls `forget`.
* `forget` undoes an assumption and nothing else: when the informer was faster it does nothing.
* Pods may be seen before their node, and stay when it goes: they count again when it comes back.
* A nomination ends when the pod takes room, wherever that is, or is gone.
"""

from collections.abc import Collection

from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.fit.table import IntArray
from scheduler.cache.changes import Change, ClusterEvent, between
from scheduler.cache.placed_pod import PlacedPod
from scheduler.cache.pod_info import PodInfo
from scheduler.cache.table import NodeTable
from scheduler.cache.what_if import WhatIf, count, place, uncount


class Cache:
    """Methods that can help a waiting pod return the ClusterEvent that says how."""

    def __init__(self) -> None:
        self.nodes = NodeTable()
        self._pods: dict[str, PlacedPod] = {}
        self._on_node: dict[str, dict[str, PlacedPod]] = {}
        self._changes = 0

    def set_node(self, node: Node) -> ClusterEvent:
        """A node as it is now, new or not."""
        name = node.metadata.name
        row = self.nodes.row(name)
        if row is None:
            pods = self._on_node.get(name, {}).values()
            self.nodes.add(node, [placed.requests for placed in pods], [placed.group for placed in pods])
            for placed in pods:
                self.nodes.by_priority.count(placed, 1)
            self._changed(name)
            return ClusterEvent(Change.NODE_ADDED, name)
        event = ClusterEvent(between(self.nodes.raw[row], node), name)
        self.nodes.update(node)
        self._changed(name)
        return event

    def remove_node(self, name: str) -> ClusterEvent | None:
        if self.nodes.row(name) is None:
            return None
        self.nodes.remove(name)
        return ClusterEvent(Change.NODE_REMOVED, name)

    def assume(self, info: PodInfo, node: str) -> None:
        """The pod was decided to go to `node`. It must be absent: to decide twice is a bug (kubernetes#26043)."""
        if info.uid in self._pods:
            raise ValueError(f'pod "{info.key}" is in the cache already, it cannot be assumed')
        self._place(info, node).assumed = info

    def confirm(self, uid: str, node: str) -> bool:
        """The pod is bound to `node`. False: that is news, `observe` it."""
        placed = self._pods.get(uid)
        if placed is None or placed.node != node:
            return False
        placed.assumed = None
        return True

    def observe(self, info: PodInfo, node: str) -> ClusterEvent | None:
        """The pod is bound to `node`, whatever was thought of it before."""
        if self.confirm(info.uid, node):
            return None
        moved = self.remove(info.uid)
        change = Change.POD_PLACED if moved is None else Change.POD_PLACED | moved.change
        return ClusterEvent(change, node if moved is None else moved.node, self._place(info, node).group)

    def placed(self, uid: str) -> ClusterEvent:
        """What to tell when an assumption has come true. The pod must be in the cache, as for `relabel`."""
        placed = self._pods[uid]
        return ClusterEvent(Change.POD_PLACED, placed.node, placed.group)

    def relabel(self, pod: Pod) -> ClusterEvent:
        """The pod has other labels than before, or is being deleted."""
        placed = self._pods[pod.metadata.uid]
        was = placed.group
        self.nodes.pods.remove(was, placed.node)
        placed.group = self.nodes.pods.place(pod, placed.node)
        self.nodes.touch(placed.node)
        self._changed(placed.node)
        return ClusterEvent(Change.POD_LABELS, placed.node, placed.group, was)

    def resize(self, info: PodInfo) -> ClusterEvent | None:
        """The pod, which is in the cache, may ask for other resources than before. None: it asks for no less of any."""
        placed = self._pods[info.uid]
        before, after = placed.requests, info.requests
        if after == before:
            return None
        uncount(self.nodes, placed)
        self.nodes.by_priority.count(placed, -1)
        placed.requests = after
        count(self.nodes, placed)
        self.nodes.by_priority.count(placed, 1)
        self._changed(placed.node)
        amounts = dict(after.amounts)
        if all(amounts.get(resource, 0) >= amount for resource, amount in before.amounts):
            return None
        return ClusterEvent(Change.POD_FREED, placed.node, placed.group)

    def started(self, uid: str, seconds: float) -> None:
        """The pod's kubelet has begun with it."""
        placed = self._pods.get(uid)
        if placed is not None:
            placed.started = seconds
            self._changed(placed.node)

    def nominate(self, info: PodInfo, node: str) -> ClusterEvent | None:
        """Keeps room for the pod, as it is now, on `node`, and nowhere else any more; empty: nowhere at all."""
        before = self.nodes.nominated.node_of(info.uid)
        if before == node:
            return self._renewed(info, node)
        self.nodes.nominated.drop(info.uid)
        if node:
            self.nodes.nominated.set(info, node)
            self.nodes.touch(node)
            self._changed(node)
        return self._ended(before)

    def forget(self, uid: str) -> ClusterEvent | None:
        """The bind of an assumed pod did not happen and will not. None: it was not assumed (any more)."""
        return self.remove(uid) if self.is_assumed(uid) else None

    def remove(self, uid: str) -> ClusterEvent | None:
        """The pod is gone or has finished. None: it took no room, and none was kept for it."""
        ended = self._ended(self.nodes.nominated.drop(uid))
        placed = self._pods.pop(uid, None)
        if placed is None:
            return ended
        pods = self._on_node[placed.node]
        del pods[uid]
        if not pods:
            del self._on_node[placed.node]
        uncount(self.nodes, placed)
        self.nodes.pods.remove(placed.group, placed.node)
        self.nodes.by_priority.count(placed, -1)
        self._changed(placed.node)
        change = Change.POD_FREED if placed.volumes is None else Change.POD_FREED | Change.VOLUMES_FREED
        return ClusterEvent(change, placed.node, placed.group)

    def node_of(self, uid: str) -> str | None:
        """Where the pod takes room, assumed or bound."""
        placed = self._pods.get(uid)
        return placed.node if placed is not None else None

    def is_assumed(self, uid: str) -> bool:
        placed = self._pods.get(uid)
        return placed is not None and placed.assumed is not None

    def taken(self) -> list[tuple[str, str, tuple[tuple[str, int], ...]]]:
        """(uid, node, amounts requested) of all pods that take room."""
        return [(uid, placed.node, placed.requests.amounts) for uid, placed in self._pods.items()]

    def assumed(self) -> list[PodInfo]:
        """All assumed pods. It may be asked from another thread: the copy is made in one step."""
        return [placed.assumed for placed in tuple(self._pods.values()) if placed.assumed is not None]

    def pods_on(self, node: str) -> Collection[PlacedPod]:
        """Those that take room there."""
        return self._on_node.get(node, {}).values()

    def below(self, priority: int) -> dict[str, IntArray]:
        """By resource, what pods of a lower priority take up on each node."""
        return self.nodes.by_priority.below(priority, self._pods.values())

    def what_if(self) -> WhatIf:
        return WhatIf(self.nodes)

    def version(self, node: str) -> int:
        """As `NodeTable.versions`; 0 where there is no such node."""
        row = self.nodes.row(node)
        return 0 if row is None else int(self.nodes.versions[row])

    def __len__(self) -> int:
        """Pods that take room."""
        return len(self._pods)

    def _changed(self, node: str) -> None:
        row = self.nodes.row(node)
        if row is not None:
            self._changes += 1
            self.nodes.versions[row] = self._changes

    def _renewed(self, info: PodInfo, node: str) -> ClusterEvent | None:
        """What to tell when a nominated pod is not what it was."""
        if not self.nodes.nominated.renew(info):
            return None
        self.nodes.touch(node)
        self._changed(node)
        return ClusterEvent(Change.POD_LABELS, node)

    def _ended(self, node: str) -> ClusterEvent | None:
        """What to tell when room is not kept any more on a node."""
        if not node:
            return None
        self.nodes.touch(node)
        self._changed(node)
        return ClusterEvent(Change.POD_FREED, node)

    def _place(self, info: PodInfo, node: str) -> PlacedPod:
        self._ended(self.nodes.nominated.drop(info.uid))
        placed = place(self.nodes, info, node)
        count(self.nodes, placed)
        self._pods[info.uid] = placed
        self._on_node.setdefault(node, {})[info.uid] = placed
        self.nodes.by_priority.count(placed, 1)
        self._changed(node)
        return placed
