"""GpuShare: whole GPUs and shares of GPUs. It is optional.

A node has as many devices as its allocatable amount of `pinnace.io/gpu-milli` has thousands, and its label
`pinnace.io/gpu-model` names their model. A pod requests `pinnace.io/gpu-milli`: less than 1000 is a share of one device, and a
multiple of 1000 is a number of whole devices. A pod chooses models by node affinity with the label.

NodeResourcesFit compares sums. A node with two half free devices has 1000 free thousandths, but no free device; GpuShare
therefore keeps the free thousandths of every device:

    Filter   at least one device has enough for the share, or enough devices are free
    Score    the node whose free thousandths are used up most (`scoring: MostAllocated`)
    Reserve  chooses the devices. The bind writes their indexes into the pod's annotation `pinnace.io/gpu-index`, "0" or "0-3-5"

A score plugin that prefers a device stores `DEVICE_CHOICE` in the state of the cycle. Otherwise `deviceSelection` decides:
BestFit (the device with the least sufficient share), WorstFit or Random. Whole devices are chosen by their indexes.

The devices of a node follow from the annotations of its pods and from the reservations of this process, so that a new leader
knows them. A pod without a valid annotation, which another scheduler has bound, counts on the devices that BestFit chooses.

Limit: a node that this filter refuses is no candidate for preemption, because the devices that victims free are not computed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakKeyDictionary, ref
from zlib import crc32

import numpy as np

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.integers import parse_natural
from pinnace.api.resources import PODS
from pinnace.client.informer import Index
from pinnace.fit import Requests, pod_requests
from pinnace.scheduler.framework import (
    BIND_ANNOTATIONS,
    MAX_SCORE,
    SKIP,
    BoolArray,
    Change,
    ClusterEvent,
    CycleState,
    FilterResult,
    FloatArray,
    IntArray,
    NodeTable,
    PodInfo,
    Status,
)
from pinnace.scheduler.framework.profile import Preemption
from pinnace.scheduler.plugins.helper import check_names

GPU_MILLI = "pinnace.io/gpu-milli"
"""The resource: thousandths of a device."""
INDEX_ANNOTATION = "pinnace.io/gpu-index"
"""On a pod: the indexes of its devices on its node."""
MODEL_LABEL = "pinnace.io/gpu-model"
"""On a node: the model of its devices."""
WHOLE = 1000
DEVICES = "GpuShare.devices"
"""In the state of a cycle after PreFilter: the `DeviceTable`."""
DEVICE_CHOICE = "GpuShare.choice"
"""In the state of a cycle, by a score plugin: a function from the name of a node to the index of the device of a share."""
BEST, WORST, RANDOM = "BestFit", "WorstFit", "Random"
_WIDTH = 8
"""Number of device columns at first. A node with more devices widens the table."""
_REASON = "node(s) didn't have enough free GPU devices"


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """`number` devices with `milli` thousandths of each."""

    milli: int
    number: int

    @property
    def total(self) -> int:
        return self.milli * self.number


_Devices = tuple[GpuRequest, Sequence[int]]
"""A request, and the indexes of the devices."""
_NOTHING: _Devices = GpuRequest(0, 0), ()


def gpu_request(requests: Requests) -> GpuRequest | None:
    """Return the request for devices, or None. Raise ValueError for more than one device that is not a whole number."""
    amount = next((amount for resource, amount in requests.amounts if resource == GPU_MILLI), 0)
    if amount < WHOLE:
        return GpuRequest(amount, 1) if amount else None
    if amount % WHOLE:
        raise ValueError(f"{GPU_MILLI} must be less than {WHOLE} or a multiple of it")
    return GpuRequest(WHOLE, amount // WHOLE)


def parse_index(text: str, number: int) -> list[int] | None:
    """Return the indexes of an annotation with this number of different devices, or None."""
    indexes = [parse_natural(part) for part in text.split("-")]
    found = [index for index in indexes if index is not None]
    return found if len(found) == len(indexes) == number == len(set(found)) else None


class ObjectIndexes(Protocol):
    """The part of `Handle` that is used."""

    def index(self, resource: Any, by: Callable[[Any], str]) -> Index[Any]: ...
    @property
    def preemption(self) -> Preemption | None: ...


class DeviceTable:
    """The free thousandths of all devices. The rows are those of the table of nodes at the last `update`.

    Plugins read `free`, `count` and `kinds`, and must not change them.
    """

    def __init__(self, handle: ObjectIndexes) -> None:
        self._handle = handle
        self._pods = handle.index(PODS, lambda pod: str(pod.spec.nodeName))
        self._counted: dict[str, dict[str, _Devices]] = {}
        """The pods that the rows count, by node and UID. Later changes of their annotations have no effect."""
        self._reserved: dict[str, dict[str, _Devices]] = {}
        """The reservations by node and UID, until the informer has delivered the bound pod, or the pod leaves the cache."""
        self._names: list[str] = []
        self._rows: dict[str, int] = {}
        self._generation: object = None
        self._nodes: NodeTable | None = None
        self._seen: IntArray = np.zeros(0, np.int64)
        """The versions of the rows at the last update."""
        self.free: IntArray = np.zeros((0, _WIDTH), np.int64)
        """[row, device]: the free thousandths, 0 for a device that the node does not have."""
        self.count: IntArray = np.zeros(0, np.int64)
        """[row]: the number of devices."""
        self.kinds: IntArray = np.zeros((0, _WIDTH + 1), np.int64)
        """[row, n]: the number of pods with n whole devices, and for n = 0 with a share of a device."""

    def update(self, nodes: NodeTable) -> None:
        """Compute the rows that have changed since the last update."""
        if nodes.generation != self._generation or len(nodes) != len(self._names):
            self._rebuild(nodes)
        versions = nodes.versions
        for row in np.flatnonzero(versions != self._seen).tolist():
            self._update_row(row)
        self._seen = versions.copy()
        self._nodes = nodes

    def reserve_devices(self, uid: str, node: str, request: GpuRequest, indexes: Sequence[int]) -> None:
        """Reserve the devices for an assumed pod. The last `update` must be of the same cycle."""
        self._reserved.setdefault(node, {})[uid] = request, indexes
        if (row := self._rows.get(node)) is not None and self._nodes is not None:
            self._count_pod(row, uid, (request, indexes))
            self._seen[row] = self._nodes.versions[row]

    def end_reservation(self, uid: str, node: str) -> None:
        """End the reservation of a pod that will not be bound."""
        reserved = self._reserved.get(node, {})
        if reserved.pop(uid, None) is not None and (row := self._rows.get(node)) is not None:
            self._seen[row] = -1
        if not reserved:
            self._reserved.pop(node, None)

    def row_of(self, node: str) -> int | None:
        return self._rows.get(node)

    def _rebuild(self, nodes: NodeTable) -> None:
        self._generation = nodes.generation
        self._names = list(nodes.names)
        self._rows = {name: row for row, name in enumerate(self._names)}
        self.count = nodes.allocatable(GPU_MILLI) // WHOLE
        width = max(_WIDTH, int(self.count.max(initial=0)))
        self.free = np.zeros((len(self._names), width), np.int64)
        self.kinds = np.zeros((len(self._names), width + 1), np.int64)
        self.free[np.arange(width) < self.count[:, None]] = WHOLE
        self._counted.clear()
        self._seen = nodes.versions.copy()
        for row in {self._rows[name] for name in (*self._pods.keys, *self._reserved) if name in self._rows}:
            self._seen[row] = -1

    def _update_row(self, row: int) -> None:
        """Count the pods that are new on the node, and no longer count those that have left it."""
        name = self._names[row]
        pods, reserved = self._pods.under(name), self._current_reservations(name)
        counted = self._counted.get(name, {})
        if counted.keys() == pods.keys() | reserved.keys():
            return
        for uid in counted.keys() - pods.keys() - reserved.keys():
            self._add_pod(row, *counted.pop(uid), -1)
        for uid in reserved.keys() - counted.keys():
            self._count_pod(row, uid, reserved[uid])
        unplaced = {}
        for uid in pods.keys() - counted.keys() - reserved.keys():
            if (request := _request_of(pods[uid])) is None:
                self._counted.setdefault(name, {})[uid] = _NOTHING
            elif (indexes := self._indexes_of(pods[uid], request, row)) is not None:
                self._count_pod(row, uid, (request, indexes))
            else:
                unplaced[uid] = request
        for uid, request in sorted(unplaced.items()):
            chosen = select_devices(self.free[row], request, BEST, 0)
            self._count_pod(row, uid, (request, chosen or range(min(request.number, int(self.count[row])))))

    def _indexes_of(self, pod: Pod, request: GpuRequest, row: int) -> list[int] | None:
        """Return the valid devices in the annotation of a bound pod, or None."""
        indexes = parse_index(pod.metadata.annotations.get(INDEX_ANNOTATION, ""), request.number)
        return indexes if indexes is not None and max(indexes) < self.count[row] else None

    def _current_reservations(self, node: str) -> dict[str, "_Devices"]:
        """Drop the reservations of pods that the informer has delivered with their devices, or that have left the node."""
        reserved, preemption = self._reserved.get(node, {}), self._handle.preemption
        pods = self._pods.under(node) if reserved else {}
        for uid in list(reserved):
            delivered = uid in pods and INDEX_ANNOTATION in pods[uid].metadata.annotations
            if delivered or (preemption is not None and preemption.cache.node_of(uid) != node):
                del reserved[uid]
        if not reserved:
            self._reserved.pop(node, None)
        return reserved

    def _count_pod(self, row: int, uid: str, devices: "_Devices") -> None:
        self._counted.setdefault(self._names[row], {})[uid] = devices
        self._add_pod(row, *devices, 1)

    def _add_pod(self, row: int, request: GpuRequest, indexes: Sequence[int], pods: int) -> None:
        """Add (1) or remove (-1) a pod."""
        for index in indexes:
            self.free[row, index] -= pods * request.milli
        kind = request.number if request.milli == WHOLE else 0
        if request.number and kind < self.kinds.shape[1]:
            self.kinds[row, kind] += pods


def select_devices(free: IntArray, request: GpuRequest, selection: str, seed: int) -> list[int] | None:
    """Return the indexes of devices of one node for the request, or None if it does not fit. `seed` is for Random."""
    fitting = np.flatnonzero(free >= request.milli)
    if len(fitting) < request.number:
        return None
    if request.milli == WHOLE:
        return [int(index) for index in fitting[: request.number]]
    if selection == RANDOM:
        return [int(fitting[seed % len(fitting)])]
    amounts = free[fitting]
    return [int(fitting[np.argmax(amounts) if selection == WORST else np.argmin(amounts)])]


def fitting_nodes(free: IntArray, request: GpuRequest) -> BoolArray:
    """Return the rows with enough devices for the request."""
    enough: BoolArray = np.count_nonzero(free >= request.milli, axis=1) >= request.number
    return enough


def _request_of(pod: Pod) -> GpuRequest | None:
    try:
        return gpu_request(pod_requests(pod))
    except ValueError:
        return None


_TABLES: "WeakKeyDictionary[Any, ref[DeviceTable]]" = WeakKeyDictionary()
"""The profiles of one scheduler share a table. The plugins own it, because it refers to its key."""


def device_table(handle: ObjectIndexes) -> DeviceTable:
    """Return the table of the scheduler with this handle. Call it only in constructors."""
    known = _TABLES.get(handle)
    table = known() if known is not None else None
    if table is None:
        table = DeviceTable(handle)
        _TABLES[handle] = ref(table)
    return table


class GpuShare:
    name = "GpuShare"
    helped_by = Change.NODE_ADDED | Change.NODE_ALLOCATABLE | Change.POD_FREED | Change.RESERVATION_ENDED

    def __init__(self, args: Mapping[str, Any], handle: ObjectIndexes) -> None:
        complete = self.complete(args)
        self._selection = complete["deviceSelection"]
        self._devices = device_table(handle)

    @staticmethod
    def complete(args: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments with defaults. Raise ValueError."""
        check_names(args, ("deviceSelection",))
        selection = args.get("deviceSelection", BEST)
        if selection not in (BEST, WORST, RANDOM):
            raise ValueError(f"deviceSelection: expected {BEST}, {WORST} or {RANDOM}, got {selection!r}")
        return {"deviceSelection": selection}

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        devices = state[DEVICES] = self._devices
        devices.update(nodes)
        if _parse(pod) is not None:
            return None
        try:
            gpu_request(pod.requests)
        except ValueError as error:
            return Status(str(error))
        return SKIP

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
        request = _parse(pod)
        assert request is not None  # PreFilter skips other pods
        refused = ~fitting_nodes(self._devices.free, request)
        result = FilterResult.refusing(refused, _REASON)
        return FilterResult(result.passed, result.explain, unresolvable=lambda: refused)

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        self._devices.update(nodes)
        row, request = nodes.row(event.node), _parse(pod)
        return row is not None and request is not None and bool(fitting_nodes(self._devices.free[row : row + 1], request)[0])

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        request = _parse(pod)
        if request is None:
            return np.zeros(len(nodes))
        capacity = np.maximum(self._devices.count * WHOLE, 1)
        left = self._devices.free.sum(axis=1) - request.total
        return np.asarray(MAX_SCORE * np.clip(1 - left / capacity, 0, 1))

    def reserve(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        request, row = _parse(pod), self._devices.row_of(node)
        if request is None:
            return SKIP
        if row is None:
            return Status(_REASON)
        free, choose = self._devices.free[row], state.get(DEVICE_CHOICE)
        preferred = choose(node) if choose is not None and request.milli < WHOLE else None
        if preferred is not None and free[preferred] >= request.milli:
            indexes: list[int] | None = [preferred]
        else:
            indexes = select_devices(free, request, self._selection, crc32(pod.uid.encode(), 1))
        if indexes is None:
            return Status(_REASON)
        self._devices.reserve_devices(pod.uid, node, request, indexes)
        state.setdefault(BIND_ANNOTATIONS, {})[INDEX_ANNOTATION] = "-".join(map(str, indexes))
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node: str) -> None:
        self._devices.end_reservation(pod.uid, node)


def _parse(pod: PodInfo) -> GpuRequest | None:
    """Return the request of a pod, or None if there is none or it is invalid."""
    if GpuRequest not in pod.parsed:
        try:
            pod.parsed[GpuRequest] = gpu_request(pod.requests)
        except ValueError:
            pod.parsed[GpuRequest] = None
    request: GpuRequest | None = pod.parsed[GpuRequest]
    return request
