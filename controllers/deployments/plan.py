"""What is to be done about a deployment now. Pure.

Replica sets in a plan are copies, as they are to be stored.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from controllers.deployments import revisions, rolling, scaling, status
from controllers.deployments.rolling import Sizes
from pinnace.api.apps_v1_pb2 import Deployment, DeploymentStatus, ReplicaSet
from pinnace.api.rollouts import REVISION_ANNOTATION


@dataclass(slots=True)
class Plan:
    status: DeploymentStatus
    create: ReplicaSet | None = None
    update: list[tuple[ReplicaSet, ReplicaSet]] = field(default_factory=list)
    """Each as it is, and as it is to be."""
    delete: list[ReplicaSet] = field(default_factory=list)
    revision: str = ""
    """The deployment's, where it has another one; empty: it has it."""


def plan(deployment: Deployment, sets: Sequence[ReplicaSet], lingering: bool, now: float) -> Plan:
    """`sets`: its own. `lingering`: do pods of old templates run, or end? `now` is Unix time."""
    new, old = revisions.split(deployment, sets)
    if deployment.metadata.HasField("deletionTimestamp"):
        return Plan(status.counted(deployment, new, old, now))
    scaling_only = deployment.spec.paused or scaling.is_resized(deployment, sets)
    create = None
    if new is None and not scaling_only and (deployment.spec.strategy.type != "Recreate" or _emptied(old, lingering)):
        create = new = revisions.made(deployment, rolling.new_size(deployment, 0, old), old)
    sizes = scaling.scaled(deployment, new, old) if scaling_only else _sizes(deployment, new, old, lingering)
    changed = {each.metadata.name: _changed(each, deployment, new, old, sizes) for each in sets}
    made = Plan(DeploymentStatus(), create, [(each, changed[each.metadata.name]) for each in sets])
    made.update = [(before, after) for before, after in made.update if before != after]
    if new is not None:
        new = changed.get(new.metadata.name, new)
        own = new.metadata.annotations.get(REVISION_ANNOTATION, "")
        made.revision = own if own != deployment.metadata.annotations.get(REVISION_ANNOTATION, "") else ""
    old = [changed[each.metadata.name] for each in old]
    made.status = _status(deployment, new, old, create, scaling_only, now)
    if deployment.spec.paused or status.is_complete(deployment, made.status):
        made.delete = revisions.forgotten(deployment, old)
    return made


def _sizes(deployment: Deployment, new: ReplicaSet | None, old: Sequence[ReplicaSet], lingering: bool) -> Sizes:
    if deployment.spec.strategy.type == "RollingUpdate":
        return rolling.step(deployment, new, old) if new is not None else {}
    if active := [each for each in old if each.spec.replicas]:
        return {each.metadata.name: 0 for each in active}
    return {new.metadata.name: deployment.spec.replicas} if new is not None and _emptied(old, lingering) else {}


def _emptied(old: Sequence[ReplicaSet], lingering: bool) -> bool:
    return not lingering and not any(each.spec.replicas or each.status.replicas for each in old)


def _changed(
    each: ReplicaSet, deployment: Deployment, new: ReplicaSet | None, old: Sequence[ReplicaSet], sizes: Sizes
) -> ReplicaSet:
    changed = ReplicaSet()
    changed.CopyFrom(each)
    if each is new:
        revisions.describe(changed, deployment, old)
    if (size := sizes.get(each.metadata.name)) is not None:
        revisions.resize(changed, deployment, size)
    return changed


def _status(
    deployment: Deployment,
    new: ReplicaSet | None,
    old: Sequence[ReplicaSet],
    create: ReplicaSet | None,
    scaling_only: bool,
    now: float,
) -> DeploymentStatus:
    said = status.counted(deployment, new, old, now)
    status.pausing(deployment, said, now)
    if new is not None and status.has_deadline(deployment):
        name = new.metadata.name
        if create is not None:
            text = f'Created new replica set "{name}"'
            status.say(said, status.PROGRESSING, "True", "NewReplicaSetCreated", text, now)
        elif status.condition(said, status.PROGRESSING) is None:
            text = f'Found new replica set "{name}"'
            status.say(said, status.PROGRESSING, "True", "FoundNewReplicaSet", text, now)
    if not scaling_only:
        status.progress(deployment, said, new, old, now)
    return said
