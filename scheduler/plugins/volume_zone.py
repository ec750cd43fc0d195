"""VolumeZone (NoVolumeZoneConflict): the volumes of a pod's claims must be in the zone and region of its node, by their labels.

A node without any such label is not held to them. Source: https://kubernetes.io/docs/reference/labels-annotations-taints/
"""

from collections.abc import Iterable

import numpy as np

from pinnace.api.core_v1_pb2 import PersistentVolume
from pinnace.api.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES
from pinnace.api.storageclass import class_of
from pinnace.api.wellknown import OLD_REGION_LABEL, OLD_ZONE_LABEL, REGION_LABEL, ZONE_LABEL
from scheduler.framework import (
    SKIP,
    BoolArray,
    Change,
    ClusterEvent,
    CycleState,
    FilterResult,
    NodeTable,
    PodInfo,
    Sees,
    Status,
)
from scheduler.plugins.claims import Volumes, claims_of, is_about_claims, not_there
from scheduler.plugins.listers import Objects

REASON = "node(s) had no available volume zone"
NO_SUCH_CLASS = 'storageclass.storage.k8s.io "{}" not found'
NO_CLASS = "PersistentVolumeClaim had no pv name and storageClass name"
NO_VOLUME = "PersistentVolume had no name"
TODAY = {OLD_ZONE_LABEL: ZONE_LABEL, OLD_REGION_LABEL: REGION_LABEL}
LABELS = (*TODAY, *TODAY.values())
SEPARATOR = "__"
"""Between the zones of a volume that is in several."""
_STATE = "VolumeZone.volumes"


class VolumeZone:
    name = "VolumeZone"
    skip_sees = Sees.NODES
    needs = (PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES)
    helped_by = Change.NODE_ADDED | Change.NODE_LABELS | Change.OBJECT

    def __init__(self, handle: Objects) -> None:
        self._objects = Volumes(handle)

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        found = []
        for key in claims_of(pod):
            volume = self._volume(pod, key)
            if isinstance(volume, Status):
                return volume
            if volume is not None and any(label in volume.metadata.labels for label in LABELS):
                found.append(volume)
        state[_STATE] = found
        return None if found else SKIP

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
        held = np.zeros(len(nodes), np.bool_)
        for label in LABELS:
            held |= ~nodes.label(label).equal(None)
        fits = np.ones(len(nodes), np.bool_)
        for volume in state[_STATE]:
            fits &= _near(volume, nodes)
        return FilterResult.refusing(held & ~fits, REASON)

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        about_others = event.resource in (PERSISTENT_VOLUMES.plural, STORAGE_CLASSES.plural)
        return Change.OBJECT not in event.change or about_others or is_about_claims(event, pod)

    def _volume(self, pod: PodInfo, key: str) -> PersistentVolume | Status | None:
        """None: there is none yet, and need not be."""
        claim = self._objects.claims.get(key)
        if claim is None:
            return Status(not_there(pod, key))
        if not claim.spec.volumeName:
            wanted = class_of(claim)
            if not wanted:
                return Status(NO_CLASS)
            if wanted not in self._objects.classes:
                return Status(NO_SUCH_CLASS.format(wanted))
            return None if self._objects.waits_for_consumer(claim) else Status(NO_VOLUME)
        volume = self._objects.volumes.get(claim.spec.volumeName)
        return volume or Status(f'persistentvolume "{claim.spec.volumeName}" not found')


def _near(volume: PersistentVolume, nodes: NodeTable) -> BoolArray:
    """The nodes that have, of each of the volume's labels, one of its values. An old label may stand under today's name."""
    near = np.ones(len(nodes), np.bool_)
    for label in LABELS:
        if label in volume.metadata.labels:
            wanted = volume.metadata.labels[label].split(SEPARATOR)
            has = _one_of(wanted, label, nodes)
            if label in TODAY:
                has |= nodes.label(label).equal(None) & _one_of(wanted, TODAY[label], nodes)
            near &= has
    return near


def _one_of(values: Iterable[str], label: str, nodes: NodeTable) -> BoolArray:
    found = np.zeros(len(nodes), np.bool_)
    for value in values:
        found |= nodes.label(label).equal(value)
    return found
