"""VolumeRestrictions: no two pods write to one disk on a node (NoDiskConflict), and a claim with the access mode
ReadWriteOncePod is one pod's. A claim that is not there is VolumeBinding's to refuse.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from pinnace.api.resources import PERSISTENT_VOLUME_CLAIMS
from scheduler.cache.used_volumes import Disk
from scheduler.framework import SKIP, Change, ClusterEvent, Cost, CycleState, FilterResult, NodeTable, PodInfo, Sees, Status
from scheduler.framework.cost import BUDGET
from scheduler.plugins.claims import claims_of, is_about_claims
from scheduler.plugins.listers import Objects

DISK = "node(s) had no available disk"
IN_USE = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
_VOLUME, _USER = 12e-6, 0.2e-6
"""Seconds for a claim or disk, and for each node that uses it."""
_REASONS = ("", DISK, IN_USE)


class VolumeRestrictions:
    name = "VolumeRestrictions"
    skip_sees = Sees.NODES
    needs = (PERSISTENT_VOLUME_CLAIMS,)
    helped_by = Change.NODE_ADDED | Change.POD_FREED | Change.OBJECT

    def __init__(self, handle: Objects) -> None:
        self._claims = handle.objects(PERSISTENT_VOLUME_CLAIMS)

    def cost(self, pod: PodInfo, nodes: NodeTable) -> Sequence[Cost]:
        """Also that of the other plugins that look at each volume."""
        volumes = pod.raw.spec.volumes
        number = len(volumes)
        if number * _VOLUME <= BUDGET:
            number += sum(len(each.volumeSource.rbd.monitors) for each in volumes)
        seconds = number * _VOLUME
        if seconds <= BUDGET and pod.volumes is not None:
            used = nodes.used_volumes
            users = sum(len(used.users(disk)) for disk in pod.volumes.disks)
            seconds += (users + sum(len(used.users(claim)) for claim in pod.volumes.claims)) * _USER
        return [Cost(seconds, number, "volumes, or monitors of a volume")]

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        if pod.volumes is None:
            return SKIP
        return None if pod.volumes.disks or any(self._alone(pod)) else SKIP

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
        in_use = any(nodes.used_volumes.users(key) for key in self._alone(pod))
        codes = np.full(len(nodes), _REASONS.index(IN_USE) if in_use else 0, np.int32)
        codes[nodes.rows(_conflicting(pod, nodes))] = _REASONS.index(DISK)
        return FilterResult.coded(codes, _REASONS)

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        """A pod that leaves may have had the claim of one pod: then others of the nodes take it."""
        if Change.OBJECT in event.change:
            return is_about_claims(event, pod)
        if event.change & Change.POD_FREED and not event.change & Change.VOLUMES_FREED:
            return False
        return bool(claims_of(pod)) or event.node not in set(_conflicting(pod, nodes))

    def _alone(self, pod: PodInfo) -> Iterator[str]:
        """The claims that no other pod may use at the same time."""
        there = (key for key in claims_of(pod) if key in self._claims)
        return (key for key in there if "ReadWriteOncePod" in self._claims[key].spec.accessModes)


def _conflicting(pod: PodInfo, nodes: NodeTable) -> Iterator[str]:
    """Nodes with a pod that has one of the disks, unless both only read."""
    for disk in pod.volumes.disks if pod.volumes is not None else ():
        yield from nodes.used_volumes.users(Disk(disk.kind, disk.identity, False))
        if not disk.read_only:
            yield from nodes.used_volumes.users(Disk(disk.kind, disk.identity, True))
