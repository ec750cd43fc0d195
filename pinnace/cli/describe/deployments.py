"""All about a deployment.

Source: kubectl, pkg/describe, DeploymentDescriber.
"""

from collections.abc import Iterable, Sequence

from pinnace.api.apps_v1_pb2 import Deployment, ReplicaSet
from pinnace.api.quantities import equal
from pinnace.api.rollouts import bare, by_revision
from pinnace.api.scalars import int_or_string
from pinnace.cli.describe.templates import head_of, template
from pinnace.cli.describe.text import NONE, Fields, NotShown, Rows


def describe(deployment: Deployment, sets: Iterable[ReplicaSet] | NotShown) -> Fields:
    """`sets`: of its namespace."""
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
    return {**fields, **_replica_sets(deployment, sets)}


def _replica_sets(deployment: Deployment, sets: Iterable[ReplicaSet] | NotShown) -> Fields:
    if isinstance(sets, NotShown):
        return {"OldReplicaSets": sets, "NewReplicaSet": sets}
    own, template_now = by_revision(deployment, sets).values(), bare(deployment.spec.template)
    new = [each for each in own if equal(bare(each.spec.template), template_now)]
    return {"OldReplicaSets": _created([each for each in own if each not in new]), "NewReplicaSet": _created(new)}


def _created(sets: Sequence[ReplicaSet]) -> str:
    told = (f"{each.metadata.name} ({each.status.replicas}/{each.spec.replicas} replicas created)" for each in sets)
    return ", ".join(told) or NONE
