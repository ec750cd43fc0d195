"""What a delete does: preconditions, finalizers, grace.

    live --delete, with finalizers or grace--> deleting (deletionTimestamp set) --finalizers gone, grace 0--> removed
      '----------------------- delete, neither ------------------------------------------------^

Source: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination and
https://kubernetes.io/docs/concepts/overview/working-with-objects/finalizers/
"""

from typing import Any, TypeVar

from apiserver.registry import errors
from apiserver.registry.errors import Rejected
from apiserver.registry.mutation import Next, Put, Sign, Version
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.meta_v1_pb2 import DeleteOptions
from pinnace.api.resources import Object, Resource
from pinnace.api.times import to_time

T = TypeVar("T", bound=Object)
DEFAULT_GRACE = 30
NEGATIVE_GRACE = 1
"""What Kubernetes makes of a grace period below 0."""
MAX_GRACE = 2**31 - 1
"""Seconds, 68 years; longer is not given: its end must be an instant that can be written."""


def delete_step(resource: Resource[T], name: str, options: DeleteOptions, version: Version[T] | None, now: float) -> Next[T]:
    """The next state of an object that is to be deleted; `now` in Unix seconds."""
    if version is None:
        raise Rejected(errors.not_found(resource, name))
    old = version.obj
    _check(resource, name, options, version)
    grace = _grace(old, options)
    if not grace and not old.metadata.finalizers:
        return Sign.REMOVE
    metadata = old.metadata
    if metadata.HasField("deletionTimestamp") and (
        metadata.deletionGracePeriodSeconds <= grace or not metadata.HasField("deletionGracePeriodSeconds")
    ):
        return Sign.KEEP
    new = copy(resource, old)
    new.metadata.deletionTimestamp.CopyFrom(to_time(now + grace))
    new.metadata.deletionGracePeriodSeconds = grace
    return Put(new)


def copy(resource: Resource[T], obj: T) -> T:
    """A copy that may be changed and stored."""
    new: Any = resource.message()
    new.CopyFrom(obj)
    new.metadata.resourceVersion = ""
    result: T = new
    return result


def _check(resource: Resource[T], name: str, options: DeleteOptions, version: Version[T]) -> None:
    wanted = options.preconditions
    if wanted.uid and wanted.uid != version.obj.metadata.uid:
        raise Rejected(errors.uid_mismatch(resource, name, wanted.uid, version.obj.metadata.uid))
    if wanted.resourceVersion and wanted.resourceVersion != str(version.revision):
        raise Rejected(errors.stale(resource, name, wanted.resourceVersion, version.revision))


def _grace(obj: Object, options: DeleteOptions) -> int:
    """Seconds that the object may take to end, MAX_GRACE at most. Only a pod that a kubelet may be running needs any."""
    if not isinstance(obj, Pod) or not obj.spec.nodeName or obj.status.phase in ("Succeeded", "Failed"):
        return 0
    if options.HasField("gracePeriodSeconds"):
        grace = options.gracePeriodSeconds
        return min(grace if grace >= 0 else NEGATIVE_GRACE, MAX_GRACE)
    if obj.spec.HasField("terminationGracePeriodSeconds"):
        return min(obj.spec.terminationGracePeriodSeconds, MAX_GRACE)
    return DEFAULT_GRACE
