"""How far a rollout may go now: the sizes of replica sets, from their sizes and from what is available of them. Pure.

Guarantee: of what is available, no more than maxUnavailable of spec.replicas is taken away, and no more than maxSurge is made
beyond spec.replicas, however the replica sets lag behind their sizes. Kubernetes goes by sizes and takes a replica set's word
for how many of its pods are available. Here a surplus that is on its way out is not available any more and still takes room;
and while a replica set has not said how it stands with its present size, nobody knows what it has, and nothing moves.
"""

from collections.abc import Iterable, Sequence

from controllers.amounts import amount
from pinnace.api.apps_v1_pb2 import Deployment, ReplicaSet
from pinnace.api.scalars import MAX_INT32
from pinnace.api.times import to_seconds

Sizes = dict[str, int]
"""What spec.replicas is to be, by name of the replica set."""


def bounds(deployment: Deployment) -> tuple[int, int]:
    """maxSurge, rounded up, and maxUnavailable, rounded down; not both 0."""
    spec = deployment.spec
    if spec.strategy.type != "RollingUpdate":
        return 0, 0
    surge = amount(spec.strategy.rollingUpdate.maxSurge, spec.replicas, up=True)
    unavailable = amount(spec.strategy.rollingUpdate.maxUnavailable, spec.replicas, up=False)
    return surge, min(unavailable if surge or unavailable else 1, spec.replicas)


def most(deployment: Deployment) -> int:
    """Pods that there may be at once. Sizes and counts are int32: a surge that goes beyond is as much as can be said."""
    return min(MAX_INT32, deployment.spec.replicas + bounds(deployment)[0])


def total(sets: Iterable[ReplicaSet]) -> int:
    return sum(each.spec.replicas for each in sets)


def available(each: ReplicaSet) -> int:
    return min(each.status.availableReplicas, each.spec.replicas)


def lags(each: ReplicaSet) -> bool:
    """Is what it says of its pods from before it had its present size?"""
    return each.status.observedGeneration < each.metadata.generation


def room(deployment: Deployment, sets: Iterable[ReplicaSet]) -> int:
    """Pods that may be made beside those that there are, or may be. None while a replica set lags."""
    there = 0
    for each in sets:
        if lags(each):
            return 0
        there += max(each.spec.replicas, each.status.replicas)
    return max(0, most(deployment) - there)


def oldest_first(sets: Iterable[ReplicaSet]) -> list[ReplicaSet]:
    return sorted(sets, key=lambda each: (to_seconds(each.metadata.creationTimestamp), each.metadata.name))


def new_size(deployment: Deployment, size: int, sets: Iterable[ReplicaSet]) -> int:
    """Of the new replica set, which has `size` now. `sets`: those that there are."""
    wanted = deployment.spec.replicas
    if deployment.spec.strategy.type != "RollingUpdate" or size > wanted:
        return wanted
    return size + min(room(deployment, sets), wanted - size)


def step(deployment: Deployment, new: ReplicaSet, old: Sequence[ReplicaSet]) -> Sizes:
    """What changes size now: the new one as long as it can, else the old ones."""
    size = new_size(deployment, new.spec.replicas, (new, *old))
    if size != new.spec.replicas:
        return {new.metadata.name: size}
    return _shrink(deployment, new, old)


def _shrink(deployment: Deployment, new: ReplicaSet, old: Sequence[ReplicaSet]) -> Sizes:
    """First those that are not available: they are missed by nobody. Then those that new ones stand in for."""
    if any(map(lags, (new, *old))):
        return {}
    minimum = deployment.spec.replicas - bounds(deployment)[1]
    spare = total((new, *old)) - minimum - (new.spec.replicas - available(new))
    if spare <= 0:
        return {}
    sizes = {each.metadata.name: each.spec.replicas for each in old}
    for each in oldest_first(old):
        sick = min(spare, each.spec.replicas - available(each))
        sizes[each.metadata.name] -= sick
        spare -= sick
    spare = sum(map(available, (new, *old))) - minimum
    for each in oldest_first(old):
        well = max(0, min(spare, sizes[each.metadata.name]))
        sizes[each.metadata.name] -= well
        spare -= well
    return {each.metadata.name: sizes[each.metadata.name] for each in old if sizes[each.metadata.name] != each.spec.replicas}
