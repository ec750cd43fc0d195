"""The cache of one resource: its state, its recent past, and those who watch it."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Set
from itertools import chain
from typing import Generic, Protocol, TypeVar

from apiserver.cacher.dispatch import Dispatcher
from apiserver.cacher.errors import CacheBehind, Expired, ShuttingDown
from apiserver.cacher.freshness import Progress
from apiserver.cacher.history import Marks, Ring, initial_state, replay
from apiserver.cacher.listing import Lister, ListQuery
from apiserver.cacher.store import Entry, Event, Selection, Snapshot, Snapshots, Store
from apiserver.cacher.watcher import CatchingUp, Told, Watcher
from apiserver.flow.account import Account
from apiserver.storage.interface import Change, KeyValue, Storage
from pinnace.api.resources import Object, Resource
from pinnace.runtime.clock import Clock

T = TypeVar("T", bound=Object)


class Observer(Protocol[T]):
    """Hears of the state, as it changes."""

    def reset(self, entries: Iterable[Entry[T]]) -> None:
        """The state is replaced."""
        ...

    def change(self, old: Entry[T] | None, new: Entry[T] | None) -> None:
        """Of one object. None: it is not there."""
        ...


class ResourceCache(Generic[T]):
    """Made by the Cacher, which also drives the second half of the methods."""

    def __init__(
        self,
        resource: Resource[T],
        ring: Ring[Event[T]],
        storage: Storage,
        progress: Progress,
        marks: Marks,
        fresh: Callable[[float], Awaitable[int]],
        clock: Clock,
        catching_up: CatchingUp,
    ) -> None:
        self._resource = resource
        self._store = Store(resource)
        self._ring = ring
        self._progress = progress
        self._marks = marks
        self._dispatcher = Dispatcher(marks, clock)
        self._catching_up = catching_up
        self._lister = Lister(self._store, storage, progress, fresh, self.require, clock)
        self._snapshots: Snapshots[T] = Snapshots(clock)
        self._observer: Observer[T] | None = None
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

    def get(self, key: str) -> Entry[T] | None:
        return self._store.entries.get(key)

    def select(self, selection: Selection) -> list[Entry[T]]:
        """In key order. Goes through an index when the selection names nodes."""
        return [entry for entry in self._store.candidates(selection) if selection.matches(entry)]

    async def list(self, query: ListQuery) -> bytes:
        """An encoded `<Kind>List`; see apiserver.cacher.listing. Raises Expired, CacheBehind, BadToken, StorageError."""
        return await self._lister.list(query)

    def watch(
        self, selection: Selection, since: int | None, *, announced: bool = False, account: Account | None = None
    ) -> Watcher:
        """The changes after `since`; None: first the present state, as ADDED events. `announced`: with a bookmark at once when
        somebody is elected. `account`: is charged for what waits; None: one of its own.

        Raises Expired; ShuttingDown; CacheBehind when `since` is in the future of this cache (`Cacher.wait_for` it first), or
        nothing is loaded yet.
        """
        now = self._progress.revision
        if self._drained:
            raise ShuttingDown
        if not now or not self.loaded or (since is not None and since > now):
            raise CacheBehind(since or 1, now if self.loaded else 0)
        if since is not None and since < self._ring.floor:
            raise Expired(self._ring.floor)
        turns, begin = self._catching_up, now if since is None else since
        past: Iterator[Told] = replay(selection, self._ring, begin, self._progress, self._marks, turns.is_over)
        if since is None:
            past = chain(initial_state(selection, self._snapshot(selection, now), now, self._marks, turns.is_over), past)
        watcher = Watcher(self._dispatcher, selection, since or 0, past, turns, announced=announced, account=account)
        self._dispatcher.add(watcher)
        return watcher

    def _snapshot(self, selection: Selection, now: int) -> Snapshot[T]:
        """What is asked for by node is looked up by node; of all else the keys decide."""
        state = (self._store.version, selection.prefix, selection.nodes)
        return self._snapshots.take(state, now, lambda: self._store.candidates(selection))

    def observe(self, observer: Observer[T]) -> None:
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
        self._ring.clear(revision)
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
            floor = self._ring.floor
            self._ring.append(event)
            if self._ring.floor != floor:
                self._snapshots.let_go(self._ring.floor)
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
        self._snapshots.let_go(self._ring.floor)
        self._dispatcher.bookmark(self._progress.revision)

    def announce(self) -> None:
        self._dispatcher.announce(self._progress.revision)

    def drain(self) -> None:
        """Ends all watchers, and takes no new ones."""
        self._drained = True
        self._dispatcher.end(ShuttingDown)
