"""The free volumes of a cluster, and which of them satisfy a claim. The scheduler and the volume controller use it.

The smallest volume that satisfies a claim is preferred, and of equal volumes the first by name. A volume with a claimRef is
used only for its claim.

Source: pkg/controller/volume/persistentvolume/index.go and k8s.io/component-helpers/storage/volume of Kubernetes 1.36.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol

from sortedcontainers import SortedDict

from pinnace.api.core_v1_pb2 import ObjectReference, PersistentVolume, PersistentVolumeClaim
from pinnace.api.pods import class_of
from pinnace.api.quantity import parse
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.api.resources import store_key
from pinnace.api.selectors import from_message
from pinnace.api.verbs_pb2 import DELETED

FILESYSTEM = "Filesystem"


class Delta(Protocol):
    """A change of a volume, as informers report it."""

    @property
    def kind(self) -> int: ...

    @property
    def obj(self) -> PersistentVolume: ...


def volume_size(amounts: Mapping[str, Quantity]) -> Decimal:
    return parse(amounts["storage"].string) if "storage" in amounts else Decimal(0)


def _pinned_node(volume: PersistentVolume) -> tuple[str, tuple[str, ...]] | None:
    terms = volume.spec.nodeAffinity.required.nodeSelectorTerms
    if len(terms) != 1 or len(terms[0].matchExpressions) != 1 or terms[0].matchFields:
        return None
    (requirement,) = terms[0].matchExpressions
    return (requirement.key, tuple(requirement.values)) if requirement.operator == "In" else None


def claim_reference(claim: PersistentVolumeClaim) -> ObjectReference:
    meta = claim.metadata
    return ObjectReference(
        kind="PersistentVolumeClaim", apiVersion="v1", namespace=meta.namespace, name=meta.name, uid=meta.uid
    )


@dataclass(frozen=True, slots=True)
class VolumeCandidate:
    """One version of a volume with precomputed properties for matching."""

    volume: PersistentVolume
    name: str
    size: Decimal
    mode: str
    access: frozenset[str]
    attributes: str
    """The volumeAttributesClassName."""
    labels: Mapping[str, str]
    affinity: bytes
    """Equal for volumes that are accessible from the same nodes. Empty if all nodes can access the volume."""
    pin: tuple[str, tuple[str, ...]] | None
    """A label key and values that fully determine the nodes, or None for a more complex affinity."""

    @classmethod
    def from_volume(cls, volume: PersistentVolume) -> "VolumeCandidate":
        meta, spec = volume.metadata, volume.spec
        affinity = spec.nodeAffinity
        return cls(
            volume,
            meta.name,
            volume_size(spec.capacity),
            spec.volumeMode or FILESYSTEM,
            frozenset(spec.accessModes),
            spec.volumeAttributesClassName,
            dict(meta.labels),
            affinity.SerializeToString(deterministic=True) if affinity.HasField("required") else b"",
            _pinned_node(volume),
        )


class VolumeCatalogue:
    """The volumes of a store. Free volumes are indexed by class, size and name."""

    def __init__(self, store: Mapping[str, PersistentVolume]) -> None:
        self._store = store
        self._known: dict[str, VolumeCandidate] = {}
        self._free: dict[str, SortedDict[tuple[Decimal, str], VolumeCandidate]] = {}
        self._kept: dict[str, dict[str, VolumeCandidate]] = {}
        """Bound or reserved volumes by the key of their claim."""

    def update_from_store(self) -> None:
        """Update the catalogue from the store. Only changed volumes are parsed."""
        for name, volume in self._store.items():
            known = self._known.get(name)
            if known is None or known.volume is not volume:
                if known is not None:
                    self._remove_volume(known)
                self._add_volume(VolumeCandidate.from_volume(volume))
        if len(self._known) > len(self._store):
            for name in self._known.keys() - self._store.keys():
                self._remove_volume(self._known[name])

    def follow(self, deltas: Iterable[Delta]) -> None:
        """Apply changes of volumes to the catalogue. A handler of an informer, instead of `update_from_store`."""
        for delta in deltas:
            if (known := self._known.get(delta.obj.metadata.name)) is not None:
                self._remove_volume(known)
            if delta.kind != DELETED:
                self._add_volume(VolumeCandidate.from_volume(delta.obj))

    def find_candidates(
        self, claim: PersistentVolumeClaim, taken: Mapping[str, str], known: dict[Hashable, list[VolumeCandidate]] | None = None
    ) -> list[VolumeCandidate]:
        """Return the volumes that satisfy the claim in order of preference.

        `taken` maps volume names to the keys of claims that reserve them. `known` caches results for equal claims of the
        same pod.
        """
        known = {} if known is None else known
        asked, key, mode = volume_size(claim.spec.resources.requests), store_key(claim), claim.spec.volumeMode or FILESYSTEM
        storage_class, access = class_of(claim), frozenset(claim.spec.accessModes)
        attributes = claim.spec.volumeAttributesClassName
        for kept in self._kept.get(key, {}).values():
            ours = kept.volume.spec.claimRef.uid in ("", claim.metadata.uid) and class_of(kept.volume) == storage_class
            if ours and kept.size >= asked and kept.mode == mode and kept.attributes == attributes:
                return [kept]
        selector = from_message(claim.spec.selector) if claim.spec.HasField("selector") else None
        alike = storage_class, asked, mode, attributes, access, selector
        fulfilling = known.get(alike)
        if fulfilling is None:
            free = self._free.get(storage_class, SortedDict())
            fulfilling = known[alike] = [
                item
                for item in map(free.__getitem__, free.irange((asked, "")))
                if item.mode == mode
                and item.attributes == attributes
                and access <= item.access
                and (selector is None or selector.matches(item.labels))
            ]
        if not taken:
            return fulfilling
        result = [candidate for candidate in fulfilling if taken.get(candidate.name, key) == key]
        return [candidate for candidate in result if taken.get(candidate.name) == key][:1] or result

    def _add_volume(self, candidate: VolumeCandidate) -> None:
        volume = candidate.volume
        self._known[candidate.name] = candidate
        if volume.metadata.HasField("deletionTimestamp"):
            return
        if volume.spec.HasField("claimRef"):
            key = f"{volume.spec.claimRef.namespace}/{volume.spec.claimRef.name}"
            self._kept.setdefault(key, {})[candidate.name] = candidate
        elif volume.status.phase == "Available":
            by_size = self._free.setdefault(class_of(volume), SortedDict())
            by_size[candidate.size, candidate.name] = candidate

    def _remove_volume(self, candidate: VolumeCandidate) -> None:
        volume, name = candidate.volume, candidate.name
        del self._known[name]
        key = f"{volume.spec.claimRef.namespace}/{volume.spec.claimRef.name}"
        self._kept.get(key, {}).pop(name, None)
        if not self._kept.get(key, True):
            del self._kept[key]
        self._free.get(class_of(volume), {}).pop((candidate.size, name), None)
