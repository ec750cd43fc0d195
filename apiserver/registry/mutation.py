"""Optimistic concurrency, once for every verb: read, step, compare-and-swap, and again when somebody was faster.

A mutation is a pure `step` from the present version of one object to its next. The engine first tries from the cache, which
costs no read. What it promises:

* A write commits only against the very version that its step saw.
* A step's refusal is final only if the version it saw came from etcd (linearizable): a refusal that rests on the cache is
  checked by reading first. So a lagging cache can cost time, but never a wrong answer. A dry run, of which no write is
  compared with what is there, goes by the cache alone: its caller has brought that up to date.
* Many mutations go to etcd together (the committer groups them), and each succeeds or fails alone. Those of one object follow
  one another: together each would lose to the one before, and be tried again with all the others.
* What a call writes that was made in a leader's name commits only while it leads (apiserver.registry.fencing).
* Steps that take long, of large objects, keep nobody else waiting but for one of them.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from enum import Enum
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from google.protobuf.message import DecodeError

from apiserver import errors
from apiserver.cacher.resource import ResourceCache
from apiserver.cacher.store import Entry
from apiserver.errors import Rejected
from apiserver.registry import fencing
from apiserver.storage.committer import Conflict, Denied, GuardFailed
from apiserver.storage.committer import Outcome as Committal
from apiserver.storage.interface import Guard, KeyValue, Storage, StorageError, Write
from pinnace.api import wire
from pinnace.api.resources import Object, Resource
from pinnace.api.status import Refusal
from pinnace.runtime.clock import Clock
from pinnace.runtime.tasks import in_slices

T = TypeVar("T", bound=Object)

MAX_ROUNDS = 16
"""Rounds before a mutation gives up with Contended. Every lost round means that somebody else's write succeeded."""


class Version(NamedTuple, Generic[T]):
    """The present state of an object. `obj` carries its resourceVersion and must not be changed."""

    obj: T
    revision: int
    value: bytes
    """As stored: `obj` encoded, without its resourceVersion."""


class Put(NamedTuple, Generic[T]):
    """Store this: an object of the step's own, without a resourceVersion."""

    obj: T
    grows: bool = False
    """As in Write."""


class Sign(Enum):
    """Next states that are not an object."""

    REMOVE = "delete the key"
    KEEP = "nothing to do: the present state is what was wanted"


Final = Put[T] | Literal[Sign.REMOVE, Sign.KEEP]


class Later(NamedTuple, Generic[T]):
    """Others are to be asked first, which takes time: they are waited for beside those of the other mutations."""

    final: Callable[[], Awaitable[Final[T]]]
    """Raises Rejected."""


Next = Final[T] | Later[T]
Step = Callable[[Version[T] | None], Next[T]]
"""Raises Rejected. May be called several times, each time with a later version."""


class Mutation(NamedTuple, Generic[T]):
    key: str
    name: str
    """For messages."""
    step: Step[T]
    guards: tuple[Guard, ...] = ()


class Stored(NamedTuple):
    """A mutation that is done. `value` is the encoded object as stored, without its resourceVersion. `revision`: 0 of what a
    dry run would create."""

    name: str
    uid: str
    revision: int
    value: bytes

    @property
    def encoded(self) -> bytes:
        return self.value + wire.stamp(self.revision) if self.revision else self.value


Outcome = Stored | Refusal


class Commits(Protocol):
    """Who takes the writes to etcd: a Committer."""

    async def commit_many(self, writes: Sequence[Write]) -> list[Committal]:
        """The outcome of each write, in order. They are independent: some may happen and others not."""
        ...


class Mutator(Generic[T]):
    """The engine, for one resource."""

    def __init__(
        self, resource: Resource[T], cache: ResourceCache[T], storage: Storage, committer: Commits, clock: Clock
    ) -> None:
        self._resource = resource
        self._cache = cache
        self._storage = storage
        self._committer = committer
        self._clock = clock

    async def run(self, mutations: Sequence[Mutation[T]], *, dry_run: bool = False) -> list[Outcome]:
        """The outcome of each, in order. Never raises for a single item."""
        outcomes: dict[int, Outcome] = {}
        for wave in _waves(mutations):
            outcomes.update(zip(wave, await self._run([mutations[index] for index in wave], dry_run), strict=True))
        return [outcomes[index] for index in range(len(mutations))]

    async def _run(self, mutations: Sequence[Mutation[T]], dry_run: bool) -> list[Outcome]:
        """Of mutations of different objects."""
        fence = fencing.CALL.get()
        attempts = [_Attempt(mutation, _cached(self._cache.get(mutation.key)), fence) for mutation in mutations]
        if dry_run:
            for attempt in attempts:
                attempt.rely()
                if attempt.mutation.key in self._cache.unreadable:
                    attempt.outcome = errors.unreadable(self._resource, attempt.mutation.name)
        open_: Sequence[_Attempt[T]] = attempts
        for _ in range(MAX_ROUNDS):
            await in_slices(lambda attempt: attempt.advance(dry_run), open_, self._clock)
            if later := [attempt.wait(dry_run) for attempt in open_ if attempt.later is not None]:
                await asyncio.gather(*later)
            await self._read([attempt for attempt in open_ if attempt.must_read])
            await self._commit([attempt for attempt in open_ if attempt.write is not None])
            open_ = [attempt for attempt in open_ if attempt.outcome is None]
            if not open_:
                break
        return [attempt.outcome or errors.contended(self._resource, attempt.mutation.name) for attempt in attempts]

    async def _read(self, attempts: Sequence["_Attempt[T]"]) -> None:
        async def read(attempt: _Attempt[T]) -> None:
            try:
                current = await self._storage.get(attempt.mutation.key)
            except StorageError as error:
                attempt.outcome = errors.from_storage(error)
            else:
                self._go_on(attempt, current)

        if attempts:
            await asyncio.gather(*(read(attempt) for attempt in attempts))

    async def _commit(self, attempts: Sequence["_Attempt[T]"]) -> None:
        if not attempts:
            return
        results = await self._committer.commit_many([attempt.write for attempt in attempts if attempt.write])
        for attempt, result in zip(attempts, results, strict=True):
            match result:
                case int():
                    attempt.committed(result)
                case Conflict():
                    self._go_on(attempt, result.current)
                case GuardFailed():
                    attempt.outcome = guard_refusal(result.guard)
                case Denied():
                    attempt.outcome = errors.forbidden(str(result))
                case _:
                    attempt.outcome = errors.from_storage(result)

    def _go_on(self, attempt: "_Attempt[T]", current: KeyValue | None) -> None:
        """From what etcd has."""
        try:
            attempt.authoritative(self._decode(current))
        except DecodeError:
            attempt.outcome = errors.unreadable(self._resource, attempt.mutation.name)

    def _decode(self, current: KeyValue | None) -> Version[T] | None:
        if current is None:
            return None
        obj = self._resource.message()
        obj.ParseFromString(current.value + wire.stamp(current.mod_revision))
        return Version(obj, current.mod_revision, current.value)


def _waves(mutations: Sequence[Mutation[Any]]) -> Iterator[Sequence[int]]:
    """Their indices, in groups in which no key occurs twice: nearly always one."""
    if len({mutation.key for mutation in mutations}) == len(mutations):
        yield range(len(mutations))
        return
    waves: list[list[int]] = []
    seen = Counter[str]()
    for index, mutation in enumerate(mutations):
        number = seen[mutation.key]
        seen[mutation.key] += 1
        if number == len(waves):
            waves.append([])
        waves[number].append(index)
    yield from waves


def guard_refusal(guard: Guard) -> Refusal:
    """Fences ask when the key was created, admission asks for the very version that it saw."""
    if guard.mod_revision:
        return errors.OVERTAKEN
    return errors.fenced(guard.key.rpartition("/")[2], guard.create_revision)


def _cached(entry: Entry[T] | None) -> Version[T] | None:
    return None if entry is None else Version(entry.obj, entry.mod_revision, entry.value)


def _revision(version: Version[Any] | None) -> int:
    return 0 if version is None else version.revision


class _Attempt(Generic[T]):
    """One mutation on its way. After `advance`, and `wait` where there is something `later`, it has an outcome, or must be
    read, or has a write to commit."""

    __slots__ = (
        "_final",
        "_guards",
        "_refused",
        "_uid",
        "_value",
        "_version",
        "later",
        "must_read",
        "mutation",
        "outcome",
        "write",
    )

    def __init__(self, mutation: Mutation[T], version: Version[T] | None, fence: tuple[Guard, ...]) -> None:
        self.mutation = mutation
        self._guards = mutation.guards + fence
        self._version = version
        self._final = False  # is the version etcd's, or only the cache's?
        self._refused: Refusal | None = None  # by others, who saw that version
        self._uid, self._value = "", b""
        self.later: Later[T] | None = None
        self.outcome: Outcome | None = None
        self.write: Write | None = None
        self.must_read = False

    def authoritative(self, version: Version[T] | None) -> None:
        """The state as etcd has it."""
        if self._refused is not None and _revision(version) == _revision(self._version):
            self.outcome = self._refused  # whom it took time to ask is not asked the same again
        self._version, self._final = version, True
        self.must_read, self.write = False, None

    def rely(self) -> None:
        """The version that is known is etcd's."""
        self._final = True

    def committed(self, revision: int) -> None:
        self.outcome = Stored(self.mutation.name, self._uid, revision, self._value)

    def advance(self, dry_run: bool) -> None:
        """Takes the step from the version that is known. Does not change an attempt that has an outcome."""
        if self.outcome is not None:
            return
        try:
            step = self.mutation.step(self._version)
        except Rejected as rejected:
            self._refuse(rejected.refusal)
            return
        if isinstance(step, Later):
            self.later = step
        else:
            self._take(step, dry_run)

    async def wait(self, dry_run: bool) -> None:
        assert self.later is not None
        later, self.later = self.later, None
        try:
            step = await later.final()
        except Rejected as rejected:
            self._refused = rejected.refusal
            self._refuse(rejected.refusal)
        else:
            self._take(step, dry_run)

    def _refuse(self, refusal: Refusal) -> None:
        if self._final:
            self.outcome = refusal
        else:
            self.must_read = True

    def _take(self, step: Final[T], dry_run: bool) -> None:
        if step is Sign.KEEP and not self._final:
            self.must_read = True
        elif isinstance(step, Put):
            self._store(step.obj.metadata.uid, step.obj.SerializeToString(), dry_run, step.grows)
        else:
            assert self._version is not None, "only what is there can be kept or removed"
            self._uid, self._value = self._version.obj.metadata.uid, self._version.value
            if step is Sign.KEEP or dry_run:
                self.committed(self._version.revision)
            else:
                self.write = Write(self.mutation.key, None, self._version.revision, self._guards)

    def _store(self, uid: str, value: bytes, dry_run: bool, grows: bool) -> None:
        expected = _revision(self._version)
        self._uid, self._value = uid, value
        if dry_run:
            self.committed(expected)
        else:
            self.write = Write(self.mutation.key, value, expected, self._guards, grows=grows)
