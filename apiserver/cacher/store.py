"""The current state of one resource, its events and snapshots, and the errors of the watch cache.

A `CacheEntry` contains the encoded value of one version, which is parsed on demand. A `CacheEvent` is the change from one
version to the next. The event type for a watch with a `SelectionPredicate` is:

                          selected after the change   not selected after the change
    selected before       MODIFIED                    DELETED
    not selected before   ADDED                       no event

Each value is parsed once when it is applied, in about 1 us. If this fails, the object is removed from the state, and watches
receive DELETED.

Watches that begin at the same state share one `CacheSnapshot`. A snapshot expires when the event log no longer contains its
revision, and after MAX_AGE at the latest. Then reading it raises RevisionExpired.

`CacheProgress` is the last applied revision of all resources. Callers can wait for a revision. `CurrentRevisionReader` reads
the revision of the storage. Concurrent callers share one read. A caller that arrives during a read waits for the next read,
because the current one can miss writes before the call.

CacheError
+-- RevisionExpired The requested revision is no longer available: list again.
+-- SlowWatcher     The queue of the watch is full: resume after `resume`.
+-- ShuttingDown    The server is shutting down: resume at another server.
+-- CacheBehind     The cache did not reach the requested revision in time: retry.
+-- InvalidContinueToken  A continue token or resourceVersion is malformed, or belongs to another request.
+-- FutureRevision  The storage has not reached the requested revision.
+-- HistoryChanged  The client's revision cannot be verified to belong to the history of the storage: list again.
"""

import asyncio
import hashlib
import logging
import math
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

from google.protobuf.message import DecodeError
from sortedcontainers import SortedList

from pinnace.api import wire
from pinnace.api.resources import PODS, Object, Resource
from pinnace.api.selectors import FieldRequirement, FieldSelector, LabelSelector, parse_fields, parse_labels, selectable_fields
from pinnace.api.verbs_pb2 import ADDED, DELETED, MODIFIED, WatchEventType
from pinnace.api.wire import Envelope
from pinnace.apiserver.storage.interface import KeyChange, KeyValue, Storage, StorageError
from pinnace.runtime.clock import Clock
from pinnace.runtime.tasks import DeadlineTimer

T = TypeVar("T", bound=Object)

_BY_KEY = "metadata.name"
_BY_NODE = "spec.nodeName"
_BY_PHASE = "status.phase"

OVERHEAD = 300
"""Bytes of memory for an event, its entry and its key, in addition to the value. Measured: 210 to 300."""

log = logging.getLogger(__name__)
WATCH_NESTING = 2
"""Message levels around an object in a watch: the event and the response."""
END = "\U0010ffff"
"""A character that sorts after all characters of keys."""

MAX_AGE = 300.0
"""Seconds after which a snapshot expires: the time for which etcd keeps history."""

FRESH_INTERVAL = 0.002
"""Minimum seconds between two reads of the storage's revision, if the first had several callers. The callers that arrive
meanwhile share the next read, which costs as much CPU as a get. A single caller does not wait."""


class CacheEntry(Generic[T]):
    """An immutable version of an object. `value` is the stored value. `obj` is the parsed object with its resourceVersion."""

    __slots__ = ("_message", "_obj", "create_revision", "key", "mod_revision", "node", "phase", "value")

    def __init__(
        self,
        message: type[T],
        key: str,
        value: bytes,
        create_revision: int,
        mod_revision: int,
        node: str = "",
        phase: str = "",
    ) -> None:
        self._message = message
        self._obj: T | None = None
        self.key = key
        self.value = value
        self.create_revision = create_revision
        self.mod_revision = mod_revision
        self.node = node
        """spec.nodeName of a pod; "" for other resources."""
        self.phase = phase
        """status.phase of a pod; "" for other resources."""

    @property
    def obj(self) -> T:
        """The parsed object, which is cached. It is shared and must not be changed."""
        if self._obj is None:
            self._obj = self._parse()
        return self._obj

    def parse_uncached(self) -> T:
        """Return the object as `obj`, but do not cache it. Use it to read many entries."""
        return self._obj if self._obj is not None else self._parse()

    def cache_object(self) -> None:
        """Parse and cache the object before several calls of `parse_uncached`."""
        self._obj = self.parse_uncached()

    def release_object(self) -> None:
        """Drop the cached object. An entry that only the event log refers to needs only its value."""
        self._obj = None

    @property
    def encoded_with_revision(self) -> bytes:
        """The encoded object with its resourceVersion. It is not cached, because memory is more expensive than the copy."""
        return self.value + wire.encode_resource_version(self.mod_revision)

    def encoded_for(self, selection: "SelectionPredicate") -> bytes:
        """The encoded object with its resourceVersion, as a list or watch sends it."""
        value = self.value if selection.shows_owners else wire.without_ownership(self.value)
        return value + wire.encode_resource_version(self.mod_revision)

    def _parse(self) -> T:
        obj = self._message()
        obj.ParseFromString(self.encoded_with_revision)
        return obj


@dataclass(frozen=True)
class SelectionPredicate:
    """The namespace and selectors of a list or watch. Watches with equal predicates share the matching of events. Create it
    with `parse`."""

    resource: Resource[Any]
    namespace: str
    """The namespace; "" for all namespaces."""
    labels: LabelSelector
    fields: FieldSelector
    shows_owners: bool = False
    """Whether the objects are sent with the stored owners of their fields."""
    prefix: str = field(init=False, compare=False)
    """The common prefix of the keys of all selected objects."""
    names: frozenset[str] | None = field(init=False, compare=False)
    """The selected names; None for all names."""
    key: str | None = field(init=False, compare=False)
    """The only key that can match; None if several keys can match."""
    nodes: frozenset[str] | None = field(init=False, compare=False)
    """The nodes of selected pods ("" means unbound pods); None for all nodes."""
    phases: frozenset[str] | None = field(init=False, compare=False)
    """The phases of selected pods; None for all phases except `no_phases`."""
    no_phases: frozenset[str] = field(init=False, compare=False)
    """The excluded phases of pods."""
    plain: bool = field(init=False, compare=False)
    """True if the predicate has no selectors. Then all keys with `prefix` match."""
    everything: bool = field(init=False, compare=False)
    """True if all objects of the resource match."""
    requirement_count: int = field(init=False, compare=False)
    """The number of conditions: one for the namespace, and one for each requirement."""
    needs_object: bool = field(init=False, compare=False)
    """True if `matches` needs the parsed object."""
    _parsed: tuple[FieldRequirement, ...] = field(init=False, compare=False, repr=False)
    """The requirements that need the parsed object."""

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "prefix", f"{self.resource.prefix}{self.namespace}/" if self.namespace else self.resource.prefix)
        put(self, "names", self.fields.allowed(_BY_KEY))
        put(self, "key", self._only_key())
        put(self, "nodes", self.fields.allowed(_BY_NODE))
        put(self, "requirement_count", 1 + len(self.labels.requirements) + len(self.fields.requirements))
        put(self, "plain", not self.labels.requirements and not self.fields.requirements)
        put(self, "everything", self.plain and not self.namespace)
        requirements = self.fields.requirements
        by_phase = [r for r in requirements if r.name == _BY_PHASE] if self.resource is PODS else []
        put(self, "phases", self.fields.allowed(_BY_PHASE) if by_phase else None)
        put(self, "no_phases", frozenset[str]().union(*(r.values for r in by_phase if r.negated)))
        answered = [*by_phase, *(r for r in requirements if r.name in (_BY_KEY, _BY_NODE) and not r.negated)]
        put(self, "_parsed", tuple(r for r in requirements if r not in answered))
        put(self, "needs_object", bool(self._parsed or self.labels.requirements))

    @classmethod
    def parse(
        cls, resource: Resource[Any], namespace: str, label_text: str, field_text: str, *, shows_owners: bool = False
    ) -> "SelectionPredicate":
        """Parse the selectors. The namespace is ignored for cluster-scoped resources. Raises SelectorError."""
        labels, fields = parse_labels(label_text), parse_fields(field_text, selectable_fields(resource))
        return cls(resource, namespace if resource.namespaced else "", labels, fields, shows_owners)

    def _only_key(self) -> str | None:
        if self.names is None or len(self.names) != 1 or (self.resource.namespaced and not self.namespace):
            return None
        return self.resource.key(self.namespace, *self.names)

    def matches(self, entry: CacheEntry[Any]) -> bool:
        """Report whether the entry is selected. The object is parsed only if the key and the indexed fields match."""
        if self.everything:
            return True
        if not entry.key.startswith(self.prefix):
            return False
        if self.nodes is not None and entry.node not in self.nodes:
            return False
        if (self.phases is not None and entry.phase not in self.phases) or entry.phase in self.no_phases:
            return False
        if self.names is not None and entry.key.rpartition("/")[2] not in self.names:
            return False
        if not self.needs_object:
            return True
        obj = entry.parse_uncached()
        if not self.labels.matches(obj.metadata.labels):
            return False
        return not self._parsed or all(requirement.matches(obj) for requirement in self._parsed)

    @property
    def digest(self) -> str:
        """A hash of the predicate in 16 hexadecimal digits. It is the same on all servers."""
        text = "\n".join((self.resource.plural, self.namespace, str(self.labels), str(self.fields)))
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


class CacheEvent(Generic[T]):
    """An immutable change of an object. `old` is None for a create, and `new` is None for a delete."""

    __slots__ = ("new", "old", "revision")

    def __init__(self, revision: int, old: CacheEntry[T] | None, new: CacheEntry[T] | None) -> None:
        self.revision = revision
        self.old = old
        self.new = new

    @property
    def size(self) -> int:
        """The size in bytes in the event log. `old` is not counted, because it is the `new` of an earlier event."""
        return OVERHEAD + (len(self.new.value) if self.new is not None else 0)

    def kind(self, selection: SelectionPredicate) -> WatchEventType | None:
        """Return the event type for watches with this selection; None if they receive no event."""
        old, new = self.old, self.new
        before = old is not None and (selection.everything or selection.matches(old))
        if new is not None and (selection.everything or selection.matches(new)):
            return MODIFIED if before else ADDED
        return DELETED if before else None

    def encode(self, kind: WatchEventType, shows_owners: bool) -> bytes:
        """Encode the event as a field of a WatchResponse. DELETED contains the last version of the object, with the revision of
        the deletion. `shows_owners`: see SelectionPredicate."""
        entry: Any = self.old if kind == DELETED else self.new
        value = entry.value if shows_owners else wire.without_ownership(entry.value)
        return wire.watch_event(kind, value + wire.encode_resource_version(self.revision))


class CacheStore(Generic[T]):
    """The objects of one resource by key, with an index of pods by node."""

    def __init__(self, resource: Resource[T]) -> None:
        self.entries: dict[str, CacheEntry[T]] = {}
        self.changed = 0
        """The revision of the last change or load."""
        self.version = 0
        """The number of changes and loads."""
        self.unreadable: set[str] = set()
        """Keys of values that cannot be parsed."""
        self._message = message = resource.message
        described: Any = message
        self._read: Callable[[bytes], T] = described.FromString
        self._read_in_watch = Envelope(message, WATCH_NESTING).read
        self._indexed = resource is PODS
        self._keys: SortedList = SortedList()
        self._by_node: dict[str, set[str]] = {}

    def reset(self, revision: int, items: Iterable[KeyValue]) -> None:
        """Replace the state by the one at `revision`."""
        self.unreadable = set()
        entries = [entry for item in items if (entry := self._entry_or_log(item, self._read_in_watch)) is not None]
        self.entries = {entry.key: entry for entry in entries}
        self._keys = SortedList(self.entries)
        self._by_node = {}
        for entry in entries if self._indexed else ():
            self._by_node.setdefault(entry.node, set()).add(entry.key)
        self.changed = revision
        self.version += 1

    def load(self, item: KeyValue) -> CacheEntry[T] | None:
        """Add an object to a state that is being loaded. Return its entry; None if it cannot be parsed."""
        entry = self._entry_or_log(item, self._read_in_watch)
        if entry is not None:
            self.entries[entry.key] = entry
            self._keys.add(entry.key)
            if self._indexed:
                self._update_index(None, entry)
        self.version += 1
        return entry

    def apply(self, change: KeyChange) -> CacheEvent[T] | None:
        """Apply a change, and return the event; None for the deletion of an object that is not in the state."""
        old = self.entries.get(change.key)
        self.changed = change.mod_revision
        self.version += 1
        self.unreadable.discard(change.key)
        new = self._entry_or_log(change, self._read) if change.value is not None else None
        if new is not None:
            self.entries[change.key] = new
            if old is None:
                self._keys.add(change.key)
        elif old is not None:
            del self.entries[change.key]
            self._keys.remove(change.key)
        else:
            return None
        if self._indexed:
            self._update_index(old, new)
        return CacheEvent(change.mod_revision, old, new)

    def candidates(self, selection: SelectionPredicate, after: str = "", limit: int | None = None) -> list[CacheEntry[T]]:
        """Return the first `limit` entries after the key `after` that can match, in key order. If the predicate is plain, all
        of them match. Otherwise, call `matches` for each one."""
        return [self.entries[key] for key in islice(self._candidate_keys(selection, after), limit)]

    def count(self, prefix: str, after: str) -> int:
        """Return the number of keys with `prefix` after the key `after`."""
        end: int = self._keys.bisect_left(prefix + END)
        start: int = self._keys.bisect_right(max(prefix, after))
        return end - start

    def entry(self, item: KeyValue) -> CacheEntry[T] | None:
        """Return an entry for a stored value without adding it to the state; None if the value cannot be parsed."""
        return self._decode_entry(item, self._read_in_watch)

    def _decode_entry(self, item: KeyChange | KeyValue, read: Callable[[bytes], T]) -> CacheEntry[T] | None:
        value = item.value or b""
        node = phase = ""
        try:
            obj: Any = read(value)
        except DecodeError:
            return None
        if self._indexed:
            node, phase = obj.spec.nodeName, sys.intern(obj.status.phase)
        return CacheEntry(self._message, item.key, value, item.create_revision, item.mod_revision, node, phase)

    def _entry_or_log(self, item: KeyChange | KeyValue, read: Callable[[bytes], T]) -> CacheEntry[T] | None:
        """Return an entry for the state. If the value cannot be parsed, log the key and return None."""
        entry = self._decode_entry(item, read)
        if entry is None:
            self.unreadable.add(item.key)
            log.error("%s at revision %d is ignored: it cannot be parsed, or is nested too deeply", item.key, item.mod_revision)
        return entry

    def _candidate_keys(self, selection: SelectionPredicate, after: str) -> Iterator[str]:
        if selection.key is not None:
            return iter((selection.key,) if selection.key in self.entries and selection.key > after else ())
        if selection.nodes is not None:
            return iter(sorted(key for node in selection.nodes for key in self._by_node.get(node, ()) if key > after))
        keys: Iterator[str] = self._keys.irange(max(selection.prefix, after), selection.prefix + END, (False, False))
        return keys

    def _update_index(self, old: CacheEntry[T] | None, new: CacheEntry[T] | None) -> None:
        before, after = old.node if old is not None else None, new.node if new is not None else None
        if before == after:
            return
        if old is not None:
            keys = self._by_node[old.node]
            keys.discard(old.key)
            if not keys:
                del self._by_node[old.node]
        if new is not None:
            self._by_node.setdefault(new.node, set()).add(new.key)


class CacheSnapshot(Generic[T]):
    """Entries in key order, for initial states. `revision` and `taken` are the revision and time of the last watch that started
    with this snapshot."""

    def __init__(self, entries: list[CacheEntry[T]]) -> None:
        self.entries = entries
        self.revision = 0
        self.taken = 0.0
        self._oldest: int | None = None

    def discard_entries(self, oldest: int) -> None:
        """Release the entries. `oldest` is the oldest revision of the event log."""
        self.entries.clear()
        self._oldest = oldest

    def require_unreleased(self) -> None:
        """Raise RevisionExpired if the snapshot was released."""
        if self._oldest is not None:
            raise RevisionExpired(self._oldest)


class CacheSnapshots(Generic[T]):
    """The snapshots that watches use."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._snapshots: WeakValueDictionary[Hashable, CacheSnapshot[T]] = (
            WeakValueDictionary()
        )  # sorted by age, the oldest first

    def take_snapshot(self, key: Hashable, revision: int, entries: Callable[[], list[CacheEntry[T]]]) -> CacheSnapshot[T]:
        """Return the snapshot with an equal key, or create one. Equal keys mean equal states, possibly at other revisions."""
        snapshot = self._snapshots.pop(key, None)
        if snapshot is None:
            snapshot = CacheSnapshot(entries())
        snapshot.revision, snapshot.taken = revision, self._clock.monotonic()
        self._snapshots[key] = snapshot
        return snapshot

    def discard_entries(self, floor: int) -> None:
        """Release the snapshots below `floor`, the oldest revision of the event log, and those older than MAX_AGE."""
        while (first := self._oldest_snapshot()) is not None and (first[1].revision < floor or self._is_expired(first[1])):
            del self._snapshots[first[0]]
            first[1].discard_entries(floor)

    def _oldest_snapshot(self) -> tuple[Hashable, CacheSnapshot[T]] | None:
        return next(self._snapshots.items(), None)

    def _is_expired(self, snapshot: CacheSnapshot[T]) -> bool:
        return self._clock.monotonic() - snapshot.taken >= MAX_AGE


class CacheError(Exception):
    """The base class of all errors of the cache. Reads from the storage can also raise StorageError."""


class RevisionExpired(CacheError):
    def __init__(self, oldest: int) -> None:
        super().__init__(f"too old resource version: the oldest available one is {oldest}")
        self.oldest = oldest


class SlowWatcher(CacheError):
    def __init__(self, resume: int) -> None:
        super().__init__(f"the watcher is too slow and its queue is full: resume from revision {resume}")
        self.resume = resume


class ShuttingDown(CacheError):
    def __init__(self) -> None:
        super().__init__("the server is shutting down: use another replica")


class CacheBehind(CacheError):
    def __init__(self, required: int, have: int) -> None:
        state = f"at revision {have} and has not reached {required}" if have else "not loaded"
        super().__init__(f"the watch cache is {state}: please retry")


class InvalidContinueToken(CacheError):
    pass


class FutureRevision(CacheError):
    def __init__(self, required: int, now: int) -> None:
        super().__init__(f"Too large resource version: {required}, current: {now}")
        self.now = now


class HistoryChanged(CacheError):
    def __init__(self, revision: int) -> None:
        super().__init__(
            f"revision {revision} does not belong to the history of the storage; etcd may have been restored: list again"
        )


class CurrentRevisionReader:
    """Reads the revision of the storage, one read at a time."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._waiters: list[asyncio.Future[int]] = []
        self._read_requested = asyncio.Event()
        self._deadlines: dict[asyncio.Future[int], float] = {}
        self._timer = DeadlineTimer(self._end_expired_calls)

    async def read_current_revision(self, deadline: float = math.inf) -> int:
        """Return the revision of the storage at an instant after the call (linearizable). `deadline`: by the loop's clock.
        Raises StorageError, TimeoutError."""
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._deadlines[answer] = deadline
        self._timer.add(deadline)
        self._waiters.append(answer)
        self._read_requested.set()
        try:
            return await answer
        finally:
            del self._deadlines[answer]

    def _end_expired_calls(self, now: float) -> float:
        """End the calls of `read_current_revision` whose deadline has passed. Return the next deadline."""
        _fail_waiters([answer for answer, deadline in self._deadlines.items() if deadline <= now], TimeoutError())
        return min((deadline for deadline in self._deadlines.values() if deadline > now), default=math.inf)

    async def run(self) -> None:
        """Process the calls of `read_current_revision` until cancelled."""
        loop, begun, shared = asyncio.get_running_loop(), 0.0, False
        while True:
            await self._read_requested.wait()
            if shared and (pause := begun + FRESH_INTERVAL - loop.time()) > 0:
                await asyncio.sleep(pause)
            begun = loop.time()
            self._read_requested.clear()
            waiters, self._waiters = self._waiters, []
            shared = len(waiters) > 1
            try:
                revision = await self._storage.current_revision()
            except StorageError as error:
                _fail_waiters(waiters, error)
            else:
                _resolve_waiters(waiters, revision)


def _resolve_waiters(waiters: list[asyncio.Future[int]], revision: int) -> None:
    for answer in waiters:
        if not answer.done():
            answer.set_result(revision)


def _fail_waiters(waiters: list[asyncio.Future[int]], error: Exception) -> None:
    for answer in waiters:
        if not answer.done():
            answer.set_exception(error)


class CacheProgress:
    """The last applied `revision` of the storage; 0 before the first load."""

    def __init__(self) -> None:
        self.revision = 0
        self._waiting: dict[asyncio.Future[None], int] = {}

    def advance(self, revision: int) -> None:
        """Set the revision, and wake up the callers that wait for it."""
        self.revision = revision
        for waiter, required in self._waiting.items():
            if required <= revision and not waiter.done():
                waiter.set_result(None)

    async def wait_for(self, revision: int, timeout: float) -> None:
        """Return when the cache is loaded and has reached `revision`. Raises CacheBehind after `timeout` seconds."""
        required = max(1, revision)
        if self.revision >= required:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = required
        try:
            async with asyncio.timeout(timeout):
                await waiter
        except TimeoutError:
            raise CacheBehind(revision, self.revision) from None
        finally:
            del self._waiting[waiter]
