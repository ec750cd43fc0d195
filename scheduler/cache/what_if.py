"""What if these pods were gone, or those were there? The table answers as if it were so, for as long as the question is open.

    with cache.what_if() as what_if:
        what_if.lift(pod)
        ... ask any filter ...

At the end everything is as before, whatever happens in between. It costs what it costs to count the pods that are moved.
Nothing else may be written to the cache meanwhile, and no question may be asked within a question.
"""

from types import TracebackType
from typing import Self

from scheduler.cache.placed_pod import PlacedPod, start_time
from scheduler.cache.pod_info import PodInfo
from scheduler.cache.table import NodeTable


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
        """As if the pod were gone. Its node must be in the table."""
        self._lifted[pod.uid] = pod
        self._nodes.pods.lift(pod.group, pod.node)
        uncount(self._nodes, pod)

    def put_back(self, pod: PlacedPod) -> None:
        del self._lifted[pod.uid]
        self._nodes.pods.put_back(pod.group, pod.node)
        count(self._nodes, pod)

    def add(self, info: PodInfo, node: str) -> None:
        """As if the pod were on the node, which must be in the table."""
        pod = place(self._nodes, info, node)
        count(self._nodes, pod)
        self._added.append(pod)

    def clear(self) -> None:
        """Takes back every `add`."""
        while self._added:
            pod = self._added.pop()
            uncount(self._nodes, pod)
            self._nodes.pods.remove(pod.group, pod.node)


def place(nodes: NodeTable, info: PodInfo, node: str) -> PlacedPod:
    """A pod that takes room on a node: its group knows of it, `count` does the rest."""
    group = nodes.pods.place(info.raw, node, info.identity, lambda _: info.terms)
    return PlacedPod(info.uid, info.key, info.priority, info.requests, node, group, info.volumes, start_time(info.raw))


def count(nodes: NodeTable, pod: PlacedPod) -> None:
    """What the pod uses is not free."""
    if pod.requests.ports:
        nodes.used_ports.add(pod.node, pod.requests.ports)
    if pod.volumes is not None:
        nodes.used_volumes.add(pod.node, pod.volumes)
    if nodes.row(pod.node) is not None:
        nodes.occupy(pod.node, pod.requests)


def uncount(nodes: NodeTable, pod: PlacedPod) -> None:
    """Takes back a `count`."""
    if pod.requests.ports:
        nodes.used_ports.remove(pod.node, pod.requests.ports)
    if pod.volumes is not None:
        nodes.used_volumes.remove(pod.node, pod.volumes)
    if nodes.row(pod.node) is not None:
        nodes.release(pod.node, pod.requests)
