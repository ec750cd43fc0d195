"""Parsed pods, placed pods, nominated pods, and resource sums by priority.

A nominated pod waits for its victims to leave a node. Its resources there are reserved against pods of the same or a lower
priority until it is placed, deleted or nominated elsewhere. Pods of a higher priority may use them, and the nominated pod must
still pass all filters.

`PrioritySums` has columns with the requests per node of all pods below a priority. The columns of a priority are built on first
use and updated with every pod. The least recently used columns are evicted.
"""

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.pods import Tolerations
from pinnace.api.wire import read_only
from pinnace.fit import Requests, pod_requests
from pinnace.fit.requests import container_requests
from pinnace.fit.table import IntArray
from pinnace.scheduler.cache.columns import Column, PodVolumes, pod_volumes
from pinnace.scheduler.cache.pod_index import AffinityTerm, PodGroup, identity_of, pod_terms

NOT_STARTED = math.inf
_THRESHOLDS = 16


class PodInfo:
    """One version of a pod.

    `raw` is the informer's object, for trusted code only: reading a missing map key inserts it. Other code uses `pod`.
    """

    def __init__(self, pod: Pod) -> None:
        metadata = pod.metadata
        self.raw = pod
        self.uid = metadata.uid
        self.namespace = metadata.namespace
        self.name = metadata.name
        self.priority = pod.spec.priority

    @cached_property
    def parsed(self) -> dict[Hashable, Any]:
        """Data that plugins have parsed from this version of the pod, by keys of their own."""
        return {}

    @cached_property
    def requests(self) -> Requests:
        """The pod's requests, computed on first use because a pod can have thousands of containers."""
        return pod_requests(self.raw, self.template)

    @cached_property
    def container_requests(self) -> Requests:
        """The requests without those of the pod as a whole (spec.resources), which NodeResourcesFit scores."""
        return container_requests(self.raw.spec) if self.raw.spec.HasField("resources") else self.requests

    @cached_property
    def pod(self) -> Pod:
        """The read-only pod."""
        return read_only(self.raw)

    @property
    def key(self) -> str:
        """The informer key, "namespace/name"."""
        return f"{self.namespace}/{self.name}"

    @cached_property
    def volumes(self) -> PodVolumes | None:
        """The claims and disks of the pod, or None."""
        return pod_volumes(self.raw) if len(self.raw.spec.volumes) else None

    @cached_property
    def tolerations(self) -> Tolerations:
        return Tolerations(self.raw.spec.tolerations)

    @cached_property
    def template(self) -> bytes:
        """Equal for pods that no plugin can distinguish by their spec."""
        return self.raw.spec.SerializeToString()

    @cached_property
    def identity(self) -> Hashable:
        """Equal for pods that no selector can distinguish and that have the same terms."""
        return identity_of(self.raw)

    @cached_property
    def terms(self) -> tuple[AffinityTerm, ...]:
        """The pod's affinity and anti-affinity terms."""
        return pod_terms(self.raw)


def pod_start_time(pod: Pod) -> float:
    """Return the start time from the kubelet in Unix seconds, or NOT_STARTED if it is not reported."""
    status = pod.status
    return status.startTime.seconds + status.startTime.nanos / 1e9 if status.HasField("startTime") else NOT_STARTED


@dataclass(slots=True, eq=False)
class PlacedPod:
    uid: str
    key: str
    """The informer key, "namespace/name"."""
    priority: int
    requests: Requests
    node: str
    group: PodGroup
    volumes: PodVolumes | None
    started: float
    """The result of `pod_start_time`."""
    assumed: PodInfo | None = None
    """The pod while it is assumed, otherwise None."""


@dataclass(frozen=True, slots=True, eq=False)
class Nomination:
    info: PodInfo
    node: str

    @property
    def priority(self) -> int:
        """The negated priority, because the sums count pods below a value."""
        return -self.info.priority

    @property
    def requests(self) -> Requests:
        return self.info.requests


class Nominations:
    def __init__(self, rows: Mapping[str, int]) -> None:
        """`rows` is the live map of node names to rows of the table."""
        self._rows = rows
        self._pods: dict[str, Nomination] = {}
        self._on_node: dict[str, dict[str, Nomination]] = {}
        self._sums = PrioritySums(rows)

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[PodInfo]:
        return (pod.info for pod in self._pods.values())

    def node_of(self, uid: str) -> str:
        """Return the nominated node, or an empty string."""
        pod = self._pods.get(uid)
        return pod.node if pod is not None else ""

    def pods_on(self, node: str) -> Sequence[PodInfo]:
        """Return the pods that are nominated to a node."""
        return [nomination.info for nomination in self._on_node.get(node, {}).values()]

    def nominated_pods_with_precedence(self, pod: PodInfo, node: str) -> Sequence[PodInfo]:
        """Return the nominated pods on the node that have precedence over this pod."""
        if node not in self._on_node:
            return ()
        return [pod_info for pod_info in self.pods_on(node) if pod_info.priority >= pod.priority and pod_info.uid != pod.uid]

    def reserved_against(self, priority: int) -> dict[str, IntArray]:
        """Return the reserved amounts on each node against pods of a priority, by resource."""
        return self._sums.requests_below(1 - priority, self._pods.values()) if self._pods else {}

    def own_reservation(self, uid: str, priority: int) -> tuple[int, Requests] | None:
        """Return the row and the amounts that are reserved for this pod itself, or None.

        They are part of the amounts that `reserved_against` returns for its priority.
        """
        own = self._pods.get(uid)
        row = self._rows.get(own.node) if own is not None else None
        return (row, own.requests) if own is not None and row is not None and own.info.priority >= priority else None

    def set_nomination(self, info: PodInfo, node: str) -> None:
        self.remove_nomination(info.uid)
        nomination = self._pods[info.uid] = Nomination(info, node)
        self._on_node.setdefault(node, {})[info.uid] = nomination
        self._sums.add_requests(nomination, 1)

    def update_pod(self, info: PodInfo) -> bool:
        """Update a nominated pod. Return False if the change does not affect other pods."""
        pod = self._pods.get(info.uid)
        if pod is None or pod.info.identity == info.identity:
            return False
        self.set_nomination(info, pod.node)
        return True

    def remove_nomination(self, uid: str) -> str:
        """End a nomination. Return its node, or an empty string if there was none."""
        nomination = self._pods.pop(uid, None)
        if nomination is None:
            return ""
        pods = self._on_node[nomination.node]
        del pods[uid]
        if not pods:
            del self._on_node[nomination.node]
        self._sums.add_requests(nomination, -1)
        return nomination.node

    def add_row(self, name: str) -> None:
        """Append a row to the table."""
        self._sums.add_row()
        for nomination in self._on_node.get(name, {}).values():
            self._sums.add_requests(nomination, 1)

    def remove_row(self, row: int) -> None:
        """Remove a row. The last row takes its place."""
        self._sums.remove_row(row)


class HasRequests(Protocol):
    @property
    def node(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def requests(self) -> Requests: ...


class PrioritySums:
    def __init__(self, rows: Mapping[str, int]) -> None:
        """`rows` is the live map of node names to rows of the table."""
        self._rows = rows
        self._sums: dict[int, dict[str, Column]] = {}
        """Columns by priority and resource, the least recently used first."""

    def requests_below(self, priority: int, pods: Iterable[HasRequests]) -> dict[str, IntArray]:
        """Return the requests of pods with a lower priority on each node, by resource. `pods` has all pods and is read only on
        first use."""
        sums = self._sums.pop(priority, None)
        if sums is None:
            if len(self._sums) == _THRESHOLDS:
                del self._sums[next(iter(self._sums))]
            sums = self._sum_requests(pod for pod in pods if pod.priority < priority)
        self._sums[priority] = sums
        return {resource: column.array for resource, column in sums.items()}

    def add_requests(self, pod: HasRequests, pods: int) -> None:
        """Add (1) or remove (-1) a pod. Pods on nodes outside the table are ignored."""
        row = self._rows.get(pod.node) if self._sums else None
        if row is not None:
            for priority, sums in self._sums.items():
                if pod.priority < priority:
                    for resource, amount in pod.requests.amounts:
                        column = sums.get(resource)
                        if column is None:
                            column = sums[resource] = Column(np.int64, rows=len(self._rows))
                        column.array[row] += pods * amount

    def add_row(self) -> None:
        """Append a row without pods to the table."""
        for sums in self._sums.values():
            for column in sums.values():
                column.append(0)

    def remove_row(self, row: int) -> None:
        """Remove a row. The last row takes its place."""
        for sums in self._sums.values():
            for column in sums.values():
                column.remove(row)

    def _sum_requests(self, pods: Iterable[HasRequests]) -> dict[str, Column]:
        result: dict[str, tuple[list[int], list[int]]] = {}
        for pod in pods:
            row = self._rows.get(pod.node)
            if row is not None:
                for resource, amount in pod.requests.amounts:
                    rows, amounts = result.setdefault(resource, ([], []))
                    rows.append(row)
                    amounts.append(amount)
        sums = {}
        for resource, (rows, amounts) in result.items():
            sums[resource] = Column(np.int64, rows=len(self._rows))
            np.add.at(sums[resource].array, rows, amounts)
        return sums
