"""Hypothetical tables: with pods removed or added, without some pods of one node, or with one more pod on every node.

    with cache.what_if() as what_if:
        what_if.lift(pod)
        ... run any filter ...

`WhatIf` changes the table and restores it on exit, also after an exception. Its cost is proportional to the number of moved
pods. During its use nothing else may write to the cache, and hypotheses cannot be nested.

`NodeWithPodsRemoved` is a table of one row without some pods, for filters that read only resources. It is cheaper because it
changes nothing.
"""

from types import TracebackType
from typing import Self

from pinnace.fit import Requests
from pinnace.fit.table import IntArray
from pinnace.scheduler.cache.pod_info import PlacedPod, PodInfo, pod_start_time
from pinnace.scheduler.cache.table import SCORED, FloatArray, NodeTable, SomeNodes


class WhatIf:
    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._lifted: dict[str, PlacedPod] = {}
        self._added: list[PlacedPod] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.undo_adds()
        for pod in list(self._lifted.values()):
            self.restore_pod(pod)

    def remove_pod(self, pod: PlacedPod) -> None:
        """Remove the pod. Its node must be in the table."""
        self._lifted[pod.uid] = pod
        self._nodes.pods.exclude_pod(pod.group, pod.node)
        remove_usage(self._nodes, pod)

    def restore_pod(self, pod: PlacedPod) -> None:
        del self._lifted[pod.uid]
        self._nodes.pods.include_pod(pod.group, pod.node)
        add_usage(self._nodes, pod)

    def add_pod(self, info: PodInfo, node: str) -> None:
        """Add the pod to the node, which must be in the table."""
        pod = create_placed_pod(self._nodes, info, node)
        add_usage(self._nodes, pod)
        self._added.append(pod)

    def undo_adds(self) -> None:
        """Undo every `add_pod`."""
        while self._added:
            pod = self._added.pop()
            remove_usage(self._nodes, pod)
            self._nodes.pods.remove_pod(pod.group, pod.node)


def create_placed_pod(nodes: NodeTable, info: PodInfo, node: str) -> PlacedPod:
    """Create a placed pod and add it to its group. The caller then calls `add_usage` for its resources."""
    group = nodes.pods.add_pod(info.raw, node, info.identity, lambda _: info.terms)
    return PlacedPod(info.uid, info.key, info.priority, info.requests, node, group, info.volumes, pod_start_time(info.raw))


def add_usage(nodes: NodeTable, pod: PlacedPod) -> None:
    """Mark the ports, volumes and resources of the pod as used."""
    if pod.requests.ports:
        nodes.used_ports.add(pod.node, pod.requests.ports)
    if pod.volumes is not None:
        nodes.used_volumes.add(pod.node, pod.volumes)
    if nodes.row(pod.node) is not None:
        nodes.add_requests(pod.node, pod.requests)


def remove_usage(nodes: NodeTable, pod: PlacedPod) -> None:
    """Undo an `add_usage`."""
    if pod.requests.ports:
        nodes.used_ports.remove(pod.node, pod.requests.ports)
    if pod.volumes is not None:
        nodes.used_volumes.remove(pod.node, pod.volumes)
    if nodes.row(pod.node) is not None:
        nodes.remove_requests(pod.node, pod.requests)


class NodeWithPodsRemoved(SomeNodes):
    """A table of one row from which pods can be removed. It is valid until the table changes."""

    def __init__(self, nodes: NodeTable, row: int) -> None:
        super().__init__(nodes, slice(row, row + 1))
        self._before: dict[str, int] = {}
        self._freed: dict[str, int] = {}
        self._scored = [0] * len(SCORED)

    def remove_pod(self, pod: PlacedPod) -> None:
        """Remove a pod of the node."""
        self._add(pod.requests, 1)

    def restore_pod(self, pod: PlacedPod) -> None:
        self._add(pod.requests, -1)

    def free(self, resource: str) -> IntArray:
        return super().free(resource) + self._freed.get(resource, 0)

    def free_at(self, row: int, resource: str) -> int:
        before = self._before.get(resource)
        if before is None:
            before = self._before[resource] = super().free_at(row, resource)
        return before + self._freed.get(resource, 0)

    def free_for_scoring(self, scored: int) -> FloatArray:
        return super().free_for_scoring(scored) + self._scored[scored]

    def _add(self, requests: Requests, pods: int) -> None:
        for resource, amount in requests.amounts:
            self._freed[resource] = self._freed.get(resource, 0) + pods * amount
        for scored, amount in enumerate(requests.scored):
            self._scored[scored] += pods * amount


class TableWithOneMorePod(NodeTable):
    """The table with one more pod on every node. Only `free` and `free_for_scoring` differ. It is valid until the table
    changes."""

    def __init__(self, nodes: NodeTable, requests: Requests) -> None:
        self.__dict__.update(nodes.__dict__)
        self._nodes = nodes
        self._requests = requests
        self._added = dict(requests.amounts)

    def free(self, resource: str) -> IntArray:
        return self._nodes.free(resource) - self._added.get(resource, 0)

    def free_for_scoring(self, scored: int) -> FloatArray:
        return self._nodes.free_for_scoring(scored) - self._requests.scored[scored]
