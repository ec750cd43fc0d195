"""Deployments: what replica sets must be, and a strategy that can get anywhere: a quarter at a time unless they say otherwise.

Source: pkg/apis/apps/validation of Kubernetes 1.36.
"""

from collections.abc import Iterable

from apiserver.registry.strategies.pod_defaults import set_template_defaults
from apiserver.registry.strategy import StatusStrategy
from apiserver.registry.validation.numbers import WHOLE, is_nothing, not_negative, validate_bound
from apiserver.registry.validation.pod_templates import (
    validate_parts,
    validate_replicated,
    validate_selector_update,
    workload_warnings,
)
from apiserver.registry.validation.violations import forbidden, invalid, unsupported
from pinnace.api.apps_v1_pb2 import Deployment, DeploymentSpec, RollingUpdateDeployment
from pinnace.api.intstr_v1_pb2 import IntOrString
from pinnace.api.scalars import STRING, int_or_string
from pinnace.api.status import Violation

HISTORY = 10
PROGRESS_SECONDS = 600
QUARTER = IntOrString(type=STRING, strVal="25%")
_STRATEGIES = ("Recreate", "RollingUpdate")
_PARTS = ("updatedReplicas", "readyReplicas", "availableReplicas")


class DeploymentStrategy(StatusStrategy[Deployment]):
    def set_defaults(self, obj: Deployment) -> None:
        """Source: pkg/apis/apps/v1/defaults.go of Kubernetes 1.36."""
        spec = obj.spec
        set_template_defaults(spec.template.spec)
        if not spec.HasField("replicas"):
            spec.replicas = 1
        spec.strategy.type = spec.strategy.type or "RollingUpdate"
        if spec.strategy.type == "RollingUpdate":
            rolling = spec.strategy.rollingUpdate
            for field in ("maxUnavailable", "maxSurge"):
                if not rolling.HasField(field):
                    getattr(rolling, field).CopyFrom(QUARTER)
        if not spec.HasField("revisionHistoryLimit"):
            spec.revisionHistoryLimit = HISTORY
        if not spec.HasField("progressDeadlineSeconds"):
            spec.progressDeadlineSeconds = PROGRESS_SECONDS

    def check(self, obj: Deployment, out: list[Violation]) -> None:
        spec = obj.spec
        validate_replicated(spec, out)
        _validate_strategy(spec, out)
        not_negative(spec, "spec", ("revisionHistoryLimit", "progressDeadlineSeconds"), out)
        if spec.HasField("progressDeadlineSeconds") and spec.progressDeadlineSeconds <= spec.minReadySeconds:
            detail = "must be greater than minReadySeconds"
            out.append(invalid("spec.progressDeadlineSeconds", spec.progressDeadlineSeconds, detail))

    def warnings(self, obj: Deployment) -> Iterable[str]:
        return workload_warnings(obj.metadata.name, obj.spec.template)

    def check_change(self, new: Deployment, old: Deployment, out: list[Violation]) -> None:
        validate_selector_update(new.spec, old.spec, out)

    def check_status(self, obj: Deployment, out: list[Violation]) -> None:
        validate_parts(obj.status, _PARTS, out)
        not_negative(obj.status, "status", ("unavailableReplicas", "collisionCount"), out)

    def check_status_change(self, new: Deployment, old: Deployment, out: list[Violation]) -> None:
        if new.status.collisionCount < old.status.collisionCount:
            out.append(invalid("status.collisionCount", new.status.collisionCount, "cannot be decremented"))


def _validate_strategy(spec: DeploymentSpec, out: list[Violation]) -> None:
    match spec.strategy.type:
        case "RollingUpdate":
            _validate_rolling(spec.strategy.rollingUpdate, "spec.strategy.rollingUpdate", out)
        case "Recreate":
            if spec.strategy.HasField("rollingUpdate"):
                detail = "may not be specified when strategy `type` is 'Recreate'"
                out.append(forbidden("spec.strategy.rollingUpdate", detail))
        case other:
            out.append(unsupported("spec.strategy.type", other, _STRATEGIES))


def _validate_rolling(rolling: RollingUpdateDeployment, path: str, out: list[Violation]) -> None:
    validate_bound(rolling.maxUnavailable, f"{path}.maxUnavailable", out, most=WHOLE)
    validate_bound(rolling.maxSurge, f"{path}.maxSurge", out)
    if is_nothing(rolling.maxUnavailable) and is_nothing(rolling.maxSurge):
        shown = int_or_string(rolling.maxUnavailable)
        out.append(invalid(f"{path}.maxUnavailable", shown, "may not be 0 when `maxSurge` is 0"))
