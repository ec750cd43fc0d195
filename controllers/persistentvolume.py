"""The persistent volume controller: the phases of volumes after their claims change.

    no claimRef, or one without a uid                    Available
    the claim of the claimRef is bound to the volume     Bound
    the claim of the claimRef does not exist             Released

A released volume contains the data of its claim, so it is not used again until a client removes its claimRef. Nothing deletes
the data: a volume with the reclaim policy Delete stays Released until its provisioner deletes it.

A bound claim whose volume is deleted is Lost. It is Bound again when a volume with this name refers to it.

The scheduler binds volumes (scheduler.plugins.volume_binding). Before a volume is released, the API server confirms that the
claim does not exist.

Source: pkg/controller/volume/persistentvolume (syncVolume, syncBoundClaim) of Kubernetes 1.36.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from pinnace.api.core_v1_pb2 import PersistentVolume, PersistentVolumeClaim
from pinnace.api.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, store_key
from pinnace.client.errors import NotFound
from pinnace.client.informer import Delta
from pinnace.controllers.runtime import ControllerContext, WatchedResource, key_of_object

AVAILABLE, BOUND, RELEASED, FAILED, LOST = "Available", "Bound", "Released", "Failed", "Lost"
_LOST_MESSAGE = "Bound claim has lost its PersistentVolume. Data on the volume is lost!"


def volume_phase(volume: PersistentVolume, claim: PersistentVolumeClaim | None) -> str:
    """Return the phase of a volume. `claim`: the claim that its claimRef names, or None. The phase stays while a bind is not
    complete."""
    reference, phase = volume.spec.claimRef, volume.status.phase
    if not volume.spec.HasField("claimRef"):
        return AVAILABLE
    if not reference.uid:
        return AVAILABLE if phase in (RELEASED, FAILED) else phase
    if claim is None or claim.metadata.uid != reference.uid:
        return phase if phase == FAILED else RELEASED
    return BOUND if claim.spec.volumeName == volume.metadata.name else phase


def claim_phase(claim: PersistentVolumeClaim, volume: PersistentVolume | None) -> str:
    """Return the phase of a claim that is or was bound. `volume`: the volume that it names, or None."""
    phase = claim.status.phase
    if volume is None:
        return LOST if phase == BOUND else phase
    return BOUND if phase == LOST and volume.spec.claimRef.uid == claim.metadata.uid else phase


def claim_key(volume: PersistentVolume) -> str:
    """Return the store key of the claim that the volume refers to, or ""."""
    reference = volume.spec.claimRef
    return f"{reference.namespace}/{reference.name}" if volume.spec.HasField("claimRef") else ""


def bound_volume_name(claim: PersistentVolumeClaim) -> str:
    return claim.spec.volumeName


class PersistentVolumeController:
    name = "persistentvolume"
    workers = 4
    max_backoff = 60.0

    def __init__(self, shared: ControllerContext) -> None:
        self._volumes_client = shared.client.of(PERSISTENT_VOLUMES)
        self._claims_client = shared.client.of(PERSISTENT_VOLUME_CLAIMS)
        self._events = shared.events
        self._volumes = shared.informers.store(PERSISTENT_VOLUMES)
        self._claims = shared.informers.store(PERSISTENT_VOLUME_CLAIMS)
        self._by_claim = shared.informers.index(PERSISTENT_VOLUMES, claim_key)
        self._by_volume = shared.informers.index(PERSISTENT_VOLUME_CLAIMS, bound_volume_name)

    @property
    def watches(self) -> Sequence[WatchedResource[Any]]:
        return (
            WatchedResource(PERSISTENT_VOLUMES, key_of_object),
            WatchedResource(PERSISTENT_VOLUME_CLAIMS, self._keys_of_claim),
        )

    async def sync(self, key: str) -> None:
        """Write the phases of a volume and of the claims that name it. `key`: the name of the volume."""
        volume = self._volumes.get(key)
        if volume is not None:
            await self._sync_volume(volume)
        for claim in list(self._by_volume.under(key).values()):
            if (phase := claim_phase(claim, volume)) != claim.status.phase:
                await self._write_claim(claim, phase)

    async def _sync_volume(self, volume: PersistentVolume) -> None:
        claim = self._claims.get(claim_key(volume))
        phase = volume_phase(volume, claim)
        if phase == RELEASED != volume.status.phase:
            phase = volume_phase(volume, await self._read_claim(volume))
        if phase == volume.status.phase:
            return
        changed = PersistentVolume()
        changed.CopyFrom(volume)
        changed.status.phase = phase
        await self._volumes_client.update_status(changed)

    async def _read_claim(self, volume: PersistentVolume) -> PersistentVolumeClaim | None:
        """Read the claim of a volume from the API server: the informer may not have a new claim yet."""
        reference = volume.spec.claimRef
        try:
            return await self._claims_client.get(reference.name, reference.namespace)
        except NotFound:
            return None

    async def _write_claim(self, claim: PersistentVolumeClaim, phase: str) -> None:
        changed = PersistentVolumeClaim()
        changed.CopyFrom(claim)
        changed.status.phase = phase
        await self._claims_client.update_status(changed)
        if phase == LOST:
            self._events.event(claim, "Warning", "ClaimLost", _LOST_MESSAGE)

    def _keys_of_claim(self, delta: Delta[PersistentVolumeClaim]) -> Iterable[str]:
        """Return the names of the volumes that refer to the claim, and of the volume that it names."""
        claim = delta.obj
        yield from (volume.metadata.name for volume in self._by_claim.under(store_key(claim)).values())
        if claim.spec.volumeName:
            yield claim.spec.volumeName
