"""VolumeBinding (NoVolumeNodeConflict): the volumes of a pod's claims must be within reach of its node.

    bound claim                   the volume's nodeAffinity decides
    unbound, of a class that      a free volume that fulfils the claim and can be reached from the node; or else the class's
      waits for the consumer        provisioner, where it can make one. It is set aside in Reserve, and bound in PreBind
    any other unbound claim       the pod waits until it is bound

Before a volume is bound, and when one has been made, it is held against the node as that is then: either may be out of the
other's reach by now, or a provisioner has paid no heed to the node.

Nobody waits for a volume to be made for a pod that is gone: those who wait are only so many.

What is set aside stays so until the claim is seen to be bound, or Unreserve gives it back: the informer may be late.

What is written so that a claim is bound: both sides name each other, the volume first. It may be repeated.

In Kubernetes the scheduler writes the volume's side only, and its volume controller the rest. There is no such controller here.
"""

import asyncio
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from pinnace.api.core_v1_pb2 import ObjectReference, PersistentVolume, PersistentVolumeClaim
from pinnace.api.pods import class_of
from pinnace.api.resources import NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, STORAGE_CLASSES, store_key
from pinnace.api.storage_v1_pb2 import StorageClass
from pinnace.api.wellknown import BIND_COMPLETED_ANNOTATION
from pinnace.client.client import Client
from pinnace.fit.affinity import selects
from scheduler.framework import (
    SKIP,
    BoolArray,
    Change,
    ClusterEvent,
    CycleState,
    FilterResult,
    IntArray,
    NodeTable,
    PodInfo,
    Sees,
    Status,
    Verdicts,
)
from scheduler.framework.filtering import BUDGET
from scheduler.plugins.helper import Objects
from scheduler.plugins.volume_matching import NONE, Candidate, Catalogue, in_order, match, reachable
from scheduler.plugins.volumes import Volumes, claims_of, is_about_claims, is_bound, may_be_claim_of

BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
SELECTED_NODE = "volume.kubernetes.io/selected-node"


async def bind_volume(client: Client, claim: PersistentVolumeClaim, volume: PersistentVolume) -> None:
    """Raises ApiError: a Conflict when somebody else has changed one of them."""
    volumes, claims = client.of(PERSISTENT_VOLUMES), client.of(PERSISTENT_VOLUME_CLAIMS)
    own, theirs = PersistentVolume(), PersistentVolumeClaim()
    own.CopyFrom(volume)
    theirs.CopyFrom(claim)
    own.spec.claimRef.CopyFrom(_reference(claim))
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
    """Asks the class's provisioner for a volume that can be reached from the node. Raises ApiError."""
    theirs = PersistentVolumeClaim()
    theirs.CopyFrom(claim)
    if theirs.metadata.annotations.get(SELECTED_NODE) != node:
        theirs.metadata.annotations[SELECTED_NODE] = node
        await client.of(PERSISTENT_VOLUME_CLAIMS).update(theirs)


def _reference(claim: PersistentVolumeClaim) -> ObjectReference:
    meta = claim.metadata
    return ObjectReference(
        kind="PersistentVolumeClaim", apiVersion="v1", namespace=meta.namespace, name=meta.name, uid=meta.uid
    )


UNBOUND_IMMEDIATE = "pod has unbound immediate PersistentVolumeClaims"
OUT_OF_REACH = "node(s) didn't match PersistentVolume's node affinity"
NOTHING_TO_BIND = "node(s) didn't find available persistent volumes to bind"
NO_SUCH_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
TOO_MANY = "node(s) could not be checked: the pod has too many unbound persistentvolumeclaims for so many nodes"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
POLL = 0.1
"""Seconds between looks at a claim whose volume is being made."""
_REASONS = (OUT_OF_REACH, NOTHING_TO_BIND, NO_SUCH_VOLUME)
_MATCH, _ALWAYS_MATCHED = 8e-9, 16
"""Seconds to hold one claim's volume against that of another on one node; the claims that are matched whatever it takes."""
_STATE, _WORK = "VolumeBinding.claims", "VolumeBinding.work"


class Handle(Objects, Protocol):
    @property
    def client(self) -> Client: ...


@dataclass(slots=True)
class _Claims:
    """Of one pod, and what `filter` found for those that wait."""

    volumes: list[PersistentVolume] = field(default_factory=list)
    lost: bool = False
    """A claim is bound to a volume that does not exist."""
    waiting: list[PersistentVolumeClaim] = field(default_factory=list)
    candidates: list[list[Candidate]] = field(default_factory=list)
    chosen: list[IntArray] = field(default_factory=list)
    nodes: NodeTable | None = None
    too_many: bool = False
    """Of those that wait: they are not matched, since a decision must end."""


@dataclass(frozen=True, slots=True)
class _Work:
    """What PreBind has to do."""

    bind: Sequence[tuple[PersistentVolumeClaim, PersistentVolume]]
    provision: Sequence[PersistentVolumeClaim]


class VolumeBinding:
    name = "VolumeBinding"
    skip_sees = Sees.NODES
    needs = (PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES)
    writes = (PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES)
    helped_by = Change.NODE_ADDED | Change.NODE_LABELS | Change.RESERVATION_ENDED | Change.OBJECT

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._objects = Volumes(handle)
        self._catalogue = Catalogue(self._objects.volumes)
        self._taken: dict[str, str] = {}
        """Volumes that are set aside: the claim's key, by name."""
        self._nodes: dict[str, str] = {}
        """Claims for which a volume is to be made: the node, by key."""

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        keys = claims_of(pod)
        if not keys:
            return SKIP
        found = _Claims()
        immediate = False
        for key in keys:
            claim = self._objects.claim_of(pod, key)
            if isinstance(claim, str):
                return Status(claim)
            if is_bound(claim):
                volume = self._objects.volume_of(claim)
                found.lost |= volume is None
                if volume is not None and volume.spec.nodeAffinity.HasField("required"):
                    found.volumes.append(volume)
            elif binds_at_once(self._objects, claim):
                immediate = True
            else:
                found.waiting.append(claim)
        if immediate:
            return Status(UNBOUND_IMMEDIATE)
        state[_STATE] = found
        return None if found.volumes or found.lost or found.waiting else SKIP

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
        found: _Claims = state[_STATE]
        near = np.ones(len(nodes), np.bool_)
        for volume in found.volumes:
            near &= reachable(volume, nodes)
        met = self._meet(found, nodes)
        passed = near & met & (not found.lost)

        def explain() -> Verdicts:
            """A code has one bit for each reason."""
            if found.too_many:
                return Verdicts(np.ones(len(nodes), np.int64), lambda _: [TOO_MANY])
            codes = ~near * 1 + ~met * 2 + np.full(len(nodes), found.lost) * 4
            return Verdicts(codes, lambda code: [reason for bit, reason in enumerate(_REASONS) if code >> bit & 1])

        return FilterResult(passed, explain)

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        """A volume that has been given to somebody helps nobody else."""
        if Change.OBJECT not in event.change or event.resource == STORAGE_CLASSES.plural:
            return True
        if isinstance(event.obj, PersistentVolume):
            return not event.obj.spec.HasField("claimRef") or may_be_claim_of(pod, event.obj.spec.claimRef.name)
        return is_about_claims(event, pod)

    def reserve(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        found: _Claims | None = state.get(_STATE)
        if found is None or not found.waiting or found.nodes is None:
            return SKIP
        row = found.nodes.row(node)
        bind: list[tuple[PersistentVolumeClaim, PersistentVolume]] = []
        provision: list[PersistentVolumeClaim] = []
        for claim, candidates, chosen in zip(found.waiting, found.candidates, found.chosen, strict=True):
            rank = NONE if row is None else int(chosen[row])
            if rank == NONE:
                self._nodes[store_key(claim)] = node
                provision.append(claim)
            else:
                self._taken[candidates[rank].name] = store_key(claim)
                bind.append((claim, candidates[rank].volume))
        state[_WORK] = _Work(bind, provision)
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node: str) -> None:
        work: _Work | None = state.pop(_WORK, None)
        if work is not None:
            for _, volume in work.bind:
                self._taken.pop(volume.metadata.name, None)
            for claim in work.provision:
                self._nodes.pop(store_key(claim), None)

    def pre_flight(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        return None if _WORK in state else SKIP

    async def pre_bind(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        work: _Work = state[_WORK]
        for claim, volume in work.bind:
            if (refused := self._out_of_reach(volume, node)) is not None:
                return refused
            await bind_volume(self._handle.client, claim, volume)
        for claim in work.provision:
            await choose_node(self._handle.client, claim, node)
        return await self._made(work.provision, pod, node)

    async def _made(self, claims: Iterable[PersistentVolumeClaim], pod: PodInfo, node: str) -> Status | None:
        """Waits for the provisioner. It gives up by taking the node's name back."""
        for claim in claims:
            key, chosen = store_key(claim), False
            while True:
                if self._is_gone(pod):
                    return Status(f'pod "{pod.key}" does not exist any more')
                now = self._objects.claims.get(key)
                if now is None or now.metadata.uid != claim.metadata.uid:
                    return Status(f'PVC "{key}" was deleted while its volume was being made')
                if is_bound(now):
                    if (volume := self._objects.volume_of(now)) is not None:
                        if (refused := self._out_of_reach(volume, node)) is not None:
                            return refused
                        break
                elif now.metadata.annotations.get(SELECTED_NODE) == node:
                    chosen = True
                elif chosen:
                    return Status(f'provisioning failed for PVC "{key}"')
                await asyncio.sleep(POLL)
        return None

    def _is_gone(self, pod: PodInfo) -> bool:
        """Or going: nobody can bind it any more."""
        now = self._handle.objects(PODS).get(pod.key)
        return now is None or now.metadata.uid != pod.uid or now.metadata.HasField("deletionTimestamp")

    def _out_of_reach(self, volume: PersistentVolume, name: str) -> Status | None:
        """None: it is not, or the node is gone."""
        node, affinity = self._handle.objects(NODES).get(name), volume.spec.nodeAffinity
        if node is None or not affinity.HasField("required") or selects(affinity.required, node):
            return None
        return Status(f'pv "{volume.metadata.name}" node affinity doesn\'t match node "{name}"')

    def _meet(self, found: _Claims, nodes: NodeTable) -> BoolArray:
        """The nodes on which every claim that waits gets a volume."""
        met = np.ones(len(nodes), np.bool_)
        if not found.waiting:
            return met
        self._catalogue.follow()
        self._settle()
        found.nodes = nodes
        found.waiting = in_order(found.waiting)
        nodes_chosen = [self._chosen_node(claim) for claim in found.waiting]
        known: dict[Hashable, list[Candidate]] = {}
        found.candidates = [
            [] if node else self._catalogue.candidates(claim, self._taken, known)
            for claim, node in zip(found.waiting, nodes_chosen, strict=True)
        ]
        choosing = sum(map(bool, found.candidates))
        if choosing > _ALWAYS_MATCHED and choosing**2 * len(nodes) * _MATCH > BUDGET:
            found.too_many = True
            return np.zeros(len(nodes), np.bool_)
        found.chosen = match(found.candidates, nodes)
        for claim, node, chosen in zip(found.waiting, nodes_chosen, found.chosen, strict=True):
            can_make = self._can_make(claim, nodes)
            if node:
                only = np.zeros(len(nodes), np.bool_)
                only[nodes.rows((node,))] = True
                can_make &= only
            met &= (chosen != NONE) | can_make
        return met

    def _chosen_node(self, claim: PersistentVolumeClaim) -> str:
        """The node for which the claim's volume is being made; empty: it is not."""
        return claim.metadata.annotations.get(SELECTED_NODE) or self._nodes.get(store_key(claim), "")

    def _can_make(self, claim: PersistentVolumeClaim, nodes: NodeTable) -> BoolArray:
        """The nodes for which the class's provisioner can make a volume."""
        storage_class = self._objects.classes[class_of(claim)]
        if storage_class.provisioner == NO_PROVISIONER:
            return np.zeros(len(nodes), np.bool_)
        return _allowed(storage_class, nodes)

    def _settle(self) -> None:
        """Forgets what was set aside for claims that are seen to be bound, or are gone."""
        for name, key in list(self._taken.items()):
            if name not in self._objects.volumes or self._is_settled(key):
                del self._taken[name]
        for key in [key for key in self._nodes if self._is_settled(key)]:
            del self._nodes[key]

    def _is_settled(self, key: str) -> bool:
        claim = self._objects.claims.get(key)
        return claim is None or is_bound(claim)


def binds_at_once(objects: Volumes, claim: PersistentVolumeClaim) -> bool:
    """Is it unbound, and to be bound by somebody else than this plugin?"""
    return not is_bound(claim) and bool(claim.spec.volumeName or not objects.waits_for_consumer(claim))


def _allowed(storage_class: StorageClass, nodes: NodeTable) -> BoolArray:
    """The nodes in the topologies of the class; a term without requirements allows none."""
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
