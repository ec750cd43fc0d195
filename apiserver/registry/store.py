"""The verbs of one resource, the same for all: defaults and validation are the strategy's, concurrency is the mutator's."""

from __future__ import annotations  # those of the steps below would be evaluated for every object

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from apiserver import errors
from apiserver.cacher.errors import CacheError
from apiserver.errors import Rejected
from apiserver.registry.admission import Admission, Change, Operation, Request, Webhooks
from apiserver.registry.creation import Creation, drop_repeated_owners, keep_identity
from apiserver.registry.deletion import copy, delete_step
from apiserver.registry.extent import MAX_PARTS, parts_exceeded
from apiserver.registry.mutation import Final, Later, Mutation, Mutator, Next, Outcome, Put, Sign, Stored, Version
from apiserver.registry.patching import RESIZE, STATUS, patching
from apiserver.registry.strategy import Strategy
from apiserver.registry.warnings import warn
from apiserver.storage.interface import StorageError
from pinnace.api.quantities import canonicalize, keep_equal
from pinnace.api.resources import DEFAULT_NAMESPACE, UNSAID, Object, Resource
from pinnace.api.status import Code, Refusal, Violation
from pinnace.api.verbs_pb2 import DeleteRequest, PatchRequest
from pinnace.runtime.clock import Clock
from pinnace.runtime.tracing import NO_TRACER, Tracer

T = TypeVar("T", bound=Object)
_PATCHES = {"": Operation.UPDATE, STATUS: Operation.UPDATE_STATUS, RESIZE: Operation.RESIZE}
"""By subresource."""
ATTEMPTS = 8
"""How often a name is made up for an object before it is told that all of them were taken, as in Kubernetes; and how often one
is admitted anew because what it was admitted for has changed."""


class Store(Generic[T]):
    """Writes of one resource. Methods that take many objects answer per item and never fail because of one.

    `refresh` brings the caches that admission looks into up to etcd's present revision; it raises when that cannot be done.
    """

    def __init__(
        self,
        resource: Resource[T],
        strategy: Strategy[T],
        admission: Admission,
        mutator: Mutator[T],
        refresh: Callable[[], Awaitable[None]],
        clock: Clock,
        rng: random.Random,
        webhooks: Webhooks,
        tracer: Tracer = NO_TRACER,
    ) -> None:
        self.resource = resource
        self.strategy = strategy
        self._admission = admission
        self._mutator = mutator
        self._refresh = refresh
        self._clock = clock
        self._creation = Creation(resource, strategy, admission, refresh, clock, rng, webhooks)
        self._webhooks = webhooks
        self._tracer = tracer
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Of who patches an object, by its key."""

    async def create(self, objs: Sequence[T], by: Request) -> list[Outcome]:
        await self._prepare_dry_run(by)
        sent = dict[int, bytes]()
        for index, obj in enumerate(objs):
            metadata = obj.metadata
            metadata.uid = ""  # the server's to give, and once: what is refused is looked at again
            if metadata.generateName and not metadata.name:
                sent[index] = obj.SerializeToString()
        outcomes = await self.mutate(await self._additions(objs, by), dry_run=by.dry_run)
        await self._go_again(objs, sent, outcomes, by)
        return outcomes

    def admit_update(self, new: T, old: T, by: Request) -> None:
        """Of a write that is no update of a client's. Raises Rejected."""
        self._admission.validate(by, Operation.UPDATE, self.resource, new, old)

    async def refresh(self) -> None:
        """Brings the caches that admission looks into up to date. Raises CacheError, StorageError."""
        await self._refresh()

    def complete(self, obj: T, by: Request) -> None:
        """Makes a client's object one of ours; webhooks are not asked. Raises Rejected."""
        self._creation.complete(obj, by)

    async def _go_again(self, objs: Sequence[T], sent: Mapping[int, bytes], outcomes: list[Outcome], by: Request) -> None:
        """Retries creates whose failure is not final: the generated name was taken, or something other than the object has
        changed since admission. A new name means a new admission, because labels may contain the name and permissions may
        depend on it. `sent`: those without a name, as the client sent them."""
        for _ in range(ATTEMPTS - 1):
            taken = [index for index in sent if _is_taken(outcomes[index])]
            overtaken = [index for index, outcome in enumerate(outcomes) if outcome is errors.OVERTAKEN]
            if not taken and not overtaken:
                break
            for index in taken:
                objs[index].ParseFromString(sent[index])
            try:
                if overtaken:
                    await self._refresh()
                items = await self._additions([objs[index] for index in taken], by)
            except (CacheError, StorageError):
                break  # what became of the others is known, and worth more
            items += [self._addition(objs[index]) for index in overtaken]
            retried = await self.mutate(items, dry_run=by.dry_run)
            for index, outcome in zip(taken + overtaken, retried, strict=True):
                outcomes[index] = outcome

    async def _additions(self, objs: Sequence[T], by: Request) -> list[Mutation[T] | Refusal]:
        """Of clients' objects, each admitted or refused."""
        with self._tracer.span("admit"):
            refusals = await self._creation.complete_all(objs, by)
        return [refusal or self._addition(obj) for obj, refusal in zip(objs, refusals, strict=True)]

    async def update(self, objs: Sequence[T], by: Request) -> list[Outcome]:
        """Replaces spec and metadata."""
        await self._prepare_dry_run(by)
        return await self.mutate([self._update(obj, by, Operation.UPDATE) for obj in objs], dry_run=by.dry_run)

    async def update_status(self, objs: Sequence[T], by: Request) -> list[Outcome]:
        """Replaces status; nothing else of the objects is looked at but name, uid and resourceVersion."""
        await self._prepare_dry_run(by)
        return await self.mutate([self._update(obj, by, Operation.UPDATE_STATUS) for obj in objs], dry_run=by.dry_run)

    async def patch(self, request: PatchRequest, by: Request) -> list[Outcome]:
        """Changes spec and metadata, or the status, of the latest version, whoever else writes it: until the caller waits no
        longer. Patches of one object take turns, as at once they would only undo each other's attempts."""
        await self._prepare_dry_run(by)
        mutation = self._patch(request, by)
        async with self._turns.setdefault(mutation.key, asyncio.Lock()):
            while True:
                outcomes = await self.mutate([mutation], dry_run=by.dry_run)
                if outcomes != [errors.contended(self.resource, request.name)]:
                    return outcomes

    async def delete(self, requests: Sequence[DeleteRequest], by: Request, *, emptied: bool = False) -> list[Outcome]:
        """`emptied`: nothing is in these any more."""
        await self._prepare_dry_run(by)
        return await self.mutate([self._deletion(request, by, emptied) for request in requests], dry_run=by.dry_run)

    async def _prepare_dry_run(self, by: Request) -> None:
        """It is told what would happen by caches alone: nothing is compared by a write, what admission looks at neither."""
        if by.dry_run:
            await self._refresh()

    async def mutate(self, items: Sequence[Mutation[T] | Refusal], *, dry_run: bool = False) -> list[Outcome]:
        """Runs the mutations among the items, and puts their outcomes in place. `dry_run`: on caches that are up to date."""
        with self._tracer.span("commit"):
            done = iter(await self._mutator.run([each for each in items if isinstance(each, Mutation)], dry_run=dry_run))
        return [each if isinstance(each, Refusal) else next(done) for each in items]

    def _addition(self, obj: T) -> Mutation[T] | Refusal:
        """Of an object that is complete."""
        name = obj.metadata.name
        try:
            guards = self._admission.guards(self.resource, obj)
        except Rejected as rejected:
            return rejected.refusal

        def step(version: Version[T] | None) -> Next[T]:
            if version is not None:
                raise Rejected(errors.already_exists(self.resource, name))
            return Put(obj)

        return Mutation(self.resource.key_of(obj), name, step, guards)

    def _update(self, obj: T, by: Request, operation: Operation) -> Mutation[T] | Refusal:
        wanted = obj.metadata
        name = wanted.name
        if not name:
            return errors.invalid(self.resource, "", [Violation("metadata.name", "Required value")])
        if wanted.resourceVersion in UNSAID and not self.strategy.allow_unconditional_update:
            return errors.invalid(
                self.resource,
                name,
                [Violation("metadata.resourceVersion", "Invalid value: 0x0: must be specified for an update")],
            )
        wanted.namespace = self.resource.home(wanted.namespace)

        def step(version: Version[T] | None) -> Next[T]:
            return self._next(obj, self._present(name, version), by, operation)

        return Mutation(self.resource.key_of(obj), name, step)

    def _patch(self, request: PatchRequest, by: Request) -> Mutation[T]:
        patch = patching(self.resource, request)
        operation = _PATCHES[request.subresource]

        def step(version: Version[T] | None) -> Next[T]:
            present = self._present(request.name, version)
            return self._next(patch(present.obj), present, by, operation)

        return Mutation(self.resource.key(request.namespace or DEFAULT_NAMESPACE, request.name), request.name, step)

    def _present(self, name: str, version: Version[T] | None) -> Version[T]:
        if version is None:
            raise Rejected(errors.not_found(self.resource, name))
        return version

    def _next(self, wanted: T, present: Version[T], by: Request, operation: Operation) -> Next[T]:
        """What becomes of the present version when somebody wants this: `wanted` stays as it is."""
        old, name = present.obj, present.obj.metadata.name
        uid, expected = wanted.metadata.uid, wanted.metadata.resourceVersion
        if uid and uid != old.metadata.uid:
            raise Rejected(errors.uid_mismatch(self.resource, name, uid, old.metadata.uid))
        if expected not in UNSAID and expected != str(present.revision):
            raise Rejected(errors.stale(self.resource, name, expected, present.revision))
        if parts_exceeded(wanted, old):
            raise Rejected(errors.too_much(self.resource, name, MAX_PARTS))
        new = copy(self.resource, wanted)
        self._prepare(new, old, operation)
        if not self._webhooks.concerned(by, operation, self.resource):
            return self._judged(new, present, by, operation)
        return Later(lambda: self._after_webhooks(Change(by, operation, self.resource, new, old), present))

    async def _after_webhooks(self, change: Change, present: Version[T]) -> Final[T]:
        """What becomes of the present version if they agree; what they make of the change is prepared anew."""
        new: T = await self._webhooks.mutate(change)
        if new is not change.obj:
            self._prepare(new, present.obj, change.operation)
        judged = self._judged(new, present, change.request, change.operation)
        final = await judged.final() if isinstance(judged, Later) else judged
        await self._webhooks.validate(change._replace(obj=new))
        return final

    def _prepare(self, new: T, old: T, operation: Operation) -> None:
        canonicalize(new)
        if operation is Operation.UPDATE_STATUS:
            self.strategy.prepare_status_update(new, old)
            self.strategy.date_status(new, old, self._clock.time())
        elif operation is Operation.RESIZE:
            self.strategy.prepare_resize(new, old)
            keep_equal(new, old)
        else:
            keep_identity(new, old)
            drop_repeated_owners(new)
            self.strategy.prepare_update(new, old)
            keep_equal(new, old)

    def _judged(self, new: T, present: Version[T], by: Request, operation: Operation) -> Next[T]:
        """What becomes of the present version, if the new one is valid. Admission looks into the caches, which may be behind:
        what it refuses is looked at again."""
        old, name = present.obj, present.obj.metadata.name
        if operation is Operation.UPDATE_STATUS:
            violations = self.strategy.validate_status_update(new, old)
        elif operation is Operation.RESIZE:
            violations = self.strategy.validate_resize(new, old)
        else:
            violations = self.strategy.validate_update(new, old)
        if violations:
            raise Rejected(errors.invalid(self.resource, name, violations))
        try:
            return self._admitted(new, old, by, operation)
        except Rejected as rejected:
            refused = rejected  # the other name ends with this block

        async def again() -> Final[T]:
            try:
                await self._refresh()
            except (CacheError, StorageError):
                raise refused from None
            return self._admitted(new, old, by, operation)

        return Later(again)

    def _admitted(self, new: T, old: T, by: Request, operation: Operation) -> Final[T]:
        """What becomes of the old object. Raises Rejected."""
        self._admission.validate(by, operation, self.resource, new, old)
        new.metadata.resourceVersion = old.metadata.resourceVersion
        if new == old:
            return Sign.KEEP
        new.metadata.resourceVersion = ""
        if self._released(new):
            return Sign.REMOVE
        if operation in (Operation.UPDATE, Operation.RESIZE) and self.strategy.is_new_generation(new, old):
            new.metadata.generation = old.metadata.generation + 1
            before = set(self.strategy.warnings(old))
            warn(each for each in self.strategy.warnings(new) if each not in before)
        return Put(new, grows=operation is Operation.RESIZE)

    def _released(self, obj: T) -> bool:
        """Was the last finalizer just removed from an object that only waited for that?"""
        metadata = obj.metadata
        if metadata.finalizers or self.strategy.holds_others(obj):
            return False
        return metadata.HasField("deletionTimestamp") and metadata.deletionGracePeriodSeconds == 0

    def _deletion(self, request: DeleteRequest, by: Request, emptied: bool) -> Mutation[T] | Refusal:
        name = request.name
        why = request.disruption if request.HasField("disruption") else None
        if why is not None and not self.strategy.can_be_disrupted:
            return errors.bad_request(f"disruption: said of pods, not of {self.resource.plural}")

        def step(version: Version[T] | None) -> Next[T]:
            if version is not None:
                self._admission.validate(by, Operation.DELETE, self.resource, None, version.obj)
            now = self._clock.time()
            final = delete_step(self.strategy, name, request.options, version, now, emptied=emptied, why=why)
            if version is None or not self._webhooks.concerned(by, Operation.DELETE, self.resource):
                return final
            change = Change(by, Operation.DELETE, self.resource, None, version.obj)

            async def agreed() -> Final[T]:
                await self._webhooks.mutate(change)
                await self._webhooks.validate(change)
                return final

            return Later(agreed)

        return Mutation(self.resource.key(request.namespace or DEFAULT_NAMESPACE, name), name, step)


def single(outcomes: Sequence[Outcome]) -> Stored:
    """The outcome of a call with one item; raises Rejected when it was refused."""
    (outcome,) = outcomes
    if isinstance(outcome, Refusal):
        raise Rejected(outcome)
    return outcome


def _is_taken(outcome: Outcome) -> bool:
    return isinstance(outcome, Refusal) and outcome.code is Code.ALREADY_EXISTS
