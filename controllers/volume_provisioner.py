"""The provisioner of volumes in a local cluster: a directory of this machine for each claim of the class `standard`.

    claim     Pending, its class has PROVISIONER, and a node is selected, or the class does not wait --> a volume pvc-UID
    volume    Released, provisioned by PROVISIONER, Delete --> its directory is removed, then the volume

The volume is a hostPath of type DirectoryOrCreate, so the kubelet that first mounts it creates the directory. All kubelets must
share this machine: the volume has no node affinity. Nothing limits its size.

Each half is one write with a name or precondition of its own, so a provisioner may stop at any point: the name of the volume
contains the uid of the claim, and a directory is removed before its volume. A directory is removed only if the API server
confirms that the volume is Released and that its path is the one that this provisioner gives to a volume of this name. The
directory of a volume that a user deletes, or whose policy is Retain, stays.

Source: sig-storage-lib-external-provisioner and the controller of local-path-provisioner, for annotations, events and messages.
"""

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pinnace.api.core_v1_pb2 import PersistentVolume, PersistentVolumeClaim
from pinnace.api.pods import class_of
from pinnace.api.resources import NAMESPACES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES, store_key
from pinnace.api.storage_v1_pb2 import StorageClass
from pinnace.api.wellknown import DEFAULT_CLASS_ANNOTATION, PROVISIONED_BY, SELECTED_NODE, STORAGE_PROVISIONER
from pinnace.client.errors import AlreadyExists, NotFound
from pinnace.client.informer import Delta
from pinnace.controllers.runtime import ControllerContext, WatchedResource
from pinnace.controllers.volume_binding import RELEASED, is_binding_delayed
from pinnace.fit.volumes import FILESYSTEM, claim_reference
from pinnace.runtime.files import remove_tree

PROVISIONER = "pinnace.io/host-path"
CLASS = "standard"
"""The class that a new leader creates if it does not exist."""
_CLASS_KEY = "="
"""The key of CLASS. Other keys are those of claims, with a slash, and of volumes."""
_FIRST_NAMESPACE = "default"
"""The namespace with whose arrival the class is created: each leader sees it once."""


def default_class() -> StorageClass:
    made = StorageClass(
        provisioner=PROVISIONER, reclaimPolicy="Delete", volumeBindingMode="WaitForFirstConsumer", allowVolumeExpansion=True
    )
    made.metadata.name = CLASS
    made.metadata.annotations[DEFAULT_CLASS_ANNOTATION] = "true"
    return made


def volume_name(claim: PersistentVolumeClaim) -> str:
    return f"pvc-{claim.metadata.uid}"


def is_requested(claim: PersistentVolumeClaim, storage_class: StorageClass | None) -> bool:
    """Return True if the claim waits for a volume of this provisioner."""
    metadata = claim.metadata
    if claim.spec.volumeName or metadata.HasField("deletionTimestamp") or storage_class is None:
        return False
    requested = metadata.annotations.get(STORAGE_PROVISIONER) == storage_class.provisioner == PROVISIONER
    return requested and (SELECTED_NODE in metadata.annotations or not is_binding_delayed(storage_class))


def unsupported_request(claim: PersistentVolumeClaim) -> str:
    """Return why the provisioner cannot satisfy the claim, or ""."""
    if claim.spec.volumeMode not in ("", FILESYSTEM):
        return f"volumeMode {claim.spec.volumeMode} is not supported: use {FILESYSTEM}"
    if claim.spec.HasField("selector"):
        return "claim.Spec.Selector is not supported"
    if claim.spec.HasField("dataSource") or claim.spec.HasField("dataSourceRef"):
        return "a dataSource is not supported: the volumes are empty directories"
    return ""


def provisioned_volume(claim: PersistentVolumeClaim, storage_class: StorageClass, directory: Path) -> PersistentVolume:
    """Return the volume for the claim, with its directory below `directory`."""
    made = PersistentVolume()
    made.metadata.name = volume_name(claim)
    made.metadata.annotations[PROVISIONED_BY] = PROVISIONER
    spec = made.spec
    spec.capacity["storage"].CopyFrom(claim.spec.resources.requests["storage"])
    spec.accessModes[:] = claim.spec.accessModes
    spec.persistentVolumeReclaimPolicy = storage_class.reclaimPolicy or "Delete"
    spec.storageClassName = storage_class.metadata.name
    spec.mountOptions[:] = storage_class.mountOptions
    spec.volumeMode = FILESYSTEM
    spec.claimRef.CopyFrom(claim_reference(claim))
    spec.persistentVolumeSource.hostPath.path = str(directory / made.metadata.name)
    spec.persistentVolumeSource.hostPath.type = "DirectoryOrCreate"
    return made


def is_reclaimable(volume: PersistentVolume) -> bool:
    """Return True if the volume and its data are to be deleted by this provisioner."""
    return (
        volume.status.phase == RELEASED
        and volume.spec.persistentVolumeReclaimPolicy == "Delete"
        and volume.metadata.annotations.get(PROVISIONED_BY) == PROVISIONER
        and not volume.metadata.HasField("deletionTimestamp")
    )


class VolumeProvisioner:
    """`directory`: of this machine, for the directories of volumes."""

    name = "volume-provisioner"
    workers = 4
    max_backoff = 60.0

    def __init__(self, shared: ControllerContext, directory: Path) -> None:
        self._directory = directory
        self._events = shared.events
        self._classes_client = shared.client.of(STORAGE_CLASSES)
        self._volumes_client = shared.client.of(PERSISTENT_VOLUMES)
        self._volumes = shared.informers.store(PERSISTENT_VOLUMES)
        self._claims = shared.informers.store(PERSISTENT_VOLUME_CLAIMS)
        self._classes = shared.informers.store(STORAGE_CLASSES)
        self._failed: dict[str, str] = {}
        """The message of the last failure of each claim or volume, which is not repeated."""

    @property
    def watches(self) -> Sequence[WatchedResource[Any]]:
        return (
            WatchedResource(NAMESPACES, lambda delta: [_CLASS_KEY] if delta.obj.metadata.name == _FIRST_NAMESPACE else []),
            WatchedResource(STORAGE_CLASSES, self._keys_of_class),
            WatchedResource(PERSISTENT_VOLUME_CLAIMS, lambda delta: [store_key(delta.obj)]),
            WatchedResource(PERSISTENT_VOLUMES, lambda delta: [delta.obj.metadata.name]),
        )

    async def sync(self, key: str) -> None:
        if key == _CLASS_KEY:
            await self._create_class()
        elif "/" in key:
            await self._sync_claim(key)
        else:
            await self._sync_volume(key)

    async def _create_class(self) -> None:
        if CLASS in self._classes:
            return
        try:
            await self._classes_client.create(default_class())
        except AlreadyExists:
            return

    async def _sync_claim(self, key: str) -> None:
        claim = self._claims.get(key)
        storage_class = self._classes.get(class_of(claim)) if claim is not None else None
        if claim is None or storage_class is None or not is_requested(claim, storage_class):
            self._failed.pop(key, None)
            return
        if volume_name(claim) in self._volumes:
            return  # the volume controller binds it
        if problem := unsupported_request(claim):
            message = f'failed to provision volume with StorageClass "{storage_class.metadata.name}": {problem}'
            self._report_failure(key, claim, "ProvisioningFailed", message)
            return
        message = f'External provisioner is provisioning volume for claim "{key}"'
        self._events.event(claim, "Normal", "Provisioning", message)
        try:
            volume = await self._volumes_client.create(provisioned_volume(claim, storage_class, self._directory))
        except AlreadyExists:
            return
        message = f"Successfully provisioned volume {volume.metadata.name}"
        self._events.event(claim, "Normal", "ProvisioningSucceeded", message)

    async def _sync_volume(self, name: str) -> None:
        volume = self._volumes.get(name)
        if volume is None or not is_reclaimable(volume):
            self._failed.pop(name, None)
            return
        try:
            volume = await self._volumes_client.get(name)
        except NotFound:
            return
        if not is_reclaimable(volume):
            return
        path, own = volume.spec.persistentVolumeSource.hostPath.path, self._directory / name
        problem = f"{path} is not {own}" if path != str(own) else await asyncio.to_thread(_remove_directory, own)
        if problem:
            self._report_failure(name, volume, "VolumeFailedDelete", f"{problem}: remove the directory and the volume manually")
            return
        metadata = volume.metadata
        try:
            await self._volumes_client.delete(name, uid=metadata.uid, resource_version=metadata.resourceVersion)
        except NotFound:
            return

    def _report_failure(self, key: str, obj: PersistentVolumeClaim | PersistentVolume, reason: str, message: str) -> None:
        if self._failed.get(key) != message:
            self._failed[key] = message
            self._events.event(obj, "Warning", reason, message)

    def _keys_of_class(self, delta: Delta[StorageClass]) -> Iterable[str]:
        """Return the claims without a volume of a class, which may have waited for it."""
        name = delta.obj.metadata.name
        return [key for key, claim in self._claims.items() if not claim.spec.volumeName and class_of(claim) == name]


def _remove_directory(path: Path) -> str:
    """Remove the directory of a volume, which does not exist if no pod has mounted it. Return the problem, or ""."""
    try:
        remove_tree(path)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"{error.filename} cannot be removed: {error.strerror or error}"
    return ""
