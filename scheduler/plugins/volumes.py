"""VolumeRestrictions, VolumeZone and NodeVolumeLimits, and the lookup of a pod's claims for all volume plugins.

VolumeRestrictions refuses a node where another pod uses the same disk or ReadWriteOncePod claim. VolumeZone requires the zone
labels of the volume. NodeVolumeLimits compares the number of volumes per CSI driver with the limit of the node.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pinnace.api.core_v1_pb2 import PersistentVolume, PersistentVolumeClaim
from pinnace.api.pods import class_of
from pinnace.api.resources import CSI_NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES
from pinnace.api.storage_v1_pb2 import CSINode, StorageClass
from pinnace.api.wellknown import BIND_COMPLETED_ANNOTATION, OLD_REGION_LABEL, OLD_ZONE_LABEL, REGION_LABEL, ZONE_LABEL
from pinnace.scheduler.cache.columns import Disk
from pinnace.scheduler.framework import (
    SKIP,
    BoolArray,
    Change,
    ClusterEvent,
    Cost,
    CycleState,
    Dependency,
    FilterResult,
    NodeTable,
    PodInfo,
    Status,
)
from pinnace.scheduler.framework.filtering import BUDGET
from pinnace.scheduler.plugins.helper import ObjectStores

_NOT_FOUND = 'persistentvolumeclaim "{}" not found'
DISK = "node(s) had no available disk"
IN_USE = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
_VOLUME, _USER = 12e-6, 0.2e-6
"""Seconds per claim or disk, and per node that uses it."""
_REASONS = ("", DISK, IN_USE)
ZONE_REASON = "node(s) had no available volume zone"
NO_SUCH_CLASS = 'storageclass.storage.k8s.io "{}" not found'
NO_CLASS = "PersistentVolumeClaim had no pv name and storageClass name"
NO_VOLUME = "PersistentVolume had no name"
TODAY = {OLD_ZONE_LABEL: ZONE_LABEL, OLD_REGION_LABEL: REGION_LABEL}
LABELS = (*TODAY, *TODAY.values())
SEPARATOR = "__"
"""Separator of the zones of a volume in several zones."""
_STATE = "VolumeZone.volumes"
LIMIT_REASON = "node(s) exceed max volume count"
NO_LIMIT = np.iinfo(np.int32).max
Counts = NDArray[np.int64]


class Volumes:
    """Live views of claims, volumes and storage classes."""

    def __init__(self, handle: ObjectStores) -> None:
        self.claims: Mapping[str, PersistentVolumeClaim] = handle.objects(PERSISTENT_VOLUME_CLAIMS)
        self.volumes: Mapping[str, PersistentVolume] = handle.objects(PERSISTENT_VOLUMES)
        self.classes: Mapping[str, StorageClass] = handle.objects(STORAGE_CLASSES)

    def find_usable_claim(self, pod: PodInfo, key: str) -> PersistentVolumeClaim | str:
        """Return a claim of the pod, or the reason why the pod cannot use it."""
        name = key.partition("/")[2]
        claim = self.claims.get(key)
        if claim is None:
            return missing_claim_reason(pod, key)
        if claim.status.phase == "Lost":
            return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{claim.spec.volumeName}"'
        if claim.metadata.HasField("deletionTimestamp"):
            return f'persistentvolumeclaim "{name}" is being deleted'
        if _is_ephemeral(pod, key) and not any(
            owner.controller and owner.uid == pod.uid for owner in claim.metadata.ownerReferences
        ):
            return f'PVC "{key}" was not created for pod "{pod.key}" (pod is not owner)'
        return claim

    def volume_of(self, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        return self.volumes.get(claim.spec.volumeName) if claim.spec.volumeName else None

    def waits_for_consumer(self, claim: PersistentVolumeClaim) -> bool:
        """Return True if the claim is bound only when a pod that uses it is scheduled."""
        storage_class = self.classes.get(class_of(claim))
        return storage_class is not None and storage_class.volumeBindingMode == "WaitForFirstConsumer"


def missing_claim_reason(pod: PodInfo, key: str) -> str:
    """Return the reason for a missing claim of the pod, in Kubernetes' words."""
    name = key.partition("/")[2]
    if _is_ephemeral(pod, key):
        return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
    return _NOT_FOUND.format(name)


def missing_claim_name(reason: str) -> str:
    """Return the name of a claim that a user must create if `reason` comes from `missing_claim_reason`, or an empty string."""
    match = re.fullmatch(_NOT_FOUND.format("(.+)"), reason)
    return match[1] if match is not None else ""


def is_bound(claim: PersistentVolumeClaim) -> bool:
    """Return True if the claim and its volume refer to each other."""
    completed = claim.status.phase == "Bound" or BIND_COMPLETED_ANNOTATION in claim.metadata.annotations
    return bool(claim.spec.volumeName) and completed


def claims_of(pod: PodInfo) -> tuple[str, ...]:
    return pod.volumes.claims if pod.volumes is not None else ()


def is_about_claims(event: ClusterEvent, pod: PodInfo) -> bool:
    """Return True if the event may concern a claim of the pod or of a pod with the same template.

    Claims are compared by name only. Any claim may match an ephemeral volume.
    """
    if event.resource != PERSISTENT_VOLUME_CLAIMS.plural or event.obj is None:
        return False
    return may_be_claim_of(pod, event.obj.metadata.name)


def may_be_claim_of(pod: PodInfo, name: str) -> bool:
    """Return True if the pod, or a pod with the same template, may have a claim with this name."""
    sources = [volume.volumeSource for volume in pod.raw.spec.volumes]
    names = [source.persistentVolumeClaim.claimName for source in sources]
    return name in names or any(source.HasField("ephemeral") for source in sources)


def _is_ephemeral(pod: PodInfo, key: str) -> bool:
    return pod.volumes is not None and key in pod.volumes.ephemeral


class VolumeRestrictions:
    name = "VolumeRestrictions"
    skip_depends_on = Dependency.NODES
    needs = (PERSISTENT_VOLUME_CLAIMS,)
    helped_by = Change.NODE_ADDED | Change.POD_FREED | Change.OBJECT

    def __init__(self, handle: ObjectStores) -> None:
        self._claims = handle.objects(PERSISTENT_VOLUME_CLAIMS)

    def cost(self, pod: PodInfo, nodes: NodeTable) -> Sequence[Cost]:
        """Return the cost of this plugin and of the other plugins that read each volume."""
        volumes = pod.raw.spec.volumes
        number = len(volumes)
        if number * _VOLUME <= BUDGET:
            number += sum(len(volume.volumeSource.rbd.monitors) for volume in volumes)
        seconds = number * _VOLUME
        if seconds <= BUDGET and pod.volumes is not None:
            used = nodes.used_volumes
            users = sum(len(used.count_users(disk)) for disk in pod.volumes.disks)
            seconds += (users + sum(len(used.count_users(claim)) for claim in pod.volumes.claims)) * _USER
        return [Cost(seconds, number, "volumes, or monitors of a volume")]

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        if pod.volumes is None:
            return SKIP
        return None if pod.volumes.disks or any(self._exclusive_claims(pod)) else SKIP

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
        in_use = any(nodes.used_volumes.count_users(key) for key in self._exclusive_claims(pod))
        codes = np.full(len(nodes), _REASONS.index(IN_USE) if in_use else 0, np.int32)
        codes[nodes.rows(_conflicting_nodes(pod, nodes))] = _REASONS.index(DISK)
        return FilterResult.coded(codes, _REASONS)

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        """Return True if the event may help. A pod that is removed may free a ReadWriteOncePod claim for other nodes."""
        if Change.OBJECT in event.change:
            return is_about_claims(event, pod)
        if event.change & Change.POD_FREED and not event.change & Change.VOLUMES_FREED:
            return False
        return bool(claims_of(pod)) or event.node not in set(_conflicting_nodes(pod, nodes))

    def _exclusive_claims(self, pod: PodInfo) -> Iterator[str]:
        """Yield the claims that only one pod may use at a time."""
        there = (key for key in claims_of(pod) if key in self._claims)
        return (key for key in there if "ReadWriteOncePod" in self._claims[key].spec.accessModes)


def _conflicting_nodes(pod: PodInfo, nodes: NodeTable) -> Iterator[str]:
    """Yield the nodes with a pod that uses one of the disks, unless both pods only read it."""
    for disk in pod.volumes.disks if pod.volumes is not None else ():
        yield from nodes.used_volumes.count_users(Disk(disk.kind, disk.identity, False))
        if not disk.read_only:
            yield from nodes.used_volumes.count_users(Disk(disk.kind, disk.identity, True))


class VolumeZone:
    name = "VolumeZone"
    skip_depends_on = Dependency.NODES
    needs = (PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES)
    helped_by = Change.NODE_ADDED | Change.NODE_LABELS | Change.OBJECT

    def __init__(self, handle: ObjectStores) -> None:
        self._objects = Volumes(handle)

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        persistent_volumes = []
        for key in claims_of(pod):
            volume = self._volume_of_claim(pod, key)
            if isinstance(volume, Status):
                return volume
            if volume is not None and any(label in volume.metadata.labels for label in LABELS):
                persistent_volumes.append(volume)
        state[_STATE] = persistent_volumes
        return None if persistent_volumes else SKIP

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
        held = np.zeros(len(nodes), np.bool_)
        for label in LABELS:
            held |= ~nodes.label(label).equal(None)
        fits = np.ones(len(nodes), np.bool_)
        for volume in state[_STATE]:
            fits &= _nodes_in_zones(volume, nodes)
        return FilterResult.refusing(held & ~fits, ZONE_REASON)

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        about_others = event.resource in (PERSISTENT_VOLUMES.plural, STORAGE_CLASSES.plural)
        return Change.OBJECT not in event.change or about_others or is_about_claims(event, pod)

    def _volume_of_claim(self, pod: PodInfo, key: str) -> PersistentVolume | Status | None:
        """Return the volume of a claim, or None if the claim is unbound and may stay so until the pod is scheduled."""
        claim = self._objects.claims.get(key)
        if claim is None:
            return Status(missing_claim_reason(pod, key))
        if not claim.spec.volumeName:
            wanted = class_of(claim)
            if not wanted:
                return Status(NO_CLASS)
            if wanted not in self._objects.classes:
                return Status(NO_SUCH_CLASS.format(wanted))
            return None if self._objects.waits_for_consumer(claim) else Status(NO_VOLUME)
        volume = self._objects.volumes.get(claim.spec.volumeName)
        return volume or Status(f'persistentvolume "{claim.spec.volumeName}" not found')


def _nodes_in_zones(volume: PersistentVolume, nodes: NodeTable) -> BoolArray:
    """Return the nodes that have one of the values of each zone label of the volume. A deprecated label also matches its
    current name."""
    near = np.ones(len(nodes), np.bool_)
    for label in LABELS:
        if label in volume.metadata.labels:
            wanted = volume.metadata.labels[label].split(SEPARATOR)
            has = _nodes_with_values(wanted, label, nodes)
            if label in TODAY:
                has |= nodes.label(label).equal(None) & _nodes_with_values(wanted, TODAY[label], nodes)
            near &= has
    return near


def _nodes_with_values(values: Iterable[str], label: str, nodes: NodeTable) -> BoolArray:
    result = np.zeros(len(nodes), np.bool_)
    for value in values:
        result |= nodes.label(label).equal(value)
    return result


class NodeVolumeLimits:
    name = "NodeVolumeLimits"
    skip_depends_on = Dependency.NODES
    needs = (CSI_NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES)
    helped_by = Change.NODE_ADDED | Change.POD_FREED | Change.OBJECT

    def __init__(self, handle: ObjectStores) -> None:
        self._objects = Volumes(handle)
        self._csi_nodes: Mapping[str, CSINode] = handle.objects(CSI_NODES)
        self._ledger = _VolumeCounts(self._driver, self._claim_has_volume)

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        return None if any(self._driver(key) for key in claims_of(pod)) else SKIP

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
        self._ledger.update_counts(nodes, self._csi_nodes)
        refused = np.zeros(len(nodes), np.bool_)
        wanted: dict[str, list[str]] = {}
        for key in claims_of(pod):
            if driver := self._driver(key):
                wanted.setdefault(driver, []).append(key)
        for driver, keys in wanted.items():
            limit = self._ledger.node_limits(driver)
            if limit is not None:
                more = np.full(len(nodes), len(keys))
                for key in keys:
                    more[nodes.rows(nodes.used_volumes.count_users(key))] -= 1
                refused |= (more > 0) & (self._ledger.count_attached(driver) + more > limit)
        return FilterResult.refusing(refused, LIMIT_REASON)

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        """Return True if the event may help. A pod without volumes does not change the number of volumes when it is removed."""
        if event.change & Change.POD_FREED:
            return bool(event.change & Change.VOLUMES_FREED)
        is_limit = event.resource == CSI_NODES.plural
        return Change.OBJECT not in event.change or is_limit or is_about_claims(event, pod)

    def _driver(self, key: str) -> str | None:
        """Return the driver of a claim, "" for a volume without a CSI driver, or None if it is not known yet."""
        claim = self._objects.claims.get(key)
        if claim is None:
            return None
        volume = self._objects.volume_of(claim)
        if volume is not None:
            return volume.spec.persistentVolumeSource.csi.driver
        storage_class = self._objects.classes.get(class_of(claim))
        return storage_class.provisioner if storage_class is not None else None

    def _claim_has_volume(self, key: str) -> bool:
        """Return True if the claim has a volume, so that its driver no longer changes."""
        claim = self._objects.claims.get(key)
        return claim is not None and self._objects.volume_of(claim) is not None


class _VolumeCounts:
    """Columns by driver: the number of volumes on each node, and its limit.

    An update costs time for the claims on changed nodes. In a new generation of the table, it also reads the CSINode of
    each node.
    """

    def __init__(self, driver: Callable[[str], str | None], has_volume: Callable[[str], bool]) -> None:
        self._driver = driver
        self._claim_has_volume = has_volume
        self._names: list[str] = []
        self._position = 0
        self._generation: tuple[int, int] | None = None
        self._csi_nodes: list[CSINode | None] = []
        self._limits: dict[str, Counts] = {}
        self._attached: dict[str, Counts] = {}
        self._open: set[str] = set()
        """Nodes with a claim that had no volume at the last count, so that its driver may change. They are counted again
        at each update. Their number is small, because a pod starts only after its volumes exist."""

    def node_limits(self, driver: str) -> Counts | None:
        """Return the limit of each node, or None if no node limits the driver."""
        return self._limits.get(driver)

    def count_attached(self, driver: str) -> Counts:
        return self._attached.get(driver, np.zeros(len(self._names), np.int64))

    def update_counts(self, nodes: NodeTable, csi_nodes: Mapping[str, CSINode]) -> None:
        used = nodes.used_volumes
        changed = used.nodes_changed_since(self._position)
        if self._names != nodes.names or changed is None:
            self._names = list(nodes.names)
            self._csi_nodes = [None] * len(nodes)
            self._limits, self._attached, self._open, self._generation = {}, {}, set(), None
            changed = list(used.nodes_with_claims())
        self._position = used.position
        for node in {*changed, *self._open}:
            self._update_node(node, nodes)
        if nodes.generation != self._generation:
            self._generation = nodes.generation
            self._update_limits(csi_nodes)

    def _update_limits(self, csi_nodes: Mapping[str, CSINode]) -> None:
        current = list(map(csi_nodes.get, self._names))
        if current != self._csi_nodes:
            for row, (old, new) in enumerate(zip(self._csi_nodes, current, strict=True)):
                if old is not new:
                    self._set_limits(row, new)
            self._csi_nodes = current

    def _update_node(self, node: str, nodes: NodeTable) -> None:
        row = nodes.row(node)
        if row is None:
            return
        claims = nodes.used_volumes.claims_on(node)
        if all(map(self._claim_has_volume, claims)):
            self._open.discard(node)
        else:
            self._open.add(node)
        counts = Counter(driver for driver in map(self._driver, claims) if driver)
        for driver in counts.keys() - self._attached.keys():
            self._attached[driver] = np.zeros(len(self._names), np.int64)
        for driver, column in self._attached.items():
            column[row] = counts[driver]

    def _set_limits(self, row: int, csi_node: CSINode | None) -> None:
        for column in self._limits.values():
            column[row] = NO_LIMIT
        for driver in csi_node.spec.drivers if csi_node is not None else ():
            if driver.allocatable.HasField("count"):
                if driver.name not in self._limits:
                    self._limits[driver.name] = np.full(len(self._names), NO_LIMIT, np.int64)
                self._limits[driver.name][row] = driver.allocatable.count
