"""VolumeBinding (NoVolumeNodeConflict): the volumes of a pod's claims must be accessible from its node.

    bound claim                   the volume's nodeAffinity decides
    unbound, of a class that      a free volume that satisfies the claim and is accessible from the node, otherwise the
      waits for the consumer        provisioner of the class. Reserve selects the volume, and PreBind binds it
    any other unbound claim       the pod waits until the claim is bound

The smallest volume that satisfies a claim is used, and of equal volumes the first by name. A volume with a claimRef is
used only for its claim. Claims are matched from the smallest to the largest, each with a different volume.

Before a volume is bound, and after it is provisioned, its nodeAffinity is compared with the node's current labels. Either may
have changed, or the provisioner may have ignored the node. PreBind stops waiting for a volume when the pod is deleted. A
reservation lasts until the informer reports the claim as bound, or until Unreserve.

A bind writes first the volume and then the claim; each refers to the other. It can be repeated. In Kubernetes, the scheduler
writes only the volume, and a controller writes the rest, which ours does too if a scheduler stopped in between.
"""

import asyncio
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import numpy as np

from pinnace.api.core_v1_pb2 import PersistentVolume, PersistentVolumeClaim
from pinnace.api.pods import class_of
from pinnace.api.resources import NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, STORAGE_CLASSES, store_key
from pinnace.api.storage_v1_pb2 import StorageClass
from pinnace.api.wellknown import BIND_COMPLETED_ANNOTATION, BOUND_BY_CONTROLLER, NO_PROVISIONER, SELECTED_NODE
from pinnace.client.client import Client
from pinnace.fit.room import selector_matches
from pinnace.fit.volumes import VolumeCandidate, VolumeCatalogue, claim_reference, volume_size
from pinnace.scheduler.framework import (
    SKIP,
    BoolArray,
    Change,
    ClusterEvent,
    CycleState,
    Dependency,
    FilterResult,
    IntArray,
    NodeReasons,
    NodeTable,
    PodInfo,
    Status,
)
from pinnace.scheduler.framework.filtering import BUDGET
from pinnace.scheduler.plugins.helper import ObjectStores
from pinnace.scheduler.plugins.node_affinity import match_selector
from pinnace.scheduler.plugins.volumes import Volumes, claims_of, is_about_claims, is_bound, may_be_claim_of

NONE = -1
UNBOUND_IMMEDIATE = "pod has unbound immediate PersistentVolumeClaims"
OUT_OF_REACH = "node(s) didn't match PersistentVolume's node affinity"
NOTHING_TO_BIND = "node(s) didn't find available persistent volumes to bind"
NO_SUCH_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
TOO_MANY = "node(s) could not be checked: the pod has too many unbound persistentvolumeclaims for so many nodes"
POLL = 0.1
"""Seconds between reads of a claim whose volume is being provisioned."""
_REASONS = (OUT_OF_REACH, NOTHING_TO_BIND, NO_SUCH_VOLUME)
_MATCH, _ALWAYS_MATCHED = 8e-9, 16
"""Seconds to compare the volumes of two claims on one node, and the number of claims that are always matched."""
_STATE, _WORK = "VolumeBinding.claims", "VolumeBinding.work"


def sort_claims(claims: Sequence[PersistentVolumeClaim]) -> list[PersistentVolumeClaim]:
    """Sort the claims in matching order."""
    return sorted(claims, key=lambda claim: volume_size(claim.spec.resources.requests))


def reachable_nodes(volume: PersistentVolume, nodes: NodeTable) -> BoolArray:
    """Return the nodes from which the volume is accessible."""
    affinity = volume.spec.nodeAffinity
    return match_selector(affinity.required, nodes) if affinity.HasField("required") else np.ones(len(nodes), np.bool_)


def match_claims(wanted: Sequence[Sequence[VolumeCandidate]], nodes: NodeTable) -> list[IntArray]:
    """Return, for each claim in matching order, the index of its candidate on each node, or NONE."""
    numbers: dict[str, int] = {}
    known: dict[int, _CandidateChoice] = {}
    chosen: list[IntArray] = []
    taken = np.full((len(wanted), len(nodes)), NONE, np.int64)
    for place, candidates in enumerate(wanted):
        choice = known.get(id(candidates))
        if choice is None:
            choice = known[id(candidates)] = _CandidateChoice(candidates, numbers, nodes)
        best = choice.first_free_candidates(taken[:place])
        taken[place] = choice.numbers[best]
        chosen.append(best)
    return chosen


class _CandidateChoice:
    """The candidates of one claim, or of several equal claims.

    Each candidate is in one list: for all nodes, for the nodes with one value of a label, or for some nodes. A node
    therefore reads a few short lists, regardless of the number of volumes. A later claim continues where the previous
    claim stopped, because a volume that is taken stays taken.
    """

    def __init__(self, candidates: Sequence[VolumeCandidate], numbers: dict[str, int], nodes: NodeTable) -> None:
        """`numbers` maps volume names to numbers that all claims of the pod share."""
        self._nothing = len(candidates)
        self._rows = len(nodes)
        self.numbers: IntArray = np.full(len(candidates) + 1, NONE, np.int64)
        """Numbers by rank. The last element is for NONE."""
        for rank, candidate in enumerate(candidates):
            self.numbers[rank] = numbers.setdefault(candidate.name, len(numbers))
        self._lists = list(_create_rank_ranges(candidates, nodes))
        self._first = self._least_volume(np.arange(self._rows), np.empty((0, self._rows), np.int64))

    def first_free_candidates(self, taken: IntArray) -> IntArray:
        """Return the first free candidate of each node. `taken` has the numbers of the volumes that earlier claims use on each
        node."""
        contested = ((taken == self.numbers[self._first]) & (taken != NONE)).any(axis=0).nonzero()[0]
        if len(contested):
            self._first[contested] = self._least_volume(contested, taken[:, contested])
        return self._first.copy()

    def _least_volume(self, rows: IntArray, taken: IntArray) -> IntArray:
        least = np.full(len(rows), self._nothing, np.int64)
        for list_ in self._lists:
            np.minimum(least, list_.first_free_ranks(rows, taken, self.numbers, self._nothing), out=least)
        least[least == self._nothing] = NONE
        return least


class _RankRange:
    """Ranks in ascending order, of which each node uses a part."""

    def __init__(self, ranks: Sequence[int], start: IntArray, end: IntArray) -> None:
        self._ranks = np.array(ranks, np.int64)
        self._at = start.copy()
        self._end = end

    def first_free_ranks(self, rows: IntArray, taken: IntArray, numbers: IntArray, nothing: int) -> IntArray:
        """Return the first free rank of each of these rows, or `nothing`."""
        result = np.full(len(rows), nothing, np.int64)
        at, end = self._at[rows], self._end[rows]
        left = (at < end).nonzero()[0]
        while len(left):
            ranks = self._ranks[at[left]]
            free = ~(taken[:, left] == numbers[ranks]).any(axis=0)
            result[left[free]] = ranks[free]
            left = left[~free]
            at[left] += 1
            left = left[at[left] < end[left]]
        self._at[rows] = at
        return result


def _create_rank_ranges(candidates: Sequence[VolumeCandidate], nodes: NodeTable) -> Iterator[_RankRange]:
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
        yield _RankRange(anywhere, nowhere, nowhere + len(anywhere))
    for key, by_value in pinned.items():
        parts: dict[str | None, tuple[int, int]] = {}
        ranks: list[int] = []
        for value, own in by_value.items():
            parts[value] = len(ranks), len(ranks) + len(own)
            ranks += own
        labels = nodes.label(key)
        yield _RankRange(ranks, *(labels.map(partial(_count_part, parts, side), np.int64) for side in (0, 1)))
    for own in others.values():
        yield _RankRange(own, nowhere, reachable_nodes(candidates[own[0]].volume, nodes) * len(own))


def _count_part(parts: Mapping[str | None, tuple[int, int]], side: int, value: str | None) -> int:
    return parts.get(value, (0, 0))[side]


async def bind_volume(client: Client, claim: PersistentVolumeClaim, volume: PersistentVolume) -> None:
    """Write both sides of the binding. Raise ApiError, for example Conflict if another client changed an object."""
    volumes, claims = client.of(PERSISTENT_VOLUMES), client.of(PERSISTENT_VOLUME_CLAIMS)
    own, theirs = PersistentVolume(), PersistentVolumeClaim()
    own.CopyFrom(volume)
    theirs.CopyFrom(claim)
    own.spec.claimRef.CopyFrom(claim_reference(claim))
    own.metadata.annotations[BOUND_BY_CONTROLLER] = "yes"
    own = await volumes.update(own)
    theirs.spec.volumeName = volume.metadata.name
    theirs.metadata.annotations.update({BIND_COMPLETED_ANNOTATION: "yes", BOUND_BY_CONTROLLER: "yes"})
    theirs = await claims.update(theirs)
    own.status.phase = theirs.status.phase = "Bound"
    theirs.status.accessModes[:] = volume.spec.accessModes
    for name, amount in volume.spec.capacity.items():
        theirs.status.capacity[name].CopyFrom(amount)
    await volumes.update_status(own)
    await claims.update_status(theirs)


async def choose_node(client: Client, claim: PersistentVolumeClaim, node: str) -> None:
    """Request a volume for the node from the provisioner of the class. Raise ApiError."""
    theirs = PersistentVolumeClaim()
    theirs.CopyFrom(claim)
    if theirs.metadata.annotations.get(SELECTED_NODE) != node:
        theirs.metadata.annotations[SELECTED_NODE] = node
        await client.of(PERSISTENT_VOLUME_CLAIMS).update(theirs)


class Handle(ObjectStores, Protocol):
    @property
    def client(self) -> Client: ...


@dataclass(slots=True)
class _PodClaims:
    """The claims of one pod, and the results of `filter` for the unbound claims."""

    volumes: list[PersistentVolume] = field(default_factory=list)
    lost: bool = False
    """True if a claim is bound to a volume that does not exist."""
    waiting: list[PersistentVolumeClaim] = field(default_factory=list)
    candidates: list[list[VolumeCandidate]] = field(default_factory=list)
    chosen: list[IntArray] = field(default_factory=list)
    nodes: NodeTable | None = None
    too_many: bool = False
    """True if there are too many unbound claims, which are then not matched, to limit the time of the decision."""


@dataclass(frozen=True, slots=True)
class _PreBindWork:
    """The work of PreBind."""

    bind: Sequence[tuple[PersistentVolumeClaim, PersistentVolume]]
    provision: Sequence[PersistentVolumeClaim]


class VolumeBinding:
    name = "VolumeBinding"
    skip_depends_on = Dependency.NODES
    needs = (PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES)
    writes = (PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES)
    helped_by = Change.NODE_ADDED | Change.NODE_LABELS | Change.RESERVATION_ENDED | Change.OBJECT

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._objects = Volumes(handle)
        self._catalogue = VolumeCatalogue(self._objects.volumes)
        self._taken: dict[str, str] = {}
        """Reserved volumes: the key of the claim by volume name."""
        self._nodes: dict[str, str] = {}
        """Claims with a volume to provision: the node by key of the claim."""

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        keys = claims_of(pod)
        if not keys:
            return SKIP
        claims = _PodClaims()
        immediate = False
        for key in keys:
            claim = self._objects.find_usable_claim(pod, key)
            if isinstance(claim, str):
                return Status(claim)
            if is_bound(claim):
                volume = self._objects.volume_of(claim)
                claims.lost |= volume is None
                if volume is not None and volume.spec.nodeAffinity.HasField("required"):
                    claims.volumes.append(volume)
            elif needs_immediate_binding(self._objects, claim):
                immediate = True
            else:
                claims.waiting.append(claim)
        if immediate:
            return Status(UNBOUND_IMMEDIATE)
        state[_STATE] = claims
        return None if claims.volumes or claims.lost or claims.waiting else SKIP

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
        claims: _PodClaims = state[_STATE]
        near = np.ones(len(nodes), np.bool_)
        for volume in claims.volumes:
            near &= reachable_nodes(volume, nodes)
        met = self._match_claims(claims, nodes)
        passed = near & met & (not claims.lost)

        def explain() -> NodeReasons:
            """Return the reasons. A code has one bit per reason."""
            if claims.too_many:
                return NodeReasons(np.ones(len(nodes), np.int64), lambda _: [TOO_MANY])
            codes = ~near * 1 + ~met * 2 + np.full(len(nodes), claims.lost) * 4
            return NodeReasons(codes, lambda code: [reason for bit, reason in enumerate(_REASONS) if code >> bit & 1])

        return FilterResult(passed, explain)

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        """Return True if the event may help. A volume that is reserved for another claim does not."""
        if Change.OBJECT not in event.change or event.resource == STORAGE_CLASSES.plural:
            return True
        if isinstance(event.obj, PersistentVolume):
            return not event.obj.spec.HasField("claimRef") or may_be_claim_of(pod, event.obj.spec.claimRef.name)
        return is_about_claims(event, pod)

    def reserve(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        claims: _PodClaims | None = state.get(_STATE)
        if claims is None or not claims.waiting or claims.nodes is None:
            return SKIP
        row = claims.nodes.row(node)
        bind: list[tuple[PersistentVolumeClaim, PersistentVolume]] = []
        provision: list[PersistentVolumeClaim] = []
        for claim, candidates, chosen in zip(claims.waiting, claims.candidates, claims.chosen, strict=True):
            rank = NONE if row is None else int(chosen[row])
            if rank == NONE:
                self._nodes[store_key(claim)] = node
                provision.append(claim)
            else:
                self._taken[candidates[rank].name] = store_key(claim)
                bind.append((claim, candidates[rank].volume))
        state[_WORK] = _PreBindWork(bind, provision)
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node: str) -> None:
        work: _PreBindWork | None = state.pop(_WORK, None)
        if work is not None:
            for _, volume in work.bind:
                self._taken.pop(volume.metadata.name, None)
            for claim in work.provision:
                self._nodes.pop(store_key(claim), None)

    def pre_flight(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        return None if _WORK in state else SKIP

    async def pre_bind(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        work: _PreBindWork = state[_WORK]
        for claim, volume in work.bind:
            if (refused := self._check_reachable(volume, node)) is not None:
                return refused
            await bind_volume(self._handle.client, claim, volume)
        for claim in work.provision:
            await choose_node(self._handle.client, claim, node)
        return await self._wait_for_provisioner(work.provision, pod, node)

    async def _wait_for_provisioner(self, claims: Iterable[PersistentVolumeClaim], pod: PodInfo, node: str) -> Status | None:
        """Wait for the provisioner. It rejects the node by removing the annotation with the node's name."""
        for claim in claims:
            key, chosen = store_key(claim), False
            while True:
                if self._is_gone(pod):
                    return Status(f'pod "{pod.key}" no longer exists')
                now = self._objects.claims.get(key)
                if now is None or now.metadata.uid != claim.metadata.uid:
                    return Status(f'PVC "{key}" was deleted while its volume was being provisioned')
                if is_bound(now):
                    if (volume := self._objects.volume_of(now)) is not None:
                        if (refused := self._check_reachable(volume, node)) is not None:
                            return refused
                        break
                elif now.metadata.annotations.get(SELECTED_NODE) == node:
                    chosen = True
                elif chosen:
                    return Status(f'provisioning failed for PVC "{key}"')
                await asyncio.sleep(POLL)
        return None

    def _is_gone(self, pod: PodInfo) -> bool:
        """Return True if the pod is deleted or being deleted, so that it can no longer be bound."""
        now = self._handle.objects(PODS).get(pod.key)
        return now is None or now.metadata.uid != pod.uid or now.metadata.HasField("deletionTimestamp")

    def _check_reachable(self, volume: PersistentVolume, name: str) -> Status | None:
        """Return a Status if the volume is not accessible from the node, or None if it is or the node no longer exists."""
        node, affinity = self._handle.objects(NODES).get(name), volume.spec.nodeAffinity
        if node is None or not affinity.HasField("required") or selector_matches(affinity.required, node):
            return None
        return Status(f'pv "{volume.metadata.name}" node affinity doesn\'t match node "{name}"')

    def _match_claims(self, found: _PodClaims, nodes: NodeTable) -> BoolArray:
        """Return the nodes on which every unbound claim gets a volume."""
        met = np.ones(len(nodes), np.bool_)
        if not found.waiting:
            return met
        self._catalogue.update_from_store()
        self._drop_settled_reservations()
        found.nodes = nodes
        found.waiting = sort_claims(found.waiting)
        nodes_chosen = [self._chosen_node(claim) for claim in found.waiting]
        known: dict[Hashable, list[VolumeCandidate]] = {}
        found.candidates = [
            [] if node else self._catalogue.find_candidates(claim, self._taken, known)
            for claim, node in zip(found.waiting, nodes_chosen, strict=True)
        ]
        choosing = sum(map(bool, found.candidates))
        if choosing > _ALWAYS_MATCHED and choosing**2 * len(nodes) * _MATCH > BUDGET:
            found.too_many = True
            return np.zeros(len(nodes), np.bool_)
        found.chosen = match_claims(found.candidates, nodes)
        for claim, node, chosen in zip(found.waiting, nodes_chosen, found.chosen, strict=True):
            can_make = self._provisionable_nodes(claim, nodes)
            if node:
                only = np.zeros(len(nodes), np.bool_)
                only[nodes.rows((node,))] = True
                can_make &= only
            met &= (chosen != NONE) | can_make
        return met

    def _chosen_node(self, claim: PersistentVolumeClaim) -> str:
        """Return the node for which the claim's volume is being provisioned, or an empty string."""
        return claim.metadata.annotations.get(SELECTED_NODE) or self._nodes.get(store_key(claim), "")

    def _provisionable_nodes(self, claim: PersistentVolumeClaim, nodes: NodeTable) -> BoolArray:
        """Return the nodes for which the class's provisioner can create a volume."""
        storage_class = self._objects.classes[class_of(claim)]
        if storage_class.provisioner == NO_PROVISIONER:
            return np.zeros(len(nodes), np.bool_)
        return _allowed_nodes(storage_class, nodes)

    def _drop_settled_reservations(self) -> None:
        """Drop the reservations of claims that are bound or deleted."""
        for name, key in list(self._taken.items()):
            if name not in self._objects.volumes or self._is_settled(key):
                del self._taken[name]
        for key in [key for key in self._nodes if self._is_settled(key)]:
            del self._nodes[key]

    def _is_settled(self, key: str) -> bool:
        claim = self._objects.claims.get(key)
        return claim is None or is_bound(claim)


def needs_immediate_binding(objects: Volumes, claim: PersistentVolumeClaim) -> bool:
    """Return True if the claim is unbound and this plugin does not bind it."""
    return not is_bound(claim) and bool(claim.spec.volumeName or not objects.waits_for_consumer(claim))


def _allowed_nodes(storage_class: StorageClass, nodes: NodeTable) -> BoolArray:
    """Return the nodes in the allowed topologies of the class. A term without requirements allows no node."""
    terms = storage_class.allowedTopologies
    allowed = np.full(len(nodes), not terms)
    for term in terms:
        fits = np.full(len(nodes), bool(term.matchLabelExpressions))
        for requirement in term.matchLabelExpressions:
            one_of = np.zeros(len(nodes), np.bool_)
            for value in requirement.values:
                one_of |= nodes.label(requirement.key).equal(value)
            fits &= one_of
        allowed |= fits
    return allowed
