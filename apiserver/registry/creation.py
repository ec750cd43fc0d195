"""What makes a client's object one of ours: an identity, admission, defaults, validation; and webhooks where some are due.

Admission looks into the caches, which may be behind: what is refused is looked at again, after they have caught up.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from apiserver import errors
from apiserver.errors import Rejected
from apiserver.registry.admission import Admission, Change, Operation, Request, Webhooks
from apiserver.registry.extent import MAX_PARTS, parts_exceeded
from apiserver.registry.strategy import Strategy
from apiserver.registry.warnings import warn
from apiserver.uids import new_uid
from pinnace.api.meta_v1_pb2 import ObjectMeta, OwnerReference
from pinnace.api.quantities import canonicalize
from pinnace.api.resources import UNSAID, Object, Resource
from pinnace.api.scalars import to_time
from pinnace.api.status import Refusal
from pinnace.runtime.clock import Clock
from pinnace.runtime.tasks import in_slices

T = TypeVar("T", bound=Object)
NAME_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""For generateName: no vowels and nothing that looks like another character, as in Kubernetes."""
MAX_GENERATED_PREFIX = 58


class Creation(Generic[T]):
    """Of objects of one resource. `refresh`: see Store."""

    def __init__(
        self,
        resource: Resource[T],
        strategy: Strategy[T],
        admission: Admission,
        refresh: Callable[[], Awaitable[None]],
        clock: Clock,
        rng: random.Random,
        webhooks: Webhooks,
    ) -> None:
        self._resource = resource
        self._strategy = strategy
        self._admission = admission
        self._refresh = refresh
        self._clock = clock
        self._rng = rng
        self._webhooks = webhooks

    async def complete_all(self, objs: Sequence[T], by: Request) -> list[Refusal | None]:
        """What is refused, in the order of the objects; None: complete. May be done again: an object's uid stays."""
        if self._webhooks.concerned(by, Operation.CREATE, self._resource):
            return await self._with_webhooks(objs, by)
        return await self._sure(self._complete, objs, by)

    def complete(self, obj: T, by: Request) -> None:
        """As `complete_all`, without webhooks, and at once. Raises Rejected."""
        obj.metadata.uid = ""
        self._complete(obj, by)

    async def _with_webhooks(self, objs: Sequence[T], by: Request) -> list[Refusal | None]:
        """As `complete_all`. Webhooks see objects with all defaults, and what they make of them is completed anew."""

        async def amend(obj: T) -> None:
            amended = await self._webhooks.mutate(Change(by, Operation.CREATE, self._resource, obj, None))
            if amended is not obj:
                keep_identity(amended, obj)
                amended.metadata.resourceVersion = ""
                obj.CopyFrom(amended)

        async def approve(obj: T) -> None:
            await self._webhooks.validate(Change(by, Operation.CREATE, self._resource, obj, None))

        refusals: list[Refusal | None] = [None] * len(objs)

        async def stage(work: Callable[[Sequence[T]], Awaitable[list[Refusal | None]]]) -> None:
            left = [index for index, refusal in enumerate(refusals) if refusal is None]
            for index, refusal in zip(left, await work([objs[index] for index in left]), strict=True):
                refusals[index] = refusal

        await stage(lambda left: self._sure(self._begin, left, by))
        await stage(lambda left: _together(amend, left))
        await stage(lambda left: self._sure(self._finish, left, by))
        await stage(lambda left: _together(approve, left))
        return refusals

    async def _sure(self, work: Callable[[T, Request], None], objs: Sequence[T], by: Request) -> list[Refusal | None]:
        """Does the work on each object; what is refused is looked at again."""

        def attempt(obj: T) -> Refusal | None:
            try:
                work(obj, by)
            except Rejected as rejected:
                return rejected.refusal
            return None

        refusals = await in_slices(attempt, objs, self._clock)
        if refused := [index for index, refusal in enumerate(refusals) if refusal is not None]:
            await self._refresh()
            again = await in_slices(attempt, [objs[index] for index in refused], self._clock)
            for index, refusal in zip(refused, again, strict=True):
                refusals[index] = refusal
        return refusals

    def _complete(self, obj: T, by: Request) -> None:
        """May be done again: the uid that it has been given stays. Raises Rejected."""
        self._identify(obj)
        self._finish(obj, by)

    def _begin(self, obj: T, by: Request) -> None:
        """As much of it as does not depend on whether the object is valid. Raises Rejected."""
        self._identify(obj)
        self._default(obj, by)

    def _finish(self, obj: T, by: Request) -> None:
        """Raises Rejected."""
        self._default(obj, by)
        if violations := self._strategy.validate(obj):
            raise Rejected(errors.invalid(self._resource, obj.metadata.name or obj.metadata.generateName, violations))
        self._admission.validate(by, Operation.CREATE, self._resource, obj, None)
        warn(self._strategy.warnings(obj))

    def _default(self, obj: T, by: Request) -> None:
        """May be done again, after somebody has changed the object. Raises Rejected."""
        drop_repeated_owners(obj)
        canonicalize(obj)
        self._admission.admit(by, self._resource, obj)
        self._strategy.prepare_create(obj)

    def _identify(self, obj: T) -> None:
        """Raises Rejected."""
        metadata = obj.metadata
        if parts_exceeded(obj):
            raise Rejected(errors.too_much(self._resource, metadata.name, MAX_PARTS))
        if metadata.resourceVersion not in UNSAID:
            raise Rejected(errors.bad_request("resourceVersion should not be set on objects to be created"))
        metadata.resourceVersion = ""
        metadata.namespace = self._resource.home(metadata.namespace)
        clear_ignored(metadata)
        if not metadata.name and metadata.generateName:
            metadata.name = self._made_up(metadata.generateName)
        metadata.uid = metadata.uid or new_uid(self._rng)
        metadata.generation = 1
        metadata.creationTimestamp.CopyFrom(to_time(self._clock.time()))
        metadata.ClearField("deletionTimestamp")
        metadata.ClearField("deletionGracePeriodSeconds")

    def _made_up(self, prefix: str) -> str:
        return prefix[:MAX_GENERATED_PREFIX] + "".join(self._rng.choices(NAME_ALPHABET, k=5))


def keep_identity(new: Object, old: Object) -> None:
    """What an update cannot change, and need not repeat."""
    metadata = new.metadata
    clear_ignored(metadata)
    metadata.uid = old.metadata.uid
    metadata.generation = old.metadata.generation
    metadata.generateName = old.metadata.generateName
    for name in ("creationTimestamp", "deletionTimestamp"):
        if old.metadata.HasField(name):
            getattr(metadata, name).CopyFrom(getattr(old.metadata, name))
        else:
            metadata.ClearField(name)
    if old.metadata.HasField("deletionGracePeriodSeconds"):
        metadata.deletionGracePeriodSeconds = old.metadata.deletionGracePeriodSeconds
    else:
        metadata.ClearField("deletionGracePeriodSeconds")


def clear_ignored(metadata: ObjectMeta) -> None:
    """Clears the fields that a client may send, as exported manifests do, and that have no meaning here."""
    metadata.selfLink = ""
    del metadata.managedFields[:]


def drop_repeated_owners(obj: Object) -> None:
    """Who is named as an owner twice in the same words owns it once, as in Kubernetes; whoever sent it is told."""
    owners = obj.metadata.ownerReferences
    if len(owners) < 2:
        return
    distinct, repeated = dict[bytes, None](), list[str]()
    for owner in owners:
        said = owner.SerializeToString(deterministic=True)
        if said in distinct:
            repeated.append(owner.uid)
        distinct[said] = None
    if repeated:
        warn([f"metadata.ownerReferences: an owner is named once; left out what was said again of uid {', '.join(repeated)}"])
        del owners[:]
        owners.extend(map(OwnerReference.FromString, distinct))


async def _together(ask: Callable[[T], Awaitable[None]], objs: Sequence[T]) -> list[Refusal | None]:
    """Asks about each of them at once."""

    async def attempt(obj: T) -> Refusal | None:
        try:
            await ask(obj)
        except Rejected as rejected:
            return rejected.refusal
        return None

    return await asyncio.gather(*map(attempt, objs))
