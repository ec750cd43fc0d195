"""The watch cache: the state of the cluster in memory, and any number of watches of it, for one watch of the store.

    storage --feed--> Cacher --> one ResourceCache per resource: store, log, dispatcher --> lists, watchers
                         |-----> raw keys (elections) --> subscribers
                         |-----> progress: one revision for all
                         '-----> fingerprints: of which history it is the revision; markers: is it still that?

Guarantees:

* Revisions are applied whole and in order, across resources: no reader sees half of one.
* A watch loses, repeats and reorders nothing. A response or bookmark that says R means that everything up to R was told.
* `fresh` makes a read linearizable. Without it the cache may lag, but never goes back.
* A reader that is slow or stuck costs others nothing, and the server a bounded amount of memory. Many changes at once, of which
  many watches are asked, are applied in turns of TURN seconds: between two revisions others run. Watches that catch up have
  such turns together, and flows take theirs one after the other.
* A server that starts knows all but the events in a moment, however many there are: they are `late`, and until they are loaded
  they alone are refused. (Beside 100,000 of them it took ten seconds on a busy machine, in which nobody could be elected.)

When the history that the cache needs was compacted away (its watch was broken for that long), it loads everything again and
ends all watches with Expired. Telling the difference as events instead would hide the versions in between, and a watch promises
every one; a client that lists again knows that it has missed some. Subscribers of raw keys are told the difference: they follow
a state.

What it does not promise: to be up to date while the store is away. It then goes on serving what it has to those who ask for
"0", and bookmarks; `ready` tells.

The cache of one resource: its state, its recent replayed, and those who watch it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain
from typing import Any, Generic, Protocol, TypeVar

from apiserver.cacher.history import (
    CommitMarkers,
    EncodedResponse,
    EventLog,
    HistoryCheck,
    HistoryFingerprints,
    initial_state,
    replay,
)
from apiserver.cacher.listing import Lister, ListQuery
from apiserver.cacher.reflector import Callback, RawKeys, Reflector
from apiserver.cacher.store import (
    CacheBehind,
    CacheEntry,
    CacheEvent,
    CacheProgress,
    CacheStore,
    Expired,
    Freshness,
    SelectionPredicate,
    ShuttingDown,
    Snapshot,
    Snapshots,
)
from apiserver.cacher.watcher import BATCH_DELAY, Dispatcher, ReplayScheduler, Watcher
from apiserver.flow.send_budget import SendBudget
from apiserver.storage.interface import Change, Changes, KeyValue, Storage, Unavailable
from pinnace.api.resources import ALL, COMMITS_PREFIX, ELECTIONS_PREFIX, EVENTS, RESTORES_KEY, ROOT, Object, Resource, prefix_of
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.supervise import unending

T = TypeVar("T", bound=Object)
LATE = (EVENTS,)
"""Most of what there is, and nothing that a decision rests on."""
TURN = 0.01
"""Seconds after which changes that are left wait for the next turn of the event loop. A revision is never divided."""


class Cacher:
    """`log_events` and `log_bytes` bound the replayed of each resource. `bookmark_interval`: the seconds after which a live
    watcher that heard nothing is told the revision."""

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
        """How often the state has been replaced."""
        self.late = tuple(resource.prefix for resource in resources if resource in LATE)
        self._progress = CacheProgress()
        self._holding = asyncio.Event()  # watchers wait for the rest of a burst
        self._fingerprints = HistoryFingerprints()
        self._markers = CommitMarkers()
        self._raw = RawKeys()
        self._freshness = Freshness(storage)
        self._proof = HistoryCheck(storage, self._fingerprints, self._progress, self._freshness.ask)
        self._reflector = Reflector(storage, self, clock, rng or random.Random())
        shared = (storage, self._progress, self._fingerprints, self.fresh, clock, ReplayScheduler(clock))
        self._caches = {
            resource.prefix: ResourceCache(resource, EventLog(log_events, log_bytes), *shared) for resource in resources
        }

    async def run(self) -> None:
        """Loads, follows, and answers, until cancelled. Survives the store's absence."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(unending("reflector", self._reflector.run), name="reflector")
            tasks.create_task(unending("freshness", self._freshness.run), name="freshness")
            tasks.create_task(unending("bookmarks", self._bookmarks), name="bookmarks")
            tasks.create_task(unending("releases", self._releases), name="releases")

    @property
    def ready(self) -> bool:
        """Loaded, and following: up to the revision that the store had when the watch began, at least."""
        return self._reflector.alive

    @property
    def revision(self) -> int:
        """Everything up to here is applied; 0: nothing is loaded yet."""
        return self._progress.revision

    @property
    def restored(self) -> bool:
        """The state was loaded last because the store has another history than before."""
        return self._reflector.restored

    def of(self, resource: Resource[T]) -> ResourceCache[T]:
        """Raises KeyError for a resource that this cacher was not made for."""
        return self._caches[resource.prefix]

    async def wait_for(self, revision: int, timeout: float) -> None:
        """Returns when `revision` is applied (or at least something is loaded). Raises CacheBehind."""
        await self._progress.wait_for(revision, timeout)

    async def fresh(self, timeout: float) -> int:
        """Makes the next read linearizable: learns the store's revision of now, waits until it is applied, returns it.
        Raises Unavailable and other StorageErrors, and CacheBehind."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        try:
            async with asyncio.timeout_at(deadline):
                revision = await self._freshness.ask()
        except TimeoutError:
            raise Unavailable("the store did not tell its revision in time") from None
        self._reflector.expect(revision)
        await self._progress.wait_for(revision, deadline - loop.time())
        return revision

    async def prove(self, revision: int, mark: bytes, timeout: float) -> None:
        """Returns when what a reader knows of `revision` is of the history that the cache has; from there it may go on, as long
        as `loads` stays the same. Raises HistoryChanged, CacheBehind, StorageError."""
        try:
            async with asyncio.timeout(timeout):
                await self._proof.check(revision, mark, timeout)
        except TimeoutError:
            raise Unavailable(f"the store did not tell of its history within {timeout:g} s") from None

    def raw(self, key: str) -> KeyValue | None:
        """A key below /registry/ that belongs to no resource."""
        return self._raw.get(key)

    def raw_items(self, prefix: str) -> list[KeyValue]:
        """Such keys, in order."""
        return self._raw.items(prefix)

    def subscribe(self, prefix: str, callback: Callback) -> Callable[[], None]:
        """`callback` is called with each change of such a key, right after it is applied, until the returned function is
        called. It must not block or raise."""
        return self._raw.subscribe(prefix, callback)

    def on_load(self, callback: Callable[[], None]) -> None:
        """`callback` is called when the state has been replaced, before anybody can look at it."""
        self._on_load.append(callback)

    async def drain(self) -> None:
        """Ends every watch with ShuttingDown, after what already waits for its reader; new ones are refused likewise."""
        for cache in self._caches.values():
            cache.drain()

    def may_become(self, items: Sequence[KeyValue]) -> bool:
        """The feed's: can this later state be of the same history? Not if others have noted a restore meanwhile."""
        noted, known = next((item.value for item in items if item.key == RESTORES_KEY), None), self._raw.get(RESTORES_KEY)
        return noted == (known and known.value) and self._markers.may_become(_markers(items), self.revision)

    def install(self, revision: int, items: Sequence[KeyValue]) -> None:
        """The feed's: replaces everything by the state at `revision`, commit markers and all."""
        sorted_out: dict[str, list[KeyValue]] = {prefix: [] for prefix in self._caches}
        others: list[KeyValue] = []
        for item in items:
            sorted_out.get(prefix_of(item.key), others).append(item)
        markers = _markers(others)
        for prefix, cache in self._caches.items():
            if prefix in self.late:
                cache.suspend(revision)
            else:
                cache.reset(revision, sorted_out[prefix])
        self._raw.reset(revision, [item for item in others if item.key.startswith(ROOT)])
        self._fingerprints.reset(revision, markers)
        self._markers.reset(markers)
        self.loads += 1
        for callback in self._on_load:
            callback()
        self._progress.advance(revision)
        self._raw.tell()

    def supply(self, prefix: str, revision: int, items: Sequence[KeyValue]) -> None:
        """The feed's: the state at `revision` of a resource that is late."""
        self._caches[prefix].reset(revision, items)

    def apply(self, changes: Changes) -> Changes | None:
        """The feed's: applies whole revisions, as many as there is time for, and tells everybody. Returns what is left."""
        until = self._clock.monotonic() + TURN
        caches = self._caches
        touched: dict[str, ResourceCache[Any]] = {}
        elected, applied = False, 0
        for number, change in enumerate(changes.changes):
            if change.mod_revision != applied:
                if number and self._clock.monotonic() > until:
                    self._tell(touched, applied, elected)
                    return Changes(changes.revision, changes.changes[number:])
                applied = change.mod_revision
            prefix = prefix_of(change.key)
            cache = caches.get(prefix)
            if cache is not None:
                cache.apply(change)
                touched[prefix] = cache
            elif change.key.startswith(ROOT):
                self._raw.apply(change)
                elected = elected or _is_election(change)
            elif change.key.startswith(COMMITS_PREFIX):
                self._markers.apply(change)
                if change.value is not None:
                    self._fingerprints.moved(change.mod_revision, change.key, change.value)
        self._tell(touched, changes.revision, elected)
        return None

    def _tell(self, touched: Mapping[str, ResourceCache[Any]], revision: int, elected: bool) -> None:
        """Everything up to `revision` is applied."""
        for cache in touched.values():
            cache.flush(revision)
            if cache.holding:
                self._holding.set()
        self._progress.advance(revision)
        self._raw.tell()
        if elected:
            # A new leader acts only when its informers are at the revision of its election: do not let them wait.
            for cache in self._caches.values():
                cache.announce()

    async def _releases(self) -> None:
        """Ends the wait of those that heard a burst."""
        while True:
            await self._holding.wait()
            await self._clock.sleep(BATCH_DELAY)
            self._holding.clear()
            for cache in self._caches.values():
                cache.release()

    async def _bookmarks(self) -> None:
        """One timer for all watchers. One that heard nothing for a whole beat gets a bookmark with the next."""
        while True:
            await self._clock.sleep(self._bookmark_interval / 2)
            for cache in self._caches.values():
                cache.bookmark()


def _markers(items: Iterable[KeyValue]) -> list[KeyValue]:
    return [item for item in items if item.key.startswith(COMMITS_PREFIX)]


def _is_election(change: Change) -> bool:
    """Was somebody elected?"""
    elected = change.value is not None and change.create_revision == change.mod_revision
    return elected and change.key.startswith(ELECTIONS_PREFIX)


class CacheObserver(Protocol[T]):
    """Hears of the state, as it changes."""

    def reset(self, entries: Iterable[CacheEntry[T]]) -> None:
        """The state is replaced."""
        ...

    def change(self, old: CacheEntry[T] | None, new: CacheEntry[T] | None) -> None:
        """Of one object. None: it is not there."""
        ...


class ResourceCache(Generic[T]):
    """Made by the Cacher, which also drives the second half of the methods."""

    def __init__(
        self,
        resource: Resource[T],
        log: EventLog[CacheEvent[T]],
        storage: Storage,
        progress: CacheProgress,
        fingerprints: HistoryFingerprints,
        fresh: Callable[[float], Awaitable[int]],
        clock: Clock,
        catching_up: ReplayScheduler,
    ) -> None:
        self._resource = resource
        self._store = CacheStore(resource)
        self._log = log
        self._progress = progress
        self._fingerprints = fingerprints
        self._dispatcher = Dispatcher(fingerprints, clock)
        self._catching_up = catching_up
        self._lister = Lister(self._store, storage, progress, fresh, self.require, clock)
        self._snapshots: Snapshots[T] = Snapshots(clock)
        self._observer: CacheObserver[T] | None = None
        self._drained = False
        self._kept: list[Change] | None = None  # changes that came before the state; None: it is there

    @property
    def loaded(self) -> bool:
        """False: the resource is late; it cannot be read or watched yet."""
        return self._kept is None

    def require(self) -> None:
        """Raises CacheBehind while the resource is late. To be said when the state is read: what was there before a reader
        waited need not be there afterwards."""
        if not self.loaded:
            raise CacheBehind(1, 0)

    @property
    def version(self) -> int:
        """Of the state: what was worked out from it holds until this moves."""
        return self._store.version

    def __len__(self) -> int:
        return len(self._store.entries)

    @property
    def told(self) -> int:
        """Events that watchers have read, once for each of them."""
        return self._dispatcher.told

    @property
    def unreadable(self) -> Set[str]:
        """The keys of what is stored and cannot be read; nothing else here knows of it."""
        return self._store.unreadable

    def count(self, namespace: str) -> int:
        """Objects of a namespace; of all, if that is empty or the resource has none."""
        prefix = self._resource.prefix
        return self._store.count(f"{prefix}{namespace}/" if namespace and self._resource.namespaced else prefix, "")

    def get(self, key: str) -> CacheEntry[T] | None:
        return self._store.entries.get(key)

    def select(self, selection: SelectionPredicate) -> list[CacheEntry[T]]:
        """In key order. Goes through an index when the selection names nodes."""
        return [entry for entry in self._store.candidates(selection) if selection.matches(entry)]

    async def list(self, query: ListQuery) -> bytes:
        """An encoded `<Kind>List`; see apiserver.cacher.listing. Raises Expired, CacheBehind, BadToken, StorageError."""
        return await self._lister.list(query)

    def watch(
        self, selection: SelectionPredicate, since: int | None, *, announced: bool = False, budget: SendBudget | None = None
    ) -> Watcher:
        """The changes after `since`; None: first the present state, as ADDED events. `announced`: with a bookmark at once when
        somebody is elected. `budget`: is charged for what waits; None: one of its own.

        Raises Expired; ShuttingDown; CacheBehind when `since` is in the future of this cache (`Cacher.wait_for` it first), or
        nothing is loaded yet.
        """
        now = self._progress.revision
        if self._drained:
            raise ShuttingDown
        if not now or not self.loaded or (since is not None and since > now):
            raise CacheBehind(since or 1, now if self.loaded else 0)
        if since is not None and since < self._log.floor:
            raise Expired(self._log.floor)
        turns, begin = self._catching_up, now if since is None else since
        replayed: Iterator[EncodedResponse] = replay(
            selection, self._log, begin, self._progress, self._fingerprints, turns.is_over
        )
        if since is None:
            replayed = chain(
                initial_state(selection, self._snapshot(selection, now), now, self._fingerprints, turns.is_over), replayed
            )
        watcher = Watcher(self._dispatcher, selection, since or 0, replayed, turns, announced=announced, budget=budget)
        self._dispatcher.add(watcher)
        return watcher

    def _snapshot(self, selection: SelectionPredicate, now: int) -> Snapshot[T]:
        """What is asked for by node is looked up by node; of all else the keys decide."""
        state = (self._store.version, selection.prefix, selection.nodes)
        return self._snapshots.take(state, now, lambda: self._store.candidates(selection))

    def observe(self, observer: CacheObserver[T]) -> None:
        """From now on; there is one at most."""
        self._observer = observer
        observer.reset(self._store.entries.values())

    # What follows is the Cacher's.

    def suspend(self, revision: int) -> None:
        """Forgets the state: the next `reset` brings another, of `revision` or later. Until then changes are kept for it."""
        self.reset(revision, ())
        self._kept = []

    def reset(self, revision: int, items: Iterable[KeyValue]) -> None:
        """Replaces the state. The changes that led here are not known, so all watchers end with Expired."""
        self._store.reset(revision, items)
        if self._observer is not None:
            self._observer.reset(self._store.entries.values())
        self._log.clear(revision)
        self._dispatcher.end(lambda: Expired(revision))
        kept, self._kept = self._kept, None
        for change in kept or ():
            if change.mod_revision > revision:
                self.apply(change)

    def apply(self, change: Change) -> None:
        """Applies one change; watchers are told with the next `flush`."""
        if self._kept is not None:
            self._kept.append(change)
            return
        event = self._store.apply(change)
        if event is not None:
            if self._observer is not None:
                self._observer.change(event.old, event.new)
            floor = self._log.floor
            self._log.append(event)
            if self._log.floor != floor:
                self._snapshots.let_go(self._log.floor)
            self._dispatcher.route(event)
            if event.old is not None:
                event.old.release()

    def flush(self, revision: int) -> None:
        """Everything up to `revision` is applied: the watchers hear of what concerns them, or are `holding`."""
        self._dispatcher.flush(revision)

    @property
    def holding(self) -> bool:
        """Do watchers wait for the next `release`?"""
        return self._dispatcher.holding

    def release(self) -> None:
        self._dispatcher.release()

    def bookmark(self) -> None:
        self._snapshots.let_go(self._log.floor)
        self._dispatcher.bookmark(self._progress.revision)

    def announce(self) -> None:
        self._dispatcher.announce(self._progress.revision)

    def drain(self) -> None:
        """Ends all watchers, and takes no new ones."""
        self._drained = True
        self._dispatcher.end(ShuttingDown)
