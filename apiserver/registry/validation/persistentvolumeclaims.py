"""Claims of volumes: what they ask for, and that it stays what it was.

Source: pkg/apis/core/validation of Kubernetes 1.36.
"""

from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal

from apiserver.registry.validation.labels import validate_selector
from apiserver.registry.validation.metadata import validate_metadata, validate_metadata_update
from apiserver.registry.validation.resources import validate_amount, validate_capacity
from apiserver.registry.validation.storage import (
    STORAGE,
    validate_access_modes,
    validate_class_name,
    validate_size,
    validate_volume_mode,
)
from apiserver.registry.validation.violations import IMMUTABLE, forbidden, invalid, required, unsupported
from pinnace.api.core_v1_pb2 import PersistentVolumeClaim, PersistentVolumeClaimSpec
from pinnace.api.names import MAX_KEY
from pinnace.api.quantity import QuantityError, parse
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.api.status import Violation
from pinnace.api.wellknown import CLASS_ANNOTATION

PHASES = ("Pending", "Bound", "Lost")
_FIXED = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"


def validate_claim(obj: PersistentVolumeClaim) -> list[Violation]:
    """Everything that is wrong with a new claim, after defaults."""
    out: list[Violation] = []
    validate_metadata(obj.metadata, out, namespaced=True)
    validate_claim_spec(obj.spec, "spec", out)
    return out


def validate_claim_spec(spec: PersistentVolumeClaimSpec, path: str, out: list[Violation]) -> None:
    """Of a claim, or of a template of one."""
    if not spec.accessModes:
        out.append(required(f"{path}.accessModes", "at least 1 access mode is required"))
    if spec.HasField("selector"):
        validate_selector(spec.selector, f"{path}.selector", out)
    validate_access_modes(spec.accessModes, f"{path}.accessModes", out)
    requests = spec.resources.requests
    if STORAGE in requests:
        validate_size(requests[STORAGE].string, f"{path}.resources[{STORAGE}]", out)
    else:
        out.append(required(f"{path}.resources[{STORAGE}]"))
    for name in requests.keys() - {STORAGE}:
        validate_amount(name, requests[name].string, f"{path}.resources.requests[{name[:MAX_KEY]}]", out)
    validate_class_name(spec.storageClassName, f"{path}.storageClassName", out)
    validate_volume_mode(spec.volumeMode, f"{path}.volumeMode", out)


def validate_claim_update(new: PersistentVolumeClaim, old: PersistentVolumeClaim) -> list[Violation]:
    """Everything that is wrong with the change, and with the claim as it would be."""
    out: list[Violation] = []
    validate_metadata_update(new.metadata, old.metadata, out, namespaced=True)
    said = new.metadata.annotations.get(CLASS_ANNOTATION, "")
    if said != old.metadata.annotations.get(CLASS_ANNOTATION, "") and not _moves_class(new, old):
        out.append(invalid(f"metadata.annotations.{CLASS_ANNOTATION}", said, IMMUTABLE))
    if new.spec == old.spec:
        return out
    validate_claim_spec(new.spec, "spec", out)
    if _as_before(new, old) != old.spec:
        out.append(forbidden("spec", _FIXED))
    asked = size_of(new.spec.resources.requests)
    if asked < size_of(old.spec.resources.requests) and asked <= size_of(old.status.capacity):
        out.append(forbidden(f"spec.resources.requests.{STORAGE}", "field can not be less than status.capacity"))
    return out


def validate_claim_status(obj: PersistentVolumeClaim) -> list[Violation]:
    """Everything that is wrong with a new status."""
    out: list[Violation] = []
    if obj.status.phase not in PHASES:
        out.append(unsupported("status.phase", obj.status.phase, PHASES))
    validate_access_modes(obj.status.accessModes, "status.accessModes", out)
    validate_capacity(obj.status.capacity, "status.capacity", out)
    return out


def _as_before(new: PersistentVolumeClaim, old: PersistentVolumeClaim) -> PersistentVolumeClaimSpec:
    """The new spec with everything put back that may change: it must be the old one."""
    fixed = PersistentVolumeClaimSpec()
    fixed.CopyFrom(new.spec)
    if _moves_class(new, old) or _takes_class(new, old):
        fixed.ClearField("storageClassName")
    if not old.spec.volumeName:
        fixed.volumeName = ""
    if old.status.phase == "Bound":
        if STORAGE in old.spec.resources.requests and STORAGE in fixed.resources.requests:
            fixed.resources.requests[STORAGE].CopyFrom(old.spec.resources.requests[STORAGE])
        fixed.ClearField("volumeAttributesClassName")
        if old.spec.HasField("volumeAttributesClassName"):
            fixed.volumeAttributesClassName = old.spec.volumeAttributesClassName
    return fixed


def _moves_class(new: PersistentVolumeClaim, old: PersistentVolumeClaim) -> bool:
    """Does the field say from now on what only the annotation said, which may then go?"""
    if old.spec.HasField("storageClassName") or CLASS_ANNOTATION not in old.metadata.annotations:
        return False
    said = old.metadata.annotations[CLASS_ANNOTATION]
    moved = new.spec.HasField("storageClassName") and new.spec.storageClassName == said
    return moved and new.metadata.annotations.get(CLASS_ANNOTATION, said) == said


def _takes_class(new: PersistentVolumeClaim, old: PersistentVolumeClaim) -> bool:
    """Is the class the first that the claim gets, before it has a volume? Nobody has said that it is of none: "" would say
    so."""
    named = old.spec.HasField("storageClassName") or CLASS_ANNOTATION in old.metadata.annotations
    return not named and not old.spec.volumeName


def size_of(amounts: Mapping[str, Quantity]) -> Decimal:
    """What is asked for, or there; 0 when that is unknown or unreadable."""
    with suppress(QuantityError):
        return parse(amounts[STORAGE].string) if STORAGE in amounts else Decimal(0)
    return Decimal(0)
