"""Makes and deletes the pods of an owner: many at once, with the owner's events, and remembered until the informer shows them.

Kubernetes makes 1, 2, 4, ... pods at a time, so that a quota that is used up costs few refusals. Here BATCH of them are one
call, or fewer that are large, and the first batch with a refusal is the last; an owner whose last attempt was refused begins
with a single pod.
"""

import re
from collections.abc import Sequence
from itertools import chain
from typing import Any, TypeVar

from google.protobuf.message import Message

from controllers.controller import Shared
from controllers.expectations import Expectations
from controllers.ownership import refers_to
from controllers.writes import BATCH
from pinnace.api.core_v1_pb2 import Pod, PodTemplateSpec
from pinnace.api.portions import portions
from pinnace.api.resources import PODS, Object, Resource
from pinnace.client.errors import ApiError, Conflict, Fenced, NotFound, OutcomeUnknown, error_of
from pinnace.client.resource import Outcomes, Send, delete_request

T = TypeVar("T", bound=Message)

TOLD = 25
"""Events of one batch; client-go lets through as many of an object at once."""
_PREFIX, _MADE_UP = 58, "[bcdfghjklmnpqrstvwxz2456789]{5}"
"""Of `generateName` the server takes so many characters, and appends these."""


def pod_from(template: PodTemplateSpec, resource: Resource[Any], owner: Object) -> Pod:
    """A pod to create: as the template says, managed by the owner and named after it."""
    pod = Pod()
    source, metadata = template.metadata, pod.metadata
    metadata.namespace, metadata.generateName = owner.metadata.namespace, f"{owner.metadata.name}-"
    metadata.labels.update(source.labels)
    metadata.annotations.update(source.annotations)
    metadata.finalizers.extend(source.finalizers)
    metadata.ownerReferences.append(refers_to(resource, owner))
    pod.spec.CopyFrom(template.spec)
    return pod


def _of_any(pod: Pod, refusal: str) -> str:
    """The refusal without the pod's name, if the server made that up: else each attempt would be an event of its own."""
    prefix = pod.metadata.generateName
    if not prefix or pod.metadata.name:
        return refusal
    return re.sub(f'"{re.escape(prefix[:_PREFIX])}{_MADE_UP}"', lambda _: f'"{prefix}"', refusal, count=1)


class PodControl:
    def __init__(self, shared: Shared, expectations: Expectations) -> None:
        self._client = shared.client.pods
        self._events = shared.events
        self._expectations = expectations
        self._refused: set[str] = set()

    async def create(self, key: str, owner: Object, pods: Sequence[Pod]) -> ApiError | None:
        """The first refusal, which ends it; the owner has an event of it. In a namespace that is being deleted nothing is made,
        and that is no failure. Raises ApiError when a whole call fails, or this replica leads no more."""
        first = 1 if key in self._refused else 0
        self._refused.discard(key)
        for batch in chain(portions(pods[:first], BATCH), portions(pods[first:], BATCH)):
            outcomes = await self._send(key, self._client.create_batch, batch)
            errors = list(filter(None, map(error_of, outcomes)))
            made = [each.name for each in outcomes if not each.HasField("error")]
            for name in made[:TOLD]:
                self._events.event(owner, "Normal", "SuccessfulCreate", f"Created pod: {name}")
            if errors:
                if errors[0].reason == "NamespaceTerminating":
                    return None
                self._refused.add(key)
                why = _of_any(batch[0], errors[0].message)
                self._events.event(owner, "Warning", "FailedCreate", f"Error creating: {why}")
                return errors[0]
        return None

    def forget(self, key: str) -> None:
        """The owner is gone."""
        self._refused.discard(key)

    async def delete(self, key: str, owner: Object, pods: Sequence[Pod]) -> ApiError | None:
        """The first refusal, as `create`. A pod that is gone is deleted."""
        for start in range(0, len(pods), BATCH):
            batch = pods[start : start + BATCH]
            requests = [delete_request(pod.metadata.name, pod.metadata.namespace, uid=pod.metadata.uid) for pod in batch]
            outcomes = await self._send(key, self._client.delete_batch, requests)
            errors = list(map(error_of, outcomes))
            gone = [pod for pod, error in zip(batch, errors, strict=True) if error is None]
            for pod in gone[:TOLD]:
                self._events.event(owner, "Normal", "SuccessfulDelete", f"Deleted pod: {pod.metadata.name}")
            if (error := next((each for each in errors if not isinstance(each, NotFound | Conflict | None)), None)) is not None:
                self._events.event(owner, "Warning", "FailedDelete", f"Error deleting: {error.message}")
                return error
        return None

    async def _send(self, key: str, send: Send[T], items: Sequence[T]) -> Outcomes:
        try:
            outcomes = await send(items)
        except OutcomeUnknown:
            await self._expectations.lost(key, self._client)
            raise
        errors = list[ApiError]()
        for each in outcomes:
            if (error := error_of(each)) is not None:
                errors.append(error)
            else:
                self._expectations.wrote(key, PODS, each.resourceVersion)
        if any(isinstance(error, OutcomeUnknown) for error in errors):
            await self._expectations.lost(key, self._client)
        if fenced := next((error for error in errors if isinstance(error, Fenced)), None):  # the pods are not to blame
            raise fenced
        return outcomes
