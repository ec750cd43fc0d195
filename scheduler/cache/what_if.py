"""Hypothetical tables: with pods removed or added, without some pods of one node, or with one more pod on every node.

    with cache.what_if() as what_if:
        what_if.lift(pod)
        ... run any filter ...

`WhatIf` changes the table and restores it on exit, also after an exception. Its cost is proportional to the number of moved
pods. During its use nothing else may write to the cache, and hypotheses cannot be nested.

`Freed` is a table of one row without some pods, for filters that read only resources. It is cheaper because it changes nothing.
"""

from types import TracebackType
from typing import Self

from pinnace.fit import Requests
from pinnace.fit.table import IntArray
from pinnace.scheduler.cache.pod_info import PlacedPod, PodInfo, start_time
from pinnace.scheduler.cache.table import SCORED, FloatArray, NodeTable, SomeNodes


class WhatIf:
    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._lifted: dict[str, PlacedPod] = {}
        self._added: list[PlacedPod] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.clear()
        for pod in list(self._lifted.values()):
            self.put_back(pod)

    def lift(self, pod: PlacedPod) -> None:
        """Remove the pod. Its node must be in the table."""
        self._lifted[pod.uid] = pod
        self._nodes.pods.lift(pod.group, pod.node)
        uncount(self._nodes, pod)

    def put_back(self, pod: PlacedPod) -> None:
        del self._lifted[pod.uid]
        self._nodes.pods.put_back(pod.group, pod.node)
        count(self._nodes, pod)

    def add(self, info: PodInfo, node: str) -> None:
        """Add the pod to the node, which must be in the table."""
        pod = place(self._nodes, info, node)
        count(self._nodes, pod)
        self._added.append(pod)

    def clear(self) -> None:
        """Undo every `add`."""
        while self._added:
            pod = self._added.pop()
            uncount(self._nodes, pod)
            self._nodes.pods.remove(pod.group, pod.node)


def place(nodes: NodeTable, info: PodInfo, node: str) -> PlacedPod:
    """Create a placed pod and add it to its group. The caller then calls `count` for its resources."""
    group = nodes.pods.place(info.raw, node, info.identity, lambda _: info.terms)
    return PlacedPod(info.uid, info.key, info.priority, info.requests, node, group, info.volumes, start_time(info.raw))


def count(nodes: NodeTable, pod: PlacedPod) -> None:
    """Mark the ports, volumes and resources of the pod as used."""
    if pod.requests.ports:
        nodes.used_ports.add(pod.node, pod.requests.ports)
    if pod.volumes is not None:
        nodes.used_volumes.add(pod.node, pod.volumes)
    if nodes.row(pod.node) is not None:
        nodes.occupy(pod.node, pod.requests)


def uncount(nodes: NodeTable, pod: PlacedPod) -> None:
    """Undo a `count`."""
    if pod.requests.ports:
        nodes.used_ports.remove(pod.node, pod.requests.ports)
    if pod.volumes is not None:
        nodes.used_volumes.remove(pod.node, pod.volumes)
    if nodes.row(pod.node) is not None:
        nodes.release(pod.node, pod.requests)


class Freed(SomeNodes):
    """A table of one row from which pods can be removed. It is valid until the table changes."""

    def __init__(self, nodes: NodeTable, row: int) -> None:
        super().__init__(nodes, slice(row, row + 1))
        self._before: dict[str, int] = {}
        self._freed: dict[str, int] = {}
        self._scored = [0] * len(SCORED)

    def lift(self, pod: PlacedPod) -> None:
        """Remove a pod of the node."""
        self._add(pod.requests, 1)

    def put_back(self, pod: PlacedPod) -> None:
        self._add(pod.requests, -1)

    def free(self, resource: str) -> IntArray:
        return super().free(resource) + self._freed.get(resource, 0)

    def free_at(self, row: int, resource: str) -> int:
        before = self._before.get(resource)
        if before is None:
            before = self._before[resource] = super().free_at(row, resource)
        return before + self._freed.get(resource, 0)

    def slack(self, scored: int) -> FloatArray:
        return super().slack(scored) + self._scored[scored]

    def _add(self, requests: Requests, pods: int) -> None:
        for resource, amount in requests.amounts:
            self._freed[resource] = self._freed.get(resource, 0) + pods * amount
        for scored, amount in enumerate(requests.scored):
            self._scored[scored] += pods * amount


class OneMore(NodeTable):
    """The table with one more pod on every node. Only `free` and `slack` differ. It is valid until the table changes."""

    def __init__(self, nodes: NodeTable, requests: Requests) -> None:
        self.__dict__.update(nodes.__dict__)
        self._nodes = nodes
        self._requests = requests
        self._added = dict(requests.amounts)

    def free(self, resource: str) -> IntArray:
        return self._nodes.free(resource) - self._added.get(resource, 0)

    def slack(self, scored: int) -> FloatArray:
        return self._nodes.slack(scored) - self._requests.scored[scored]
