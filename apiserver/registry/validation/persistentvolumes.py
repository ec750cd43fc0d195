"""Persistent volumes: one source, one capacity, and what stays as it is.

Source: pkg/apis/core/validation of Kubernetes 1.36.
"""

import posixpath

from apiserver.registry.validation.affinity import validate_node_selector
from apiserver.registry.validation.metadata import validate_metadata, validate_metadata_update
from apiserver.registry.validation.sources import validate_source
from apiserver.registry.validation.storage import (
    STORAGE,
    validate_access_modes,
    validate_class_name,
    validate_size,
    validate_volume_mode,
)
from apiserver.registry.validation.violations import IMMUTABLE, forbidden, invalid, required, unsupported
from pinnace.api.core_v1_pb2 import PersistentVolume, PersistentVolumeSpec
from pinnace.api.status import Violation
from pinnace.api.unmodelled import says_more

PHASES = ("Pending", "Available", "Bound", "Released", "Failed")
_POLICIES = ("Delete", "Recycle", "Retain")


def validate_persistent_volume(obj: PersistentVolume) -> list[Violation]:
    """Everything that is wrong with a new volume, after defaults."""
    out: list[Violation] = []
    validate_metadata(obj.metadata, out, namespaced=False)
    _validate_spec(obj.spec, out)
    return out


def validate_persistent_volume_update(new: PersistentVolume, old: PersistentVolume) -> list[Violation]:
    """Everything that is wrong with the change, and with the volume as it would be."""
    out: list[Violation] = []
    validate_metadata_update(new.metadata, old.metadata, out, namespaced=False)
    _validate_spec(new.spec, out)
    if new.spec.persistentVolumeSource != old.spec.persistentVolumeSource:
        out.append(forbidden("spec.persistentvolumesource", "spec.persistentvolumesource is immutable after creation"))
    if new.spec.volumeMode != old.spec.volumeMode:
        out.append(invalid("spec.volumeMode", new.spec.volumeMode, IMMUTABLE))
    if old.spec.HasField("nodeAffinity") and new.spec.nodeAffinity != old.spec.nodeAffinity:
        out.append(forbidden("spec.nodeAffinity", IMMUTABLE))
    return out


def validate_persistent_volume_status(obj: PersistentVolume) -> list[Violation]:
    """Everything that is wrong with a new status."""
    phase = obj.status.phase
    return [] if phase in PHASES else [unsupported("status.phase", phase, PHASES)]


def _validate_spec(spec: PersistentVolumeSpec, out: list[Violation]) -> None:
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
    source = spec.persistentVolumeSource
    if not source.ListFields() and not says_more(source):
        out.append(required("spec", "must specify a volume type"))
    validate_source(source, "spec", out)
    if source.HasField("local") and not spec.HasField("nodeAffinity"):
        out.append(required("spec.nodeAffinity", "Local volume requires node affinity"))
    if source.hostPath.path and posixpath.normpath(source.hostPath.path) == "/" and _recycles(spec):
        out.append(forbidden("spec.persistentVolumeReclaimPolicy", "may not be 'recycle' for a hostPath mount of '/'"))
    validate_class_name(spec.storageClassName, "spec.storageClassName", out)
    validate_volume_mode(spec.volumeMode, "spec.volumeMode", out)


def _validate_capacity(spec: PersistentVolumeSpec, out: list[Violation]) -> None:
    if not spec.capacity:
        out.append(required("spec.capacity"))
    elif list(spec.capacity) != [STORAGE]:
        out.append(unsupported("spec.capacity", ",".join(sorted(spec.capacity)), (STORAGE,)))
    else:
        validate_size(spec.capacity[STORAGE].string, f"spec.capacity[{STORAGE}]", out)


def _recycles(spec: PersistentVolumeSpec) -> bool:
    return spec.persistentVolumeReclaimPolicy == "Recycle"
