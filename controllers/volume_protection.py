"""Protects volumes and claims in use: they have a finalizer, which this controller removes when they are being deleted and no
longer used.

    claim    used by a pod with a node, even if the pod has finished: a kubelet may have mounted it
    volume   Bound

The API server sets the finalizers of new objects, and this controller those of older ones. A pod that is not scheduled yet does
not count: the scheduler refuses a claim that is being deleted.

Source: pkg/controller/volume/pvcprotection and pvprotection of Kubernetes 1.36.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from pinnace.api.core_v1_pb2 import PersistentVolume, PersistentVolumeClaim, Pod
from pinnace.api.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, store_key
from pinnace.api.wellknown import CLAIM_PROTECTION_FINALIZER, VOLUME_PROTECTION_FINALIZER
from pinnace.client.errors import NotFound
from pinnace.client.informer import Delta
from pinnace.controllers.pods import claim_keys_of_pod
from pinnace.controllers.runtime import ControllerContext, WatchedResource, key_of_object


class VolumeProtectionController:
    """A key with a slash is a claim, another one a volume."""

    name = "volume-protection"
    workers = 4
    max_backoff = 60.0

    def __init__(self, shared: ControllerContext) -> None:
        self._volumes_client = shared.client.of(PERSISTENT_VOLUMES)
        self._claims_client = shared.client.of(PERSISTENT_VOLUME_CLAIMS)
        self._volumes = shared.informers.store(PERSISTENT_VOLUMES)
        self._claims = shared.informers.store(PERSISTENT_VOLUME_CLAIMS)
        self._users = shared.informers.claim_users
        self._pods_client = shared.client.pods

    @property
    def watches(self) -> Sequence[WatchedResource[Any]]:
        return (
            WatchedResource(PERSISTENT_VOLUMES, key_of_object),
            WatchedResource(PERSISTENT_VOLUME_CLAIMS, key_of_object),
            WatchedResource(PODS, self._keys_of_pod),
        )

    async def sync(self, key: str) -> None:
        if "/" not in key:
            await self._sync_volume(key)
            return
        claim = self._claims.get(key)
        if claim is None:
            return
        deleting = claim.metadata.HasField("deletionTimestamp")
        protected = CLAIM_PROTECTION_FINALIZER in claim.metadata.finalizers
        if deleting != protected or (deleting and (self._users.is_used(key) or await self._is_used_now(claim))):
            return
        changed = PersistentVolumeClaim()
        changed.CopyFrom(claim)
        _set_finalizer(changed, CLAIM_PROTECTION_FINALIZER, present=not deleting)
        try:
            await self._claims_client.update(changed)
        except NotFound:
            return

    async def _sync_volume(self, key: str) -> None:
        volume = self._volumes.get(key)
        if volume is None:
            return
        deleting = volume.metadata.HasField("deletionTimestamp")
        protected = VOLUME_PROTECTION_FINALIZER in volume.metadata.finalizers
        if deleting != protected or (deleting and volume.status.phase == "Bound"):
            return
        changed = PersistentVolume()
        changed.CopyFrom(volume)
        _set_finalizer(changed, VOLUME_PROTECTION_FINALIZER, present=not deleting)
        try:
            await self._volumes_client.update(changed)
        except NotFound:
            return

    async def _is_used_now(self, claim: PersistentVolumeClaim) -> bool:
        """Read the pods of the namespace from the API server: the informer may not have the last ones yet."""
        listing = await self._pods_client.list(claim.metadata.namespace)
        key = store_key(claim)
        return any(pod.spec.nodeName and key in claim_keys_of_pod(pod) for pod in listing.items)

    def _keys_of_pod(self, delta: Delta[Pod]) -> Iterable[str]:
        """Return the claims of a pod that are being deleted."""
        for key in claim_keys_of_pod(delta.obj):
            claim = self._claims.get(key)
            if claim is not None and claim.metadata.HasField("deletionTimestamp"):
                yield key


def _set_finalizer(obj: PersistentVolume | PersistentVolumeClaim, finalizer: str, *, present: bool) -> None:
    if present:
        obj.metadata.finalizers.append(finalizer)
    else:
        obj.metadata.finalizers.remove(finalizer)
