"""Deployments: what replica sets must be, and a strategy that can get anywhere.

Source: pkg/apis/apps/validation of Kubernetes 1.36.
"""

from apiserver.registry.validation.metadata import validate_metadata, validate_metadata_update
from apiserver.registry.validation.numbers import WHOLE, is_nothing, not_negative, validate_bound
from apiserver.registry.validation.pod_templates import validate_parts, validate_replicated, validate_selector_update
from apiserver.registry.validation.violations import forbidden, invalid, unsupported
from pinnace.api.apps_v1_pb2 import Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment
from pinnace.api.scalars import int_or_string
from pinnace.api.status import Violation

_STRATEGIES = ("Recreate", "RollingUpdate")
_PARTS = ("updatedReplicas", "readyReplicas", "availableReplicas")


def validate_deployment(obj: Deployment) -> list[Violation]:
    """Everything that is wrong with a new deployment, after defaults."""
    out: list[Violation] = []
    validate_metadata(obj.metadata, out, namespaced=True)
    _validate_spec(obj.spec, out)
    return out


def validate_deployment_update(new: Deployment, old: Deployment) -> list[Violation]:
    """Everything that is wrong with the change, and with the deployment as it would be."""
    out: list[Violation] = []
    validate_metadata_update(new.metadata, old.metadata, out, namespaced=True)
    _validate_spec(new.spec, out)
    validate_selector_update(new.spec, old.spec, out)
    return out


def validate_deployment_status(new: Deployment, old: Deployment) -> list[Violation]:
    """Everything that is wrong with a new status, and with the step to it."""
    out: list[Violation] = []
    validate_parts(new.status, _PARTS, out)
    not_negative(new.status, "status", ("unavailableReplicas", "collisionCount"), out)
    if new.status.collisionCount < old.status.collisionCount:
        out.append(invalid("status.collisionCount", new.status.collisionCount, "cannot be decremented"))
    return out


def _validate_spec(spec: DeploymentSpec, out: list[Violation]) -> None:
    validate_replicated(spec, out)
    _validate_strategy(spec.strategy, out)
    not_negative(spec, "spec", ("revisionHistoryLimit", "progressDeadlineSeconds"), out)
    if spec.HasField("progressDeadlineSeconds") and spec.progressDeadlineSeconds <= spec.minReadySeconds:
        detail = "must be greater than minReadySeconds"
        out.append(invalid("spec.progressDeadlineSeconds", spec.progressDeadlineSeconds, detail))


def _validate_strategy(strategy: DeploymentStrategy, out: list[Violation]) -> None:
    match strategy.type:
        case "RollingUpdate":
            _validate_rolling(strategy.rollingUpdate, "spec.strategy.rollingUpdate", out)
        case "Recreate":
            if strategy.HasField("rollingUpdate"):
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
