"""Deployments: rolled out a quarter at a time unless they say otherwise; the status is whoever's who rolls them out."""

from apiserver.registry.strategies.pod_defaults import set_template_defaults
from apiserver.registry.strategy import StatusStrategy, carry_over
from apiserver.registry.validation.deployments import (
    validate_deployment,
    validate_deployment_status,
    validate_deployment_update,
)
from pinnace.api.apps_v1_pb2 import Deployment
from pinnace.api.intstr_v1_pb2 import IntOrString
from pinnace.api.scalars import STRING
from pinnace.api.status import Violation

HISTORY = 10
PROGRESS_SECONDS = 600
QUARTER = IntOrString(type=STRING, strVal="25%")


class DeploymentStrategy(StatusStrategy[Deployment]):
    def prepare_create(self, obj: Deployment) -> None:
        _set_defaults(obj)
        obj.ClearField("status")

    def validate(self, obj: Deployment) -> list[Violation]:
        return validate_deployment(obj)

    def prepare_update(self, obj: Deployment, old: Deployment) -> None:
        _set_defaults(obj)
        carry_over(obj, old, "status")

    def validate_update(self, obj: Deployment, old: Deployment) -> list[Violation]:
        return validate_deployment_update(obj, old)

    def prepare_status_update(self, obj: Deployment, old: Deployment) -> None:
        carry_over(obj, old, "metadata", "spec")

    def validate_status_update(self, obj: Deployment, old: Deployment) -> list[Violation]:
        return validate_deployment_status(obj, old)


def _set_defaults(deployment: Deployment) -> None:
    """Source: pkg/apis/apps/v1/defaults.go of Kubernetes 1.36."""
    spec = deployment.spec
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
