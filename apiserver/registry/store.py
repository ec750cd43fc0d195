"""The verbs of a resource: create, update, patch and delete, for all resources.

The Strategy of a kind supplies defaults and validation. The Mutator handles concurrency. A create runs these steps: identity
(name, uid, timestamps), admission, defaults, validation, and webhooks and policies if any match.

Admission reads the caches, which may be stale. A refusal is therefore checked again after a refresh of the caches.
"""

from __future__ import annotations  # otherwise, annotations of nested functions are evaluated at every call

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from pinnace.api.conversion import Conversion, conversion_to
from pinnace.api.meta_v1_pb2 import ManagedFieldsEntry
from pinnace.api.ownership import UPDATE as UPDATE_OPERATION
from pinnace.api.ownership import Creator, FieldManager, Ownership, exclude_added
from pinnace.api.patch import PatchError, parse
from pinnace.api.quantities import canonicalize, keep_equal
from pinnace.api.resources import DEFAULT_NAMESPACE, UNSAID, CustomResource, Object, Resource
from pinnace.api.status import Code, Refusal, Violation
from pinnace.api.verbs_pb2 import DeleteRequest, PatchRequest
from pinnace.apiserver import errors
from pinnace.apiserver.cacher.store import CacheError
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry import managed_fields
from pinnace.apiserver.registry.admission import (
    DELETE,
    UPDATE,
    AdmissionControl,
    AdmissionOperation,
    DynamicAdmission,
    WriteAttributes,
    WriteRequest,
)
from pinnace.apiserver.registry.creation import OTHER_NAMESPACE, ObjectCreator
from pinnace.apiserver.registry.deletion import copy_without_version, delete_step
from pinnace.apiserver.registry.large import LARGE, compute_in_thread_if_large
from pinnace.apiserver.registry.managed_fields import AppliedConfiguration
from pinnace.apiserver.registry.metadata import copy_owners, drop_duplicate_owners, keep_identity
from pinnace.apiserver.registry.mutation import (
    EPHEMERAL,
    FINALIZE,
    RESIZE,
    STATUS,
    DeferredState,
    Final,
    Mutation,
    MutationEffect,
    Mutator,
    Next,
    ObjectVersion,
    Outcome,
    PutObject,
    RemoveObject,
    Step,
    WriteResult,
    check_subresource,
    patch_function,
)
from pinnace.apiserver.registry.strategy import MAX_PARTS, Strategy, add_warnings, has_too_many_items
from pinnace.apiserver.storage.interface import Guard, StorageError
from pinnace.runtime.clock import Clock
from pinnace.runtime.tracing import NO_TRACER, Tracer

T = TypeVar("T", bound=Object)
M = TypeVar("M", bound=Object)
_PATCHES = {
    "": AdmissionOperation.UPDATE,
    STATUS: AdmissionOperation.UPDATE_STATUS,
    RESIZE: AdmissionOperation.RESIZE,
    EPHEMERAL: AdmissionOperation.EPHEMERAL,
}
"""By subresource."""
_SPEC_OPERATIONS = (AdmissionOperation.UPDATE, AdmissionOperation.RESIZE, AdmissionOperation.EPHEMERAL)
SUBRESOURCES = {AdmissionOperation.FINALIZE: FINALIZE} | {operation: subresource for subresource, operation in _PATCHES.items()}
ATTEMPTS = 8
"""Attempts to generate a name that is not taken, as in Kubernetes. Also attempts to admit a new object again after something
that admission relied on has changed."""


class OwnerChange(NamedTuple):
    """What a request says about owners."""

    sent: Sequence[ManagedFieldsEntry] = ()
    """The managedFields of an update."""
    applied: Ownership | None = None
    """The owners after an apply, with the field names of the stored version."""
    subresource: str = ""
    """The subresource that is written, if the operation does not say it."""
    stored: bytes | None = None
    """The stored owners of the new version, if they are known."""


NO_OWNER_CHANGE = OwnerChange()
Change = Callable[[ObjectVersion[T]], tuple[T, OwnerChange | None]]
"""Returns the requested state of an object for its present version, and what the request says about owners (see
`Store._apply_step`). Pure. Raises Rejected."""


class Store(Generic[T]):
    """Writes of one resource. Methods that take many objects return one outcome per item: an item that fails does not fail the
    others.

    `refresh` brings the caches that admission reads up to etcd's present revision. It raises CacheError or StorageError.
    """

    def __init__(
        self,
        resource: Resource[T],
        strategy: Strategy[T],
        admission: AdmissionControl,
        mutator: Mutator[T],
        refresh: Callable[[], Awaitable[None]],
        clock: Clock,
        rng: random.Random,
        reviewers: DynamicAdmission,
        tracer: Tracer = NO_TRACER,
    ) -> None:
        self.resource = resource
        self.strategy = strategy
        self._admission = admission
        self._mutator = mutator
        self._refresh = refresh
        self._clock = clock
        self._creator = ObjectCreator(resource, strategy, admission, refresh, clock, rng, reviewers)
        self.reviewers = reviewers
        self._tracer = tracer
        self._patch_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Locks of the patches under way, by key."""

    async def create(self, objs: Sequence[T], by: WriteRequest) -> list[Outcome]:
        await self._prepare_dry_run(by)
        sent, creator = dict[int, bytes](), self._creator_of_fields(by)
        for index, obj in enumerate(objs):
            metadata = obj.metadata
            metadata.uid = ""  # the server sets it once, although a refused object is admitted again
            metadata.ownership = creator(obj)
            if metadata.generateName and not metadata.name:
                sent[index] = obj.SerializeToString()
            await self._precompute_in_thread(obj)
        outcomes = await self.run_mutations(await self._admit_creates(objs, by), dry_run=by.dry_run)
        await self._retry_creates(objs, sent, outcomes, by)
        return outcomes

    async def _precompute_in_thread(self, obj: T) -> None:
        """Compute a large new object in a thread."""
        if self.strategy.is_slow and (self.strategy.needs_compilation or obj.ByteSize() >= LARGE):
            await asyncio.to_thread(self.strategy.precompute, obj)

    def _creator_of_fields(self, by: WriteRequest) -> Creator:
        return Creator(self.resource, by.manager, by.api_version, self._clock.time())

    def admit_update(self, new: T, old: T, by: WriteRequest) -> None:
        """Run admission for a write that is not a client's update, such as a merged event. Raises Rejected."""
        self._admission.validate(by, AdmissionOperation.UPDATE, self.resource, new, old)

    async def refresh_caches(self) -> None:
        """Bring the caches that admission reads up to date. Raises CacheError, StorageError."""
        await self._refresh()

    def admit_object(self, obj: T, by: WriteRequest) -> None:
        """Complete and validate a client's new object, without webhooks and policies. Raises Rejected."""
        obj.metadata.ownership = self._creator_of_fields(by)(obj)
        self._creator.admit_object(obj, by)

    async def _retry_creates(
        self, objs: Sequence[T], sent: Mapping[int, bytes], outcomes: list[Outcome], by: WriteRequest
    ) -> None:
        """Retry creates whose failure is not final: the generated name was taken, or something other than the object has
        changed since admission. A new name means a new admission, because labels may contain the name and permissions may
        depend on it. `sent`: those without a name, as the client sent them."""
        for _ in range(ATTEMPTS - 1):
            taken_names = [index for index in sent if _is_name_taken(outcomes[index])]
            overtaken = [index for index, outcome in enumerate(outcomes) if outcome is errors.OVERTAKEN]
            if not taken_names and not overtaken:
                break
            for index in taken_names:
                objs[index].ParseFromString(sent[index])
            try:
                if overtaken:
                    await self._refresh()
                items = await self._admit_creates([objs[index] for index in taken_names], by)
            except (CacheError, StorageError):
                break  # keep the outcomes that are known
            items += [self._create_mutation(objs[index]) for index in overtaken]
            retried = await self.run_mutations(items, dry_run=by.dry_run)
            for index, outcome in zip(taken_names + overtaken, retried, strict=True):
                outcomes[index] = outcome

    async def _admit_creates(self, objs: Sequence[T], by: WriteRequest) -> list[Mutation[T] | Refusal]:
        """Return a mutation for each object that is admitted, and a refusal for each other."""
        with self._tracer.span("admit"):
            refusals = await self._creator.admit_batch(objs, by)
        return [refusal or self._create_mutation(obj) for obj, refusal in zip(objs, refusals, strict=True)]

    async def update(self, objs: Sequence[T], by: WriteRequest) -> list[Outcome]:
        """Replace spec and metadata."""
        await self._prepare_dry_run(by)
        return await self.run_mutations(
            [self._update_mutation(obj, by, AdmissionOperation.UPDATE) for obj in objs], dry_run=by.dry_run
        )

    async def update_status(self, objs: Sequence[T], by: WriteRequest) -> list[Outcome]:
        """Replace status. Of the rest of an object, only name, uid and resourceVersion are read."""
        await self._prepare_dry_run(by)
        return await self.run_mutations(
            [self._update_mutation(obj, by, AdmissionOperation.UPDATE_STATUS) for obj in objs], dry_run=by.dry_run
        )

    async def update_finalizers(self, objs: Sequence[T], by: WriteRequest) -> list[Outcome]:
        """Replace spec.finalizers and metadata, of namespaces only."""
        await self._prepare_dry_run(by)
        return await self.run_mutations(
            [self._update_mutation(obj, by, AdmissionOperation.FINALIZE) for obj in objs], dry_run=by.dry_run
        )

    async def update_resize(self, objs: Sequence[T], by: WriteRequest) -> list[Outcome]:
        """Replace the resources of the containers of pods."""
        await self._prepare_dry_run(by)
        return await self.run_mutations(
            [self._update_mutation(obj, by, AdmissionOperation.RESIZE) for obj in objs], dry_run=by.dry_run
        )

    async def update_ephemeral_containers(self, objs: Sequence[T], by: WriteRequest) -> list[Outcome]:
        """Replace the ephemeral containers of pods."""
        await self._prepare_dry_run(by)
        return await self.run_mutations(
            [self._update_mutation(obj, by, AdmissionOperation.EPHEMERAL) for obj in objs], dry_run=by.dry_run
        )

    async def patch(self, request: PatchRequest, by: WriteRequest) -> list[Outcome]:
        """Patch spec and metadata, or a subresource, of the latest version. A conflict with another write is retried until
        the call's deadline. Patches of one object run one after another, because concurrent ones would conflict."""
        mutation = await compute_in_thread_if_large(len(request.patch), lambda: self._patch_mutation(request, by))
        return await self._retry_until_uncontended(mutation, by)

    async def modify_object(
        self,
        namespace: str,
        name: str,
        change: Callable[[ObjectVersion[T]], T],
        by: WriteRequest,
        *,
        operation: AdmissionOperation = AdmissionOperation.UPDATE,
        guards: tuple[Guard, ...] = (),
    ) -> list[Outcome]:
        """Update the latest version to the result of `change`, as `patch` does. `change` may raise Rejected. `guards`: see
        Mutation."""

        def step(version: ObjectVersion[T] | None) -> Next[T]:
            present = self._require_present(name, version)
            return self._apply_step(change(present), present, by, operation)

        return await self._retry_until_uncontended(
            Mutation(self.resource.key(namespace or DEFAULT_NAMESPACE, name), name, step, guards), by
        )

    async def modify_reviewed(
        self,
        namespace: str,
        name: str,
        subresource: str,
        request_of: Callable[[ObjectVersion[T]], WriteAttributes],
        change: Callable[[ObjectVersion[T], Any], T],
        by: WriteRequest,
    ) -> list[Outcome]:
        """Update the latest version by a request to a subresource, as `patch` does. `request_of`: the request for a version,
        which webhooks and policies review. `change`: the new version for a version and the object of the request. Both may
        raise Rejected."""
        owners = OwnerChange(subresource=subresource)

        def step(version: ObjectVersion[T] | None) -> Next[T]:
            present = self._require_present(name, version)
            request = request_of(present)

            def apply(obj: Any) -> Next[T]:
                return self._apply_step(change(present, obj), present, by, AdmissionOperation.UPDATE, owners, reviewed=True)

            async def apply_reviewed() -> Final[T]:
                judged = apply(await self.review_request(request))
                return await judged.final() if isinstance(judged, DeferredState) else judged

            if not self.reviewers.has_reviewers(by, request.operation, self.resource, subresource):
                return apply(request.obj)
            return DeferredState(apply_reviewed)

        return await self._retry_until_uncontended(
            Mutation(self.resource.key(namespace or DEFAULT_NAMESPACE, name), name, step), by
        )

    async def review_request(self, request: WriteAttributes) -> Any:
        """Let webhooks and policies review a request to a subresource, and return its object. Raises Rejected."""
        obj = await self.reviewers.mutate(request)
        await self.reviewers.validate(request._replace(obj=obj))
        return obj

    async def write_reviewed(
        self,
        items: Sequence[M],
        request_of: Callable[[M], WriteAttributes],
        write: Callable[[Sequence[M]], Awaitable[Sequence[Outcome]]],
    ) -> Sequence[Outcome]:
        """Write the objects of requests to a subresource after webhooks and policies have reviewed them. `request_of`: the
        request for an object; all have the same operation and subresource."""
        if not items:
            return await write(items)
        first = request_of(items[0])
        if not self.reviewers.has_reviewers(first.request, first.operation, self.resource, first.subresource):
            return await write(items)

        async def review(item: M) -> M | Refusal:
            try:
                reviewed: M = await self.review_request(request_of(item))
            except Rejected as rejected:
                return rejected.refusal
            return reviewed

        reviews = await asyncio.gather(*map(review, items))
        outcomes = iter(await write([item for item in reviews if not isinstance(item, Refusal)]))
        return [item if isinstance(item, Refusal) else next(outcomes) for item in reviews]

    async def _retry_until_uncontended(self, mutation: Mutation[T], by: WriteRequest) -> list[Outcome]:
        await self._prepare_dry_run(by)
        async with self._patch_locks.setdefault(mutation.key, asyncio.Lock()):
            while True:
                outcomes = await self.run_mutations([mutation], dry_run=by.dry_run)
                if outcomes != [errors.contended_object(self.resource, mutation.name)]:
                    return outcomes

    async def create_applied(self, request: PatchRequest, by: WriteRequest) -> list[Outcome]:
        """Create the object that an apply describes."""
        conversion, size = self._conversion_for(by), len(request.patch)
        namespace, now = self.resource.home(request.namespace), self._clock.time()

        def create() -> tuple[T, Ownership]:
            wanted = self._read_configuration(request, conversion.served)
            applied = managed_fields.create_from_configuration(conversion.served, wanted, namespace, request.name, now)
            return conversion.to_stored(applied.obj), managed_fields.owners_in_version(
                applied.owners, conversion.served, self.resource
            )

        obj, owners = await compute_in_thread_if_large(size, create)
        await self._precompute_in_thread(obj)
        items = await self._admit_creates([obj], by)
        await compute_in_thread_if_large(size, lambda: managed_fields.set_created_owners(self.resource, obj, owners))
        outcomes = await self.run_mutations(items, dry_run=by.dry_run)
        await self._retry_creates([obj], {}, outcomes, by)
        return outcomes

    async def delete(self, requests: Sequence[DeleteRequest], by: WriteRequest) -> list[Outcome]:
        await self._prepare_dry_run(by)
        return await self.run_mutations([self._delete_mutation(request, by) for request in requests], dry_run=by.dry_run)

    async def _prepare_dry_run(self, by: WriteRequest) -> None:
        """Refresh the caches before a dry run, which compares nothing in etcd."""
        if by.dry_run:
            await self._refresh()

    async def run_mutations(self, items: Sequence[Mutation[T] | Refusal], *, dry_run: bool = False) -> list[Outcome]:
        """Run the mutations among the items and return all outcomes in order. `dry_run`: the caches must be up to date."""
        with self._tracer.span("commit"):
            outcomes = iter(
                await self._mutator.run_mutations([item for item in items if isinstance(item, Mutation)], dry_run=dry_run)
            )
        return [item if isinstance(item, Refusal) else next(outcomes) for item in items]

    def _create_mutation(self, obj: T) -> Mutation[T] | Refusal:
        """Return the mutation that creates a complete object."""
        name = obj.metadata.name
        try:
            guards = self._admission.guards(self.resource, obj)
        except Rejected as rejected:
            return rejected.refusal

        def step(version: ObjectVersion[T] | None) -> Next[T]:
            if version is not None:
                raise Rejected(errors.already_exists(self.resource, name))
            return PutObject(obj)

        return Mutation(self.resource.key_of(obj), name, step, guards)

    def _update_mutation(self, obj: T, by: WriteRequest, operation: AdmissionOperation) -> Mutation[T] | Refusal:
        metadata = obj.metadata
        name = metadata.name
        if not name:
            return errors.invalid(self.resource, "", [Violation("metadata.name", "Required value")])
        if metadata.resourceVersion in UNSAID and not self.strategy.allow_unconditional_update:
            violation = Violation("metadata.resourceVersion", "Invalid value: 0: must be specified for an update")
            return errors.invalid(self.resource, name, [violation], kind=self.resource.plural)
        metadata.namespace = self.resource.home(metadata.namespace)
        size = obj.ByteSize() if self.strategy.is_slow else 0
        step = self._change_step(name, lambda present: (obj, None), size, by, operation)
        return Mutation(self.resource.key_of(obj), name, step)

    def _patch_mutation(self, request: PatchRequest, by: WriteRequest) -> Mutation[T]:
        key = self.resource.key(request.namespace or DEFAULT_NAMESPACE, request.name)
        change = self._server_side_apply(request, by) if request.type == PatchRequest.APPLY else self._patch_change(request, by)
        step = self._change_step(request.name, change, len(request.patch), by, _PATCHES[request.subresource])
        return Mutation(key, request.name, step)

    def _patch_change(self, request: PatchRequest, by: WriteRequest) -> Change[T]:
        """Return the change of a patch. Raises Rejected."""
        patch = patch_function(self._conversion_for(by).served, request)
        return lambda present: (patch(present.obj), None)

    def _server_side_apply(self, request: PatchRequest, by: WriteRequest) -> Change[T]:
        """Return the change of a server-side apply. Raises Rejected."""
        conversion = self._conversion_for(by)
        configuration = self._read_configuration(request, conversion.served)

        def apply(present: ObjectVersion[T]) -> tuple[T, OwnerChange]:
            live = conversion.to_served(present.obj)
            applied = managed_fields.apply_configuration(conversion.served, configuration, live, self._clock.time())
            owners = managed_fields.owners_in_version(applied.owners, conversion.served, self.resource)
            return conversion.to_stored(applied.obj, present.obj), OwnerChange(applied=owners)

        return apply

    def _change_step(self, name: str, change: Change[T], size: int, by: WriteRequest, operation: AdmissionOperation) -> Step[T]:
        """Return the step that makes a change. `size`: of the request in bytes."""

        def step(version: ObjectVersion[T] | None) -> Next[T]:
            present = self._require_present(name, version)
            if len(present.value) + size >= LARGE or self.strategy.needs_compilation:
                return DeferredState(lambda: self._change_large(change, present, by, operation))
            wanted, owners = change(present)
            return self._apply_step(wanted, present, by, operation, owners)

        return step

    async def _change_large(
        self, change: Change[T], present: ObjectVersion[T], by: WriteRequest, operation: AdmissionOperation
    ) -> Final[T]:
        """Make a change of a large object. A thread computes the new version and the owners. Raises Rejected."""
        has_reviews, old = self.reviewers.has_reviewers(by, UPDATE, self.resource, SUBRESOURCES[operation]), present.obj

        def prepare() -> tuple[T, OwnerChange]:
            wanted, owners = change(present)
            new, owners = self._prepare_new_version(wanted, present, operation, owners)
            violations = self._update_violations(new, old, by, operation)
            if not violations and not has_reviews:
                self._set_owners(new, old, by, operation, owners)
                owners = OwnerChange(stored=new.metadata.ownership)
            if self.strategy.is_slow:  # remembered
                self.strategy.warnings(old)
                self.strategy.warnings(new)
            return new, owners

        new, owners = await asyncio.to_thread(prepare)
        if has_reviews:
            return await self._continue_after_reviews(new, present, by, operation, owners)
        judged = self._validate_and_admit(new, present, by, operation, owners)
        return await judged.final() if isinstance(judged, DeferredState) else judged

    def _conversion_for(self, by: WriteRequest) -> Conversion:
        """Return the conversion to the version of a write."""
        conversion = conversion_to(self.resource, by.api_version or self.resource.api_version)
        assert conversion is not None
        return conversion

    def _read_configuration(self, request: PatchRequest, resource: Resource[Any]) -> AppliedConfiguration:
        """Read the configuration of an apply in a version. Raises Rejected."""
        if not request.name:
            raise Rejected(errors.bad_request("name: Required value: an apply needs the name of an object"))
        check_subresource(self.resource, request)
        try:
            data = parse(request.patch, request.type)
        except PatchError as error:
            raise Rejected(errors.bad_request(f"patch: {error}")) from None
        assert isinstance(data, Mapping)
        options = request.options
        configuration = managed_fields.read_applied_configuration(
            resource, data, options.fieldManager, request.subresource, options.force
        )
        metadata = data.get("metadata") or {}
        if metadata.get("name", request.name) != request.name:
            message = f"the name of the object ({metadata['name']}) does not match the name on the URL ({request.name})"
            raise Rejected(errors.bad_request(message))
        home = self.resource.home(request.namespace)
        if home and (metadata.get("namespace") or home) != home:
            raise Rejected(errors.bad_request(OTHER_NAMESPACE))
        return configuration

    def _require_present(self, name: str, version: ObjectVersion[T] | None) -> ObjectVersion[T]:
        if version is None:
            raise Rejected(errors.not_found(self.resource, name))
        return version

    def _apply_step(
        self,
        wanted: T,
        present: ObjectVersion[T],
        by: WriteRequest,
        operation: AdmissionOperation,
        owners: OwnerChange | None = None,
        *,
        reviewed: bool = False,
    ) -> Next[T]:
        """Return the next state of an object for the requested state, which is not changed. `owners`: None if only the object
        says something about them. `reviewed`: webhooks and policies have reviewed the request. Raises Rejected."""
        new, owners = self._prepare_new_version(wanted, present, operation, owners)
        if reviewed or not self.reviewers.has_reviewers(by, UPDATE, self.resource, SUBRESOURCES[operation]):
            return self._validate_and_admit(new, present, by, operation, owners)
        return DeferredState(lambda: self._continue_after_reviews(new, present, by, operation, owners))

    def _prepare_new_version(
        self, wanted: T, present: ObjectVersion[T], operation: AdmissionOperation, owners: OwnerChange | None
    ) -> tuple[T, OwnerChange]:
        """Return the new version of an object before reviews, and what the request says about owners. Raises Rejected."""
        old, name = present.obj, present.obj.metadata.name
        uid, expected = wanted.metadata.uid, wanted.metadata.resourceVersion
        if uid and uid != old.metadata.uid:
            raise Rejected(errors.uid_mismatch(self.resource, name, uid, old.metadata.uid))
        if expected not in UNSAID and expected != str(present.revision):
            raise Rejected(errors.stale_resource_version(self.resource, name, expected, present.revision))
        if has_too_many_items(wanted, old):
            raise Rejected(errors.too_many_items(self.resource, name, MAX_PARTS))
        new = copy_without_version(self.resource, wanted)
        if owners is None:
            sent = wanted.metadata.managedFields if operation is AdmissionOperation.UPDATE else ()
            owners = OwnerChange(sent) if sent else NO_OWNER_CHANGE
        self._prepare_update(new, old, operation)
        return new, owners

    async def _continue_after_reviews(
        self, new: T, present: ObjectVersion[T], by: WriteRequest, operation: AdmissionOperation, owners: OwnerChange
    ) -> Final[T]:
        """Return the next state of an object after webhooks and policies. What they add has no owner. Raises Rejected."""
        old = present.obj
        self._set_owners(new, old, by, operation, owners)
        ownership = new.metadata.ownership

        def complete(amended: T) -> None:
            self._prepare_update(amended, old, operation)
            amended.metadata.ownership = exclude_added(self.resource, ownership, new, amended)

        change = WriteAttributes(by, UPDATE, self.resource, new, old, SUBRESOURCES[operation], complete=complete)
        amended = await self.reviewers.mutate(change)
        owners = OwnerChange(stored=amended.metadata.ownership)
        judged = self._validate_and_admit(amended, present, by, operation, owners)
        final = await judged.final() if isinstance(judged, DeferredState) else judged
        await self.reviewers.validate(change._replace(obj=amended))
        return final

    def _prepare_update(self, new: T, old: T, operation: AdmissionOperation) -> None:
        canonicalize(new)
        if operation is AdmissionOperation.UPDATE_STATUS:
            self.strategy.prepare_status_update(new, old)
            self.strategy.set_status_times(new, old, self._clock.time())
        elif operation is AdmissionOperation.RESIZE:
            self.strategy.prepare_resize(new, old)
            keep_equal(new, old)
        elif operation is AdmissionOperation.EPHEMERAL:
            self.strategy.prepare_ephemeral_containers(new, old)
            keep_equal(new, old)
        else:
            keep_identity(new, old)
            copy_owners(new.metadata, old.metadata)
            drop_duplicate_owners(new)
            if operation is AdmissionOperation.FINALIZE:
                self.strategy.prepare_finalize(new, old)
            else:
                self.strategy.prepare_update(new, old)
            keep_equal(new, old)

    def _validate_and_admit(
        self, new: T, present: ObjectVersion[T], by: WriteRequest, operation: AdmissionOperation, owners: OwnerChange
    ) -> Next[T]:
        """Validate and admit the new version. The caches that admission reads may be behind, so a refusal is checked again
        after a refresh. Raises Rejected."""
        old, name = present.obj, present.obj.metadata.name
        if violations := self._update_violations(new, old, by, operation):
            raise Rejected(errors.invalid(self.resource, name, violations))
        try:
            return self._admit_step(new, old, by, operation, owners)
        except Rejected as rejected:
            refused = rejected  # Python deletes the variable `rejected` at the end of the block

        async def retry_admission() -> Final[T]:
            try:
                await self._refresh()
            except (CacheError, StorageError):
                raise refused from None
            return self._admit_step(new, old, by, operation, owners)

        return DeferredState(retry_admission)

    def _update_violations(self, new: T, old: T, by: WriteRequest, operation: AdmissionOperation) -> list[Violation]:
        if operation is AdmissionOperation.UPDATE_STATUS:
            return self.strategy.validate_status_update(new, old)
        if operation is AdmissionOperation.RESIZE:
            return self.strategy.validate_resize(new, old)
        if operation is AdmissionOperation.EPHEMERAL:
            return self.strategy.validate_ephemeral_containers(new, old)
        if operation is AdmissionOperation.FINALIZE:
            return self.strategy.validate_finalize(new, old)
        return self.strategy.in_version(by.api_version).validate_update(new, old)

    def _admit_step(self, new: T, old: T, by: WriteRequest, operation: AdmissionOperation, owners: OwnerChange) -> Final[T]:
        """Return the next state of the object if admission accepts the new version. Raises Rejected."""
        self._admission.validate(by, operation, self.resource, new, old)
        self._set_owners(new, old, by, operation, owners)
        if new == old:
            return MutationEffect.NO_OP
        new.metadata.resourceVersion = ""
        if self._is_finalized(new):
            return RemoveObject(last=new)
        if operation in _SPEC_OPERATIONS and self.strategy.is_new_generation(new, old):
            if self.strategy.has_generation:
                new.metadata.generation = old.metadata.generation + 1
            old_warnings = set(self.strategy.warnings(old))
            add_warnings(warning for warning in self.strategy.warnings(new) if warning not in old_warnings)
        return PutObject(new, grows=operation is AdmissionOperation.RESIZE)

    def _set_owners(self, new: T, old: T, by: WriteRequest, operation: AdmissionOperation, owners: OwnerChange) -> None:
        """Set the owners and the resourceVersion of a new version, which has the owners of the old one."""
        new.metadata.resourceVersion = old.metadata.resourceVersion
        if owners.stored is not None:
            new.metadata.ownership = owners.stored
        elif owners.applied is not None:
            managed_fields.set_owners(self.resource, new, old, owners.applied)
        elif owners.subresource == managed_fields.SCALE and isinstance(self.resource, CustomResource):
            new.metadata.ownership = exclude_added(self.resource, old.metadata.ownership, old, new)  # as Kubernetes does
        elif owners.sent or new != old:
            version = by.api_version or self.resource.api_version
            subresource = owners.subresource or SUBRESOURCES.get(operation, "")
            manager = FieldManager(by.manager, UPDATE_OPERATION, version, subresource)
            managed_fields.track_update(self.resource, new, old, manager, owners.sent, self._clock.time())

    def _is_finalized(self, obj: T) -> bool:
        """Return whether the object is terminating and its last finalizer is removed."""
        metadata = obj.metadata
        if metadata.finalizers or self.strategy.may_contain_objects(obj):
            return False
        return metadata.HasField("deletionTimestamp") and metadata.deletionGracePeriodSeconds == 0

    def _delete_mutation(self, request: DeleteRequest, by: WriteRequest) -> Mutation[T] | Refusal:
        name = request.name
        why = request.disruption if request.HasField("disruption") else None
        if why is not None and not self.strategy.can_be_disrupted:
            return errors.bad_request(f"disruption: supported for pods only, not for {self.resource.plural}")

        def step(version: ObjectVersion[T] | None) -> Next[T]:
            if version is not None:
                self._admission.validate(by, AdmissionOperation.DELETE, self.resource, None, version.obj)
            now = self._clock.time()
            final = delete_step(self.strategy, name, request.options, version, now, why=why)
            if version is None or not self.reviewers.has_reviewers(by, DELETE, self.resource):
                return final
            change = WriteAttributes(by, DELETE, self.resource, None, version.obj, options=request.options)

            async def review_delete() -> Final[T]:
                await self.reviewers.mutate(change)
                await self.reviewers.validate(change)
                return final

            return DeferredState(review_delete)

        return Mutation(self.resource.key(request.namespace or DEFAULT_NAMESPACE, name), name, step)


def require_single_outcome(outcomes: Sequence[Outcome]) -> WriteResult:
    """Return the outcome of a call with one item. Raises Rejected if the item was refused."""
    (outcome,) = outcomes
    if isinstance(outcome, Refusal):
        raise Rejected(outcome)
    return outcome


def _is_name_taken(outcome: Outcome) -> bool:
    return isinstance(outcome, Refusal) and outcome.code is Code.ALREADY_EXISTS
