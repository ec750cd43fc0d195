"""Which free volume fulfils which claim, and from which nodes. Pure.

Of the volumes that fulfil a claim the smallest is taken, and of equal ones the first by name; one that is kept for the claim
(its claimRef says so) is the only one. Claims are served from the smallest to the largest, each with a volume of its own.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial

import numpy as np
from sortedcontainers import SortedDict

from pinnace.api.core_v1_pb2 import PersistentVolume, PersistentVolumeClaim
from pinnace.api.pods import class_of
from pinnace.api.quantity import parse
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.api.resources import store_key
from pinnace.api.selectors import from_message
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

    def candidates(
        self, claim: PersistentVolumeClaim, taken: Mapping[str, str], known: dict[Hashable, list[Candidate]] | None = None
    ) -> list[Candidate]:
        """The volumes that fulfil the claim, in the order in which they are tried; without those `taken` by others (by name:
        the claim's key). `known`: what was found for claims of the same pod, for those that are alike."""
        known = {} if known is None else known
        asked, key, mode = _size(claim.spec.resources.requests), store_key(claim), claim.spec.volumeMode or FILESYSTEM
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
                each
                for each in map(free.__getitem__, free.irange((asked, "")))
                if each.mode == mode
                and each.attributes == attributes
                and access <= each.access
                and (selector is None or selector.matches(each.labels))
            ]
        if not taken:
            return fulfilling
        found = [each for each in fulfilling if taken.get(each.name, key) == key]
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
    numbers: dict[str, int] = {}
    known: dict[int, _Choice] = {}
    chosen: list[IntArray] = []
    taken = np.full((len(wanted), len(nodes)), NONE, np.int64)
    for place, candidates in enumerate(wanted):
        choice = known.get(id(candidates))
        if choice is None:
            choice = known[id(candidates)] = _Choice(candidates, numbers, nodes)
        best = choice.best(taken[:place])
        taken[place] = choice.numbers[best]
        chosen.append(best)
    return chosen


class _Choice:
    """Of the candidates of one claim, or of claims that are alike. A candidate is in one of several lists: of those that can be
    reached from everywhere, from the nodes with one value of a label, or from some nodes. So a node looks at a few short lists,
    however many volumes there are; and each claim goes on where the one before it has stopped, as what is taken stays so."""

    def __init__(self, candidates: Sequence[Candidate], numbers: dict[str, int], nodes: NodeTable) -> None:
        """`numbers`: of volumes, by name, the same for all claims of a pod."""
        self._nothing = len(candidates)
        self._rows = len(nodes)
        self.numbers: IntArray = np.full(len(candidates) + 1, NONE, np.int64)
        """By rank. The last one is for NONE."""
        for rank, candidate in enumerate(candidates):
            self.numbers[rank] = numbers.setdefault(candidate.name, len(numbers))
        self._lists = list(_lists(candidates, nodes))
        self._first = self._least(np.arange(self._rows), np.empty((0, self._rows), np.int64))

    def best(self, taken: IntArray) -> IntArray:
        """For each node the first candidate that it reaches and that is not taken there. `taken`: the numbers of the volumes
        that each earlier claim gets on each node."""
        contested = ((taken == self.numbers[self._first]) & (taken != NONE)).any(axis=0).nonzero()[0]
        if len(contested):
            self._first[contested] = self._least(contested, taken[:, contested])
        return self._first.copy()

    def _least(self, rows: IntArray, taken: IntArray) -> IntArray:
        least = np.full(len(rows), self._nothing, np.int64)
        for each in self._lists:
            np.minimum(least, each.first(rows, taken, self.numbers, self._nothing), out=least)
        least[least == self._nothing] = NONE
        return least


class _List:
    """Ranks, in ascending order; for each node, a part of them."""

    def __init__(self, ranks: Sequence[int], start: IntArray, end: IntArray) -> None:
        self._ranks = np.array(ranks, np.int64)
        self._at = start.copy()
        self._end = end

    def first(self, rows: IntArray, taken: IntArray, numbers: IntArray, nothing: int) -> IntArray:
        """The first rank of each of these rows that is not taken there; `nothing` where there is none."""
        found = np.full(len(rows), nothing, np.int64)
        at, end = self._at[rows], self._end[rows]
        left = (at < end).nonzero()[0]
        while len(left):
            ranks = self._ranks[at[left]]
            free = ~(taken[:, left] == numbers[ranks]).any(axis=0)
            found[left[free]] = ranks[free]
            left = left[~free]
            at[left] += 1
            left = left[at[left] < end[left]]
        self._at[rows] = at
        return found


def _lists(candidates: Sequence[Candidate], nodes: NodeTable) -> Iterator[_List]:
    anywhere: list[int] = []
    pinned: dict[str, dict[str, list[int]]] = {}
    others: dict[bytes, list[int]] = {}
    for rank, candidate in enumerate(candidates):
        if not candidate.affinity:
            anywhere.append(rank)
        elif candidate.pin is None:
            others.setdefault(candidate.affinity, []).append(rank)
        else:
            key, values = candidate.pin
            for value in dict.fromkeys(values):
                pinned.setdefault(key, {}).setdefault(value, []).append(rank)
    nowhere: IntArray = np.zeros(len(nodes), np.int64)
    if anywhere:
        yield _List(anywhere, nowhere, nowhere + len(anywhere))
    for key, by_value in pinned.items():
        parts: dict[str | None, tuple[int, int]] = {}
        ranks: list[int] = []
        for value, own in by_value.items():
            parts[value] = len(ranks), len(ranks) + len(own)
            ranks += own
        labels = nodes.label(key)
        yield _List(ranks, *(labels.map(partial(_part, parts, side), np.int64) for side in (0, 1)))
    for own in others.values():
        yield _List(own, nowhere, reachable(candidates[own[0]].volume, nodes) * len(own))


def _part(parts: Mapping[str | None, tuple[int, int]], side: int, value: str | None) -> int:
    return parts.get(value, (0, 0))[side]


def _size(amounts: Mapping[str, Quantity]) -> Decimal:
    return parse(amounts["storage"].string) if "storage" in amounts else Decimal(0)


def _pin(volume: PersistentVolume) -> tuple[str, tuple[str, ...]] | None:
    terms = volume.spec.nodeAffinity.required.nodeSelectorTerms
    if len(terms) != 1 or len(terms[0].matchExpressions) != 1 or terms[0].matchFields:
        return None
    (requirement,) = terms[0].matchExpressions
    return (requirement.key, tuple(requirement.values)) if requirement.operator == "In" else None
