"""Strategies of persistent volumes, claims, storage classes and CSI nodes.

The default reclaim policy of a persistent volume is Retain. In Kubernetes a new volume is Pending until the volume controller
makes it Available. Here, a new volume is Available at once. A new claim is Pending.

Source: pkg/apis/core/validation and pkg/apis/storage/validation of Kubernetes 1.36.
"""

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pinnace.api import names
from pinnace.api.codec import has_unknown_fields
from pinnace.api.core_v1_pb2 import (
    NodeSelectorRequirement,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeSpec,
    TopologySelectorTerm,
    VolumeNodeAffinity,
)
from pinnace.api.scalars import to_time
from pinnace.api.status import Violation
from pinnace.api.storage_v1_pb2 import CSINode, CSINodeDriver, StorageClass
from pinnace.api.wellknown import CLASS_ANNOTATION
from pinnace.apiserver.registry.strategies.pods import default_volume_claim, default_volume_source
from pinnace.apiserver.registry.strategy import StatusStrategy, Strategy, carry_over_fields
from pinnace.apiserver.registry.validation.fields import (
    IMMUTABLE,
    NEGATIVE,
    duplicate,
    forbidden,
    invalid,
    required,
    too_long,
    unsupported,
    validate_capacity,
    validate_key,
)
from pinnace.apiserver.registry.validation.pods import GA_LABELS, amount_warnings, validate_node_selector
from pinnace.apiserver.registry.validation.volumes import (
    STORAGE_RESOURCE,
    storage_size,
    validate_access_modes,
    validate_claim_spec,
    validate_class_name,
    validate_driver,
    validate_size,
    validate_source,
    validate_volume_mode,
)

VOLUME_PHASES = ("Pending", "Available", "Bound", "Released", "Failed")
_VOLUME_RECLAIM_POLICIES = ("Delete", "Recycle", "Retain")

CLAIM_PHASES = ("Pending", "Bound", "Lost")
_CLAIM_IMMUTABLE = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"

MAX_PARAMETERS = 512
MAX_PARAMETERS_SIZE = 256 << 10
_CLASS_RECLAIM_POLICIES = ("Delete", "Retain")
_VOLUME_BINDING_MODES = ("Immediate", "WaitForFirstConsumer")

MAX_NODE_ID = 192


class PersistentVolumeStrategy(StatusStrategy[PersistentVolume]):
    def set_defaults(self, obj: PersistentVolume) -> None:
        spec = obj.spec
        if not spec.persistentVolumeReclaimPolicy:
            spec.persistentVolumeReclaimPolicy = "Retain"
        if not spec.HasField("volumeMode"):
            spec.volumeMode = "Filesystem"
        if spec.HasField("persistentVolumeSource"):
            default_volume_source(spec.persistentVolumeSource)

    def prepare_create(self, obj: PersistentVolume) -> None:
        super().prepare_create(obj)
        obj.status.phase = "Available"
        if obj.metadata.HasField("creationTimestamp"):
            obj.status.lastPhaseTransitionTime.CopyFrom(obj.metadata.creationTimestamp)

    def set_status_times(self, obj: PersistentVolume, old: PersistentVolume, now: float) -> None:
        """Set lastPhaseTransitionTime when the phase changes, unless the client sets it. Otherwise, keep the present time if
        the client omits it."""
        status, before = obj.status, old.status
        said = status.HasField("lastPhaseTransitionTime") and status.lastPhaseTransitionTime != before.lastPhaseTransitionTime
        if status.phase != before.phase and not said:
            status.lastPhaseTransitionTime.CopyFrom(to_time(now))
        elif not said:
            carry_over_fields(status, before, "lastPhaseTransitionTime")

    def check_fields(self, obj: PersistentVolume, out: list[Violation]) -> None:
        spec = obj.spec
        if not spec.accessModes:
            out.append(required("spec.accessModes"))
        validate_access_modes(spec.accessModes, "spec.accessModes", out)
        _validate_capacity(spec, out)
        if spec.persistentVolumeReclaimPolicy not in _VOLUME_RECLAIM_POLICIES:
            out.append(
                unsupported("spec.persistentVolumeReclaimPolicy", spec.persistentVolumeReclaimPolicy, _VOLUME_RECLAIM_POLICIES)
            )
        if spec.HasField("nodeAffinity"):
            if spec.nodeAffinity.HasField("required"):
                validate_node_selector(spec.nodeAffinity.required, "spec.nodeAffinity.required", out)
            else:
                out.append(required("spec.nodeAffinity.required", "must specify required node constraints"))
        _validate_source(spec, out)
        validate_class_name(spec.storageClassName, "spec.storageClassName", out)
        validate_volume_mode(spec.volumeMode, "spec.volumeMode", out)
        _validate_attributes_class(spec, out)

    def check_change(self, new: PersistentVolume, old: PersistentVolume, out: list[Violation]) -> None:
        if new.spec.persistentVolumeSource != old.spec.persistentVolumeSource:
            out.append(forbidden("spec.persistentvolumesource", "spec.persistentvolumesource is immutable after creation"))
        if new.spec.volumeMode != old.spec.volumeMode:
            out.append(invalid("volumeMode", new.spec.volumeMode, IMMUTABLE))  # as in Kubernetes, without spec
        if old.spec.HasField("nodeAffinity") and _with_beta_keys(new, old) != old.spec.nodeAffinity:
            detail = f"{IMMUTABLE}, except for updating from beta label to GA"
            out.append(invalid("nodeAffinity", _show_affinity(new.spec), detail))

    def check_status(self, obj: PersistentVolume, out: list[Violation]) -> None:
        if obj.status.phase not in VOLUME_PHASES:
            out.append(unsupported("status.phase", obj.status.phase, VOLUME_PHASES))


def _with_beta_keys(new: PersistentVolume, old: PersistentVolume) -> VolumeNodeAffinity:
    """Return the new node affinity, with the beta keys of the old one that it replaces by their GA keys."""
    result = VolumeNodeAffinity()
    result.CopyFrom(new.spec.nodeAffinity)
    before = old.spec.nodeAffinity.required.nodeSelectorTerms
    for old_term, term in zip(before, result.required.nodeSelectorTerms, strict=False):
        for old_expression, expression in zip(old_term.matchExpressions, term.matchExpressions, strict=False):
            if GA_LABELS.get(old_expression.key) == expression.key:
                expression.key = old_expression.key
    return result


def _show_affinity(spec: PersistentVolumeSpec) -> dict[str, Any] | None:
    """Return the node affinity with the field names of Kubernetes' Go structures, which messages show."""

    def show(requirements: Iterable[NodeSelectorRequirement]) -> list[dict[str, Any]] | None:
        shown = [{"Key": item.key, "Operator": item.operator, "Values": list(item.values) or None} for item in requirements]
        return shown or None

    if not spec.HasField("nodeAffinity"):
        return None
    terms = [
        {"MatchExpressions": show(term.matchExpressions), "MatchFields": show(term.matchFields)}
        for term in spec.nodeAffinity.required.nodeSelectorTerms
    ]
    return {"Required": {"NodeSelectorTerms": terms}}


def _validate_attributes_class(spec: PersistentVolumeSpec, out: list[Violation]) -> None:
    if not spec.HasField("volumeAttributesClassName"):
        return
    if not spec.volumeAttributesClassName:
        out.append(required("spec.volumeAttributesClassName", "an empty string is disallowed"))
    validate_class_name(spec.volumeAttributesClassName, "spec.volumeAttributesClassName", out)
    if not spec.persistentVolumeSource.HasField("csi"):
        out.append(required("spec.csi", "has to be specified when using volumeAttributesClassName"))


def _validate_source(spec: PersistentVolumeSpec, out: list[Violation]) -> None:
    source = spec.persistentVolumeSource
    if not source.ListFields() and not has_unknown_fields(source):
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
    amounts = {name: spec.capacity[name].string for name in sorted(spec.capacity)}
    if list(amounts) != [STORAGE_RESOURCE]:
        out.append(unsupported("spec.capacity", amounts or None, (STORAGE_RESOURCE,)))
    for name, amount in amounts.items():
        validate_size(amount, f"spec.capacity[{name[: names.MAX_KEY]}]", out)


class PersistentVolumeClaimStrategy(StatusStrategy[PersistentVolumeClaim]):
    def set_defaults(self, obj: PersistentVolumeClaim) -> None:
        default_volume_claim(obj.spec)

    def prepare_create(self, obj: PersistentVolumeClaim) -> None:
        super().prepare_create(obj)
        obj.status.phase = "Pending"

    def check_fields(self, obj: PersistentVolumeClaim, out: list[Violation]) -> None:
        validate_claim_spec(obj.spec, "spec", out)

    def warnings(self, obj: PersistentVolumeClaim) -> Iterable[str]:
        return amount_warnings(obj.spec.resources.requests, "spec.resources.requests")

    def check_change(self, new: PersistentVolumeClaim, old: PersistentVolumeClaim, out: list[Violation]) -> None:
        said = new.metadata.annotations.get(CLASS_ANNOTATION, "")
        if said != old.metadata.annotations.get(CLASS_ANNOTATION, "") and not _moves_class_to_field(new, old):
            out.append(invalid(f"metadata.annotations.{CLASS_ANNOTATION}", said, IMMUTABLE))
        if new.spec == old.spec:
            return
        if _with_old_mutable_fields(new, old) != old.spec:
            out.append(forbidden("spec", _CLAIM_IMMUTABLE))
        requested_size = storage_size(new.spec.resources.requests)
        if requested_size < storage_size(old.spec.resources.requests) and requested_size <= storage_size(old.status.capacity):
            out.append(forbidden(f"spec.resources.requests.{STORAGE_RESOURCE}", "field can not be less than status.capacity"))

    def check_status(self, obj: PersistentVolumeClaim, out: list[Violation]) -> None:
        if obj.status.phase not in CLAIM_PHASES:
            out.append(unsupported("status.phase", obj.status.phase, CLAIM_PHASES))
        validate_access_modes(obj.status.accessModes, "status.accessModes", out)
        validate_capacity(obj.status.capacity, "status.capacity", out)
        validate_capacity(obj.status.allocatedResources, "status.allocatedResources", out)


def _with_old_mutable_fields(new: PersistentVolumeClaim, old: PersistentVolumeClaim) -> PersistentVolumeClaimSpec:
    """Return the new spec with its mutable fields reset to the old values. It must equal the old spec."""
    fixed = PersistentVolumeClaimSpec()
    fixed.CopyFrom(new.spec)
    if _moves_class_to_field(new, old) or _sets_first_class(new, old):
        fixed.ClearField("storageClassName")
    if not old.spec.volumeName:
        fixed.volumeName = ""
    if old.status.phase == "Bound":
        if STORAGE_RESOURCE in old.spec.resources.requests and STORAGE_RESOURCE in fixed.resources.requests:
            fixed.resources.requests[STORAGE_RESOURCE].CopyFrom(old.spec.resources.requests[STORAGE_RESOURCE])
        fixed.ClearField("volumeAttributesClassName")
        if old.spec.HasField("volumeAttributesClassName"):
            fixed.volumeAttributesClassName = old.spec.volumeAttributesClassName
    return fixed


def _moves_class_to_field(new: PersistentVolumeClaim, old: PersistentVolumeClaim) -> bool:
    """Return whether the update moves the class from the annotation to the field. It may then remove the annotation."""
    if old.spec.HasField("storageClassName") or CLASS_ANNOTATION not in old.metadata.annotations:
        return False
    said = old.metadata.annotations[CLASS_ANNOTATION]
    moved = new.spec.HasField("storageClassName") and new.spec.storageClassName == said
    return moved and new.metadata.annotations.get(CLASS_ANNOTATION, said) == said


def _sets_first_class(new: PersistentVolumeClaim, old: PersistentVolumeClaim) -> bool:
    """Return whether the claim gets its first class, before it has a volume. The class "" is a class, too."""
    named = old.spec.HasField("storageClassName") or CLASS_ANNOTATION in old.metadata.annotations
    return not named and not old.spec.volumeName


class StorageClassStrategy(Strategy[StorageClass]):
    def set_defaults(self, obj: StorageClass) -> None:
        if not obj.HasField("reclaimPolicy"):
            obj.reclaimPolicy = "Delete"
        if not obj.HasField("volumeBindingMode"):
            obj.volumeBindingMode = "Immediate"

    def check_fields(self, obj: StorageClass, out: list[Violation]) -> None:
        _validate_topologies(obj.allowedTopologies, out)

    def check_new(self, obj: StorageClass, out: list[Violation]) -> None:
        if not obj.provisioner:
            out.append(required("provisioner"))
        else:
            problems = names.label_key(obj.provisioner.lower())
            out.extend(invalid("provisioner", obj.provisioner, problem) for problem in problems)
        _validate_parameters(obj.parameters, out)
        if obj.reclaimPolicy not in _CLASS_RECLAIM_POLICIES:
            out.append(unsupported("reclaimPolicy", obj.reclaimPolicy, _CLASS_RECLAIM_POLICIES))
        if obj.volumeBindingMode not in _VOLUME_BINDING_MODES:
            out.append(unsupported("volumeBindingMode", obj.volumeBindingMode, _VOLUME_BINDING_MODES))
        self.check_fields(obj, out)

    def check_change(self, new: StorageClass, old: StorageClass, out: list[Violation]) -> None:
        fixed = ("parameters", "provisioner", "reclaimPolicy")
        changed = [field for field in fixed if getattr(new, field) != getattr(old, field)]
        out.extend(forbidden(field, f"updates to {field} are forbidden.") for field in changed)
        if new.volumeBindingMode != old.volumeBindingMode:
            out.append(invalid("volumeBindingMode", new.volumeBindingMode, IMMUTABLE))


def _validate_parameters(parameters: Mapping[str, str], out: list[Violation]) -> None:
    if len(parameters) > MAX_PARAMETERS:
        out.append(too_long("parameters", MAX_PARAMETERS))
        return
    if "" in parameters:
        out.append(invalid("parameters", "", "field can not be empty."))
    if sum(len(key.encode()) + len(value.encode()) for key, value in parameters.items()) > MAX_PARAMETERS_SIZE:
        out.append(too_long("parameters", MAX_PARAMETERS_SIZE))


def _validate_topologies(terms: Sequence[TopologySelectorTerm], out: list[Violation]) -> None:
    seen: set[frozenset[tuple[str, frozenset[str]]]] = set()
    for index, term in enumerate(terms):
        path = f"allowedTopologies[{index}].matchLabelExpressions"
        values_by_key: dict[str, frozenset[str]] = {}
        for number, requirement in enumerate(term.matchLabelExpressions):
            _validate_values(requirement.values, f"{path}[{number}].values", out)
            validate_key(requirement.key, f"{path}[{number}].key", out)
            if requirement.key in values_by_key:
                out.append(duplicate(f"{path}[{number}].key", requirement.key))
            values_by_key[requirement.key] = frozenset(requirement.values)
        meaning = frozenset(values_by_key.items())
        if meaning in seen:
            out.append(duplicate(path, ""))
        seen.add(meaning)


def _validate_values(values: Sequence[str], path: str, out: list[Violation]) -> None:
    if not values:
        out.append(required(path))
    seen: set[str] = set()
    for index, value in enumerate(values):
        if value in seen:
            out.append(duplicate(f"{path}[{index}]", value))
        seen.add(value)


class CSINodeStrategy(Strategy[CSINode]):
    allow_unconditional_update = False

    def check_fields(self, obj: CSINode, out: list[Violation]) -> None:
        _validate_drivers(obj.spec.drivers, out)

    def check_change(self, new: CSINode, old: CSINode, out: list[Violation]) -> None:
        before = {driver.name: driver for driver in old.spec.drivers}
        for index, driver in enumerate(new.spec.drivers):
            known = before.get(driver.name)
            if known is not None and _immutable_driver_fields(driver) != _immutable_driver_fields(known):
                out.append(invalid(f"spec.drivers[{index}]", driver.name, IMMUTABLE))


def _immutable_driver_fields(driver: CSINodeDriver) -> tuple[str, list[str]]:
    return driver.nodeID, list(driver.topologyKeys)


def _validate_drivers(drivers: Sequence[CSINodeDriver], out: list[Violation]) -> None:
    seen: set[str] = set()
    for index, driver in enumerate(drivers):
        path = f"spec.drivers[{index}]"
        if not driver.name:
            out.append(required(f"{path}.name"))
        validate_driver(driver.name, f"{path}.name", out)
        if driver.name in seen:
            out.append(duplicate(f"{path}.name", driver.name))
        seen.add(driver.name)
        if not driver.nodeID:
            out.append(required(f"{path}.nodeID"))
        elif len(driver.nodeID) > MAX_NODE_ID:
            out.append(invalid(f"{path}.nodeID", driver.nodeID, f"must be {MAX_NODE_ID} characters or less"))
        if driver.allocatable.count < 0:
            out.append(invalid(f"{path}.allocatable.count", driver.allocatable.count, NEGATIVE))
        keys: set[str] = set()
        for key in driver.topologyKeys:
            if key in keys:
                out.append(duplicate(f"{path}.topologyKeys", key))
            keys.add(key)
            validate_key(key, f"{path}.topologyKeys", out)
