"""The admission of new objects: identity, defaults, webhooks and policies, validation.

    without webhooks and policies    identity --> defaults --> validation --> admission
    with them                        identity --> defaults --> mutation --> defaults --> validation --> admission --> approval

Admission reads the caches, which may be stale. A refusal is therefore checked again after a refresh of the caches.
"""

from __future__ import annotations  # otherwise, annotations of nested functions are evaluated at every call

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from pinnace.api.names import NAME_ALPHABET, new_uid
from pinnace.api.ownership import exclude_added
from pinnace.api.quantities import canonicalize
from pinnace.api.resources import UNSAID, Object, Resource
from pinnace.api.scalars import to_time
from pinnace.api.status import Refusal
from pinnace.apiserver import errors
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry.admission import (
    CREATE,
    AdmissionControl,
    AdmissionOperation,
    DynamicAdmission,
    WriteAttributes,
    WriteRequest,
)
from pinnace.apiserver.registry.metadata import clear_server_fields, drop_duplicate_owners, keep_identity
from pinnace.apiserver.registry.strategy import MAX_PARTS, Strategy, add_warnings, has_too_many_items
from pinnace.runtime.clock import Clock
from pinnace.runtime.tasks import apply_in_slices

T = TypeVar("T", bound=Object)
MAX_GENERATED_PREFIX = 58
OTHER_NAMESPACE = "the namespace of the provided object does not match the namespace sent on the request"


class ObjectCreator(Generic[T]):
    """Creation of objects of one resource. `refresh`: see Store."""

    def __init__(
        self,
        resource: Resource[T],
        strategy: Strategy[T],
        admission: AdmissionControl,
        refresh: Callable[[], Awaitable[None]],
        clock: Clock,
        rng: random.Random,
        reviewers: DynamicAdmission,
    ) -> None:
        self._resource = resource
        self._strategy = strategy
        self._admission = admission
        self._refresh = refresh
        self._clock = clock
        self._rng = rng
        self._reviewers = reviewers

    async def admit_batch(self, objs: Sequence[T], by: WriteRequest) -> list[Refusal | None]:
        """Complete new objects and return a refusal or None for each, in order. Objects that are completed again keep their
        uid. Raises CacheError, StorageError."""
        if self._reviewers.has_reviewers(by, CREATE, self._resource):
            return await self._admit_with_reviews(objs, by)
        return await self._retry_after_refresh(self._admit_object, objs, by)

    def admit_object(self, obj: T, by: WriteRequest) -> None:
        """Complete one object without webhooks, policies and I/O. Raises Rejected."""
        obj.metadata.uid = ""
        self._admit_object(obj, by)

    async def _admit_with_reviews(self, objs: Sequence[T], by: WriteRequest) -> list[Refusal | None]:
        """Complete new objects with webhooks and policies, which receive objects with all defaults. An object that one of them
        changed is completed again."""

        async def amend(obj: T) -> None:
            def complete(amended: T) -> None:
                if amended.metadata.namespace != obj.metadata.namespace:
                    raise Rejected(errors.bad_request(OTHER_NAMESPACE))
                keep_identity(amended, obj)
                clear_server_fields(amended.metadata)
                amended.metadata.resourceVersion = ""
                self._set_defaults(amended, by)
                amended.metadata.ownership = exclude_added(self._resource, obj.metadata.ownership, obj, amended)

            change = WriteAttributes(by, CREATE, self._resource, obj, None, complete=complete)
            amended = await self._reviewers.mutate(change)
            if amended is not obj:
                obj.CopyFrom(amended)

        async def approve(obj: T) -> None:
            await self._reviewers.validate(WriteAttributes(by, CREATE, self._resource, obj, None))

        refusals: list[Refusal | None] = [None] * len(objs)

        async def stage(work: Callable[[Sequence[T]], Awaitable[list[Refusal | None]]]) -> None:
            pending = [index for index, refusal in enumerate(refusals) if refusal is None]
            for index, refusal in zip(pending, await work([objs[index] for index in pending]), strict=True):
                refusals[index] = refusal

        await stage(lambda pending: self._retry_after_refresh(self._set_defaults_before_reviews, pending, by))
        await stage(lambda pending: _call_concurrently(amend, pending))
        await stage(lambda pending: self._retry_after_refresh(self._set_defaults_and_validate, pending, by))
        await stage(lambda pending: _call_concurrently(approve, pending))
        return refusals

    async def _retry_after_refresh(
        self, work: Callable[[T, WriteRequest], None], objs: Sequence[T], by: WriteRequest
    ) -> list[Refusal | None]:
        """Run `work` on each object. Refused objects are tried again after a refresh of the caches."""

        def attempt(obj: T) -> Refusal | None:
            try:
                work(obj, by)
            except Rejected as rejected:
                return rejected.refusal
            return None

        refusals = await apply_in_slices(attempt, objs, self._clock)
        if refused := [index for index, refusal in enumerate(refusals) if refusal is not None]:
            await self._refresh()
            outcomes = await apply_in_slices(attempt, [objs[index] for index in refused], self._clock)
            for index, refusal in zip(refused, outcomes, strict=True):
                refusals[index] = refusal
        return refusals

    def _admit_object(self, obj: T, by: WriteRequest) -> None:
        """Complete one object. Idempotent: the uid stays. Raises Rejected."""
        self._set_identity(obj)
        self._set_defaults_and_validate(obj, by)

    def _set_defaults_before_reviews(self, obj: T, by: WriteRequest) -> None:
        """Complete an object before webhooks and policies, without validation. Raises Rejected."""
        self._set_identity(obj)
        self._set_defaults(obj, by)

    def _set_defaults_and_validate(self, obj: T, by: WriteRequest) -> None:
        """Complete an object after webhooks and policies: defaults, validation, admission. Raises Rejected."""
        self._set_defaults(obj, by)
        if violations := self._strategy.in_version(by.api_version).validate(obj):
            raise Rejected(errors.invalid(self._resource, obj.metadata.name or obj.metadata.generateName, violations))
        self._admission.validate(by, AdmissionOperation.CREATE, self._resource, obj, None)
        add_warnings(self._strategy.finish_create(obj))

    def _set_defaults(self, obj: T, by: WriteRequest) -> None:
        """Run admission and set defaults. Idempotent, so it also runs after a webhook has changed the object. Raises
        Rejected."""
        drop_duplicate_owners(obj)
        canonicalize(obj)
        self._admission.admit(by, self._resource, obj)
        self._strategy.prepare_create(obj)

    def _set_identity(self, obj: T) -> None:
        """Set the metadata of a new object. Raises Rejected."""
        metadata = obj.metadata
        if has_too_many_items(obj):
            raise Rejected(errors.too_many_items(self._resource, metadata.name, MAX_PARTS))
        if metadata.resourceVersion not in UNSAID:
            raise Rejected(errors.bad_request("resourceVersion should not be set on objects to be created"))
        metadata.resourceVersion = ""
        metadata.namespace = self._resource.home(metadata.namespace)
        clear_server_fields(metadata)
        if not metadata.name and metadata.generateName:
            metadata.name = self._generate_name(metadata.generateName)
        metadata.uid = metadata.uid or new_uid(self._rng)
        if self._strategy.has_generation:
            metadata.generation = 1
        metadata.creationTimestamp.CopyFrom(to_time(self._clock.time()))
        metadata.ClearField("deletionTimestamp")
        metadata.ClearField("deletionGracePeriodSeconds")

    def _generate_name(self, prefix: str) -> str:
        return prefix[:MAX_GENERATED_PREFIX] + "".join(self._rng.choices(NAME_ALPHABET, k=5))


async def _call_concurrently(ask: Callable[[T], Awaitable[None]], objs: Sequence[T]) -> list[Refusal | None]:
    """Run `ask` on all objects concurrently and return the refusal of each, or None."""

    async def attempt(obj: T) -> Refusal | None:
        try:
            await ask(obj)
        except Rejected as rejected:
            return rejected.refusal
        return None

    return await asyncio.gather(*map(attempt, objs))
