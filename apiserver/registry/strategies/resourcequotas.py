"""Quotas: what can be counted, in which scopes.

Source: pkg/apis/core/validation of Kubernetes 1.36.
"""

from collections.abc import Iterable, Mapping

from apiserver.registry.strategy import StatusStrategy
from apiserver.registry.validation import resource_names
from apiserver.registry.validation.resources import validate_amount
from apiserver.registry.validation.violations import IMMUTABLE, invalid, required
from pinnace.api import names
from pinnace.api.core_v1_pb2 import ResourceQuota, ScopedResourceSelectorRequirement
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.api.status import Violation

_PODS = frozenset({"pods"})
_COMPUTE = _PODS | {"cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"}
_SCOPES: Mapping[str, frozenset[str]] = {
    "Terminating": _COMPUTE,
    "NotTerminating": _COMPUTE,
    "BestEffort": _PODS,
    "NotBestEffort": _COMPUTE,
    "PriorityClass": _COMPUTE,
    "CrossNamespacePodAffinity": _COMPUTE,
    "VolumeAttributesClass": frozenset({"persistentvolumeclaims", "requests.storage"}),
}
"""What can be counted in each scope, of what Kubernetes itself counts."""
_WITH_VALUES = ("PriorityClass", "VolumeAttributesClass")
_CONFLICTING = ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"})
_ONLY_EXISTS = (
    "must be 'Exist' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
    "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)


class ResourceQuotaStrategy(StatusStrategy[ResourceQuota]):
    def prepare_update(self, obj: ResourceQuota, old: ResourceQuota) -> None:
        """What was counted stays, unless something else is to be counted now: who charges the quota relies on it."""
        super().prepare_update(obj, old)
        if obj.spec.hard.keys() != old.spec.hard.keys() or obj.spec.scopeSelector != old.spec.scopeSelector:
            obj.ClearField("status")

    def check(self, obj: ResourceQuota, out: list[Violation]) -> None:
        spec = obj.spec
        _validate_amounts(spec.hard, "spec.hard", out)
        for scope in spec.scopes:
            if scope not in _SCOPES:
                out.append(invalid("spec.scopes", spec.scopes, "unsupported scope"))
            elif _counts_others(scope, spec.hard):
                out.append(invalid("spec.scopes", spec.scopes, "unsupported scope applied to resource"))
        if _conflict(spec.scopes):
            out.append(invalid("spec.scopes", spec.scopes, "conflicting scopes"))
        path = "spec.scopeSelector.matchExpressions"
        requirements = spec.scopeSelector.matchExpressions
        for index, requirement in enumerate(requirements):
            _validate_requirement(requirement, spec.hard, f"{path}[{index}]", out)
        if _conflict(scopes := [requirement.scopeName for requirement in requirements]):
            out.append(invalid(path, scopes, "conflicting scopes"))

    def check_change(self, new: ResourceQuota, old: ResourceQuota, out: list[Violation]) -> None:
        if set(new.spec.scopes) != set(old.spec.scopes):
            out.append(invalid("spec.scopes", new.spec.scopes, IMMUTABLE))

    def check_status(self, obj: ResourceQuota, out: list[Violation]) -> None:
        _validate_amounts(obj.status.hard, "status.hard", out)
        _validate_amounts(obj.status.used, "status.used", out)


def _validate_requirement(
    requirement: ScopedResourceSelectorRequirement, hard: Mapping[str, Quantity], path: str, out: list[Violation]
) -> None:
    """By its index, which Kubernetes leaves out of the path."""
    scope, operator, values = requirement.scopeName, requirement.operator, requirement.values
    if scope not in _SCOPES:
        out.append(invalid(f"{path}.scopeName", scope, "unsupported scope"))
    elif _counts_others(scope, hard):
        out.append(invalid(f"{path}.scopeName", scope, "unsupported scope applied to resource"))
    if scope in _SCOPES and scope not in _WITH_VALUES and operator != "Exists":
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


def _validate_amounts(amounts: Mapping[str, Quantity], path: str, out: list[Violation]) -> None:
    for name, amount in sorted(amounts.items()):
        where = f"{path}[{name[: names.MAX_KEY]}]"
        out.extend(invalid(where, name, problem) for problem in resource_names.of_quota(name))
        validate_amount(name, amount.string, where, out)


def _counts_others(scope: str, hard: Iterable[str]) -> bool:
    """Does the quota bound something that the scope says nothing about?"""
    return any(resource_names.in_quota(name) and name not in _SCOPES[scope] for name in hard)


def _conflict(scopes: Iterable[str]) -> bool:
    """Can nothing match all of them?"""
    return any(pair <= set(scopes) for pair in _CONFLICTING)
