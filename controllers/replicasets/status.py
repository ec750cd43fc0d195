"""What a replica set says of its pods. Pure; times are Unix time."""

from collections.abc import Iterable
from dataclasses import dataclass

from controllers.podstates import active, available_in, ready, terminating
from pinnace.api.apps_v1_pb2 import ReplicaSet, ReplicaSetStatus
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.times import to_time

FAILURE = "ReplicaFailure"


@dataclass(frozen=True, slots=True)
class Trouble:
    """`reason`: FailedCreate or FailedDelete."""

    reason: str
    message: str


def status_of(
    replica_set: ReplicaSet, pods: Iterable[Pod], trouble: Trouble | None, now: float
) -> tuple[ReplicaSetStatus, float | None]:
    """The status, and the seconds until one more pod is available if all stays as it is; None: none will be."""
    labels = replica_set.spec.template.metadata.labels
    status = ReplicaSetStatus(observedGeneration=replica_set.metadata.generation, terminatingReplicas=0)
    waits = []
    for pod in pods:
        if terminating(pod):
            status.terminatingReplicas += 1
        if not active(pod):
            continue
        status.replicas += 1
        status.fullyLabeledReplicas += all(pod.metadata.labels.get(key) == value for key, value in labels.items())
        status.readyReplicas += ready(pod)
        wait = available_in(pod, replica_set.spec.minReadySeconds, now)
        status.availableReplicas += wait == 0
        if wait:
            waits.append(wait)
    status.conditions.extend(each for each in replica_set.status.conditions if each.type != FAILURE)
    if trouble is not None:
        old = next((each for each in replica_set.status.conditions if each.type == FAILURE), None)
        condition = status.conditions.add(type=FAILURE, status="True", reason=trouble.reason, message=trouble.message)
        condition.lastTransitionTime.CopyFrom(old.lastTransitionTime if old is not None else to_time(now))
    return status, min(waits, default=None)
