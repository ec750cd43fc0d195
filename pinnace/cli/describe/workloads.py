"""Descriptions of deployments, replica sets, jobs and disruption budgets.

Source: kubectl, pkg/describe: DeploymentDescriber, ReplicaSetDescriber, JobDescriber, PodDisruptionBudgetDescriber,
DescribePodTemplate.
"""

from collections.abc import Iterable, Sequence

from pinnace.api.apps_v1_pb2 import Deployment, ReplicaSet
from pinnace.api.batch_v1_pb2 import Job
from pinnace.api.core_v1_pb2 import PodTemplateSpec
from pinnace.api.meta_v1_pb2 import LabelSelector, ObjectMeta
from pinnace.api.policy_v1_pb2 import PodDisruptionBudget
from pinnace.api.quantities import equal
from pinnace.api.rollouts import bare, by_revision
from pinnace.api.scalars import int_or_string
from pinnace.api.selectors import from_message
from pinnace.cli.describe.pods import containers, volumes
from pinnace.cli.describe.text import NONE, Fields, NotShown, Rows, Value, annotations, controlled_by, head, instant, pairs
from pinnace.printers.workloads import duration


def describe_deployment(deployment: Deployment, sets: Iterable[ReplicaSet] | NotShown) -> Fields:
    """Describe a deployment. `sets` are the replica sets of its namespace."""
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


def describe_replica_set(replica_set: ReplicaSet) -> Fields:
    spec, status = replica_set.spec, replica_set.status
    fields = head_of(replica_set.metadata, spec.selector)
    fields["Replicas"] = f"{status.replicas} current / {spec.replicas} desired"
    fields["Pods Status"] = f"{status.readyReplicas} ready / {status.availableReplicas} available"
    fields["Pod Template"] = template(spec.template)
    if status.conditions:
        conditions = [(condition.type, condition.status, condition.reason) for condition in status.conditions]
        fields["Conditions"] = Rows(("Type", "Status", "Reason"), conditions)
    return fields


def describe_job(job: Job, now: float) -> Fields:
    spec, status = job.spec, job.status
    fields = head_of(job.metadata, spec.selector)
    fields["Parallelism"] = str(spec.parallelism)
    fields["Completions"] = str(spec.completions) if spec.HasField("completions") else "<unset>"
    fields["Completion Mode"] = spec.completionMode
    fields["Suspend"] = str(spec.suspend).lower()
    fields["Backoff Limit"] = str(spec.backoffLimit)
    if spec.HasField("ttlSecondsAfterFinished"):
        fields["TTL Seconds After Finished"] = str(spec.ttlSecondsAfterFinished)
    if spec.HasField("activeDeadlineSeconds"):
        fields["Active Deadline Seconds"] = f"{spec.activeDeadlineSeconds}s"
    times = (
        ("Start Time", instant(status.startTime)),
        ("Completed At", instant(status.completionTime)),
        ("Duration", duration(job, now)),
    )
    fields |= {label: text for label, text in times if text}
    active = f"{status.active} Active ({status.ready} Ready)"
    fields["Pods Statuses"] = f"{active} / {status.succeeded} Succeeded / {status.failed} Failed"
    if status.completedIndexes:
        fields["Completed Indexes"] = status.completedIndexes
    fields["Pod Template"] = template(spec.template)
    return fields


def describe_disruption_budget(budget: PodDisruptionBudget) -> Fields:
    spec, status = budget.spec, budget.status
    fields = head_of(budget.metadata, spec.selector)
    if spec.HasField("minAvailable"):
        fields["Min available"] = str(int_or_string(spec.minAvailable))
    elif spec.HasField("maxUnavailable"):
        fields["Max unavailable"] = str(int_or_string(spec.maxUnavailable))
    fields["Status"] = {
        "Allowed disruptions": str(status.disruptionsAllowed),
        "Current": str(status.currentHealthy),
        "Desired": str(status.desiredHealthy),
        "Total": str(status.expectedPods),
    }
    return fields


def head_of(metadata: ObjectMeta, selector: LabelSelector) -> dict[str, Value]:
    """Return the first fields of objects that select pods."""
    fields = head(metadata)
    fields["Selector"] = str(from_message(selector)) or NONE
    return {**fields, **controlled_by(metadata)}


def template(template: PodTemplateSpec) -> Fields:
    spec = template.spec
    fields: dict[str, Value] = {"Labels": pairs(template.metadata.labels)}
    if told := annotations(template.metadata):
        fields["Annotations"] = told
    if spec.serviceAccountName:
        fields["Service Account"] = spec.serviceAccountName
    if spec.initContainers:
        fields["Init Containers"] = containers(spec.initContainers)
    fields["Containers"] = containers(spec.containers)
    fields["Volumes"] = volumes(spec.volumes)
    fields["Node-Selectors"] = pairs(spec.nodeSelector)
    return fields
