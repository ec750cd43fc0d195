"""Optimistic concurrency for every verb: read, step, compare-and-swap, and retry on conflict.

A mutation is a pure function `step` from the present version of an object to the next. The first attempt uses the cache and
needs no read from etcd. Guarantees:

* A write commits only against the version that its step received.
* A refusal is final only if the step received the version in etcd (linearizable read). A refusal that is based on the cache is
  checked again after a read. A stale cache causes additional reads, but never a wrong result. A dry run writes nothing and uses
  only the cache, so its caller refreshes the cache first.
* The mutations of a call go to etcd together (the committer groups them), and each succeeds or fails independently. Mutations
  of one object run one after another, because concurrent ones would conflict.
* The writes of a call with a fence commit only while the term lasts (apiserver.registry.fencing).
* Steps on large objects yield to the event loop: another call waits for at most one step.

A patch has the same result as an update by a client that read the same version. A malformed patch is a bad request. A patch
that does not apply to the object is Invalid, as in Kubernetes.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from enum import Enum
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from google.protobuf.message import DecodeError

from pinnace.api import wire
from pinnace.api.codec import IGNORE, STRICT, WARN, CodecError, Problem, decode_revision, to_dict
from pinnace.api.conversion import conversion_of
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.ownership import with_shown_owners, without_owners
from pinnace.api.patch import PatchError, PatchFormatError, UnmergeableError, apply_any_patch, parse, with_reset
from pinnace.api.resources import PODS, Object, Resource
from pinnace.api.status import Refusal, Violation
from pinnace.api.verbs_pb2 import PatchRequest
from pinnace.apiserver import errors
from pinnace.apiserver.cacher.cacher import ResourceCache
from pinnace.apiserver.cacher.store import CacheEntry
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry import fencing
from pinnace.apiserver.registry.creation import OTHER_NAMESPACE
from pinnace.apiserver.registry.strategy import add_warnings
from pinnace.apiserver.registry.validation.fields import IMMUTABLE, invalid
from pinnace.apiserver.storage.committer import CommitOutcome, GuardFailed, WriteConflict, WriteDenied
from pinnace.apiserver.storage.interface import Guard, KeyValue, Storage, StorageError, Write
from pinnace.runtime.clock import Clock
from pinnace.runtime.tasks import apply_in_slices

T = TypeVar("T", bound=Object)

MAX_ROUNDS = 16
"""Rounds before a mutation fails with Contended. In each failed round, another write of the object succeeded."""

STATUS = "status"
RESIZE = "resize"
"""The resize subresource, of pods only."""
EPHEMERAL = "ephemeralcontainers"
"""The subresource of ephemeral containers, of pods only."""
FINALIZE = "finalize"
"""The finalize subresource, of namespaces only. It cannot be patched."""
_TYPES = (PatchRequest.MERGE, PatchRequest.STRATEGIC_MERGE, PatchRequest.JSON)


class ObjectVersion(NamedTuple, Generic[T]):
    """The present state of an object. `obj` carries its resourceVersion and must not be changed."""

    obj: T
    revision: int
    value: bytes
    """The stored bytes: `obj` encoded, without its resourceVersion."""


class PutObject(NamedTuple, Generic[T]):
    """Store `obj`. The step owns `obj`, which has no resourceVersion."""

    obj: T
    grows: bool = False
    """See `Write.grows`."""
    companions: tuple[Write, ...] = ()
    """See `Write.companions`."""


class RemoveObject(NamedTuple):
    """Delete the key, and write the companions."""

    companions: tuple[Write, ...] = ()
    last: Any = None
    """The last state of the object, for the response. None: the stored one."""


class MutationEffect(Enum):
    """Next states that store no object."""

    DELETE = "delete the key"
    NO_OP = "the object already is as requested: write nothing"


Final = PutObject[T] | RemoveObject | Literal[MutationEffect.DELETE, MutationEffect.NO_OP]


class DeferredState(NamedTuple, Generic[T]):
    """A next state that needs I/O, such as the response of a webhook. The deferred states of one round run concurrently."""

    final: Callable[[], Awaitable[Final[T]]]
    """Raises Rejected."""


Next = Final[T] | DeferredState[T]
Step = Callable[[ObjectVersion[T] | None], Next[T]]
"""Returns the next state of an object for its present version, which is None if the object does not exist. Each retry calls the
step again with the later version. Raises Rejected."""


class Mutation(NamedTuple, Generic[T]):
    key: str
    name: str
    """The name of the object in messages."""
    step: Step[T]
    guards: tuple[Guard, ...] = ()


class WriteResult(NamedTuple):
    """The result of a mutation. `value` is the encoded object as stored, without its resourceVersion. `revision` is 0 for a dry
    run of a create."""

    name: str
    uid: str
    revision: int
    value: bytes

    @property
    def encoded(self) -> bytes:
        return self.value + wire.encode_resource_version(self.revision) if self.revision else self.value


Outcome = WriteResult | Refusal


class Allocator(Protocol[T]):
    """Adds companions to the writes of a resource."""

    def with_allocation(self, step: Step[T], dry_run: bool) -> Step[T]:
        """Return a step that also allocates. If a companion conflicts, the mutator repeats the step with the same version."""
        ...


class StorageConverter(Protocol[T]):
    """The forms of the objects of a resource whose steps do not see what etcd has."""

    @property
    def uses_webhook(self) -> bool:
        """Whether a webhook converts the objects. Then only the coroutines are called."""
        ...

    def from_stored(self, obj: T) -> T:
        """Return the object that steps see, with its resourceVersion. `obj` is not changed."""
        ...

    def to_stored(self, obj: T) -> T:
        """Return the object that etcd has."""
        ...

    async def call_from_stored(self, obj: T) -> T:
        """Return the object that steps see, with its resourceVersion. Raises Rejected."""
        ...

    async def call_to_stored(self, obj: T) -> T:
        """Return the object that etcd has. Raises Rejected."""
        ...

    def is_stored_form(self, obj: T) -> bool:
        """Return whether etcd has the object in the present version."""
        ...


class WriteCommitter(Protocol):
    """Writes to etcd: a Committer, or the quota ledger, which wraps one."""

    async def commit_many(self, writes: Sequence[Write]) -> list[CommitOutcome]:
        """Return the outcome of each write, in order. The writes are independent: each succeeds or fails alone."""
        ...


class Mutator(Generic[T]):
    """Runs mutations of one resource."""

    def __init__(
        self,
        resource: Resource[T],
        cache: ResourceCache[T],
        storage: Storage,
        committer: WriteCommitter,
        clock: Clock,
        allocator: Allocator[T] | None = None,
        form: StorageConverter[T] | None = None,
    ) -> None:
        """`form`: None if steps see what etcd has."""
        self._form = form
        self._resource = resource
        self._cache = cache
        self._storage = storage
        self._committer = committer
        self._clock = clock
        self._allocator = allocator

    async def run_mutations(self, mutations: Sequence[Mutation[T]], *, dry_run: bool = False) -> list[Outcome]:
        """Return the outcome of each mutation, in order. A mutation that fails does not affect the others."""
        if (allocator := self._allocator) is not None:
            mutations = [mutation._replace(step=allocator.with_allocation(mutation.step, dry_run)) for mutation in mutations]
        outcomes: dict[int, Outcome] = {}
        for wave in _group_by_distinct_keys(mutations):
            outcomes.update(zip(wave, await self._run_distinct([mutations[index] for index in wave], dry_run), strict=True))
        return [outcomes[index] for index in range(len(mutations))]

    async def _run_distinct(self, mutations: Sequence[Mutation[T]], dry_run: bool) -> list[Outcome]:
        """Run mutations with distinct keys and return their outcomes."""
        fence = fencing.CURRENT_GUARDS.get()
        form = self._form
        if form is not None and form.uses_webhook:
            attempts = await self._converted_attempts(mutations, fence, form)
        else:
            attempts = [
                _MutationAttempt(mutation, _cached_version(self._cache.get(mutation.key), form), fence, form)
                for mutation in mutations
            ]
        if dry_run:
            for attempt in attempts:
                attempt.trust_cached_version()
                if attempt.mutation.key in self._cache.undecodable_keys:
                    attempt.outcome = errors.undecodable_object(self._resource, attempt.mutation.name)
        pending: Sequence[_MutationAttempt[T]] = attempts
        for _ in range(MAX_ROUNDS):
            await apply_in_slices(lambda attempt: attempt.run_step(dry_run), pending, self._clock)
            if deferred := [attempt.await_deferred(dry_run) for attempt in pending if attempt.deferred is not None]:
                await asyncio.gather(*deferred)
            await self._read_current([attempt for attempt in pending if attempt.must_read])
            await self._commit_writes([attempt for attempt in pending if attempt.write is not None])
            pending = [attempt for attempt in pending if attempt.outcome is None]
            if not pending:
                break
        return [attempt.outcome or errors.contended_object(self._resource, attempt.mutation.name) for attempt in attempts]

    async def _converted_attempts(
        self, mutations: Sequence[Mutation[T]], fence: tuple[Guard, ...], form: StorageConverter[T]
    ) -> list["_MutationAttempt[T]"]:
        """Return the attempts with the cached versions that a webhook converts. If it cannot, the attempt has an outcome."""

        async def attempt_of(mutation: Mutation[T]) -> _MutationAttempt[T]:
            entry, refusal, version = self._cache.get(mutation.key), None, None
            if entry is not None:
                try:
                    obj = await form.call_from_stored(entry.parse_uncached())
                    version = ObjectVersion(obj, entry.mod_revision, entry.value)
                except Rejected as rejected:
                    refusal = rejected.refusal
            attempt = _MutationAttempt(mutation, version, fence, form)
            attempt.outcome = refusal
            return attempt

        return await asyncio.gather(*map(attempt_of, mutations))

    async def _read_current(self, attempts: Sequence["_MutationAttempt[T]"]) -> None:
        async def read(attempt: _MutationAttempt[T]) -> None:
            try:
                current = await self._storage.get(attempt.mutation.key)
            except StorageError as error:
                attempt.outcome = errors.storage_refusal(error)
            else:
                await self._continue_with(attempt, current)

        if attempts:
            await asyncio.gather(*(read(attempt) for attempt in attempts))

    async def _commit_writes(self, attempts: Sequence["_MutationAttempt[T]"]) -> None:
        if not attempts:
            return
        results = await self._committer.commit_many([attempt.write for attempt in attempts if attempt.write])
        for attempt, result in zip(attempts, results, strict=True):
            match result:
                case int():
                    attempt.set_committed(result)
                case WriteConflict() if result.write.key != attempt.mutation.key:
                    attempt.write = None  # a companion: the step chooses another one
                case WriteConflict():
                    await self._continue_with(attempt, result.current)
                case GuardFailed():
                    attempt.outcome = guard_refusal(result.guard)
                case WriteDenied():
                    attempt.outcome = errors.forbidden(str(result))
                case _:
                    attempt.outcome = errors.storage_refusal(result)

    async def _continue_with(self, attempt: "_MutationAttempt[T]", current: KeyValue | None) -> None:
        """Continue with the state that etcd returned."""
        try:
            attempt.set_current_version(await self._decode_version(current))
        except DecodeError:
            attempt.outcome = errors.undecodable_object(self._resource, attempt.mutation.name)
        except Rejected as rejected:
            attempt.outcome = rejected.refusal

    async def _decode_version(self, current: KeyValue | None) -> ObjectVersion[T] | None:
        """Raises DecodeError, Rejected."""
        if current is None:
            return None
        obj = self._resource.message()
        obj.ParseFromString(current.value + wire.encode_resource_version(current.mod_revision))
        if self._form is not None:
            obj = await self._form.call_from_stored(obj) if self._form.uses_webhook else self._form.from_stored(obj)
        return ObjectVersion(obj, current.mod_revision, current.value)


def _group_by_distinct_keys(mutations: Sequence[Mutation[Any]]) -> Iterator[Sequence[int]]:
    """Yield the indices of the mutations in groups with distinct keys. Usually there is one group."""
    if len({mutation.key for mutation in mutations}) == len(mutations):
        yield range(len(mutations))
        return
    waves: list[list[int]] = []
    occurrences = Counter[str]()
    for index, mutation in enumerate(mutations):
        number = occurrences[mutation.key]
        occurrences[mutation.key] += 1
        if number == len(waves):
            waves.append([])
        waves[number].append(index)
    yield from waves


def guard_refusal(guard: Guard) -> Refusal:
    """Return the refusal for a guard that failed. Guards of fences compare create_revision, guards of admission compare
    mod_revision."""
    if guard.mod_revision:
        return errors.OVERTAKEN
    return errors.fenced_term(guard.key.rpartition("/")[2], guard.create_revision)


def _cached_version(entry: CacheEntry[T] | None, form: StorageConverter[T] | None) -> ObjectVersion[T] | None:
    if entry is None:
        return None
    obj = entry.obj if form is None else form.from_stored(entry.parse_uncached())
    return ObjectVersion(obj, entry.mod_revision, entry.value)


def _revision_of(version: ObjectVersion[Any] | None) -> int:
    return 0 if version is None else version.revision


class _MutationAttempt(Generic[T]):
    """The state of one mutation.

    After `run_step`, and after `await_deferred` if the step is deferred, one of these is set: `outcome`, `must_read` or
    `write`.
    """

    __slots__ = (
        "_converted",
        "_deferred_refusal",
        "_form",
        "_guards",
        "_is_current",
        "_uid",
        "_value",
        "_version",
        "deferred",
        "must_read",
        "mutation",
        "outcome",
        "write",
    )

    def __init__(
        self,
        mutation: Mutation[T],
        version: ObjectVersion[T] | None,
        fence: tuple[Guard, ...],
        form: StorageConverter[T] | None = None,
    ) -> None:
        self.mutation = mutation
        self._form = form
        self._guards = mutation.guards + fence
        self._version = version
        self._is_current = False  # whether the version was read from etcd; otherwise it is from the cache and may be stale
        self._deferred_refusal: Refusal | None = None  # the refusal of the deferred step for that version
        self._uid, self._value = "", b""
        self._converted: T | None = None  # the stored form of the next state, if a webhook converts it
        self.deferred: DeferredState[T] | None = None
        self.outcome: Outcome | None = None
        self.write: Write | None = None
        self.must_read = False

    def set_current_version(self, version: ObjectVersion[T] | None) -> None:
        """Set the version that etcd returned."""
        if self._deferred_refusal is not None and _revision_of(version) == _revision_of(self._version):
            self.outcome = self._deferred_refusal  # the version is the same, so the deferred step is not repeated
        self._version, self._is_current = version, True
        self.must_read, self.write = False, None

    def trust_cached_version(self) -> None:
        """Treat the known version as the version in etcd."""
        self._is_current = True

    def set_committed(self, revision: int) -> None:
        self.outcome = WriteResult(self.mutation.name, self._uid, revision, self._value)

    def run_step(self, dry_run: bool) -> None:
        """Run the step on the known version. Does nothing if the attempt has an outcome."""
        if self.outcome is not None:
            return
        try:
            step = self.mutation.step(self._version)
        except Rejected as rejected:
            self._handle_refusal(rejected.refusal)
            return
        if isinstance(step, DeferredState):
            self.deferred = step
        elif self._needs_calls:
            self.deferred = DeferredState(lambda: _return_next_state(step))
        else:
            self._take_next_state(step, dry_run)

    async def await_deferred(self, dry_run: bool) -> None:
        assert self.deferred is not None
        deferred, self.deferred = self.deferred, None
        try:
            step = await deferred.final()
        except Rejected as rejected:
            self._deferred_refusal = rejected.refusal
            self._handle_refusal(rejected.refusal)
            return
        if self._needs_calls:
            try:
                await self._convert_by_webhook(step)
            except Rejected as rejected:
                self.outcome = rejected.refusal
                return
        self._take_next_state(step, dry_run)

    @property
    def _needs_calls(self) -> bool:
        return self._form is not None and self._form.uses_webhook

    async def _convert_by_webhook(self, step: Final[T]) -> None:
        """Let a webhook convert the object that a step returns. Raises Rejected."""
        assert self._form is not None
        self._converted, obj = None, None
        if isinstance(step, PutObject):
            obj = step.obj
        elif isinstance(step, RemoveObject):
            obj = step.last
        elif step is MutationEffect.NO_OP and self._is_current:
            obj = self._unchanged_object()
        if obj is not None:
            self._converted = await self._form.call_to_stored(obj)

    def _handle_refusal(self, refusal: Refusal) -> None:
        if self._is_current:
            self.outcome = refusal
        else:
            self.must_read = True

    def _take_next_state(self, step: Final[T], dry_run: bool) -> None:
        if step is MutationEffect.NO_OP and not self._is_current:
            self.must_read = True
        elif step is MutationEffect.NO_OP and (rewritten := self._rewrite_in_current_form()) is not None:
            self._prepare_put(rewritten, dry_run)
        elif isinstance(step, PutObject):
            self._prepare_put(step, dry_run)
        else:
            assert self._version is not None, "NO_OP and DELETE need an existing object"
            self._uid, self._value = self._version.obj.metadata.uid, self._version.value
            if isinstance(step, RemoveObject) and step.last is not None:
                self._value = self._encode_object(step.last)
            if step is MutationEffect.NO_OP or dry_run:
                self.set_committed(self._version.revision)
            else:
                companions = step.companions if isinstance(step, RemoveObject) else ()
                self.write = Write(self.mutation.key, None, self._version.revision, self._guards, companions=companions)

    def _prepare_put(self, put: PutObject[T], dry_run: bool) -> None:
        expected, value = _revision_of(self._version), self._encode_object(put.obj)
        self._uid, self._value = put.obj.metadata.uid, value
        if dry_run:
            self.set_committed(expected)
        else:
            self.write = Write(self.mutation.key, value, expected, self._guards, grows=put.grows, companions=put.companions)

    def _encode_object(self, obj: T) -> bytes:
        """Return the stored form. An attempt encodes one object, which `_convert_by_webhook` has converted if it has to."""
        if self._needs_calls:
            assert self._converted is not None
            return self._converted.SerializeToString()
        return (obj if self._form is None else self._form.to_stored(obj)).SerializeToString()

    def _rewrite_in_current_form(self) -> PutObject[T] | None:
        """Return the unchanged object if etcd has it in another form than the present one, for example in another version."""
        obj = self._unchanged_object()
        if obj is None or self._version is None:
            return None
        return PutObject(obj) if self._encode_object(obj) != self._version.value else None

    def _unchanged_object(self) -> T | None:
        """Return the unchanged object if its form is to be compared with the stored one. What a webhook converts is compared
        only if its version is another one."""
        if self._form is None or self._version is None:
            return None
        if self._form.uses_webhook:
            stored: Any = type(self._version.obj)()
            stored.ParseFromString(self._version.value)
            if self._form.is_stored_form(stored):
                return None
        obj: Any = type(self._version.obj)()
        obj.CopyFrom(self._version.obj)
        obj.metadata.resourceVersion = ""
        unchanged: T = obj
        return unchanged


async def _return_next_state(step: Final[T]) -> Final[T]:
    return step


def check_subresource(resource: Resource[T], request: PatchRequest) -> None:
    """Check that the subresource can be patched. Raises Rejected."""
    patchable = (STATUS, RESIZE, EPHEMERAL) if resource is PODS else (STATUS,)
    if request.subresource not in ("", *patchable):
        names = " and ".join(f'"{subresource}"' for subresource in patchable)
        raise Rejected(errors.bad_request(f'subresource: "{request.subresource[:32]}" cannot be patched; expected {names}'))


def patch_function(resource: Resource[Any], request: PatchRequest) -> Callable[[Any], Any]:
    """Return a function that returns the patched copy of a stored object. `resource`: the version of the patch. Both functions
    raise Rejected."""
    conversion = conversion_of(resource)
    if not request.name:
        raise Rejected(errors.bad_request("name: Required value: a patch needs the name of an object"))
    if request.type not in _TYPES:
        raise Rejected(errors.bad_request("type: expected MERGE, STRATEGIC_MERGE, JSON or APPLY"))
    check_subresource(resource, request)
    try:
        patch = parse(request.patch, request.type)
    except PatchError as error:
        raise Rejected(errors.bad_request(f"patch: {error}")) from None

    validation = request.options.fieldValidation or request.options.defaultFieldValidation
    if validation not in ("", STRICT, WARN, IGNORE):
        raise Rejected(errors.bad_request(f'fieldValidation: "{validation[:32]}": expected Strict, Warn or Ignore'))

    def ignored(problem: Problem) -> bool:
        if not problem.unknown:
            return False
        if problem.in_status and request.subresource != STATUS:
            return True  # the status is kept; exported objects contain statuses of other versions
        if validation == WARN:
            add_warnings([f'unknown field "{problem.field}"'])
        return validation in (WARN, IGNORE)

    mentions_owners = b"managedFields" in request.patch

    def apply(old: Any) -> Any:
        message: Any = resource.message
        try:
            served = conversion.to_served(old)
            served = with_shown_owners(resource, served) if mentions_owners else without_owners(served)
            form = to_dict(served)
            result = apply_any_patch(form, request.type, patch, message.DESCRIPTOR)
            new = conversion.to_stored(decode_revision(resource, served, form, with_reset(result), ignored), old)
        except PatchFormatError as error:
            raise Rejected(errors.bad_request(str(error))) from None
        except UnmergeableError as error:
            raise Rejected(errors.unmergeable_patch(str(error))) from None
        except PatchError as error:
            raise Rejected(errors.invalid(resource, request.name, [Violation("patch", str(error))])) from None
        except CodecError as error:
            unknown = [f'unknown field "{problem.field}"' for problem in error.problems if problem.unknown]
            if validation == STRICT and len(unknown) == len(error.problems):
                raise Rejected(errors.bad_request(f"strict decoding error: {', '.join(unknown)}")) from None
            violations = [Violation(problem.field, problem.message) for problem in error.problems]
            raise Rejected(errors.invalid(resource, request.name, violations)) from None
        if not resource.namespaced:
            new.metadata.namespace = ""
        _check_identity(resource, new.metadata, old.metadata)
        return new

    return apply


def _check_identity(resource: Resource[Any], new: ObjectMeta, old: ObjectMeta) -> None:
    """Raise Rejected if a patch changes the namespace, the name or the UID."""
    new.namespace = new.namespace or old.namespace
    if new.namespace != old.namespace:
        raise Rejected(errors.bad_request(OTHER_NAMESPACE))
    new.uid = new.uid or old.uid
    changed = [field for field in ("name", "uid") if getattr(new, field) != getattr(old, field)]
    if changed:
        violations = [invalid(f"metadata.{field}", getattr(new, field), IMMUTABLE) for field in changed]
        raise Rejected(errors.invalid(resource, old.name, violations))
