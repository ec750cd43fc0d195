"""Decisions about volumes and claims: what to bind, the phases, what happens to a released volume, and expansion. Pure.

    claim      Pending --a volume satisfies it--> Bound --its volume is gone--> Lost
    volume     Available --a claim is bound--> Bound --the claim is gone--> Released --Delete--> gone, or Failed
                   ^---------------------------- the claimRef is removed ------------'

There are no volume plugins here: volumes of an external provisioner, such as volume_provisioner.py, are left to it.

Source: pkg/controller/volume/persistentvolume/pv_controller.go of Kubernetes 1.36.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pinnace.api.core_v1_pb2 import PersistentVolume, PersistentVolumeClaim
from pinnace.api.pods import class_of
from pinnace.api.storage_v1_pb2 import StorageClass
from pinnace.api.wellknown import (
    BIND_COMPLETED_ANNOTATION,
    BOUND_BY_CONTROLLER,
    PROVISIONED_BY,
    SELECTED_NODE,
)
from pinnace.fit.volumes import FILESYSTEM, VolumeCandidate, claim_reference, volume_size

AVAILABLE, BOUND, RELEASED, FAILED, PENDING, LOST = "Available", "Bound", "Released", "Failed", "Pending", "Lost"
_STORAGE = "storage"


class VolumeEvent(NamedTuple):
    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class ClaimPlan:
    """What to do with a claim: bind it to a volume, or set its phase."""

    bind: PersistentVolume | None = None
    phase: str = ""
    event: VolumeEvent | None = None
    provisioner: str = ""
    """The external provisioner to request a volume from."""


@dataclass(frozen=True, slots=True)
class VolumePlan:
    """What to do with a volume. `unbind` removes the claimRef, or its uid if a user has set the claimRef."""

    phase: str
    delete: bool = False
    unbind: bool = False
    event: VolumeEvent | None = None
    message: str = ""
    """The message of the status."""


def refers_to_claim(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Return True if the volume's claimRef names the claim. A claimRef without a uid names every claim of this name."""
    reference, metadata = volume.spec.claimRef, claim.metadata
    names = (reference.namespace, reference.name) == (metadata.namespace, metadata.name)
    return volume.spec.HasField("claimRef") and names and reference.uid in ("", metadata.uid)


def choose_volume(candidates: Iterable[VolumeCandidate]) -> PersistentVolume | None:
    """Return the best of the volumes that satisfy a claim: with the fewest access modes, then the smallest."""
    best = min(candidates, key=lambda candidate: (len(candidate.access), candidate.size, candidate.name), default=None)
    return best.volume if best is not None else None


def unsatisfied_reason(volume: PersistentVolume, claim: PersistentVolumeClaim) -> str:
    """Return why the volume does not satisfy the claim that requests it by name, or ""."""
    if volume_size(volume.spec.capacity) < volume_size(claim.spec.resources.requests):
        return "requested PV is too small"
    if class_of(volume) != class_of(claim):
        return "storageClassName does not match"
    if volume.spec.volumeAttributesClassName != claim.spec.volumeAttributesClassName:
        return "volumeAttributesClassName does not match"
    if (volume.spec.volumeMode or FILESYSTEM) != (claim.spec.volumeMode or FILESYSTEM):
        return "incompatible volumeMode"
    if not set(claim.spec.accessModes) <= set(volume.spec.accessModes):
        return "incompatible accessMode"
    return ""


def plan_claim(
    claim: PersistentVolumeClaim,
    volumes: Mapping[str, PersistentVolume],
    best: PersistentVolume | None,
    storage_class: StorageClass | None,
    waiting_pod: str,
) -> ClaimPlan:
    """Plan a claim. `volumes`: by name. `best`: the volume to bind if the claim names none, or None. `storage_class`: of the
    claim, or None if it does not exist. `waiting_pod`: the name of an unscheduled pod that uses the claim, or ""."""
    if BIND_COMPLETED_ANNOTATION in claim.metadata.annotations or claim.status.phase in (BOUND, LOST):
        return _plan_bound_claim(claim, volumes.get(claim.spec.volumeName))
    if claim.spec.volumeName:
        return _plan_named_volume(claim, volumes.get(claim.spec.volumeName))
    if best is not None:
        return ClaimPlan(bind=best)
    return _plan_unbound_claim(claim, storage_class, waiting_pod)


def _plan_bound_claim(claim: PersistentVolumeClaim, volume: PersistentVolume | None) -> ClaimPlan:
    if not claim.spec.volumeName:
        message = "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!"
        return ClaimPlan(phase=LOST, event=VolumeEvent("Warning", "ClaimLost", message))
    if volume is None:
        message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
        return ClaimPlan(phase=LOST, event=VolumeEvent("Warning", "ClaimLost", message))
    if volume.spec.HasField("claimRef") and volume.spec.claimRef.uid not in ("", claim.metadata.uid):
        message = "Two claims are bound to the same volume, this one is bound incorrectly"
        return ClaimPlan(phase=LOST, event=VolumeEvent("Warning", "ClaimMisbound", message))
    if volume.spec.HasField("claimRef") and not refers_to_claim(volume, claim):
        return ClaimPlan(phase=claim.status.phase)
    return ClaimPlan(bind=volume)


def _plan_named_volume(claim: PersistentVolumeClaim, volume: PersistentVolume | None) -> ClaimPlan:
    """Plan a claim whose volumeName a user has set."""
    if volume is None:
        return ClaimPlan(phase=PENDING)
    if refers_to_claim(volume, claim):
        return ClaimPlan(bind=volume)
    if volume.spec.HasField("claimRef"):
        message = f'volume "{volume.metadata.name}" already bound to a different claim.'
        return ClaimPlan(phase=PENDING, event=VolumeEvent("Warning", "FailedBinding", message))
    if why := unsatisfied_reason(volume, claim):
        message = f'Cannot bind to requested volume "{volume.metadata.name}": {why}'
        return ClaimPlan(phase=PENDING, event=VolumeEvent("Warning", "VolumeMismatch", message))
    return ClaimPlan(bind=volume)


def is_binding_delayed(storage_class: StorageClass | None) -> bool:
    return storage_class is not None and storage_class.volumeBindingMode == "WaitForFirstConsumer"


def _plan_unbound_claim(claim: PersistentVolumeClaim, storage_class: StorageClass | None, waiting_pod: str) -> ClaimPlan:
    if is_binding_delayed(storage_class) and SELECTED_NODE not in claim.metadata.annotations:
        event = VolumeEvent("Normal", "WaitForFirstConsumer", "waiting for first consumer to be created before binding")
        if waiting_pod:
            event = VolumeEvent("Normal", "WaitForPodScheduled", f"waiting for pod {waiting_pod} to be scheduled")
        return ClaimPlan(phase=PENDING, event=event)
    name = class_of(claim)
    if not name:
        message = "no persistent volumes available for this claim and no storage class is set"
        return ClaimPlan(phase=PENDING, event=VolumeEvent("Normal", "FailedBinding", message))
    if storage_class is None:
        message = f'storageclass.storage.k8s.io "{name}" not found'
        return ClaimPlan(phase=PENDING, event=VolumeEvent("Warning", "ProvisioningFailed", message))
    provisioner = storage_class.provisioner
    if provisioner.startswith("kubernetes.io/"):
        message = f"no volume plugin matched name: {provisioner}"
        return ClaimPlan(phase=PENDING, event=VolumeEvent("Warning", "ProvisioningFailed", message))
    message = (
        f"Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the system "
        "administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered."
    )
    return ClaimPlan(phase=PENDING, provisioner=provisioner, event=VolumeEvent("Normal", "ExternalProvisioning", message))


def plan_volume(volume: PersistentVolume, claim: PersistentVolumeClaim | None) -> VolumePlan:
    """Plan a volume. `claim`: the claim that its claimRef names, or None. The phase stays while a bind is not complete."""
    reference, phase = volume.spec.claimRef, volume.status.phase
    if not volume.spec.HasField("claimRef") or not reference.uid:
        return VolumePlan(AVAILABLE)
    if claim is None or claim.metadata.uid != reference.uid:
        return _plan_reclaim(volume)
    if not claim.spec.volumeName:
        return VolumePlan(phase)
    if claim.spec.volumeName == volume.metadata.name:
        return VolumePlan(BOUND)
    if PROVISIONED_BY in volume.metadata.annotations and volume.spec.persistentVolumeReclaimPolicy == "Delete":
        return _plan_reclaim(volume)
    return VolumePlan(AVAILABLE, unbind=True)


def _plan_reclaim(volume: PersistentVolume) -> VolumePlan:
    """Plan a volume whose claim is gone, by its reclaim policy."""
    policy, metadata = volume.spec.persistentVolumeReclaimPolicy, volume.metadata
    if volume.status.phase == FAILED:
        return VolumePlan(FAILED, message=volume.status.message)
    if volume.status.phase != RELEASED:
        return VolumePlan(RELEASED)
    if policy == "Recycle":
        message = "No recycler plugin found for the volume!"
        return VolumePlan(FAILED, event=VolumeEvent("Warning", "VolumeFailedRecycle", message), message=message)
    if policy != "Delete" or metadata.HasField("deletionTimestamp"):
        return VolumePlan(RELEASED)
    provisioner = metadata.annotations.get(PROVISIONED_BY, "")
    if provisioner and not provisioner.startswith("kubernetes.io/"):
        return VolumePlan(RELEASED)
    source = volume.spec.persistentVolumeSource
    if not source.HasField("hostPath"):
        message = f'error getting deleter volume plugin for volume "{metadata.name}": no deletable volume plugin matched'
    elif re.fullmatch("/tmp/.+", source.hostPath.path):
        return VolumePlan(RELEASED, delete=True)
    else:
        message = f"host_path deleter only supports /tmp/.+ but received provided {source.hostPath.path}"
    return VolumePlan(FAILED, event=VolumeEvent("Warning", "VolumeFailedDelete", message), message=message)


def bound_volume(volume: PersistentVolume, claim: PersistentVolumeClaim) -> PersistentVolume | None:
    """Return the volume with its claimRef for the claim, or None if it has it."""
    if refers_to_claim(volume, claim) and volume.spec.claimRef.uid:
        return None
    changed = PersistentVolume()
    changed.CopyFrom(volume)
    if not refers_to_claim(volume, claim):
        changed.metadata.annotations[BOUND_BY_CONTROLLER] = "yes"
    changed.spec.claimRef.CopyFrom(claim_reference(claim))
    return changed


def bound_claim(claim: PersistentVolumeClaim, volume: PersistentVolume) -> PersistentVolumeClaim | None:
    """Return the claim with its volumeName for the volume, or None if it has it."""
    if claim.spec.volumeName == volume.metadata.name and BIND_COMPLETED_ANNOTATION in claim.metadata.annotations:
        return None
    changed = PersistentVolumeClaim()
    changed.CopyFrom(claim)
    if claim.spec.volumeName != volume.metadata.name:
        changed.metadata.annotations[BOUND_BY_CONTROLLER] = "yes"
        changed.spec.volumeName = volume.metadata.name
    changed.metadata.annotations[BIND_COMPLETED_ANNOTATION] = "yes"
    return changed


def bound_claim_status(claim: PersistentVolumeClaim, volume: PersistentVolume) -> PersistentVolumeClaim | None:
    """Return the claim with the status of a bound claim, or None if it has it. The capacity is that of the volume."""
    capacity = {name: amount.string for name, amount in claim.status.capacity.items()}
    if (
        claim.status.phase == BOUND
        and list(claim.status.accessModes) == list(volume.spec.accessModes)
        and capacity == {name: amount.string for name, amount in volume.spec.capacity.items()}
    ):
        return None
    changed = PersistentVolumeClaim()
    changed.CopyFrom(claim)
    changed.status.phase = BOUND
    changed.status.accessModes[:] = volume.spec.accessModes
    changed.status.capacity.clear()
    for name, amount in volume.spec.capacity.items():
        changed.status.capacity[name].CopyFrom(amount)
    return changed


def expanded_volume(
    volume: PersistentVolume, claim: PersistentVolumeClaim, storage_class: StorageClass | None
) -> PersistentVolume | None:
    """Return the volume with the size that its bound claim requests, or None if it is large enough, its class does not allow
    expansion, or a CSI driver must expand it."""
    if volume_size(claim.spec.resources.requests) <= volume_size(volume.spec.capacity):
        return None
    if storage_class is None or not storage_class.allowVolumeExpansion or is_expanded_by_driver(volume):
        return None
    changed = PersistentVolume()
    changed.CopyFrom(volume)
    changed.spec.capacity[_STORAGE].CopyFrom(claim.spec.resources.requests[_STORAGE])
    return changed


def is_expanded_by_driver(volume: PersistentVolume) -> bool:
    return volume.spec.persistentVolumeSource.HasField("csi")
