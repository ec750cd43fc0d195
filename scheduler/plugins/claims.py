"""What the volume plugins share: the claims of a pod, and what they are bound to."""

import re
from collections.abc import Mapping

from pinnace.api.core_v1_pb2 import PersistentVolume, PersistentVolumeClaim
from pinnace.api.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES
from pinnace.api.storage_v1_pb2 import StorageClass
from pinnace.api.storageclass import class_of
from pinnace.api.wellknown import BIND_COMPLETED_ANNOTATION
from scheduler.framework import ClusterEvent, PodInfo
from scheduler.plugins.listers import Objects


class Volumes:
    """The objects as they are now."""

    def __init__(self, handle: Objects) -> None:
        self.claims: Mapping[str, PersistentVolumeClaim] = handle.objects(PERSISTENT_VOLUME_CLAIMS)
        self.volumes: Mapping[str, PersistentVolume] = handle.objects(PERSISTENT_VOLUMES)
        self.classes: Mapping[str, StorageClass] = handle.objects(STORAGE_CLASSES)

    def claim_of(self, pod: PodInfo, key: str) -> PersistentVolumeClaim | str:
        """A claim that the pod uses; or why the pod cannot use it."""
        name = key.partition("/")[2]
        claim = self.claims.get(key)
        if claim is None:
            return not_there(pod, key)
        if claim.status.phase == "Lost":
            return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{claim.spec.volumeName}"'
        if claim.metadata.HasField("deletionTimestamp"):
            return f'persistentvolumeclaim "{name}" is being deleted'
        if _is_ephemeral(pod, key) and not any(
            owner.controller and owner.uid == pod.uid for owner in claim.metadata.ownerReferences
        ):
            return f'PVC "{key}" was not created for pod "{pod.key}" (pod is not owner)'
        return claim

    def volume_of(self, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        return self.volumes.get(claim.spec.volumeName) if claim.spec.volumeName else None

    def waits_for_consumer(self, claim: PersistentVolumeClaim) -> bool:
        """Is the claim only bound when a pod that uses it is scheduled?"""
        storage_class = self.classes.get(class_of(claim))
        return storage_class is not None and storage_class.volumeBindingMode == "WaitForFirstConsumer"


_NOT_FOUND = 'persistentvolumeclaim "{}" not found'


def not_there(pod: PodInfo, key: str) -> str:
    """Of a claim that the pod uses, in the words of an event, as Kubernetes has them."""
    name = key.partition("/")[2]
    if _is_ephemeral(pod, key):
        return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
    return _NOT_FOUND.format(name)


def missing(reason: str) -> str:
    """The name of a claim that somebody has to create, if this is what `not_there` says; else empty."""
    found = re.fullmatch(_NOT_FOUND.format("(.+)"), reason)
    return found[1] if found is not None else ""


def is_bound(claim: PersistentVolumeClaim) -> bool:
    """Both sides know of each other: whoever bound them has said so."""
    completed = claim.status.phase == "Bound" or BIND_COMPLETED_ANNOTATION in claim.metadata.annotations
    return bool(claim.spec.volumeName) and completed


def claims_of(pod: PodInfo) -> tuple[str, ...]:
    return pod.volumes.claims if pod.volumes is not None else ()


def is_about_claims(event: ClusterEvent, pod: PodInfo) -> bool:
    """Is it perhaps one of the pod's claims that has changed? By name alone, for all pods of one template; the names of
    ephemeral claims are not those of the template."""
    if event.resource != PERSISTENT_VOLUME_CLAIMS.plural or event.obj is None:
        return False
    return may_be_claim_of(pod, event.obj.metadata.name)


def may_be_claim_of(pod: PodInfo, name: str) -> bool:
    """Has the pod, or one that is alike, a claim of this name?"""
    sources = [volume.volumeSource for volume in pod.raw.spec.volumes]
    names = [source.persistentVolumeClaim.claimName for source in sources]
    return name in names or any(source.HasField("ephemeral") for source in sources)


def _is_ephemeral(pod: PodInfo, key: str) -> bool:
    return pod.volumes is not None and key in pod.volumes.ephemeral
