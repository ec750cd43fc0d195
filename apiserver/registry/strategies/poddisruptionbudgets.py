"""Disruption budgets: one bound, a number or a percentage.

Source: pkg/apis/policy/validation of Kubernetes 1.36.
"""

from apiserver.registry.strategy import StatusStrategy
from apiserver.registry.validation.labels import validate_key, validate_selector
from apiserver.registry.validation.numbers import WHOLE, not_negative, validate_bound
from apiserver.registry.validation.violations import invalid, unsupported
from pinnace.api.policy_v1_pb2 import PodDisruptionBudget
from pinnace.api.scalars import int_or_string
from pinnace.api.status import Violation

_POLICIES = ("AlwaysAllow", "IfHealthyBudget")
_COUNTS = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
_CONDITIONS = ("True", "False", "Unknown")


class PodDisruptionBudgetStrategy(StatusStrategy[PodDisruptionBudget]):
    allow_unconditional_update = False

    def check(self, obj: PodDisruptionBudget, out: list[Violation]) -> None:
        spec = obj.spec
        if spec.HasField("minAvailable") and spec.HasField("maxUnavailable"):
            shown = f"minAvailable: {int_or_string(spec.minAvailable)}, maxUnavailable: {int_or_string(spec.maxUnavailable)}"
            out.append(invalid("spec", shown, "minAvailable and maxUnavailable cannot be both set"))
        for field in ("minAvailable", "maxUnavailable"):
            if spec.HasField(field):
                validate_bound(getattr(spec, field), f"spec.{field}", out, most=WHOLE)
        if spec.HasField("selector"):
            validate_selector(spec.selector, "spec.selector", out)
        if spec.HasField("unhealthyPodEvictionPolicy") and spec.unhealthyPodEvictionPolicy not in _POLICIES:
            out.append(unsupported("spec.unhealthyPodEvictionPolicy", spec.unhealthyPodEvictionPolicy, _POLICIES))

    def check_status(self, obj: PodDisruptionBudget, out: list[Violation]) -> None:
        for index, condition in enumerate(obj.status.conditions):
            validate_key(condition.type, f"status.conditions[{index}].type", out)
            if condition.status not in _CONDITIONS:
                out.append(unsupported(f"status.conditions[{index}].status", condition.status, _CONDITIONS))
        not_negative(obj.status, "status", _COUNTS, out)
