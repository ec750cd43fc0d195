"""All about a deployment.

Source: kubectl, pkg/describe, DeploymentDescriber; the ReplicaSets are `pinnace get rs`.
"""

from collections.abc import Sequence

from pinnace.api.apps_v1_pb2 import Deployment
from pinnace.api.core_v1_pb2 import Event
from pinnace.api.scalars import int_or_string
from pinnace.cli.describe.common import events_table
from pinnace.cli.describe.templates import head_of, template
from pinnace.cli.describe.text import Fields, Rows


def describe(deployment: Deployment, events: Sequence[Event], now: float) -> Fields:
    spec, status = deployment.spec, deployment.status
    fields = head_of(deployment.metadata, spec.selector)
    fields["Replicas"] = (
        f"{spec.replicas} desired | {status.updatedReplicas} updated | {status.replicas} total | "
        f"{status.availableReplicas} available | {status.unavailableReplicas} unavailable"
    )
    fields["StrategyType"] = spec.strategy.type
    fields["MinReadySeconds"] = str(spec.minReadySeconds)
    if spec.strategy.HasField("rollingUpdate"):
        rolling = spec.strategy.rollingUpdate
        missing, surplus = int_or_string(rolling.maxUnavailable), int_or_string(rolling.maxSurge)
        fields["RollingUpdateStrategy"] = f"{missing} max unavailable, {surplus} max surge"
    fields["Pod Template"] = template(spec.template)
    conditions = [(condition.type, condition.status, condition.reason) for condition in status.conditions]
    fields["Conditions"] = Rows(("Type", "Status", "Reason"), conditions)
    fields["Events"] = events_table(events, now)
    return fields
