"""A deployment that is resized while it is rolled out, or paused: its replica sets keep their proportions. Pure.

Source: https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#proportional-scaling
"""

import math
from collections.abc import Sequence

from controllers.deployments.rolling import Sizes, most, oldest_first, total
from pinnace.api.apps_v1_pb2 import Deployment, ReplicaSet
from pinnace.api.naturals import natural
from pinnace.api.rollouts import DESIRED_ANNOTATION, MAX_ANNOTATION
from pinnace.api.times import to_seconds


def noted(replica_set: ReplicaSet, annotation: str) -> int | None:
    """What one of the two says; None: nothing, or no number."""
    return natural(replica_set.metadata.annotations.get(annotation, ""))


def is_resized(deployment: Deployment, sets: Sequence[ReplicaSet]) -> bool:
    """Since its replica sets were given their sizes."""
    sizes = [noted(each, DESIRED_ANNOTATION) for each in sets if each.spec.replicas]
    return any(size is not None and size != deployment.spec.replicas for size in sizes)


def scaled(deployment: Deployment, new: ReplicaSet | None, old: Sequence[ReplicaSet]) -> Sizes:
    """The sizes of all that have pods, those that stay as they are too: they were given them for the present size."""
    wanted = deployment.spec.replicas
    active = [each for each in (*old, *([new] if new is not None else [])) if each.spec.replicas]
    if len(active) <= 1:
        latest = active[0] if active else new if new is not None else oldest_first(old)[-1] if old else None
        return {latest.metadata.name: wanted} if latest is not None else {}
    if new is not None and _saturated(deployment, new):
        return {each.metadata.name: 0 for each in old if each.spec.replicas}
    if deployment.spec.strategy.type != "RollingUpdate":
        return {each.metadata.name: each.spec.replicas for each in active}
    return _proportional(deployment, active)


def _proportional(deployment: Deployment, active: Sequence[ReplicaSet]) -> Sizes:
    """The largest comes first, and has what is left of rounding; of equals the newest, or where some are to go the oldest."""
    room = most(deployment) if deployment.spec.replicas else 0
    change = room - total(active)
    sign = -1 if change > 0 else 1
    ordered = sorted(active, key=lambda each: (-each.spec.replicas, sign * to_seconds(each.metadata.creationTimestamp)))
    sizes, done = dict[str, int](), 0
    for each in ordered:
        share = _share(deployment, each, room)
        part = min(share, change - done) if change > 0 else min(0, max(share, change - done))
        sizes[each.metadata.name] = each.spec.replicas + part
        done += part
    largest = ordered[0].metadata.name
    sizes[largest] = max(0, sizes[largest] + change - done)
    return sizes


def _share(deployment: Deployment, each: ReplicaSet, room: int) -> int:
    """What it would grow by, if it grew as the deployment does."""
    before = noted(each, MAX_ANNOTATION) or deployment.status.replicas
    if not deployment.spec.replicas:
        return -each.spec.replicas
    return math.floor(each.spec.replicas * room / before + 0.5) - each.spec.replicas if before else 0


def _saturated(deployment: Deployment, new: ReplicaSet) -> bool:
    wanted = deployment.spec.replicas
    return new.spec.replicas == new.status.availableReplicas == noted(new, DESIRED_ANNOTATION) == wanted
