"""What a replica set says of its pods. Pure; times are Unix time."""

from collections.abc import Sequence
from dataclasses import dataclass

from controllers.podfacts import Facts
from pinnace.api import conditions
from pinnace.api.apps_v1_pb2 import ReplicaSet, ReplicaSetStatus

FAILURE = "ReplicaFailure"


@dataclass(frozen=True, slots=True)
class Trouble:
    """`reason`: FailedCreate or FailedDelete."""

    reason: str
    message: str


def available_in(replica_set: ReplicaSet, pods: Sequence[Facts], now: float) -> float | None:
    """Seconds until one more pod is available if all stays as it is; None: none will be."""
    patience = replica_set.spec.minReadySeconds
    return min((wait for each in pods if each.active and (wait := _available_in(each, patience, now))), default=None)


def status_of(replica_set: ReplicaSet, pods: Sequence[Facts], trouble: Trouble | None, now: float) -> ReplicaSetStatus:
    labels, patience = frozenset(replica_set.spec.template.metadata.labels.items()), replica_set.spec.minReadySeconds
    status = ReplicaSetStatus(observedGeneration=replica_set.metadata.generation)
    status.terminatingReplicas = sum(each.terminating for each in pods)
    there = [each for each in pods if each.active]
    status.replicas = len(there)
    status.availableReplicas = sum(_available_in(each, patience, now) == 0 for each in there)
    status.fullyLabeledReplicas = sum(labels <= each.labels for each in there)
    status.readyReplicas = sum(each.ready for each in there)
    status.conditions.extend(replica_set.status.conditions)
    _tell(status, trouble, now)
    return status


def _tell(status: ReplicaSetStatus, trouble: Trouble | None, now: float) -> None:
    """One that is said already stays as it is. Each refusal has another text, with a pod's name that was made up, and to write
    that would be a change of the replica set, after which it is looked at again at once: for ever, without a back-off."""
    said = conditions.find(status.conditions, FAILURE)
    if trouble is None:
        if said is not None:
            status.conditions.remove(said)
    elif said is None or (said.status, said.reason) != ("True", trouble.reason):
        conditions.say(status.conditions, FAILURE, "True", trouble.reason, trouble.message, now)


def _available_in(pod: Facts, patience: int, now: float) -> float | None:
    """Seconds until it is available if it stays ready; 0: it is; None: it is not ready."""
    if not pod.ready:
        return None
    if not patience:
        return 0.0
    return None if pod.ready_since is None else max(0.0, pod.ready_since + patience - now)
