"""Strategies of stateful sets and controller revisions.

The volumes of the claim templates belong to the pod template: its containers may mount them, and they replace volumes of the
same name.

Source: pkg/apis/apps/validation and pkg/apis/apps/v1/defaults.go of Kubernetes 1.36.
"""

from collections.abc import Iterable

from pinnace.api import names
from pinnace.api.apps_v1_pb2 import ControllerRevision, StatefulSet, StatefulSetSpec, StatefulSetUpdateStrategy
from pinnace.api.core_v1_pb2 import PersistentVolumeClaim, PodTemplateSpec
from pinnace.api.intstr_v1_pb2 import IntOrString
from pinnace.api.scalars import SCALARS, int_or_string
from pinnace.api.status import Violation
from pinnace.apiserver.registry.strategies.pods import default_volume_claim, set_template_defaults
from pinnace.apiserver.registry.strategies.workloads import (
    DEFAULT_REVISION_HISTORY,
    validate_selection,
    validate_template,
    workload_warnings,
)
from pinnace.apiserver.registry.strategy import StatusStrategy, Strategy
from pinnace.apiserver.registry.validation.fields import (
    FULL_PERCENT,
    IMMUTABLE,
    NEGATIVE,
    forbidden,
    invalid,
    is_zero_bound,
    not_negative,
    required,
    unsupported,
    validate_bound,
)
from pinnace.apiserver.registry.validation.volumes import validate_claim_spec

ORDERED_READY, PARALLEL = "OrderedReady", "Parallel"
ROLLING_UPDATE, ON_DELETE = "RollingUpdate", "OnDelete"
RETENTION_POLICIES = ("Retain", "Delete")
_MUTABLE = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)
_STRATEGY_PATH = "spec.updateStrategy"
_PARTS = ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")


class StatefulSetStrategy(StatusStrategy[StatefulSet]):
    check_name = staticmethod(names.dns_label)
    has_generation = True

    def set_defaults(self, obj: StatefulSet) -> None:
        spec = obj.spec
        set_template_defaults(spec.template.spec)
        spec.podManagementPolicy = spec.podManagementPolicy or ORDERED_READY
        spec.updateStrategy.type = spec.updateStrategy.type or ROLLING_UPDATE
        if spec.updateStrategy.type == ROLLING_UPDATE and not spec.updateStrategy.rollingUpdate.HasField("partition"):
            spec.updateStrategy.rollingUpdate.partition = 0
        retention = spec.persistentVolumeClaimRetentionPolicy
        for field in ("whenDeleted", "whenScaled"):
            setattr(retention, field, getattr(retention, field) or "Retain")
        if not spec.HasField("replicas"):
            spec.replicas = 1
        if not spec.HasField("revisionHistoryLimit"):
            spec.revisionHistoryLimit = DEFAULT_REVISION_HISTORY
        for claim in spec.volumeClaimTemplates:
            default_volume_claim(claim.spec)
            claim.status.phase = claim.status.phase or "Pending"

    def prepare_create(self, obj: StatefulSet) -> None:
        super().prepare_create(obj)
        obj.status.SetInParent()  # its zeros have no owner

    def check_fields(self, obj: StatefulSet, out: list[Violation]) -> None:
        spec = obj.spec
        if spec.podManagementPolicy not in (ORDERED_READY, PARALLEL):
            detail = f"must be '{ORDERED_READY}' or '{PARALLEL}'"
            out.append(invalid("spec.podManagementPolicy", spec.podManagementPolicy, detail))
        _validate_update_strategy(spec.updateStrategy, out)
        retention = spec.persistentVolumeClaimRetentionPolicy
        for field in ("whenDeleted", "whenScaled"):
            if getattr(retention, field) not in RETENTION_POLICIES:
                path = f"spec.persistentVolumeClaimRetentionPolicy.{field}"
                out.append(unsupported(path, getattr(retention, field), RETENTION_POLICIES))
        not_negative(spec, "spec", ("replicas", "minReadySeconds"), out)
        not_negative(spec.ordinals, "spec.ordinals", ("start",), out)
        if spec.serviceName:
            out.extend(invalid("spec.serviceName", spec.serviceName, problem) for problem in names.dns_label(spec.serviceName))
        if spec.HasField("selector") and not (spec.selector.matchLabels or spec.selector.matchExpressions):
            out.append(invalid("spec.selector", {}, "empty selector is invalid for statefulset"))
        validate_selection(spec, out, unusable="")
        validate_template(template_with_claims(spec), out)
        _validate_claims(spec.volumeClaimTemplates, out)
        pod = spec.template.spec
        if pod.restartPolicy != "Always":
            out.append(unsupported("spec.template.spec.restartPolicy", pod.restartPolicy, ("Always",)))
        if pod.HasField("activeDeadlineSeconds"):
            detail = "activeDeadlineSeconds in StatefulSet is not Supported"
            out.append(forbidden("spec.template.spec.activeDeadlineSeconds", detail))

    def warnings(self, obj: StatefulSet) -> Iterable[str]:
        yield from workload_warnings(obj.metadata.name, obj.spec.template)
        if obj.spec.HasField("revisionHistoryLimit") and obj.spec.revisionHistoryLimit < 0:
            yield ("spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended")

    def check_change(self, new: StatefulSet, old: StatefulSet, out: list[Violation]) -> None:
        fixed = StatefulSetSpec()
        fixed.CopyFrom(new.spec)
        for field in _MUTABLE:
            fixed.ClearField(field)
        for descriptor, value in old.spec.ListFields():
            if descriptor.name in _MUTABLE:
                part = StatefulSetSpec()
                if descriptor.message_type is not None:
                    getattr(part, descriptor.name).CopyFrom(value)
                else:
                    setattr(part, descriptor.name, value)
                fixed.MergeFrom(part)
        if fixed != old.spec:
            fields = f"{', '.join(repr(field) for field in _MUTABLE[:-1])} and {_MUTABLE[-1]!r}"
            out.append(forbidden("spec", f"updates to statefulset spec for fields other than {fields} are forbidden"))

    def check_status(self, obj: StatefulSet, out: list[Violation]) -> None:
        status = obj.status
        not_negative(status, "status", ("replicas", *_PARTS, "observedGeneration", "collisionCount"), out)
        counts = {field: getattr(status, field) for field in _PARTS}
        detail = "cannot be greater than status.replicas"
        out.extend(invalid(f"status.{field}", count, detail) for field, count in counts.items() if count > status.replicas)
        if status.availableReplicas > status.readyReplicas:
            detail = "cannot be greater than status.readyReplicas"
            out.append(invalid("status.availableReplicas", status.availableReplicas, detail))

    def check_status_change(self, new: StatefulSet, old: StatefulSet, out: list[Violation]) -> None:
        if new.status.collisionCount < old.status.collisionCount:
            out.append(invalid("status.collisionCount", new.status.collisionCount, "cannot be decremented"))


def _validate_update_strategy(strategy: StatefulSetUpdateStrategy, out: list[Violation]) -> None:
    path, rolling = f"{_STRATEGY_PATH}.rollingUpdate", strategy.rollingUpdate
    # Kubernetes shows the fields of its Go structures.
    bound = int_or_string(rolling.maxUnavailable) if rolling.HasField("maxUnavailable") else None
    shown = {"Partition": rolling.partition, "MaxUnavailable": bound} if strategy.HasField("rollingUpdate") else None
    match strategy.type:
        case "OnDelete":
            if shown is not None:
                out.append(invalid(path, shown, f"only allowed for updateStrategy '{ROLLING_UPDATE}'"))
        case "RollingUpdate":
            not_negative(rolling, path, ("partition",), out)
            if rolling.HasField("maxUnavailable"):
                _validate_max_unavailable(rolling.maxUnavailable, f"{path}.maxUnavailable", out)
        case other:
            value = {"Type": other, "RollingUpdate": shown}
            out.append(invalid(_STRATEGY_PATH, value, f"must be '{ROLLING_UPDATE}' or '{ON_DELETE}'"))


def _validate_max_unavailable(bound: IntOrString, path: str, out: list[Violation]) -> None:
    validate_bound(bound, path, out, most=FULL_PERCENT)
    if is_zero_bound(bound):
        out.append(invalid(path, int_or_string(bound), "cannot be 0"))


def _validate_claims(claims: Iterable[PersistentVolumeClaim], out: list[Violation]) -> None:
    for index, claim in enumerate(claims):
        validate_claim_spec(claim.spec, f"spec.volumeClaimTemplates[{index}].spec", out)


def template_with_claims(spec: StatefulSetSpec) -> PodTemplateSpec:
    """Return the pod template with the volumes of the claim templates, which replace volumes of the same name."""
    if not spec.volumeClaimTemplates:
        return spec.template
    template = PodTemplateSpec()
    template.CopyFrom(spec.template)
    claims = {claim.metadata.name for claim in spec.volumeClaimTemplates}
    others = [volume for volume in template.spec.volumes if volume.name not in claims]
    del template.spec.volumes[:]
    for claim in spec.volumeClaimTemplates:
        template.spec.volumes.add(name=claim.metadata.name).volumeSource.persistentVolumeClaim.claimName = claim.metadata.name
    template.spec.volumes.extend(others)
    return template


class ControllerRevisionStrategy(Strategy[ControllerRevision]):
    def check_fields(self, obj: ControllerRevision, out: list[Violation]) -> None:
        if not obj.HasField("data"):
            out.append(required("data", "data is mandatory"))
        if obj.revision < 0:
            out.append(invalid("revision", obj.revision, NEGATIVE))

    def check_change(self, new: ControllerRevision, old: ControllerRevision, out: list[Violation]) -> None:
        if new.data != old.data:
            shown = SCALARS[new.data.DESCRIPTOR.full_name].write(new.data)
            out.append(invalid("data", shown, IMMUTABLE))
