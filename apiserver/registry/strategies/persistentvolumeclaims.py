"""Claims of volumes: pending until they are bound; what they ask for stays what it was.

Source: pkg/apis/core/validation of Kubernetes 1.36.
"""

from collections.abc import Iterable

from apiserver.registry.strategies.pod_defaults import default_claim
from apiserver.registry.strategy import StatusStrategy
from apiserver.registry.validation.persistentvolumeclaims import size_of, validate_claim_spec
from apiserver.registry.validation.pod_warnings import amount_warnings
from apiserver.registry.validation.resources import validate_capacity
from apiserver.registry.validation.storage import STORAGE, validate_access_modes
from apiserver.registry.validation.violations import IMMUTABLE, forbidden, invalid, unsupported
from pinnace.api.core_v1_pb2 import PersistentVolumeClaim, PersistentVolumeClaimSpec
from pinnace.api.status import Violation
from pinnace.api.wellknown import CLASS_ANNOTATION

PHASES = ("Pending", "Bound", "Lost")
_FIXED = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"


class PersistentVolumeClaimStrategy(StatusStrategy[PersistentVolumeClaim]):
    def set_defaults(self, obj: PersistentVolumeClaim) -> None:
        default_claim(obj.spec)

    def prepare_create(self, obj: PersistentVolumeClaim) -> None:
        super().prepare_create(obj)
        obj.status.phase = "Pending"

    def check(self, obj: PersistentVolumeClaim, out: list[Violation]) -> None:
        validate_claim_spec(obj.spec, "spec", out)

    def warnings(self, obj: PersistentVolumeClaim) -> Iterable[str]:
        return amount_warnings(obj.spec.resources.requests, "spec.resources.requests")

    def check_change(self, new: PersistentVolumeClaim, old: PersistentVolumeClaim, out: list[Violation]) -> None:
        said = new.metadata.annotations.get(CLASS_ANNOTATION, "")
        if said != old.metadata.annotations.get(CLASS_ANNOTATION, "") and not _moves_class(new, old):
            out.append(invalid(f"metadata.annotations.{CLASS_ANNOTATION}", said, IMMUTABLE))
        if new.spec == old.spec:
            return
        if _as_before(new, old) != old.spec:
            out.append(forbidden("spec", _FIXED))
        asked = size_of(new.spec.resources.requests)
        if asked < size_of(old.spec.resources.requests) and asked <= size_of(old.status.capacity):
            out.append(forbidden(f"spec.resources.requests.{STORAGE}", "field can not be less than status.capacity"))

    def check_status(self, obj: PersistentVolumeClaim, out: list[Violation]) -> None:
        if obj.status.phase not in PHASES:
            out.append(unsupported("status.phase", obj.status.phase, PHASES))
        validate_access_modes(obj.status.accessModes, "status.accessModes", out)
        validate_capacity(obj.status.capacity, "status.capacity", out)
        validate_capacity(obj.status.allocatedResources, "status.allocatedResources", out)


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
