"""The watch cache of all resources, and the cache of one resource.

    storage --Reflector--> Cacher --> one ResourceCache per resource: store, event log, dispatcher --> lists, watchers
                             |-----> raw keys (elections) --> subscribers
                             |-----> progress: one revision for all resources
                             '-----> fingerprints and commit markers: identify the history of a revision

Guarantees:

* Revisions are applied atomically and in order, across all resources.
* A watch delivers each event once and in order. A response or bookmark with revision R follows all events up to R.
* A read after `wait_until_fresh` is linearizable. Without it, the cache can be stale, but its revision never decreases.
* A slow reader does not delay other readers, and uses bounded memory. Long lists of changes are applied in time slices of TURN
  seconds, so other tasks run between two revisions. Watches that replay history share such time slices, and flows alternate.
* At startup, resources in `late_prefixes` (events) are loaded last. Until then only requests for them are refused. (A load with
  100,000 events took ten seconds on a busy machine, and delayed all elections.)

If etcd has compacted the history that the cache needs after an interrupted watch, the cache loads the whole state again and
ends all watches with RevisionExpired. It does not send the difference as events, because a watch delivers every version of an
object. A client that lists again knows that it missed versions. Subscribers of raw keys receive the difference: they need only
the state.

While the storage is unavailable, the cache serves its last state to lists with resourceVersion "0", and `ready` is False.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain
from typing import Any, Generic, Protocol, TypeVar

from pinnace.api.customobjects_pb2 import CustomObject
from pinnace.api.resources import (
    ALL,
    COMMITS_PREFIX,
    ELECTIONS_PREFIX,
    EVENTS,
    RESTORES_KEY,
    ROOT,
    CustomResource,
    Object,
    Resource,
    custom_row,
    is_custom_prefix,
    prefix_of,
)
from pinnace.apiserver.cacher.event_history import (
    CommitMarkers,
    EncodedResponse,
    EventHistory,
    HistoryFingerprints,
    RevisionVerifier,
    initial_events,
    replay_events,
)
from pinnace.apiserver.cacher.listing import Lister, ListQuery
from pinnace.apiserver.cacher.reflector import Callback, RawKeys, Reflector
from pinnace.apiserver.cacher.store import (
    CacheBehind,
    CacheEntry,
    CacheEvent,
    CacheProgress,
    CacheSnapshot,
    CacheSnapshots,
    CacheStore,
    CurrentRevisionReader,
    FutureRevision,
    RevisionExpired,
    SelectionPredicate,
    ShuttingDown,
)
from pinnace.apiserver.cacher.watcher import BATCH_DELAY, CacheWatcher, ReplayScheduler, WatchDispatcher
from pinnace.apiserver.flow.send_budget import SendBudget
from pinnace.apiserver.storage.interface import ChangeBatch, KeyChange, KeyValue, Storage, StorageUnavailable
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.supervise import run_unending
from pinnace.runtime.tasks import TimeSlice

T = TypeVar("T", bound=Object)
LATE = (EVENTS,)
"""Resources that are loaded last. Events are the most numerous objects, and no decision of the server depends on them."""
TURN = 0.01
"""Seconds for which changes are applied before the event loop runs other tasks. The changes of one revision are not split."""
FUTURE_TIMEOUT = 3.0
"""Seconds for which a read waits for a revision that the storage has not reached, as in Kubernetes."""


class Cacher:
    """The watch cache. `log_events` and `log_bytes` limit the event log of each resource. A live watch without events receives
    a bookmark every `bookmark_interval` seconds or earlier."""

    def __init__(
        self,
        storage: Storage,
        resources: Sequence[Resource[Any]] = ALL,
        *,
        clock: Clock = SYSTEM_CLOCK,
        rng: random.Random | None = None,
        log_events: int = 100_000,
        log_bytes: int = 128 << 20,
        bookmark_interval: float = 2.0,
    ) -> None:
        self._clock = clock
        self._bookmark_interval = bookmark_interval
        self._on_load: list[Callable[[], None]] = []
        self.loads = 0
        """The number of loads of the state."""
        self.late_prefixes = tuple(resource.prefix for resource in resources if resource in LATE)
        self._progress = CacheProgress()
        self._holding = asyncio.Event()  # set if coalesced events are pending
        self._fingerprints = HistoryFingerprints()
        self._marker_keys = CommitMarkers()
        self._raw = RawKeys()
        self._freshness = CurrentRevisionReader(storage)
        self._history_check = RevisionVerifier(
            storage, self._fingerprints, self._progress, self._freshness.read_current_revision
        )
        self._reflector = Reflector(storage, self, clock, rng or random.Random())
        shared = (
            storage,
            self._progress,
            self._fingerprints,
            self.wait_until_fresh,
            self.wait_until_revision,
            clock,
            ReplayScheduler(clock),
        )

        def new_cache(resource: Resource[Any]) -> ResourceCache[Any]:
            return ResourceCache(resource, EventHistory(log_events, log_bytes), *shared)

        self._new_cache = new_cache
        self._caches = {resource.prefix: new_cache(resource) for resource in resources}
        self._drained = False

    async def run(self) -> None:
        """Load and follow the storage until cancelled. While the storage is unavailable, the cache retries."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(run_unending("reflector", self._reflector.run), name="reflector")
            tasks.create_task(run_unending("freshness", self._freshness.run), name="freshness")
            tasks.create_task(run_unending("bookmarks", self._send_bookmarks), name="bookmarks")
            tasks.create_task(run_unending("releases", self._release_held_events), name="releases")

    @property
    def ready(self) -> bool:
        """True if the cache is loaded, its watch is active, and it has reached the revision at which the watch was opened."""
        return self._reflector.alive

    @property
    def revision(self) -> int:
        """The last applied revision; 0 before the first load."""
        return self._progress.revision

    @property
    def restored(self) -> bool:
        """True if the reason for the last load was a restore of the storage."""
        return self._reflector.restored

    def cache_of(self, resource: Resource[T]) -> ResourceCache[T]:
        """Return the cache of a resource. Raises KeyError if the resource is not cached."""
        cache = self._caches.get(resource.prefix)
        return self._custom_resource_cache(resource.prefix) if cache is None else cache

    def custom_caches(self) -> list[ResourceCache[CustomObject]]:
        """Return the caches of all custom kinds, whether they are defined or not."""
        return [cache for prefix, cache in self._caches.items() if is_custom_prefix(prefix)]

    def begin_custom_resource(self, resource: CustomResource, revision: int) -> None:
        """Begin the history of a custom kind at the revision of its definition. Watches that began before have ended."""
        cache = self._custom_resource_cache(resource.prefix)
        cache.begin_history(revision)

    def end_custom_resource(self, resource: CustomResource) -> None:
        """End the watches of a custom kind whose definition is gone."""
        cache = self._custom_resource_cache(resource.prefix)
        cache.end_watches()
        if not len(cache):
            del self._caches[resource.prefix]

    def _custom_resource_cache(self, prefix: str) -> ResourceCache[Any]:
        """Return the cache of the objects of a custom kind. Raises KeyError for other prefixes."""
        cache = self._caches.get(prefix)
        if cache is None:
            if not is_custom_prefix(prefix):
                raise KeyError(prefix)
            cache = self._caches[prefix] = self._new_cache(custom_row(prefix))
            cache.begin_history(self.revision)
            if self._drained:
                cache.drain()
        return cache

    async def wait_for(self, revision: int, timeout: float) -> None:
        """Return when `revision` is applied and the cache is loaded. Raises CacheBehind after `timeout` seconds."""
        await self._progress.wait_for(revision, timeout)

    async def wait_until_revision(self, revision: int, timeout: float) -> None:
        """Return when a read at `revision` or later is possible, like `wait_for`. Raises FutureRevision after FUTURE_TIMEOUT
        seconds if the storage has not reached the revision either, and the errors of `wait_until_fresh`."""
        deadline = asyncio.get_running_loop().time() + timeout
        try:
            await self._progress.wait_for(revision, min(timeout, FUTURE_TIMEOUT))
        except CacheBehind:
            if timeout <= FUTURE_TIMEOUT:
                raise
            now = await self.wait_until_fresh(deadline - asyncio.get_running_loop().time())
            if now < revision:
                raise FutureRevision(revision, now) from None

    async def wait_until_fresh(self, timeout: float) -> int:
        """Make the next read linearizable: read the current revision of the storage, wait until it is applied, and return it.
        Raises StorageUnavailable and other StorageErrors, and CacheBehind. `timeout` is in seconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        try:
            revision = await self._freshness.read_current_revision(deadline)
        except TimeoutError:
            raise StorageUnavailable("the storage did not return its revision in time") from None
        self._reflector.expect_revision(revision)
        await self._progress.wait_for(revision, deadline - loop.time())
        return revision

    async def verify_history(self, revision: int, mark: bytes, timeout: float) -> None:
        """Verify that `revision` with the fingerprint `mark` belongs to the history of the cache. The result is valid until
        `loads` changes. Raises HistoryChanged, CacheBehind, StorageError. `timeout` is in seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._history_check.verify_revision(revision, mark, timeout)
        except TimeoutError:
            raise StorageUnavailable(f"the storage did not return its history within {timeout:g} s") from None

    def raw_key(self, key: str) -> KeyValue | None:
        """Return a key below /registry/ that does not belong to a resource; None if it does not exist."""
        return self._raw.get(key)

    def raw_keys(self, prefix: str) -> list[KeyValue]:
        """Return all such keys with a prefix, sorted."""
        return self._raw.items(prefix)

    def subscribe(self, prefix: str, callback: Callback) -> Callable[[], None]:
        """Call `callback` after each applied change of such a key, until the returned function is called. The callback must not
        block or raise."""
        return self._raw.subscribe(prefix, callback)

    def on_load(self, callback: Callable[[], None]) -> None:
        """Call `callback` after each load, before readers can see the new state."""
        self._on_load.append(callback)

    async def drain(self) -> None:
        """End all watches with ShuttingDown, after their pending responses. New watches are refused with the same error."""
        self._drained = True
        for cache in self._caches.values():
            cache.drain()

    def is_same_history(self, items: Sequence[KeyValue]) -> bool:
        """Implement ReflectorTarget. The result is also False if another server has recorded a restore."""
        noted, known = next((item.value for item in items if item.key == RESTORES_KEY), None), self._raw.get(RESTORES_KEY)
        return noted == (known and known.value) and self._marker_keys.is_same_history(_marker_keys(items), self.revision)

    def install_state(self, revision: int, items: Sequence[KeyValue]) -> None:
        """Implement ReflectorTarget."""
        sorted_out: dict[str, list[KeyValue]] = {prefix: [] for prefix in self._caches}
        others: list[KeyValue] = []
        for item in items:
            prefix = prefix_of(item.key)
            if prefix not in sorted_out and is_custom_prefix(prefix):
                self._custom_resource_cache(prefix)
                sorted_out[prefix] = []
            sorted_out.get(prefix, others).append(item)
        markers = _marker_keys(others)
        installed = set[str]()
        while pending := [prefix for prefix in self._caches if prefix not in installed]:  # definitions add caches
            for prefix in pending:
                if prefix in self.late_prefixes:
                    self._caches[prefix].begin_late_load(revision)
                else:
                    self._caches[prefix].reset(revision, sorted_out.get(prefix, ()))
            installed.update(pending)
        self._raw.reset(revision, [item for item in others if item.key.startswith(ROOT)])
        self._fingerprints.reset(revision, markers)
        self._marker_keys.reset(markers)
        self.loads += 1
        for callback in self._on_load:
            callback()
        self._progress.advance(revision)
        self._raw.flush()

    async def install_late_prefix(self, prefix: str, revision: int, items: Sequence[KeyValue]) -> None:
        """Implement ReflectorTarget."""
        await self._caches[prefix].finish_late_load(revision, items)

    def apply_changes(self, changes: ChangeBatch) -> ChangeBatch | None:
        """Implement ReflectorTarget, and send the applied changes to watchers and subscribers."""
        until = self._clock.monotonic() + TURN
        caches = self._caches
        touched: dict[str, ResourceCache[Any]] = {}
        elected, applied = False, 0
        for number, change in enumerate(changes.changes):
            if change.mod_revision != applied:
                if number and self._clock.monotonic() > until:
                    self._send_events(touched, applied, elected)
                    return ChangeBatch(changes.revision, changes.changes[number:])
                applied = change.mod_revision
            prefix = prefix_of(change.key)
            cache = caches.get(prefix)
            if cache is None and is_custom_prefix(prefix):
                cache = self._custom_resource_cache(prefix)
            if cache is not None:
                cache.apply_change(change)
                touched[prefix] = cache
            elif change.key.startswith(ROOT):
                self._raw.apply(change)
                elected = elected or _is_election_key(change)
            elif change.key.startswith(COMMITS_PREFIX):
                self._marker_keys.apply(change)
                if change.value is not None:
                    self._fingerprints.record_marker_change(change.mod_revision, change.key, change.value)
        self._send_events(touched, changes.revision, elected)
        return None

    def _send_events(self, touched: Mapping[str, ResourceCache[Any]], revision: int, elected: bool) -> None:
        """Send all events up to `revision`."""
        for cache in touched.values():
            cache.flush_events(revision)
            if cache.has_pending_events:
                self._holding.set()
        self._progress.advance(revision)
        self._raw.flush()
        if elected:
            # A new leader waits until its informers have reached the revision of its election. This bookmark ends the wait.
            for cache in self._caches.values():
                cache.send_election_bookmarks()

    async def _release_held_events(self) -> None:
        """Send coalesced events after BATCH_DELAY."""
        while True:
            await self._holding.wait()
            await self._clock.sleep(BATCH_DELAY)
            self._holding.clear()
            for cache in list(self._caches.values()):
                cache.flush_all_events()

    async def _send_bookmarks(self) -> None:
        """Send bookmarks to watches that received nothing for at least half an interval. One timer serves all watches."""
        while True:
            await self._clock.sleep(self._bookmark_interval / 2)
            for cache in self._caches.values():
                cache.send_bookmarks()


def _marker_keys(items: Iterable[KeyValue]) -> list[KeyValue]:
    return [item for item in items if item.key.startswith(COMMITS_PREFIX)]


def _is_election_key(change: KeyChange) -> bool:
    """Report whether the change is the election of a leader."""
    elected = change.value is not None and change.create_revision == change.mod_revision
    return elected and change.key.startswith(ELECTIONS_PREFIX)


class CacheObserver(Protocol[T]):
    """A receiver of the state and its changes."""

    def reset_entries(self, entries: Iterable[CacheEntry[T]]) -> None:
        """Replace the state."""
        ...

    def handle_change(self, old: CacheEntry[T] | None, new: CacheEntry[T] | None) -> None:
        """Apply a change of one object. `old` is None for a create, and `new` is None for a delete."""
        ...


class ResourceCache(Generic[T]):
    """The cache of one resource. The Cacher creates it, and calls the methods from `begin_late_load` on."""

    def __init__(
        self,
        resource: Resource[T],
        log: EventHistory[CacheEvent[T]],
        storage: Storage,
        progress: CacheProgress,
        fingerprints: HistoryFingerprints,
        wait_until_fresh: Callable[[float], Awaitable[int]],
        wait_until_revision: Callable[[int, float], Awaitable[None]],
        clock: Clock,
        catching_up: ReplayScheduler,
    ) -> None:
        self._resource = resource
        self._store = CacheStore(resource)
        self._log = log
        self._progress = progress
        self._fingerprints = fingerprints
        self._clock = clock
        self._dispatcher = WatchDispatcher(fingerprints, clock)
        self._catching_up = catching_up
        self._lister = Lister(self._store, storage, progress, wait_until_fresh, wait_until_revision, self.require_loaded, clock)
        self._snapshots: CacheSnapshots[T] = CacheSnapshots(clock)
        self._observer: CacheObserver[T] | None = None
        self._drained = False
        self._queued: list[KeyChange] | None = None  # changes received before the late state; None if the state is loaded

    @property
    def resource(self) -> Resource[T]:
        return self._resource

    @property
    def loaded(self) -> bool:
        """False while a late resource is not loaded. It cannot be read or watched."""
        return self._queued is None

    def require_loaded(self) -> None:
        """Raise CacheBehind while a late resource is not loaded. Call it immediately before reading: the state can be reloaded
        while a reader waits."""
        if not self.loaded:
            raise CacheBehind(1, 0)

    @property
    def version(self) -> int:
        """The version of the state. Results that are computed from the state are valid until it changes."""
        return self._store.version

    def __len__(self) -> int:
        return len(self._store.entries)

    @property
    def delivered_events(self) -> int:
        """The number of events that watchers have read, counted once per watcher."""
        return self._dispatcher.delivered_events

    @property
    def undecodable_keys(self) -> Set[str]:
        """The keys of stored values that cannot be decoded. The state does not contain them."""
        return self._store.unreadable

    def count(self, namespace: str) -> int:
        """Return the number of objects in a namespace; in all namespaces if `namespace` is "" or the resource is
        cluster-scoped.
        """
        prefix = self._resource.prefix
        return self._store.count(f"{prefix}{namespace}/" if namespace and self._resource.namespaced else prefix, "")

    def get(self, key: str) -> CacheEntry[T] | None:
        return self._store.entries.get(key)

    def entries(self) -> list[CacheEntry[T]]:
        """Return all entries, in no order. Raises CacheBehind while they are not loaded."""
        self.require_loaded()
        return list(self._store.entries.values())

    def select(self, selection: SelectionPredicate) -> list[CacheEntry[T]]:
        """Return the selected entries in key order. Selections by node use an index."""
        return [entry for entry in self._store.candidates(selection) if selection.matches(entry)]

    async def list(self, query: ListQuery) -> bytes:
        """Return an encoded `<Kind>List` (see apiserver.cacher.listing). Raises RevisionExpired, CacheBehind,
        InvalidContinueToken, StorageError."""
        return await self._lister.list(query)

    def watch(
        self, selection: SelectionPredicate, since: int | None, *, announced: bool = False, budget: SendBudget | None = None
    ) -> CacheWatcher:
        """Return a watch of the changes after `since`. If `since` is None, the watch begins with the current state as ADDED
        events. `announced`: send a bookmark immediately after each election. `budget`: the send budget of the flow; if None,
        the watch has its own.

        Raises RevisionExpired and ShuttingDown; and CacheBehind if the cache is not loaded, or has not reached `since` (call
        `Cacher.wait_for` first).
        """
        now = self._progress.revision
        if self._drained:
            raise ShuttingDown
        if not now or not self.loaded or (since is not None and since > now):
            raise CacheBehind(since or 1, now if self.loaded else 0)
        if since is not None and since < self._log.floor:
            raise RevisionExpired(self._log.floor)
        turns, begin = self._catching_up, now if since is None else since
        replayed: Iterator[EncodedResponse] = replay_events(
            selection, self._log, begin, self._progress, self._fingerprints, turns.is_slice_over
        )
        if since is None:
            replayed = chain(
                initial_events(selection, self._take_snapshot(selection, now), now, self._fingerprints, turns.is_slice_over),
                replayed,
            )
        watcher = CacheWatcher(self._dispatcher, selection, since or 0, replayed, turns, announced=announced, budget=budget)
        self._dispatcher.add_watcher(watcher)
        return watcher

    def _take_snapshot(self, selection: SelectionPredicate, now: int) -> CacheSnapshot[T]:
        """Return the candidates of the selection as a snapshot. Selections of the same keys or nodes share it."""
        state = (self._store.version, selection.prefix, selection.nodes)
        return self._snapshots.take_snapshot(state, now, lambda: self._store.candidates(selection))

    def observe(self, observer: CacheObserver[T]) -> None:
        """Send the state and all later changes to the observer. A cache has at most one observer."""
        self._observer = observer
        observer.reset_entries(self._store.entries.values())

    # The Cacher calls the following methods.

    def begin_late_load(self, revision: int) -> None:
        """Discard the state, and queue changes until `finish_late_load`, which has a state at `revision` or later."""
        self.reset(revision, ())
        self._queued = []

    def reset(self, revision: int, items: Iterable[KeyValue]) -> None:
        """Replace the state. All watches end with RevisionExpired, because the changes between the two states are unknown."""
        self._store.reset(revision, items)
        if self._observer is not None:
            self._observer.reset_entries(self._store.entries.values())
        self._log.clear(revision)
        self._dispatcher.end_watches(lambda: RevisionExpired(revision))

    async def finish_late_load(self, revision: int, items: Iterable[KeyValue]) -> None:
        """Set the state after `begin_late_load`, oldest object first, and apply the changes that are queued. 100,000 events
        take seconds, so other tasks run meanwhile."""
        self.reset(revision, ())  # an earlier call may have been cancelled
        turn = TimeSlice(self._clock)
        for item in sorted(items, key=lambda item: item.mod_revision):
            entry = self._store.load(item)
            if entry is not None and self._observer is not None:
                self._observer.handle_change(None, entry)
            await turn.end()
        queued, self._queued = self._queued, None
        for change in queued or ():
            if change.mod_revision > revision:
                self.apply_change(change)

    def apply_change(self, change: KeyChange) -> None:
        """Apply one change. The next `flush_events` sends it to the watchers."""
        if self._queued is not None:
            self._queued.append(change)
            return
        event = self._store.apply(change)
        if event is not None:
            if self._observer is not None:
                self._observer.handle_change(event.old, event.new)
            floor = self._log.floor
            self._log.append(event)
            if self._log.floor != floor:
                self._snapshots.discard_entries(self._log.floor)
            self._dispatcher.add_event(event)
            if event.old is not None:
                event.old.release_object()

    def flush_events(self, revision: int) -> None:
        """Send all events up to `revision`, except those that are coalesced until `flush_all`."""
        self._dispatcher.flush(revision)

    @property
    def has_pending_events(self) -> bool:
        """True if events are pending until the next `flush_all`."""
        return self._dispatcher.has_pending_events

    def flush_all_events(self) -> None:
        self._dispatcher.flush_all()

    def send_bookmarks(self) -> None:
        self._snapshots.discard_entries(self._log.floor)
        self._dispatcher.send_bookmarks(self._progress.revision)

    def send_election_bookmarks(self) -> None:
        self._dispatcher.send_election_bookmarks(self._progress.revision)

    def begin_history(self, revision: int) -> None:
        """Begin the history at a revision. Watches that began before end with RevisionExpired."""
        self._log.clear(revision)
        self._dispatcher.end_watches(lambda: RevisionExpired(revision))

    def end_watches(self) -> None:
        """End all watches as at a shutdown: clients try again."""
        self._dispatcher.end_watches(ShuttingDown)

    def drain(self) -> None:
        """End all watches, and refuse new ones."""
        self._drained = True
        self._dispatcher.end_watches(ShuttingDown)
