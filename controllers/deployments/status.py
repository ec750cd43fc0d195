"""What a deployment says of itself: how many, whether it is Available, and whether its rollout is Progressing. Pure.

Times are Unix time.

    Progressing:  NewReplicaSetCreated, FoundNewReplicaSet, ReplicaSetUpdated --> NewReplicaSetAvailable   it is complete
                        |                                      '--progressDeadlineSeconds--> ProgressDeadlineExceeded (False)
                        '-- DeploymentPaused, DeploymentResumed (Unknown)

Source: pkg/controller/deployment/progress.go and util/deployment_util.go of Kubernetes.
"""

from collections.abc import Iterable, Sequence

from controllers.deployments.rolling import bounds, total
from pinnace.api import conditions
from pinnace.api.apps_v1_pb2 import Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet
from pinnace.api.scalars import MAX_INT32
from pinnace.api.times import to_seconds, to_time

AVAILABLE, PROGRESSING, FAILURE = "Available", "Progressing", "ReplicaFailure"
COMPLETE, EXCEEDED, PAUSED = "NewReplicaSetAvailable", "ProgressDeadlineExceeded", "DeploymentPaused"


def condition(status: DeploymentStatus, type_: str) -> DeploymentCondition | None:
    return conditions.find(status.conditions, type_)


def say(
    status: DeploymentStatus, type_: str, value: str, reason: str, message: str, now: float, *, renew: bool = False
) -> None:
    """Sets a condition. One that says so already stays as it is, but to `renew` its time."""
    old = condition(status, type_)
    if old is not None and (old.status, old.reason) == (value, reason) and not renew:
        return
    said = conditions.say(status.conditions, type_, value, reason, message, now)
    said.lastUpdateTime.CopyFrom(to_time(now))


def unsay(status: DeploymentStatus, type_: str) -> None:
    if (said := condition(status, type_)) is not None:
        status.conditions.remove(said)


def counted(deployment: Deployment, new: ReplicaSet | None, old: Sequence[ReplicaSet], now: float) -> DeploymentStatus:
    """The present status with new counts, and with Available."""
    sets = (*old, *([new] if new is not None else []))
    status = DeploymentStatus()
    status.CopyFrom(deployment.status)
    status.observedGeneration = deployment.metadata.generation
    status.replicas = _count(each.status.replicas for each in sets)
    status.updatedReplicas = new.status.replicas if new is not None else 0
    status.readyReplicas = _count(each.status.readyReplicas for each in sets)
    status.availableReplicas = _count(each.status.availableReplicas for each in sets)
    status.unavailableReplicas = min(MAX_INT32, max(0, total(sets) - status.availableReplicas))
    status.terminatingReplicas = _count(each.status.terminatingReplicas for each in sets)
    if status.availableReplicas >= deployment.spec.replicas - bounds(deployment)[1]:
        text = "Deployment has minimum availability."
        say(status, AVAILABLE, "True", "MinimumReplicasAvailable", text, now)
    else:
        text = "Deployment does not have minimum availability."
        say(status, AVAILABLE, "False", "MinimumReplicasUnavailable", text, now)
    return status


def _count(numbers: Iterable[int]) -> int:
    """Their sum, as far as an int32 can say it: replica sets may be of any size, and say anything."""
    return min(MAX_INT32, sum(numbers))


def has_deadline(deployment: Deployment) -> bool:
    spec = deployment.spec
    return spec.HasField("progressDeadlineSeconds") and spec.progressDeadlineSeconds != MAX_INT32


def pausing(deployment: Deployment, status: DeploymentStatus, now: float) -> None:
    """Time in which a deployment is paused does not count against its deadline; one that it has missed stays so."""
    said = condition(status, PROGRESSING)
    reason = said.reason if said is not None else ""
    if not has_deadline(deployment) or reason == EXCEEDED:
        return
    if deployment.spec.paused and reason != PAUSED:
        say(status, PROGRESSING, "Unknown", PAUSED, "Deployment is paused", now)
    elif not deployment.spec.paused and reason == PAUSED:
        say(status, PROGRESSING, "Unknown", "DeploymentResumed", "Deployment is resumed", now)


def is_complete(deployment: Deployment, status: DeploymentStatus) -> bool:
    wanted = deployment.spec.replicas
    return (
        status.updatedReplicas == status.replicas == status.availableReplicas == wanted
        and status.observedGeneration >= deployment.metadata.generation
    )


def progress(
    deployment: Deployment, status: DeploymentStatus, new: ReplicaSet | None, old: Sequence[ReplicaSet], now: float
) -> None:
    """Says how the rollout goes: by what has changed in `status` since the deployment's own. Of several failures that of the
    new replica set is told."""
    if not has_deadline(deployment):
        unsay(status, PROGRESSING)
    else:
        _progress(deployment, status, new, now)
    sets = (*([new] if new is not None else []), *old)
    failure = conditions.find((each for one in sets for each in one.status.conditions), FAILURE)
    if failure is not None:
        say(status, FAILURE, failure.status, failure.reason, failure.message, now)
    else:
        unsay(status, FAILURE)


def _progress(deployment: Deployment, status: DeploymentStatus, new: ReplicaSet | None, now: float) -> None:
    said = condition(status, PROGRESSING)
    if status.replicas == status.updatedReplicas and said is not None and said.reason == COMPLETE:
        return
    name = f'ReplicaSet "{new.metadata.name}"' if new is not None else f'Deployment "{deployment.metadata.name}"'
    if is_complete(deployment, status):
        say(status, PROGRESSING, "True", COMPLETE, f"{name} has successfully progressed.", now)
    elif _has_progressed(status, deployment.status):
        say(status, PROGRESSING, "True", "ReplicaSetUpdated", f"{name} is progressing.", now, renew=True)
    elif (left := deadline(deployment, status, now)) is not None and left < 0:
        say(status, PROGRESSING, "False", EXCEEDED, f"{name} has timed out progressing.", now)


def _has_progressed(new: DeploymentStatus, old: DeploymentStatus) -> bool:
    return (
        new.updatedReplicas > old.updatedReplicas
        or new.replicas - new.updatedReplicas < old.replicas - old.updatedReplicas
        or new.readyReplicas > old.readyReplicas
        or new.availableReplicas > old.availableReplicas
    )


def deadline(deployment: Deployment, status: DeploymentStatus, now: float) -> float | None:
    """Seconds until the rollout has made no progress for too long; None: it need make none, or has been reported."""
    said = condition(status, PROGRESSING)
    if said is None or said.reason in (COMPLETE, EXCEEDED, PAUSED) or not has_deadline(deployment):
        return None
    if is_complete(deployment, status):
        return None
    return to_seconds(said.lastUpdateTime) + deployment.spec.progressDeadlineSeconds - now
