"""Disruption budgets: one bound, a number or a percentage.

Source: pkg/apis/policy/validation of Kubernetes 1.36.
"""

import re

from apiserver.registry.validation.labels import validate_key, validate_selector
from apiserver.registry.validation.metadata import validate_metadata, validate_metadata_update
from apiserver.registry.validation.violations import NEGATIVE, invalid, unsupported
from pinnace.api.intstr_v1_pb2 import IntOrString
from pinnace.api.policy_v1_pb2 import PodDisruptionBudget, PodDisruptionBudgetSpec
from pinnace.api.scalars import STRING
from pinnace.api.status import Violation

_POLICIES = ("AlwaysAllow", "IfHealthyBudget")
_COUNTS = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
_CONDITIONS = ("True", "False", "Unknown")
_match_percent = re.compile(r"[0-9]+%").fullmatch
_PERCENT = (
    "a valid percent string must be a numeric string followed by an ending '%' "
    "(e.g. '1%', or '93%', regex used for validation is '[0-9]+%')"
)


def validate_budget(obj: PodDisruptionBudget) -> list[Violation]:
    """Everything that is wrong with a new budget."""
    out: list[Violation] = []
    validate_metadata(obj.metadata, out, namespaced=True)
    _validate_spec(obj.spec, out)
    return out


def validate_budget_update(new: PodDisruptionBudget, old: PodDisruptionBudget) -> list[Violation]:
    """Everything that is wrong with the change, and with the budget as it would be."""
    out: list[Violation] = []
    validate_metadata_update(new.metadata, old.metadata, out, namespaced=True)
    _validate_spec(new.spec, out)
    return out


def validate_budget_status(obj: PodDisruptionBudget) -> list[Violation]:
    """Everything that is wrong with a new status."""
    out: list[Violation] = []
    for index, condition in enumerate(obj.status.conditions):
        validate_key(condition.type, f"status.conditions[{index}].type", out)
        if condition.status not in _CONDITIONS:
            out.append(unsupported(f"status.conditions[{index}].status", condition.status, _CONDITIONS))
    counts = {field: getattr(obj.status, field) for field in _COUNTS}
    out.extend(invalid(f"status.{field}", count, NEGATIVE) for field, count in counts.items() if count < 0)
    return out


def _validate_spec(spec: PodDisruptionBudgetSpec, out: list[Violation]) -> None:
    if spec.HasField("minAvailable") and spec.HasField("maxUnavailable"):
        shown = f"minAvailable: {_shown(spec.minAvailable)}, maxUnavailable: {_shown(spec.maxUnavailable)}"
        out.append(invalid("spec", shown, "minAvailable and maxUnavailable cannot be both set"))
    for field in ("minAvailable", "maxUnavailable"):
        if spec.HasField(field):
            _validate_bound(getattr(spec, field), f"spec.{field}", out)
    if spec.HasField("selector"):
        validate_selector(spec.selector, "spec.selector", out)
    if spec.HasField("unhealthyPodEvictionPolicy") and spec.unhealthyPodEvictionPolicy not in _POLICIES:
        out.append(unsupported("spec.unhealthyPodEvictionPolicy", spec.unhealthyPodEvictionPolicy, _POLICIES))


def _validate_bound(bound: IntOrString, path: str, out: list[Violation]) -> None:
    if bound.type != STRING:
        if bound.intVal < 0:
            out.append(invalid(path, bound.intVal, NEGATIVE))
    elif not _match_percent(bound.strVal):
        out.append(invalid(path, bound.strVal, _PERCENT))
    elif len(bound.strVal) > 4 or int(bound.strVal[:-1]) > 100:
        out.append(invalid(path, bound.strVal, "must not be greater than 100%"))


def _shown(bound: IntOrString) -> str:
    return bound.strVal if bound.type == STRING else str(bound.intVal)
