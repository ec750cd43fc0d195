"""Deletion of objects: preconditions, finalizers and grace periods. Eviction is in `pinnace.apiserver.registry.eviction`.

    live --delete, with finalizers or grace--> deleting (deletionTimestamp set) --finalizers gone, grace 0--> removed
      '----------------------- delete, neither ------------------------------------------------^

The first delete starts a new generation, if the object has one. The strategy of the kind sets the grace period and the status
(`pinnace.apiserver.registry.strategy`).

The propagation policy of a delete is stored as a finalizer. The garbage collector deletes or orphans the dependents, then
removes the finalizer. Kinds that the garbage collector does not watch (those outside `resources.COLLECTED`) get no such
finalizer.

Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/finalizers/ and
https://kubernetes.io/docs/concepts/architecture/garbage-collection/#cascading-deletion
"""

from collections.abc import Iterable
from typing import Any, TypeVar

from pinnace.api.meta_v1_pb2 import DeleteOptions, ObjectMeta
from pinnace.api.ownership import exclude_added
from pinnace.api.resources import COLLECTED, CustomResource, Object, Resource
from pinnace.api.scalars import to_seconds, to_time
from pinnace.api.verbs_pb2 import Disruption
from pinnace.api.wellknown import FOREGROUND_FINALIZER, ORPHAN_FINALIZER
from pinnace.apiserver import errors
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry.mutation import Final, MutationEffect, ObjectVersion, PutObject, RemoveObject
from pinnace.apiserver.registry.strategy import Strategy

T = TypeVar("T", bound=Object)
LEAST_GRACE = 1
"""Remaining seconds when a shortened grace period is already over. The kubelet counts from the time at which it receives the
change."""

_FINALIZERS = {"Orphan": ORPHAN_FINALIZER, "Foreground": FOREGROUND_FINALIZER, "Background": ""}
"""Finalizers by propagation policy."""


def delete_step(
    strategy: Strategy[T],
    name: str,
    options: DeleteOptions,
    version: ObjectVersion[T] | None,
    now: float,
    *,
    why: Disruption | None = None,
) -> Final[T]:
    """Return the next state of an object for a delete. Raises Rejected.

    `now` is in Unix seconds. `why`: the disruption that causes the delete.
    """
    resource = strategy.resource
    if version is None:
        raise Rejected(errors.not_found(resource, name))
    old = version.obj
    _check_preconditions(resource, name, options, version)
    grace, finalizers = (
        strategy.grace_period(old, options),
        _finalizers_after_delete(resource, old.metadata.finalizers, options),
    )
    metadata = old.metadata
    if not metadata.HasField("deletionTimestamp"):
        finalizers += [finalizer for finalizer in strategy.finalizers_at_deletion if finalizer not in finalizers]
    if not grace and not finalizers and not strategy.may_contain_objects(old):
        if not strategy.is_graceful:
            return MutationEffect.DELETE
        last = copy_without_version(resource, old)
        _set_deletion_timestamp(last.metadata, metadata, 0, now, counted=strategy.counts_deletion)
        return RemoveObject(last=last)
    deleting = metadata.HasField("deletionTimestamp") and (
        metadata.deletionGracePeriodSeconds <= grace or not metadata.HasField("deletionGracePeriodSeconds")
    )
    if deleting and finalizers == list(metadata.finalizers):
        return MutationEffect.NO_OP
    new = copy_without_version(resource, old)
    new.metadata.finalizers[:] = finalizers
    if not deleting:
        _set_deletion_timestamp(new.metadata, metadata, grace, now, counted=strategy.counts_deletion)
        if strategy.may_contain_objects(old):
            new.metadata.ClearField("deletionGracePeriodSeconds")
    strategy.prepare_delete(new, why, now)
    if why is not None or finalizers != list(metadata.finalizers):
        new.metadata.ownership = exclude_added(resource, metadata.ownership, old, new)
    return PutObject(new)


def _set_deletion_timestamp(new: ObjectMeta, old: ObjectMeta, grace: int, now: float, *, counted: bool) -> None:
    """Set the end of an object after a grace period in seconds. `counted`: the first delete starts a new generation."""
    ends = _deletion_time(old, now) + grace
    if ends < now:
        ends, grace = now, min(grace, LEAST_GRACE)
    new.deletionTimestamp.CopyFrom(to_time(ends))
    new.deletionGracePeriodSeconds = grace
    if counted and not old.HasField("deletionTimestamp") and old.generation:
        new.generation += 1


def _deletion_time(metadata: ObjectMeta, now: float) -> float:
    """Return the time of the first delete in Unix seconds. A shorter grace period also counts from this time."""
    if not metadata.HasField("deletionTimestamp"):
        return now
    return to_seconds(metadata.deletionTimestamp) - metadata.deletionGracePeriodSeconds


def copy_without_version(resource: Resource[T], obj: T) -> T:
    """Return a copy of an object without its resourceVersion, which the caller may change and store."""
    new: Any = resource.message()
    new.CopyFrom(obj)
    new.metadata.resourceVersion = ""
    result: T = new
    return result


def _check_preconditions(resource: Resource[T], name: str, options: DeleteOptions, version: ObjectVersion[T]) -> None:
    """Check the preconditions. A precondition that is set to the empty string matches no object. Raises Rejected."""
    propagation_finalizer = options.preconditions
    if propagation_finalizer.HasField("uid") and propagation_finalizer.uid != version.obj.metadata.uid:
        raise Rejected(errors.precondition_failed(resource, name, "UID", propagation_finalizer.uid, version.obj.metadata.uid))
    if propagation_finalizer.HasField("resourceVersion") and propagation_finalizer.resourceVersion != str(version.revision):
        revision = str(version.revision)
        raise Rejected(
            errors.precondition_failed(resource, name, "ResourceVersion", propagation_finalizer.resourceVersion, revision)
        )


def _finalizers_after_delete(resource: Resource[Any], present: Iterable[str], options: DeleteOptions) -> list[str]:
    """Return the finalizers after a delete with this propagation policy. Raises Rejected.

    Objects that the garbage collector does not watch lose its finalizers, because no controller would remove them.
    """
    policy = options.propagationPolicy
    if options.HasField("orphanDependents"):
        if options.HasField("propagationPolicy"):
            raise Rejected(errors.bad_request("propagationPolicy: orphanDependents and deletionPropagation cannot be both set"))
        policy = "Orphan" if options.orphanDependents else "Background"
    propagation_finalizer = _FINALIZERS.get(policy)
    if propagation_finalizer is None and policy:
        known = ", ".join(_FINALIZERS)
        raise Rejected(errors.bad_request(f'propagationPolicy "{policy[:32]}": expected one of {known}'))
    collected = resource in COLLECTED or isinstance(resource, CustomResource)
    if propagation_finalizer is None and collected:
        return list(present)
    retained = [finalizer for finalizer in present if finalizer not in (ORPHAN_FINALIZER, FOREGROUND_FINALIZER)]
    return [*retained, propagation_finalizer] if propagation_finalizer and collected else retained
