"""NodeVolumeLimits: a node can have so many volumes of each CSI driver attached, as its CSINode says.

A claim is a volume: it counts once on a node, however many pods there use it. Its driver is that of its volume, or before it
has one, its class's provisioner, which need not be the same: a class without a provisioner has volumes of any driver. In-tree
sources are not counted.
"""

from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from pinnace.api.resources import CSI_NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES
from pinnace.api.storage_v1_pb2 import CSINode
from pinnace.api.storageclass import class_of
from scheduler.framework import SKIP, Change, ClusterEvent, CycleState, FilterResult, NodeTable, PodInfo, Sees, Status
from scheduler.plugins.claims import Volumes, claims_of, is_about_claims
from scheduler.plugins.listers import Objects

REASON = "node(s) exceed max volume count"
NO_LIMIT = np.iinfo(np.int32).max
Counts = NDArray[np.int64]


class NodeVolumeLimits:
    name = "NodeVolumeLimits"
    skip_sees = Sees.NODES
    needs = (CSI_NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES)
    helped_by = Change.NODE_ADDED | Change.POD_FREED | Change.OBJECT

    def __init__(self, handle: Objects) -> None:
        self._objects = Volumes(handle)
        self._csi_nodes: Mapping[str, CSINode] = handle.objects(CSI_NODES)
        self._ledger = _Ledger(self._driver, self._has_volume)

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        return None if any(self._driver(key) for key in claims_of(pod)) else SKIP

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
        self._ledger.follow(nodes, self._csi_nodes)
        refused = np.zeros(len(nodes), np.bool_)
        wanted: dict[str, list[str]] = {}
        for key in claims_of(pod):
            if driver := self._driver(key):
                wanted.setdefault(driver, []).append(key)
        for driver, keys in wanted.items():
            limit = self._ledger.limits(driver)
            if limit is not None:
                more = np.full(len(nodes), len(keys))
                for key in keys:
                    more[nodes.rows(nodes.used_volumes.users(key))] -= 1
                refused |= (more > 0) & (self._ledger.attached(driver) + more > limit)
        return FilterResult.refusing(refused, REASON)

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        """A pod that leaves without volumes leaves the node with as many."""
        if event.change & Change.POD_FREED:
            return bool(event.change & Change.VOLUMES_FREED)
        is_limit = event.resource == CSI_NODES.plural
        return Change.OBJECT not in event.change or is_limit or is_about_claims(event, pod)

    def _driver(self, key: str) -> str | None:
        """The driver of a claim; empty for a volume of no CSI driver. None: it is not known yet."""
        claim = self._objects.claims.get(key)
        if claim is None:
            return None
        volume = self._objects.volume_of(claim)
        if volume is not None:
            return volume.spec.persistentVolumeSource.csi.driver
        storage_class = self._objects.classes.get(class_of(claim))
        return storage_class.provisioner if storage_class is not None else None

    def _has_volume(self, key: str) -> bool:
        """Then the driver of the claim stays what it is."""
        claim = self._objects.claims.get(key)
        return claim is not None and self._objects.volume_of(claim) is not None


class _Ledger:
    """Columns by driver: what is attached to each node, and its limit. They follow what has changed since they were last asked
    for, at a cost of the claims on the nodes that changed; and in a new epoch, of a look at each node's CSINode."""

    def __init__(self, driver: Callable[[str], str | None], has_volume: Callable[[str], bool]) -> None:
        self._driver = driver
        self._has_volume = has_volume
        self._names: list[str] = []
        self._position = 0
        self._epoch: tuple[int, int] | None = None
        self._csi_nodes: list[CSINode | None] = []
        self._limits: dict[str, Counts] = {}
        self._attached: dict[str, Counts] = {}
        self._open: set[str] = set()
        """Nodes with a claim that had no volume when they were counted: its driver may be another one once it has. They are
        counted again each time; no more than those whose pods have not begun, as a pod only runs with its volumes."""

    def limits(self, driver: str) -> Counts | None:
        """None: no node limits it."""
        return self._limits.get(driver)

    def attached(self, driver: str) -> Counts:
        return self._attached.get(driver, np.zeros(len(self._names), np.int64))

    def follow(self, nodes: NodeTable, csi_nodes: Mapping[str, CSINode]) -> None:
        used = nodes.used_volumes
        changed = used.changes(self._position)
        if self._names != nodes.names or changed is None:
            self._names = list(nodes.names)
            self._csi_nodes = [None] * len(nodes)
            self._limits, self._attached, self._open, self._epoch = {}, {}, set(), None
            changed = list(used.nodes_with_claims())
        self._position = used.position
        for node in {*changed, *self._open}:
            self._recount(node, nodes)
        if nodes.epoch != self._epoch:
            self._epoch = nodes.epoch
            self._follow_limits(csi_nodes)

    def _follow_limits(self, csi_nodes: Mapping[str, CSINode]) -> None:
        current = list(map(csi_nodes.get, self._names))
        if current != self._csi_nodes:
            for row, (old, new) in enumerate(zip(self._csi_nodes, current, strict=True)):
                if old is not new:
                    self._limit(row, new)
            self._csi_nodes = current

    def _recount(self, node: str, nodes: NodeTable) -> None:
        row = nodes.row(node)
        if row is None:
            return
        claims = nodes.used_volumes.claims(node)
        if all(map(self._has_volume, claims)):
            self._open.discard(node)
        else:
            self._open.add(node)
        counts = Counter(driver for driver in map(self._driver, claims) if driver)
        for driver in counts.keys() - self._attached.keys():
            self._attached[driver] = np.zeros(len(self._names), np.int64)
        for driver, column in self._attached.items():
            column[row] = counts[driver]

    def _limit(self, row: int, csi_node: CSINode | None) -> None:
        for column in self._limits.values():
            column[row] = NO_LIMIT
        for driver in csi_node.spec.drivers if csi_node is not None else ():
            if driver.allocatable.HasField("count"):
                if driver.name not in self._limits:
                    self._limits[driver.name] = np.full(len(self._names), NO_LIMIT, np.int64)
                self._limits[driver.name][row] = driver.allocatable.count
