"""Create and delete the pods of an owner in batches, with the owner's events and expectations.

Kubernetes creates 1, 2, 4, ... pods at a time, so that an exhausted quota causes few errors. Here one call creates up to BATCH
pods, and the first batch with an error is the last. After an error the next attempt starts with one pod.

Owners that lack pods are synced when a quota increases, and not only after their backoff. In Kubernetes the backoff can take 16
minutes.

Order of deletion: unassigned, pending, not ready, low pod-deletion-cost, on a node with many related pods, ready for a shorter
time, more restarts, younger. Times are compared by powers of two, and ties are broken by UID. Exact times would always
select the pods of the same nodes.

Source: ActivePodsWithRanks in pkg/controller/controller_utils.go of Kubernetes; LogarithmicScaleDown. Kubernetes compares UIDs
before restarts and age if two pods have been ready for about the same time.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

from google.protobuf.message import Message

from pinnace.api.core_v1_pb2 import Pod, PodTemplateSpec, ResourceQuota
from pinnace.api.quantity import amounts
from pinnace.api.resources import PODS, Object, Resource, store_key
from pinnace.api.verbs_pb2 import DELETED
from pinnace.api.wire import split_into_batches
from pinnace.client.errors import AlreadyExists, ApiError, Conflict, Fenced, NotFound, OutcomeUnknown, error_of
from pinnace.client.informer import Delta, Index
from pinnace.client.resource import BatchOutcomes, BatchSend, delete_request
from pinnace.controllers.ownership import new_controller_ref
from pinnace.controllers.pods import PodProperties
from pinnace.controllers.runtime import ControllerContext, Keys
from pinnace.controllers.writes import BATCH, Expectations

T = TypeVar("T", bound=Message)

BURST = 500
"""Maximum number of pods to create or delete per sync. The next sync follows when the informer has received them."""
MAX_EVENTS = 25
"""Maximum number of events per batch. It equals client-go's burst of events per object."""
_PREFIX, _MADE_UP = 58, "[bcdfghjklmnpqrstvwxz2456789]{5}"
"""The server uses this number of characters of `generateName`, and appends a suffix of this form."""


def build_pod_from_template(template: PodTemplateSpec, resource: Resource[Any], owner: Object) -> Pod:
    """Return a pod to create from the template, controlled by the owner and named after it."""
    pod = Pod()
    source, metadata = template.metadata, pod.metadata
    metadata.namespace, metadata.generateName = owner.metadata.namespace, f"{owner.metadata.name}-"
    metadata.labels.update(source.labels)
    metadata.annotations.update(source.annotations)
    metadata.finalizers.extend(source.finalizers)
    metadata.ownerReferences.append(new_controller_ref(resource, owner))
    pod.spec.CopyFrom(template.spec)
    return pod


def _without_pod_name(pod: Pod, refusal: str) -> str:
    """Return the error without the generated name of the pod, so that repeated errors are the same event."""
    prefix = pod.metadata.generateName
    if not prefix or pod.metadata.name:
        return refusal
    return re.sub(f'"{re.escape(prefix[:_PREFIX])}{_MADE_UP}"', lambda _: f'"{prefix}"', refusal, count=1)


@dataclass(frozen=True, slots=True)
class PodEventMessages:
    """The messages of events, with {pod}, {owner} and {error}."""

    created: str = "Created pod: {pod}"
    create_failed: str = "Error creating: {error}"
    deleted: str = "Deleted pod: {pod}"
    delete_failed: str = "Error deleting: {error}"


class PodControl:
    def __init__(
        self,
        shared: ControllerContext,
        expectations: Expectations,
        messages: PodEventMessages = PodEventMessages(),
    ) -> None:
        self._client = shared.client.pods
        self._events = shared.events
        self._expectations = expectations
        self._messages = messages
        self._refused: set[str] = set()

    async def create(self, key: str, owner: Object, pods: Sequence[Pod]) -> ApiError | None:
        """Create pods until the first error, and return this error. It is also recorded as an event of the owner.

        In a terminating namespace no pods are created, and None is returned. Raise ApiError if a whole call fails, or if
        this replica is no longer the leader.
        """
        first = 1 if key in self._refused else 0
        self._refused.discard(key)
        for batch in chain(split_into_batches(pods[:first], BATCH), split_into_batches(pods[first:], BATCH)):
            outcomes = await self._send(key, self._client.create_batch, batch)
            errors = [(pod, error) for pod, outcome in zip(batch, outcomes, strict=True) if (error := error_of(outcome))]
            made = [outcome.name for outcome in outcomes if not outcome.HasField("error")]
            for name in made[:MAX_EVENTS]:
                self._record(owner, "Normal", "SuccessfulCreate", self._messages.created, name)
            for pod, error in errors[:1]:
                if error.reason == "NamespaceTerminating":
                    return None
                self._refused.add(key)
                if not isinstance(error, AlreadyExists):
                    why = _without_pod_name(pod, error.message)
                    self._record(owner, "Warning", "FailedCreate", self._messages.create_failed, pod.metadata.name, why)
                return error
        return None

    def forget_owner(self, key: str) -> None:
        """Drop a deleted owner."""
        self._refused.discard(key)

    async def delete(self, key: str, owner: Object, pods: Sequence[Pod]) -> ApiError | None:
        """Delete pods until the first error, and return this error. A missing pod is not an error."""
        for start in range(0, len(pods), BATCH):
            batch = pods[start : start + BATCH]
            requests = [delete_request(pod.metadata.name, pod.metadata.namespace, uid=pod.metadata.uid) for pod in batch]
            outcomes = await self._send(key, self._client.delete_batch, requests)
            errors = list(map(error_of, outcomes))
            gone = [pod for pod, error in zip(batch, errors, strict=True) if error is None]
            for pod in gone[:MAX_EVENTS]:
                self._record(owner, "Normal", "SuccessfulDelete", self._messages.deleted, pod.metadata.name)
            for pod, error in zip(batch, errors, strict=True):
                if not isinstance(error, NotFound | Conflict | None):
                    self._record(
                        owner, "Warning", "FailedDelete", self._messages.delete_failed, pod.metadata.name, error.message
                    )
                    return error
        return None

    def _record(self, owner: Object, type_: str, reason: str, message: str, pod: str, error: str = "") -> None:
        self._events.event(owner, type_, reason, message.format(pod=pod, owner=owner.metadata.name, error=error))

    async def _send(self, key: str, send: BatchSend[T], items: Sequence[T]) -> BatchOutcomes:
        try:
            outcomes = await send(items)
        except OutcomeUnknown:
            await self._expectations.expect_lost_write(key, self._client)
            raise
        errors = list[ApiError]()
        for outcome in outcomes:
            if (error := error_of(outcome)) is not None:
                errors.append(error)
            else:
                self._expectations.expect_version(key, PODS, outcome.resourceVersion)
        if any(isinstance(error, OutcomeUnknown) for error in errors):
            await self._expectations.expect_lost_write(key, self._client)
        if fenced := next((error for error in errors if isinstance(error, Fenced)), None):  # not an error of a pod
            raise fenced
        return outcomes


ObjectT = TypeVar("ObjectT", bound=Object)


def keys_lacking_quota(neighbours: Index[ObjectT], lacks: Callable[[ObjectT], bool]) -> Keys[ResourceQuota]:
    """Return a Watch's `keys`: the objects in the quota's namespace for which `lacks` is True. `neighbours` is by namespace."""

    def keys(delta: Delta[ResourceQuota]) -> Iterable[str]:
        if not quota_grants_more(delta):
            return ()
        return [store_key(item) for item in neighbours.under(delta.obj.metadata.namespace).values() if lacks(item)]

    return keys


def quota_grants_more(delta: Delta[ResourceQuota]) -> bool:
    """Return True if the quota was deleted, or if a bound was removed or increased.

    Released usage does not count, because it changes constantly in a busy namespace.
    """
    if delta.kind == DELETED or delta.old is None:
        return delta.kind == DELETED
    before, after = delta.old.spec, delta.obj.spec
    if before == after:
        return False
    if before.scopes != after.scopes or before.scopeSelector != after.scopeSelector:
        return True
    bounds = amounts(after.hard)
    return any(name not in bounds or bounds[name] > bound for name, bound in amounts(before.hard).items())


_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


def select_pods_to_delete(pods: Sequence[PodProperties], count: int, related: Iterable[PodProperties], now: float) -> list[Pod]:
    """Return the `count` pods to delete first. `related` has all pods of the same deployment. `now` is Unix time."""
    if count >= len(pods) or not count:
        return [pod.pod for pod in pods[:count]]
    crowd = Counter(item.node for item in related if item.active)

    def rank(each: PodProperties) -> tuple[object, ...]:
        return (
            bool(each.node),
            _PHASES.get(each.phase, 0),
            each.ready,
            each.cost,
            -crowd[each.node],
            _age_magnitude(now - each.ready_since) if each.ready_since is not None else -1,
            -each.restarts,
            _age_magnitude(now - each.created),
            each.pod.metadata.uid,
        )

    return [pod.pod for pod in sorted(pods, key=rank)[:count]]


def _age_magnitude(seconds: float) -> int:
    return int(math.log2(seconds * 1e9)) if seconds > 0 else -1
