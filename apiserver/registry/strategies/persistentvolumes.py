"""Persistent volumes: one source, one capacity, and what stays as it is. They are kept when their claim goes, unless they say
otherwise.

In Kubernetes a volume is born Pending, and its volume controller makes it Available a moment later. Until there is such a
controller here, nothing would: it is available from the start.
Source: pkg/apis/core/validation of Kubernetes 1.36.
"""

import posixpath

from apiserver.registry.strategies.pod_defaults import default_source
from apiserver.registry.strategy import StatusStrategy, carry_over
from apiserver.registry.validation.affinity import validate_node_selector
from apiserver.registry.validation.sources import validate_source
from apiserver.registry.validation.storage import (
    STORAGE,
    validate_access_modes,
    validate_class_name,
    validate_size,
    validate_volume_mode,
)
from apiserver.registry.validation.violations import IMMUTABLE, forbidden, invalid, required, unsupported
from pinnace.api.codec import says_more
from pinnace.api.core_v1_pb2 import PersistentVolume, PersistentVolumeSpec
from pinnace.api.scalars import to_time
from pinnace.api.status import Violation

PHASES = ("Pending", "Available", "Bound", "Released", "Failed")
_POLICIES = ("Delete", "Recycle", "Retain")


class PersistentVolumeStrategy(StatusStrategy[PersistentVolume]):
    def set_defaults(self, obj: PersistentVolume) -> None:
        spec = obj.spec
        if not spec.persistentVolumeReclaimPolicy:
            spec.persistentVolumeReclaimPolicy = "Retain"
        if not spec.HasField("volumeMode"):
            spec.volumeMode = "Filesystem"
        if spec.HasField("persistentVolumeSource"):
            default_source(spec.persistentVolumeSource)

    def prepare_create(self, obj: PersistentVolume) -> None:
        super().prepare_create(obj)
        obj.status.phase = "Available"
        if obj.metadata.HasField("creationTimestamp"):
            obj.status.lastPhaseTransitionTime.CopyFrom(obj.metadata.creationTimestamp)

    def date_status(self, obj: PersistentVolume, old: PersistentVolume, now: float) -> None:
        """Whoever changes the phase may say himself when it was; who does not change it need not repeat it."""
        status, before = obj.status, old.status
        said = status.HasField("lastPhaseTransitionTime") and status.lastPhaseTransitionTime != before.lastPhaseTransitionTime
        if status.phase != before.phase and not said:
            status.lastPhaseTransitionTime.CopyFrom(to_time(now))
        elif not said:
            carry_over(status, before, "lastPhaseTransitionTime")

    def check(self, obj: PersistentVolume, out: list[Violation]) -> None:
        spec = obj.spec
        if not spec.accessModes:
            out.append(required("spec.accessModes"))
        validate_access_modes(spec.accessModes, "spec.accessModes", out)
        _validate_capacity(spec, out)
        if spec.persistentVolumeReclaimPolicy not in _POLICIES:
            out.append(unsupported("spec.persistentVolumeReclaimPolicy", spec.persistentVolumeReclaimPolicy, _POLICIES))
        if spec.HasField("nodeAffinity"):
            if spec.nodeAffinity.HasField("required"):
                validate_node_selector(spec.nodeAffinity.required, "spec.nodeAffinity.required", out)
            else:
                out.append(required("spec.nodeAffinity.required", "must specify required node constraints"))
        _validate_source(spec, out)
        validate_class_name(spec.storageClassName, "spec.storageClassName", out)
        validate_class_name(spec.volumeAttributesClassName, "spec.volumeAttributesClassName", out)
        validate_volume_mode(spec.volumeMode, "spec.volumeMode", out)

    def check_change(self, new: PersistentVolume, old: PersistentVolume, out: list[Violation]) -> None:
        if new.spec.persistentVolumeSource != old.spec.persistentVolumeSource:
            out.append(forbidden("spec.persistentvolumesource", "spec.persistentvolumesource is immutable after creation"))
        if new.spec.volumeMode != old.spec.volumeMode:
            out.append(invalid("spec.volumeMode", new.spec.volumeMode, IMMUTABLE))
        if old.spec.HasField("nodeAffinity") and new.spec.nodeAffinity != old.spec.nodeAffinity:
            out.append(forbidden("spec.nodeAffinity", IMMUTABLE))

    def check_status(self, obj: PersistentVolume, out: list[Violation]) -> None:
        if obj.status.phase not in PHASES:
            out.append(unsupported("status.phase", obj.status.phase, PHASES))


def _validate_source(spec: PersistentVolumeSpec, out: list[Violation]) -> None:
    source = spec.persistentVolumeSource
    if not source.ListFields() and not says_more(source):
        out.append(required("spec", "must specify a volume type"))
    validate_source(source, "spec", out)
    if source.HasField("local") and not spec.HasField("nodeAffinity"):
        out.append(required("spec.nodeAffinity", "Local volume requires node affinity"))
    recycled = spec.persistentVolumeReclaimPolicy == "Recycle"
    if source.hostPath.path and posixpath.normpath(source.hostPath.path) == "/" and recycled:
        out.append(forbidden("spec.persistentVolumeReclaimPolicy", "may not be 'recycle' for a hostPath mount of '/'"))


def _validate_capacity(spec: PersistentVolumeSpec, out: list[Violation]) -> None:
    if not spec.capacity:
        out.append(required("spec.capacity"))
    elif list(spec.capacity) != [STORAGE]:
        out.append(unsupported("spec.capacity", ",".join(sorted(spec.capacity)), (STORAGE,)))
    else:
        validate_size(spec.capacity[STORAGE].string, f"spec.capacity[{STORAGE}]", out)
