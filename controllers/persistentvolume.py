"""The persistent volume controller: binds claims to volumes, releases and reclaims volumes, and expands them.

The decisions are in volume_binding.py. A binding is four writes: the claimRef of the volume, the volumeName of the claim, and
both phases. Each write compares the version of its object, and each sync continues where the last one stopped, so a controller
may stop between any two of them. The claimRef is written first: no other claim takes the volume afterwards.

A claim of a class that waits for its first consumer is bound by the scheduler (scheduler.plugins.volume_binding), which does
these writes itself. This controller does not interfere for SCHEDULER_GRACE seconds, and then completes the binding. Before a
volume is released, the API server confirms that the claim does not exist.

A key with a slash is a claim, another one a volume.

Source: pkg/controller/volume/persistentvolume and pkg/controller/volume/expand of Kubernetes 1.36.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from pinnace.api.core_v1_pb2 import PersistentVolume, PersistentVolumeClaim
from pinnace.api.pods import class_of
from pinnace.api.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES, Object, store_key
from pinnace.api.storage_v1_pb2 import StorageClass
from pinnace.api.verbs_pb2 import DELETED
from pinnace.api.wellknown import BOUND_BY_CONTROLLER, OLD_STORAGE_PROVISIONER, STORAGE_PROVISIONER
from pinnace.client.errors import NotFound
from pinnace.client.informer import Delta
from pinnace.controllers.runtime import ControllerContext, WatchedResource
from pinnace.controllers.volume_binding import (
    AVAILABLE,
    BOUND,
    LOST,
    RELEASED,
    ClaimPlan,
    VolumeEvent,
    bound_claim,
    bound_claim_status,
    bound_volume,
    choose_volume,
    expanded_volume,
    is_binding_delayed,
    is_expanded_by_driver,
    plan_claim,
    plan_volume,
    refers_to_claim,
)
from pinnace.controllers.writes import Expectations
from pinnace.fit.volumes import VolumeCatalogue, volume_size

SCHEDULER_GRACE = 5.0
"""Seconds for a scheduler to complete a binding that it has begun."""
T = TypeVar("T", PersistentVolume, PersistentVolumeClaim)


def claim_key(volume: PersistentVolume) -> str:
    """Return the store key of the claim that the volume refers to, or ""."""
    reference = volume.spec.claimRef
    return f"{reference.namespace}/{reference.name}" if volume.spec.HasField("claimRef") else ""


def bound_volume_name(claim: PersistentVolumeClaim) -> str:
    return claim.spec.volumeName


def pending_class_key(claim: PersistentVolumeClaim) -> str:
    """Return "=" and the class of a claim that has no volume, or ""."""
    return "" if claim.spec.volumeName or claim.status.phase in (BOUND, LOST) else f"={class_of(claim)}"


class PersistentVolumeController:
    name = "persistentvolume"
    workers = 4
    max_backoff = 60.0

    def __init__(self, shared: ControllerContext) -> None:
        informers = shared.informers
        self._volumes_client = shared.client.of(PERSISTENT_VOLUMES)
        self._claims_client = shared.client.of(PERSISTENT_VOLUME_CLAIMS)
        self._events = shared.events
        self._volumes = informers.store(PERSISTENT_VOLUMES)
        self._claims = informers.store(PERSISTENT_VOLUME_CLAIMS)
        self._classes = informers.store(STORAGE_CLASSES)
        self._by_claim = informers.index(PERSISTENT_VOLUMES, claim_key)
        self._by_volume = informers.index(PERSISTENT_VOLUME_CLAIMS, bound_volume_name)
        self._pending = informers.index(PERSISTENT_VOLUME_CLAIMS, pending_class_key)
        self._catalogue = VolumeCatalogue(self._volumes)
        self._catalogue.update_from_store()
        informers.add_handler(PERSISTENT_VOLUMES, self._catalogue.follow)
        self._users = informers.claim_users
        self._expectations = Expectations(informers)
        self._clock = shared.clock
        self._begun: dict[str, float] = {}
        """The times at which bindings of schedulers were first seen, in monotonic seconds."""
        self._reported: dict[str, VolumeEvent] = {}
        """The last event of each claim or volume, which is not repeated."""

    @property
    def watches(self) -> Sequence[WatchedResource[Any]]:
        return (
            WatchedResource(PERSISTENT_VOLUMES, self._keys_of_volume),
            WatchedResource(PERSISTENT_VOLUME_CLAIMS, self._keys_of_claim),
            WatchedResource(STORAGE_CLASSES, self._keys_of_class),
        )

    async def sync(self, key: str) -> float | None:
        await self._expectations.wait_until_met(key)
        if wait := self._seconds_for_scheduler(key):
            return wait
        if "/" in key:
            await self._sync_claim(key)
        else:
            await self._sync_volume(key)
        return None

    def _seconds_for_scheduler(self, key: str) -> float:
        """Return the remaining seconds for a scheduler that is binding the claim or volume, or 0."""
        if not self._is_scheduler_binding(key):
            self._begun.pop(key, None)
            return 0.0
        begun = self._begun.setdefault(key, self._clock.monotonic())
        return max(0.0, begun + SCHEDULER_GRACE - self._clock.monotonic())

    def _is_scheduler_binding(self, key: str) -> bool:
        """Return True if a scheduler has begun, and not completed, to bind the claim or volume."""
        if "/" in key:
            claim, volumes = self._claims.get(key), list(self._by_claim.under(key).values())
        else:
            volume = self._volumes.get(key)
            claim, volumes = (self._claims.get(claim_key(volume)), [volume]) if volume is not None else (None, [])
        if claim is None or not is_binding_delayed(self._classes.get(class_of(claim))):
            return False
        chosen = [item for item in volumes if refers_to_claim(item, claim) and BOUND_BY_CONTROLLER in item.metadata.annotations]
        return claim.status.phase != LOST and any(claim.status.phase != BOUND or item.status.phase != BOUND for item in chosen)

    async def _sync_claim(self, key: str) -> None:
        claim = self._claims.get(key)
        if claim is None:
            self._reported.pop(key, None)
            return
        plan = self._plan_claim(key, claim)
        if plan.bind is not None:
            await self._bind(key, claim, plan.bind)
            return
        if plan.provisioner and claim.metadata.annotations.get(STORAGE_PROVISIONER) != plan.provisioner:
            claim = _copy_object(claim)
            claim.metadata.annotations.update(dict.fromkeys((STORAGE_PROVISIONER, OLD_STORAGE_PROVISIONER), plan.provisioner))
            claim = await self._claims_client.update(claim)
            self._expectations.expect_version(key, PERSISTENT_VOLUME_CLAIMS, claim.metadata.resourceVersion)
        if plan.phase and plan.phase != claim.status.phase:
            claim = _copy_object(claim)
            claim.status.phase = plan.phase
            if plan.phase == LOST:
                claim.status.ClearField("accessModes")
                claim.status.capacity.clear()
            claim = await self._claims_client.update_status(claim)
            self._expectations.expect_version(key, PERSISTENT_VOLUME_CLAIMS, claim.metadata.resourceVersion)
        self._record_event(key, claim, plan.event)

    def _plan_claim(self, key: str, claim: PersistentVolumeClaim) -> ClaimPlan:
        storage_class = self._classes.get(class_of(claim))
        best = waiting_pod = None
        if not claim.spec.volumeName:
            candidates = self._catalogue.find_candidates(claim, {})
            if is_binding_delayed(storage_class):  # the scheduler chooses, unless a user has
                candidates = [item for item in candidates if refers_to_claim(item.volume, claim)]
                waiting_pod = self._users.first_unscheduled(key)
            best = None if claim.metadata.HasField("deletionTimestamp") else choose_volume(candidates)
        return plan_claim(claim, self._volumes, best, storage_class, waiting_pod or "")

    async def _bind(self, key: str, claim: PersistentVolumeClaim, volume: PersistentVolume) -> None:
        """Write what the binding lacks, and expand the volume if the claim has grown."""
        if (changed := bound_volume(volume, claim)) is not None:
            volume = await self._write_volume(key, changed)
        if volume.status.phase != BOUND:
            volume = _copy_object(volume)
            volume.status.phase = BOUND
            volume = await self._volumes_client.update_status(volume)
            self._expectations.expect_version(key, PERSISTENT_VOLUMES, volume.metadata.resourceVersion)
        if (named := bound_claim(claim, volume)) is not None:
            claim = await self._claims_client.update(named)
            self._expectations.expect_version(key, PERSISTENT_VOLUME_CLAIMS, claim.metadata.resourceVersion)
        storage_class = self._classes.get(class_of(claim))
        if (larger := expanded_volume(volume, claim, storage_class)) is not None:
            volume = await self._write_volume(key, larger)
            message = f"ExpandVolume succeeded for volume {volume.metadata.name}"
            self._events.event(claim, "Normal", "VolumeResizeSuccessful", message)
        elif is_expanded_by_driver(volume) and _is_too_small(volume, claim):
            message = "waiting for an external controller to expand this PVC"
            self._record_event(key, claim, VolumeEvent("Normal", "ExternalExpanding", message))
        if (bound := bound_claim_status(claim, volume)) is not None:
            claim = await self._claims_client.update_status(bound)
            self._expectations.expect_version(key, PERSISTENT_VOLUME_CLAIMS, claim.metadata.resourceVersion)

    async def _write_volume(self, key: str, volume: PersistentVolume) -> PersistentVolume:
        stored = await self._volumes_client.update(volume)
        self._expectations.expect_version(key, PERSISTENT_VOLUMES, stored.metadata.resourceVersion)
        return stored

    async def _sync_volume(self, key: str) -> None:
        volume = self._volumes.get(key)
        if volume is None:
            self._reported.pop(key, None)
            return
        plan = plan_volume(volume, self._claims.get(claim_key(volume)))
        if plan.phase == RELEASED or plan.delete or plan.event is not None:
            plan = plan_volume(volume, await self._read_claim(volume))
        if plan.unbind:
            volume = _copy_object(volume)
            if BOUND_BY_CONTROLLER in volume.metadata.annotations:
                volume.spec.ClearField("claimRef")
                del volume.metadata.annotations[BOUND_BY_CONTROLLER]
            else:
                volume.spec.claimRef.ClearField("uid")
            volume = await self._write_volume(key, volume)
        if plan.phase != volume.status.phase or plan.message != volume.status.message:
            volume = _copy_object(volume)
            volume.status.phase, volume.status.message = plan.phase, plan.message
            volume = await self._volumes_client.update_status(volume)
            self._expectations.expect_version(key, PERSISTENT_VOLUMES, volume.metadata.resourceVersion)
        self._record_event(key, volume, plan.event)
        if plan.delete:
            await self._delete_volume(volume)

    async def _delete_volume(self, volume: PersistentVolume) -> None:
        metadata = volume.metadata
        try:
            await self._volumes_client.delete(metadata.name, uid=metadata.uid, resource_version=metadata.resourceVersion)
        except NotFound:
            return

    async def _read_claim(self, volume: PersistentVolume) -> PersistentVolumeClaim | None:
        """Read the claim of a volume from the API server: the informer may not have a new claim yet."""
        reference = volume.spec.claimRef
        try:
            return await self._claims_client.get(reference.name, reference.namespace)
        except NotFound:
            return None

    def _record_event(self, key: str, obj: Object, event: VolumeEvent | None) -> None:
        """Record the event, unless it is the last one of this object."""
        if event is None:
            self._reported.pop(key, None)
        elif self._reported.get(key) != event:
            self._reported[key] = event
            self._events.event(obj, event.type, event.reason, event.message)

    def _keys_of_claim(self, delta: Delta[PersistentVolumeClaim]) -> Iterable[str]:
        """Return the claim, the volumes that refer to it, and the volume that it names."""
        key, claim = store_key(delta.obj), delta.obj
        yield key
        yield from (volume.metadata.name for volume in self._by_claim.under(key).values())
        if claim.spec.volumeName:
            yield claim.spec.volumeName

    def _keys_of_volume(self, delta: Delta[PersistentVolume]) -> Iterator[str]:
        """Return the volume, its claim, the claims that name it, and the claims that it may satisfy."""
        volume = delta.obj
        yield volume.metadata.name
        if key := claim_key(volume):
            yield key
        yield from map(store_key, self._by_volume.under(volume.metadata.name).values())
        if delta.kind != DELETED and not key and volume.status.phase == AVAILABLE:
            for claim in self._pending.under(f"={class_of(volume)}").values():
                if not _is_too_small(volume, claim):
                    yield store_key(claim)

    def _keys_of_class(self, delta: Delta[StorageClass]) -> Iterable[str]:
        yield from map(store_key, self._pending.under(f"={delta.obj.metadata.name}").values())


def _copy_object(obj: T) -> T:
    changed = type(obj)()
    changed.CopyFrom(obj)
    return changed


def _is_too_small(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    return volume_size(volume.spec.capacity) < volume_size(claim.spec.resources.requests)
