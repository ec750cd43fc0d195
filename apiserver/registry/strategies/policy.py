"""Strategies of limit ranges, quotas, priority classes and disruption budgets.

A priority class has the preemption policy PreemptLowerPriority by default. Values above MAX_PRIORITY are reserved for the
system classes. The value and the preemption policy are immutable.

Source: pkg/apis/core/validation and pkg/apis/policy/validation of Kubernetes 1.36, and
https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal

from pinnace.api import names, quantity
from pinnace.api.core_v1_pb2 import LimitRange, LimitRangeItem, ResourceQuota, ScopedResourceSelectorRequirement
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.policy_v1_pb2 import PodDisruptionBudget
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.api.scalars import int_or_string
from pinnace.api.scheduling_v1_pb2 import PriorityClass
from pinnace.api.status import Violation
from pinnace.apiserver.registry.strategy import StatusStrategy, Strategy
from pinnace.apiserver.registry.validation.fields import (
    FULL_PERCENT,
    IMMUTABLE,
    can_overcommit,
    container_resource_problems,
    duplicate,
    forbidden,
    invalid,
    is_quota_resource,
    not_negative,
    quota_resource_problems,
    required,
    resource_name_problems,
    unsupported,
    validate_amount,
    validate_bound,
    validate_key,
    validate_selector,
)
from pinnace.apiserver.registry.validation.pods import PREEMPTION_POLICIES
from pinnace.apiserver.registry.validation.volumes import STORAGE_RESOURCE

_LIMIT_TYPES = ("Container", "Pod", "PersistentVolumeClaim")
_LIMIT_FIELDS = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
_LIMIT_ORDER = (
    ("min", "max", "min", "min", "max"),
    ("min", "defaultRequest", "defaultRequest", "min", "default request"),
    ("defaultRequest", "max", "defaultRequest", "default request", "max"),
    ("defaultRequest", "default", "defaultRequest", "default request", "default limit"),
    ("min", "default", "default", "min", "default"),
    ("default", "max", "default", "default", "max"),
)
"""(field, field that it may not exceed, field that the violation names, names of the two fields in the message)."""

Amounts = Mapping[str, Decimal]
"""The valid amounts of one resource, by field."""

_POD_COUNT = frozenset({"pods"})
_COMPUTE_RESOURCES = _POD_COUNT | {"cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"}
_RESOURCES_BY_SCOPE: Mapping[str, frozenset[str]] = {
    "Terminating": _COMPUTE_RESOURCES,
    "NotTerminating": _COMPUTE_RESOURCES,
    "BestEffort": _POD_COUNT,
    "NotBestEffort": _COMPUTE_RESOURCES,
    "PriorityClass": _COMPUTE_RESOURCES,
    "CrossNamespacePodAffinity": _COMPUTE_RESOURCES,
    "VolumeAttributesClass": frozenset({"persistentvolumeclaims", "requests.storage"}),
}
"""The resources that a quota with this scope may limit, among the resources that Kubernetes defines."""
_SCOPES_WITH_VALUES = ("PriorityClass", "VolumeAttributesClass")
_CONFLICTING_SCOPES = ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"})
_ONLY_EXISTS = (
    "must be 'Exist' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
    "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)

MAX_PRIORITY = 1_000_000_000
SYSTEM_PREFIX = "system-"
SYSTEM_CLASSES: Mapping[str, int] = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""The server creates these classes at start-up. They cannot be deleted."""

_SYSTEM_CLASS_DESCRIPTIONS = {
    "system-cluster-critical": "Used for system critical pods that must run in the cluster, but can be moved to another node.",
    "system-node-critical": "Used for system critical pods that must not be moved from their current node.",
}

_UNHEALTHY_POD_EVICTION_POLICIES = ("AlwaysAllow", "IfHealthyBudget")
_BUDGET_STATUS_COUNTS = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
_CONDITION_STATUSES = ("True", "False", "Unknown")


class LimitRangeStrategy(Strategy[LimitRange]):
    def set_defaults(self, obj: LimitRange) -> None:
        """Set defaults: the limit is the maximum, and the request is the default limit or else the minimum."""
        for item in obj.spec.limits:
            if item.type != "Container":
                continue
            for target, source in (
                (item.default, item.max),
                (item.defaultRequest, item.default),
                (item.defaultRequest, item.min),
            ):
                for name in source.keys() - target.keys():
                    target[name].CopyFrom(source[name])

    def check_fields(self, obj: LimitRange, out: list[Violation]) -> None:
        types: set[str] = set()
        for index, item in enumerate(obj.spec.limits):
            path = f"spec.limits[{index}]"
            _validate_type(item.type, f"{path}.type", out)
            if item.type in types:
                out.append(duplicate(f"{path}.type", item.type))
            types.add(item.type)
            _validate_item(item, path, out)


def _validate_type(name: str, path: str, out: list[Violation]) -> None:
    if problems := names.label_key(name):
        out.extend(invalid(path, name, problem) for problem in problems)
    elif "/" not in name and name not in _LIMIT_TYPES:
        out.append(invalid(path, name, "must be a standard limit type or fully qualified"))


def _validate_item(item: LimitRangeItem, path: str, out: list[Violation]) -> None:
    fields: dict[str, Mapping[str, Quantity]] = {field: getattr(item, field) for field in _LIMIT_FIELDS}
    if item.type == "Pod":
        detail = "may not be specified when `type` is 'Pod'"
        out.extend(forbidden(f"{path}.{field}", detail) for field in ("default", "defaultRequest") if fields.pop(field))
    if item.type == "PersistentVolumeClaim" and STORAGE_RESOURCE not in item.min and STORAGE_RESOURCE not in item.max:
        detail = "either minimum or maximum storage value is required, but neither was provided"
        out.append(required(f"{path}.limits", detail))
    check = container_resource_problems if item.type in ("Pod", "Container") else resource_name_problems
    amounts_by_field: dict[str, dict[str, Decimal]] = {}
    for field, amounts in fields.items():
        for name, amount in sorted(amounts.items()):
            where = _item_path(path, field, name)
            out.extend(invalid(where, name, problem) for problem in check(name))
            try:
                amounts_by_field.setdefault(name, {})[field] = quantity.parse(amount.string)
            except quantity.QuantityError as error:
                out.append(invalid(where, amount.string, str(error)))
    for name, values in sorted(amounts_by_field.items()):
        _validate_amounts(item, name, values, path, out)


def _validate_amounts(item: LimitRangeItem, name: str, values: Amounts, path: str, out: list[Violation]) -> None:
    """Check the fields of one resource against each other."""

    def amount_text(field: str) -> str:
        return str(getattr(item, field)[name].string)

    def add_invalid(field: str, detail: str) -> None:
        out.append(invalid(_item_path(path, field, name), amount_text(field), detail))

    for low, high, blamed, low_name, high_name in _LIMIT_ORDER:
        if low in values and high in values and values[low] > values[high]:
            add_invalid(blamed, f"{low_name} value {amount_text(low)} is greater than {high_name} value {amount_text(high)}")
    ratio = values.get("maxLimitRequestRatio")
    if ratio is not None:
        if ratio < 1:
            add_invalid("maxLimitRequestRatio", f"ratio {amount_text('maxLimitRequestRatio')} is less than 1")
        if "max" in values and values.get("min", 0) > 0 and ratio > (widest := values["max"] / values["min"]):
            detail = f"ratio {amount_text('maxLimitRequestRatio')} is greater than max/min = {widest:.6f}"
            add_invalid("maxLimitRequestRatio", detail)
    given = {values[field] for field in ("default", "defaultRequest") if field in values}
    if len(given) > 1 and not can_overcommit(name):
        both = f"default value {amount_text('default')} must equal to defaultRequest value {amount_text('defaultRequest')}"
        add_invalid("defaultRequest", f"{both} in {name[: names.MAX_KEY]}")


def _item_path(path: str, field: str, name: str) -> str:
    return f"{path}.{field}[{name[: names.MAX_KEY]}]"


class ResourceQuotaStrategy(StatusStrategy[ResourceQuota]):
    def prepare_update(self, obj: ResourceQuota, old: ResourceQuota) -> None:
        """Keep the status, unless the limited resources or the scope selector change. Charges of the quota depend on it."""
        super().prepare_update(obj, old)
        if obj.spec.hard.keys() != old.spec.hard.keys() or obj.spec.scopeSelector != old.spec.scopeSelector:
            obj.ClearField("status")

    def check_fields(self, obj: ResourceQuota, out: list[Violation]) -> None:
        spec = obj.spec
        _validate_quota_amounts(spec.hard, "spec.hard", out)
        for scope in spec.scopes:
            if scope not in _RESOURCES_BY_SCOPE:
                out.append(invalid("spec.scopes", spec.scopes, "unsupported scope"))
            elif _limits_unsupported_resource(scope, spec.hard):
                out.append(invalid("spec.scopes", spec.scopes, "unsupported scope applied to resource"))
        if _scopes_conflict(spec.scopes):
            out.append(invalid("spec.scopes", spec.scopes, "conflicting scopes"))
        path = "spec.scopeSelector.matchExpressions"
        requirements = spec.scopeSelector.matchExpressions
        for index, requirement in enumerate(requirements):
            _validate_requirement(requirement, spec.hard, f"{path}[{index}]", out)
        if _scopes_conflict(scopes := [requirement.scopeName for requirement in requirements]):
            out.append(invalid(path, scopes, "conflicting scopes"))

    def check_change(self, new: ResourceQuota, old: ResourceQuota, out: list[Violation]) -> None:
        if set(new.spec.scopes) != set(old.spec.scopes):
            out.append(invalid("spec.scopes", new.spec.scopes, IMMUTABLE))

    def check_status(self, obj: ResourceQuota, out: list[Violation]) -> None:
        _validate_quota_amounts(obj.status.hard, "status.hard", out)
        _validate_quota_amounts(obj.status.used, "status.used", out)


def _validate_requirement(
    requirement: ScopedResourceSelectorRequirement, hard: Mapping[str, Quantity], path: str, out: list[Violation]
) -> None:
    """Validate one requirement. Unlike in Kubernetes, `path` contains its index."""
    scope, operator, values = requirement.scopeName, requirement.operator, requirement.values
    if scope not in _RESOURCES_BY_SCOPE:
        out.append(invalid(f"{path}.scopeName", scope, "unsupported scope"))
    elif _limits_unsupported_resource(scope, hard):
        out.append(invalid(f"{path}.scopeName", scope, "unsupported scope applied to resource"))
    if scope in _RESOURCES_BY_SCOPE and scope not in _SCOPES_WITH_VALUES and operator != "Exists":
        out.append(invalid(f"{path}.operator", operator, _ONLY_EXISTS))
    match operator:
        case "In" | "NotIn":
            if not values:
                detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
                out.append(required(f"{path}.values", detail))
        case "Exists" | "DoesNotExist":
            if values:
                detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
                out.append(invalid(f"{path}.values", values, detail))
        case _:
            out.append(invalid(f"{path}.operator", operator, "not a valid selector operator"))


def _validate_quota_amounts(amounts: Mapping[str, Quantity], path: str, out: list[Violation]) -> None:
    for name, amount in sorted(amounts.items()):
        where = f"{path}[{name[: names.MAX_KEY]}]"
        out.extend(invalid(where, name, problem) for problem in quota_resource_problems(name))
        validate_amount(name, amount.string, where, out)


def _limits_unsupported_resource(scope: str, hard: Iterable[str]) -> bool:
    """Return whether the quota limits a resource that the scope does not support."""
    return any(is_quota_resource(name) and name not in _RESOURCES_BY_SCOPE[scope] for name in hard)


def _scopes_conflict(scopes: Iterable[str]) -> bool:
    """Return whether two of the scopes exclude each other."""
    return any(pair <= set(scopes) for pair in _CONFLICTING_SCOPES)


def system_classes() -> list[PriorityClass]:
    return [
        PriorityClass(metadata=ObjectMeta(name=name), value=value, description=_SYSTEM_CLASS_DESCRIPTIONS[name])
        for name, value in SYSTEM_CLASSES.items()
    ]


class PriorityClassStrategy(Strategy[PriorityClass]):
    has_generation = True

    def prepare_create(self, obj: PriorityClass) -> None:
        if not obj.HasField("preemptionPolicy"):
            obj.preemptionPolicy = "PreemptLowerPriority"

    def prepare_update(self, obj: PriorityClass, old: PriorityClass) -> None:
        if not obj.HasField("preemptionPolicy"):
            obj.preemptionPolicy = old.preemptionPolicy

    def check_fields(self, obj: PriorityClass, out: list[Violation]) -> None:
        if obj.preemptionPolicy not in PREEMPTION_POLICIES:
            out.append(unsupported("preemptionPolicy", obj.preemptionPolicy, PREEMPTION_POLICIES))

    def check_new(self, obj: PriorityClass, out: list[Violation]) -> None:
        if obj.metadata.name.startswith(SYSTEM_PREFIX):
            _validate_system(obj, out)
        elif obj.value > MAX_PRIORITY:
            out.append(forbidden("value", f"maximum allowed value of a user defined priority is {MAX_PRIORITY}"))
        self.check_fields(obj, out)

    def check_change(self, new: PriorityClass, old: PriorityClass, out: list[Violation]) -> None:
        if new.value != old.value:
            out.append(forbidden("value", "may not be changed in an update."))
        if new.preemptionPolicy != old.preemptionPolicy:
            out.append(invalid("preemptionPolicy", new.preemptionPolicy, IMMUTABLE))


def _validate_system(obj: PriorityClass, out: list[Violation]) -> None:
    name = obj.metadata.name
    if name not in SYSTEM_CLASSES:
        error = f"{name} is not a known system priority class"
    elif obj.value != SYSTEM_CLASSES[name]:
        error = f"value of {name} PriorityClass must be {SYSTEM_CLASSES[name]}"
    elif obj.globalDefault:
        error = f"globalDefault of {name} PriorityClass must be false"
    else:
        return
    detail = f"priority class names with '{SYSTEM_PREFIX}' prefix are reserved for system use only. error: {error}"
    out.append(forbidden("metadata.name", detail))


class PodDisruptionBudgetStrategy(StatusStrategy[PodDisruptionBudget]):
    has_generation = True
    allow_unconditional_update = False

    def check_fields(self, obj: PodDisruptionBudget, out: list[Violation]) -> None:
        spec = obj.spec
        if spec.HasField("minAvailable") and spec.HasField("maxUnavailable"):
            shown = f"minAvailable: {int_or_string(spec.minAvailable)}, maxUnavailable: {int_or_string(spec.maxUnavailable)}"
            out.append(invalid("spec", shown, "minAvailable and maxUnavailable cannot be both set"))
        for field in ("minAvailable", "maxUnavailable"):
            if spec.HasField(field):
                validate_bound(getattr(spec, field), f"spec.{field}", out, most=FULL_PERCENT)
        if spec.HasField("selector"):
            validate_selector(spec.selector, "spec.selector", out)
        if (
            spec.HasField("unhealthyPodEvictionPolicy")
            and spec.unhealthyPodEvictionPolicy not in _UNHEALTHY_POD_EVICTION_POLICIES
        ):
            out.append(
                unsupported(
                    "spec.unhealthyPodEvictionPolicy", spec.unhealthyPodEvictionPolicy, _UNHEALTHY_POD_EVICTION_POLICIES
                )
            )

    def check_status(self, obj: PodDisruptionBudget, out: list[Violation]) -> None:
        for index, condition in enumerate(obj.status.conditions):
            validate_key(condition.type, f"status.conditions[{index}].type", out)
            if condition.status not in _CONDITION_STATUSES:
                out.append(unsupported(f"status.conditions[{index}].status", condition.status, _CONDITION_STATUSES))
        not_negative(obj.status, "status", _BUDGET_STATUS_COUNTS, out)
