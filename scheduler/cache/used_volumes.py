"""Volumes in use: which claims and disks the pods on nodes have. By name of the node, which need not be in the table.

What a claim stands for (a volume, a driver) is not known here; plugins that derive something from the claims of a node learn
from `changes` which nodes to look at again.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pinnace.api.core_v1_pb2 import Pod, VolumeSource
from scheduler.cache.journal import Journal

_NOWHERE: Mapping[str, int] = {}


class Disk(NamedTuple):
    """A disk that a pod names itself: what two pods must not write to at a time."""

    kind: str
    identity: tuple[str, ...]
    read_only: bool


@dataclass(frozen=True, slots=True)
class PodVolumes:
    claims: tuple[str, ...]
    """As "namespace/name", each once; ephemeral ones too."""
    disks: tuple[Disk, ...]
    ephemeral: frozenset[str] = field(default=frozenset(), compare=False)
    """Those of the claims that are the pod's own."""


def pod_volumes(pod: Pod) -> PodVolumes | None:
    """None: it uses neither claims nor disks."""
    claims: dict[str, None] = {}
    disks: list[Disk] = []
    ephemeral = []
    namespace = pod.metadata.namespace
    for volume in pod.spec.volumes:
        source = volume.volumeSource
        if source.HasField("persistentVolumeClaim"):
            claims[f"{namespace}/{source.persistentVolumeClaim.claimName}"] = None
        elif source.HasField("ephemeral"):
            key = f"{namespace}/{pod.metadata.name}-{volume.name}"
            claims[key] = None
            ephemeral.append(key)
        else:
            disks.extend(_disks(source))
    return PodVolumes(tuple(claims), tuple(disks), frozenset(ephemeral)) if claims or disks else None


class UsedVolumes:
    def __init__(self) -> None:
        self._users: dict[str | Disk, dict[str, int]] = {}
        """Pods, by node."""
        self._claims: dict[str, dict[str, int]] = {}
        """Pods, by node and claim."""
        self._journal = Journal[str]()

    def users(self, of: str | Disk) -> Mapping[str, int]:
        """How many pods of each node use a claim or disk; nodes without any are left out."""
        return self._users.get(of, _NOWHERE)

    def claims(self, node: str) -> Mapping[str, int]:
        """The claims in use on a node, and how many pods use each."""
        return self._claims.get(node, _NOWHERE)

    def nodes_with_claims(self) -> Iterator[str]:
        return iter(self._claims)

    @property
    def position(self) -> int:
        """Of now, for `changes`."""
        return self._journal.position

    def changes(self, since: int) -> list[str] | None:
        """The nodes that use more or fewer claims than at an earlier `position`, some of them repeatedly; None: too much
        has happened since."""
        return self._journal.since(since)

    def add(self, node: str, volumes: PodVolumes) -> None:
        for disk in volumes.disks:
            _count(self._users.setdefault(disk, {}), node, 1)
        for claim in volumes.claims:
            _count(self._users.setdefault(claim, {}), node, 1)
            claims = self._claims.setdefault(node, {})
            _count(claims, claim, 1)
            if claims[claim] == 1:
                self._journal.note(node)

    def remove(self, node: str, volumes: PodVolumes) -> None:
        """Takes back an `add`."""
        uses: tuple[str | Disk, ...] = (*volumes.disks, *volumes.claims)
        for use in uses:
            _count(self._users[use], node, -1)
            if not self._users[use]:
                del self._users[use]
        for claim in volumes.claims:
            claims = self._claims[node]
            _count(claims, claim, -1)
            if claim not in claims:
                self._journal.note(node)
            if not claims:
                del self._claims[node]


def _count(counts: dict[str, int], key: str, more: int) -> None:
    left = counts.get(key, 0) + more
    if left:
        counts[key] = left
    else:
        del counts[key]


def _disks(source: VolumeSource) -> Iterator[Disk]:
    if source.HasField("gcePersistentDisk"):
        gce = source.gcePersistentDisk
        yield Disk("gcePersistentDisk", (gce.pdName,), gce.readOnly)
    elif source.HasField("awsElasticBlockStore"):  # not even readers share one
        yield Disk("awsElasticBlockStore", (source.awsElasticBlockStore.volumeID,), False)
    elif source.HasField("iscsi"):
        yield Disk("iscsi", (source.iscsi.iqn,), source.iscsi.readOnly)
    elif source.HasField("rbd"):
        rbd = source.rbd
        for monitor in dict.fromkeys(rbd.monitors):  # two images are one if they share a monitor, the pool and the name
            yield Disk("rbd", (monitor, rbd.pool, rbd.image), rbd.readOnly)
