"""Which free volume fulfils which claim, and from which nodes. Pure.

Of the volumes that fulfil a claim the smallest is taken, and of equal ones the first by name; one that is kept for the claim
(its claimRef says so) is the only one. Claims are served from the smallest to the largest, each with a volume of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial

import numpy as np
from sortedcontainers import SortedDict

from pinnace.api.core_v1_pb2 import PersistentVolume, PersistentVolumeClaim
from pinnace.api.quantity import parse
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.api.resources import store_key
from pinnace.api.selectors import from_message
from pinnace.api.storageclass import class_of
from scheduler.framework import BoolArray, IntArray, NodeTable
from scheduler.plugins.node_affinity import selected

NONE = -1
FILESYSTEM = "Filesystem"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A version of a volume, and what is asked of it again and again."""

    volume: PersistentVolume
    name: str
    size: Decimal
    mode: str
    access: frozenset[str]
    attributes: str
    """The class of its attributes."""
    labels: Mapping[str, str]
    affinity: bytes
    """Equal for volumes that can be reached from the same nodes; empty: from all."""
    pin: tuple[str, tuple[str, ...]] | None
    """The label, and its values, that say all about where it can be reached from; None: it is not that simple."""

    @classmethod
    def of(cls, volume: PersistentVolume) -> "Candidate":
        meta, spec = volume.metadata, volume.spec
        affinity = spec.nodeAffinity
        return cls(
            volume,
            meta.name,
            _size(spec.capacity),
            spec.volumeMode or FILESYSTEM,
            frozenset(spec.accessModes),
            spec.volumeAttributesClassName,
            dict(meta.labels),
            affinity.SerializeToString(deterministic=True) if affinity.HasField("required") else b"",
            _pin(volume),
        )


class Catalogue:
    """The volumes of a store, which it follows; those that are free by class, size and name."""

    def __init__(self, store: Mapping[str, PersistentVolume]) -> None:
        self._store = store
        self._known: dict[str, Candidate] = {}
        self._free: dict[str, SortedDict[tuple[Decimal, str], Candidate]] = {}
        self._kept: dict[str, dict[str, Candidate]] = {}
        """By the key of the claim that they are bound to, or kept for."""

    def follow(self) -> None:
        """Looks at each volume of the store, and at those that have changed more closely."""
        for name, volume in self._store.items():
            known = self._known.get(name)
            if known is None or known.volume is not volume:
                if known is not None:
                    self._remove(known)
                self._add(Candidate.of(volume))
        if len(self._known) > len(self._store):
            for name in self._known.keys() - self._store.keys():
                self._remove(self._known[name])

    def candidates(self, claim: PersistentVolumeClaim, taken: Mapping[str, str]) -> list[Candidate]:
        """The volumes that fulfil the claim, in the order in which they are tried; without those `taken` by others (by name:
        the claim's key)."""
        asked, key, mode = _size(claim.spec.resources.requests), store_key(claim), claim.spec.volumeMode or FILESYSTEM
        storage_class, access = class_of(claim), frozenset(claim.spec.accessModes)
        attributes = claim.spec.volumeAttributesClassName
        for kept in self._kept.get(key, {}).values():
            ours = kept.volume.spec.claimRef.uid in ("", claim.metadata.uid) and class_of(kept.volume) == storage_class
            if ours and kept.size >= asked and kept.mode == mode and kept.attributes == attributes:
                return [kept]
        selector = from_message(claim.spec.selector) if claim.spec.HasField("selector") else None
        free = self._free.get(storage_class, SortedDict())
        found = [
            each
            for each in map(free.__getitem__, free.irange((asked, "")))
            if each.mode == mode
            and each.attributes == attributes
            and access <= each.access
            and taken.get(each.name, key) == key
            and (selector is None or selector.matches(each.labels))
        ]
        return [each for each in found if taken.get(each.name) == key][:1] or found

    def _add(self, candidate: Candidate) -> None:
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

    def _remove(self, candidate: Candidate) -> None:
        volume, name = candidate.volume, candidate.name
        del self._known[name]
        key = f"{volume.spec.claimRef.namespace}/{volume.spec.claimRef.name}"
        self._kept.get(key, {}).pop(name, None)
        if not self._kept.get(key, True):
            del self._kept[key]
        self._free.get(class_of(volume), {}).pop((candidate.size, name), None)


def in_order(claims: Sequence[PersistentVolumeClaim]) -> list[PersistentVolumeClaim]:
    """As they are served."""
    return sorted(claims, key=lambda claim: _size(claim.spec.resources.requests))


def reachable(volume: PersistentVolume, nodes: NodeTable) -> BoolArray:
    """The nodes from which a volume can be reached."""
    affinity = volume.spec.nodeAffinity
    return selected(affinity.required, nodes) if affinity.HasField("required") else np.ones(len(nodes), np.bool_)


def match(wanted: Sequence[Sequence[Candidate]], nodes: NodeTable) -> list[IntArray]:
    """For each claim, in the order in which they are served, and each node: which of the claim's candidates it gets there;
    NONE where there is none left."""
    chosen: list[IntArray] = []
    for candidates in wanted:
        best = _first(candidates, nodes)
        for row in _contested(candidates, best, wanted, chosen):
            taken = {earlier[ranks[row]].name for earlier, ranks in zip(wanted, chosen, strict=False) if ranks[row] != NONE}
            left = (
                rank for rank, each in enumerate(candidates) if each.name not in taken and reachable(each.volume, nodes)[row]
            )
            best[row] = next(left, NONE)
        chosen.append(best)
    return chosen


def _first(candidates: Sequence[Candidate], nodes: NodeTable) -> IntArray:
    """For each node, the first candidate that can be reached from it."""
    nothing = len(candidates)
    best = np.full(len(nodes), nothing, np.int64)
    pinned: dict[str, dict[str, int]] = {}
    seen: set[bytes] = set()
    for rank, candidate in enumerate(candidates):
        if candidate.affinity in seen:
            continue
        seen.add(candidate.affinity)
        if not candidate.affinity:
            np.minimum(best, rank, out=best)
            break  # no node needs one that comes later
        if candidate.pin is None:
            np.putmask(best, reachable(candidate.volume, nodes) & (best > rank), rank)
        else:
            key, values = candidate.pin
            for value in values:
                pinned.setdefault(key, {}).setdefault(value, rank)
    for key, ranks in pinned.items():
        np.minimum(best, nodes.label(key).map(partial(_rank, ranks, nothing), np.int64), out=best)
    best[best == nothing] = NONE
    return best


def _rank(ranks: Mapping[str, int], nothing: int, value: str | None) -> int:
    return nothing if value is None else ranks.get(value, nothing)


def _contested(
    candidates: Sequence[Candidate], best: IntArray, wanted: Sequence[Sequence[Candidate]], chosen: Sequence[IntArray]
) -> list[int]:
    """The rows in which the best candidate has gone to an earlier claim."""
    contested = np.zeros(len(best), np.bool_)
    for earlier, ranks in zip(wanted, chosen, strict=False):
        places = {candidate.name: rank for rank, candidate in enumerate(earlier)}
        same = np.array([places.get(candidate.name, len(earlier)) for candidate in candidates] + [len(earlier)], np.int64)
        contested |= (ranks != NONE) & (same[best] == ranks)
    return contested.nonzero()[0].tolist()


def _size(amounts: Mapping[str, Quantity]) -> Decimal:
    return parse(amounts["storage"].string) if "storage" in amounts else Decimal(0)


def _pin(volume: PersistentVolume) -> tuple[str, tuple[str, ...]] | None:
    terms = volume.spec.nodeAffinity.required.nodeSelectorTerms
    if len(terms) != 1 or len(terms[0].matchExpressions) != 1 or terms[0].matchFields:
        return None
    (requirement,) = terms[0].matchExpressions
    return (requirement.key, tuple(requirement.values)) if requirement.operator == "In" else None
