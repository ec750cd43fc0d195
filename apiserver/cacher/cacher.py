"""The watch cache: the state of the cluster in memory, and any number of watches of it, for one watch of the store.

    storage --feed--> Cacher --> one ResourceCache per resource: store, ring, dispatcher --> lists, watchers
                         |-----> raw keys (elections) --> subscribers
                         |-----> progress: one revision for all
                         '-----> marks: of which history it is the revision; markers: is it still that?

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
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from apiserver.cacher.dispatch import PACE
from apiserver.cacher.freshness import Freshness, Progress
from apiserver.cacher.history import Markers, Marks, Proof, Ring
from apiserver.cacher.reflector import Callback, Feed, RawKeys
from apiserver.cacher.resource import ResourceCache
from apiserver.cacher.watcher import CatchingUp
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
    """`ring_events` and `ring_bytes` bound the past of each resource. `bookmark_interval`: the seconds after which a live
    watcher that heard nothing is told the revision."""

    def __init__(
        self,
        storage: Storage,
        resources: Sequence[Resource[Any]] = ALL,
        *,
        clock: Clock = SYSTEM_CLOCK,
        rng: random.Random | None = None,
        ring_events: int = 100_000,
        ring_bytes: int = 128 << 20,
        bookmark_interval: float = 2.0,
    ) -> None:
        self._clock = clock
        self._bookmark_interval = bookmark_interval
        self._on_load: list[Callable[[], None]] = []
        self.loads = 0
        """How often the state has been replaced."""
        self.late = tuple(resource.prefix for resource in resources if resource in LATE)
        self._progress = Progress()
        self._holding = asyncio.Event()  # watchers wait for the rest of a burst
        self._marks = Marks()
        self._markers = Markers()
        self._raw = RawKeys()
        self._freshness = Freshness(storage)
        self._proof = Proof(storage, self._marks, self._progress, self._freshness.ask)
        self._feed = Feed(storage, self, clock, rng or random.Random())
        shared = (storage, self._progress, self._marks, self.fresh, clock, CatchingUp(clock))
        self._caches = {
            resource.prefix: ResourceCache(resource, Ring(ring_events, ring_bytes), *shared) for resource in resources
        }

    async def run(self) -> None:
        """Loads, follows, and answers, until cancelled. Survives the store's absence."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(unending("feed", self._feed.run), name="feed")
            tasks.create_task(unending("freshness", self._freshness.run), name="freshness")
            tasks.create_task(unending("bookmarks", self._bookmarks), name="bookmarks")
            tasks.create_task(unending("releases", self._releases), name="releases")

    @property
    def ready(self) -> bool:
        """Loaded, and following: up to the revision that the store had when the watch began, at least."""
        return self._feed.alive

    @property
    def revision(self) -> int:
        """Everything up to here is applied; 0: nothing is loaded yet."""
        return self._progress.revision

    @property
    def restored(self) -> bool:
        """The state was loaded last because the store has another history than before."""
        return self._feed.restored

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
        self._feed.expect(revision)
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
        self._marks.reset(revision, markers)
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
                    self._marks.moved(change.mod_revision, change.key, change.value)
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
            await self._clock.sleep(PACE)
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
