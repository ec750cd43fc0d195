"""The reflector: loads the storage into the cache, then follows its watch.

    load --> follow --watch broke--> follow from the last revision, which must match what was applied
     ^          |---compacted--------------------------------> load; markers that do not match: the storage was restored
     '----------'---lower or different revision: restored-----> load
             '--> load late: large resources that are not urgent (`ReflectorTarget.late`), beside following

The load reads at one revision, slightly in the past where the storage has it, so that the watch fills the event log of a
server that has just started. The watch covers the whole key space: every revision passes.

A resumed watch starts at the last revision that moved a commit marker, and must repeat that change byte for byte: a marker
holds a nonce, so a restored storage cannot repeat it by chance. Other keys prove nothing, because two histories can write the
same value. See `apiserver.cacher.store` for the case that this revision is compacted.

`batches` cuts changes into responses of bounded size. `RawKeys` are keys that are no objects of a resource (elections).
"""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from apiserver.cacher.store import END
from apiserver.storage.interface import Change, Changes, Compacted, KeyValue, Page, Storage, StorageError, Unavailable
from pinnace.api.resources import COMMITS_PREFIX, ROOT
from pinnace.runtime.backoff import Backoff
from pinnace.runtime.clock import Clock
from pinnace.runtime.logs import StoreRestored
from pinnace.runtime.supervise import supervise
from pinnace.runtime.tasks import race

MAX_CHANGES = 1000
MAX_BYTES = 1 << 20
"""Of values. A batch has at least one revision, however large."""


def batches(told: Changes, after: int) -> Iterator[Changes]:
    """The changes after revision `after`, in whole revisions.

    Those before are repeats and left out: a member of etcd that lags behind can answer a watch from the future with what it
    had told before (etcd#15271).
    """
    changes = told.changes
    if changes and changes[0].mod_revision <= after:
        changes = [change for change in changes if change.mod_revision > after]
    start = 0
    while (end := _end(changes, start)) < len(changes):
        yield Changes(changes[end - 1].mod_revision, changes[start:end])
        start = end
    yield Changes(max(told.revision, after), changes[start:])


def _end(changes: Sequence[Change], start: int) -> int:
    """Where the batch that begins at `start` ends."""
    end, size = start, 0
    while end < len(changes):
        if (end - start >= MAX_CHANGES or size >= MAX_BYTES) and changes[end].mod_revision != changes[end - 1].mod_revision:
            break
        size += len(changes[end].value or b"")
        end += 1
    return end


log = logging.getLogger(__name__)

HISTORY = 1000
"""Revisions before now at which the load is made, if they are not compacted."""
HISTORY_RESTORED = 1
"""The same, of a store that was restored: watches that began elsewhere may be of the history that is gone, and are to end. One
revision is what the watch can be resumed at."""
EMPTY = 1
"""The revision of a new store: nothing has happened, in whatever history."""
FIRST_PAGE, LARGEST_PAGE = 500, 10_000
"""Keys. etcd walks through all that is left of a range for every page of it (3.4 does, whatever the limit), so the cost of a
load grows with their number: 150,000 keys in pages of 500 took half a minute and more."""
PAGE_BYTES = 8 << 20
"""Of values, about, in a page after the first."""
MOST_UNMARKED = 1000
"""Changes that are kept since the last commit marker, for the proof; above, only those of the last revision are."""
STALL_LIMIT = 3.0
"""Seconds for which a watch may show nothing although the store is known to be ahead. etcd can stop telling without closing
the connection (Patroni 4.0.7)."""


def next_limit(items: Sequence[KeyValue]) -> int:
    """Keys to ask for next, if they are like these."""
    size = sum(len(item.value) for item in items) // max(1, len(items))
    return max(1, min(LARGEST_PAGE, PAGE_BYTES // max(1, size)))


def skip(page: Page, prefixes: Sequence[str]) -> tuple[Sequence[KeyValue], str, bool]:
    """Of a page what comes before the first key with one of the prefixes; after which key to go on; is there more?"""
    for number, item in enumerate(page.items):
        for prefix in prefixes:
            if item.key.startswith(prefix):
                return page.items[:number], prefix + END, True
    return page.items, page.items[-1].key if page.items else "", page.more


class Restored(StorageError):
    """The store has another history than what is in the cache."""


class ReflectorTarget(Protocol):
    """What is fed."""

    @property
    def revision(self) -> int:
        """0: never loaded."""
        ...

    @property
    def late(self) -> Sequence[str]:
        """Prefixes of the keys that are not needed at once."""
        ...

    def may_become(self, items: Sequence[KeyValue]) -> bool:
        """Can this state, of a revision that is not below the own, be of the same history? False is certain."""
        ...

    def install(self, revision: int, items: Sequence[KeyValue]) -> None:
        """Takes the state at a revision, with the commit markers, in place of what was known; but for what is `late`, of which
        nothing is known then."""
        ...

    def supply(self, prefix: str, revision: int, items: Sequence[KeyValue]) -> None:
        """Takes a late part of the state. `revision` is one that was installed, or applied since."""
        ...

    def apply(self, changes: Changes) -> Changes | None:
        """Takes what happened, in whole revisions, as many as go into a turn of the event loop: what is left; None: nothing."""
        ...


class Reflector:
    def __init__(self, storage: Storage, target: ReflectorTarget, clock: Clock, rng: random.Random) -> None:
        self._storage = storage
        self._target = target
        self._clock = clock
        self._rng = rng
        self._must_load = True
        self._history = HISTORY  # of the next load
        self.restored = False
        """Was the last load of a store that has another history than before?"""
        self._recent: Sequence[Change] = ()  # applied, from the last commit marker on; empty: nothing since the load
        self._unproven: Sequence[Change] = ()  # what the watch has to repeat before it is believed
        self._repeated: list[Change] = []
        self._missing: dict[str, int] = {}  # what is late, and the revision at which it is to be read
        self._goal: int | None = None
        self._stall: asyncio.Timeout | None = None
        self._expected = 0

    @property
    def alive(self) -> bool:
        """Follows what is known to be its history, has reached the revision that the store had then, and lacks nothing."""
        if self._goal is None or self._unproven or self._missing:
            return False
        return self._target.revision >= self._goal

    async def run(self) -> None:
        """Feeds until cancelled; the target stays as it is while the storage is away."""
        backoff = Backoff(initial=0.02, maximum=1.0, rng=self._rng)
        await supervise("watch cache", self._attempt, retry_on=(StorageError,), backoff=backoff, clock=self._clock)

    def expect(self, revision: int) -> None:
        """The store is known to be at `revision`. If the watch makes no progress towards it in time, it is started anew."""
        if revision > self._target.revision and self._stall is not None and self._stall.when() is None:
            self._expected = revision
            self._postpone(self._stall)

    async def _attempt(self) -> None:
        now = await self._storage.current_revision()
        if now < self._target.revision:  # a single answer may be stale, from a member that was stopped (etcd#20418)
            now = await self._storage.current_revision()
        if now < self._target.revision:
            restored = StoreRestored(self._target.revision).extra
            log.error(
                "the store is at revision %d, the cache at %d: the store was restored",
                now,
                self._target.revision,
                extra=restored,
            )
            self._must_load, self._history = True, HISTORY_RESTORED
        if not self._recent and self._target.revision > EMPTY:
            self._must_load = True  # the watch broke before it told anything: nothing can be compared
        try:
            if self._must_load:
                await self._load(now)
                self._must_load, self._history = False, HISTORY
            revision = self._target.revision
            self._unproven = self._recent if self._recent and self._recent[-1].mod_revision == revision else ()
            self._goal = now
            await race(self._follow(), self._load_late())
        except Compacted:
            last = _of(self._target.revision, self._recent)
            if self._unproven and len(last) < len(self._unproven):
                self._recent = last
            else:
                self._must_load = True
            raise
        except Restored as error:
            log.error("%s", error, extra=StoreRestored(self._target.revision).extra)
            self._must_load, self._history = True, HISTORY_RESTORED
        finally:
            self._goal = None
            self._unproven, self._repeated = (), []

    async def _load(self, now: int) -> None:
        try:
            revision = max(EMPTY, now - self._history)
            items = await self._read_all(revision)
        except Compacted as compacted:
            revision = compacted.compact_revision
            items = await self._read_all(revision)
        self.restored = self._history == HISTORY_RESTORED
        if not self.restored and 0 < self._target.revision <= revision and not self._target.may_become(items):
            raise Restored(f"revision {revision} of the store does not follow from what was applied: the store was restored")
        self._target.install(revision, items)
        self._recent = ()
        self._missing = dict.fromkeys(self._target.late, revision)
        log.info("loaded %d keys at revision %d", len(items), revision)

    async def _load_late(self) -> None:
        """Loads what is missing, and then waits to be cancelled."""
        backoff = Backoff(initial=0.02, maximum=1.0, rng=self._rng)
        while self._missing:
            prefix, revision = next(iter(self._missing.items()))
            try:
                items = await self._read(prefix, revision)
            except StorageError as error:
                log.info("%s cannot be read yet: %s", prefix, error)
                if isinstance(error, Compacted):
                    self._missing[prefix] = self._target.revision
                await self._clock.sleep(backoff.next())
            else:
                self._target.supply(prefix, revision, items)
                del self._missing[prefix]
                log.info("loaded %d keys of %s", len(items), prefix)
        await asyncio.Event().wait()

    async def _read_all(self, revision: int) -> list[KeyValue]:
        return await self._read(ROOT, revision, self._target.late) + await self._read(COMMITS_PREFIX, revision)

    async def _read(self, prefix: str, revision: int, skipped: Sequence[str] = ()) -> list[KeyValue]:
        """All keys with the prefix, but for those with one of the `skipped`."""
        items: list[KeyValue] = []
        after, limit, more = "", FIRST_PAGE, True
        while more:
            page = await self._storage.page(prefix, after=after, limit=limit, revision=revision)
            found, after, more = skip(page, skipped)
            items += found
            limit = next_limit(page.items)
        return items

    async def _follow(self) -> None:
        start = self._unproven[0].mod_revision if self._unproven else self._target.revision + 1
        watch = self._storage.watch(start)
        try:
            async with asyncio.timeout(None) as self._stall:
                async for told in watch:
                    await self._take(told, self._stall)
        except TimeoutError:
            self._storage.watch_stalled()
            raise Unavailable(f"the watch shows nothing although the store is at revision {self._expected}") from None
        finally:
            self._stall = None
            if isinstance(watch, AsyncGenerator):
                await watch.aclose()
        raise Unavailable("the watch ended")

    async def _take(self, told: Changes, stall: asyncio.Timeout) -> None:
        before = self._target.revision
        if self._unproven and not self._proven(told):
            return
        for number, batch in enumerate(batches(told, before)):
            if number:
                await asyncio.sleep(0)  # a long backlog must not keep others waiting
            left = self._target.apply(batch)
            if batch.changes:
                self._recent = _since_marker(self._recent, batch.changes)
            while left is not None:
                self._progressed(stall, before)
                await asyncio.sleep(0)
                left = self._target.apply(left)
        self._progressed(stall, before)

    def _progressed(self, stall: asyncio.Timeout, before: int) -> None:
        if stall.when() is not None and self._target.revision > before:
            self._postpone(stall)

    def _proven(self, told: Changes) -> bool:
        """Has the watch come to what was applied last? Raises Restored when it is something else."""
        revision = self._target.revision
        self._repeated += [change for change in told.changes if change.mod_revision <= revision]
        if not told.changes or told.changes[-1].mod_revision < revision:
            return False
        if self._repeated != list(self._unproven):
            raise Restored(f"revision {revision} of the store is not the one that was applied: the store was restored")
        self._unproven, self._repeated = (), []
        return True

    def _postpone(self, stall: asyncio.Timeout) -> None:
        behind = self._target.revision < self._expected
        stall.reschedule(asyncio.get_running_loop().time() + STALL_LIMIT if behind else None)


def _since_marker(recent: Sequence[Change], new: Sequence[Change]) -> Sequence[Change]:
    """The changes from the last revision on in which a commit marker was moved."""
    for change in reversed(new):
        if change.value is not None and change.key.startswith(COMMITS_PREFIX):
            return [each for each in new if each.mod_revision >= change.mod_revision]
    both = [*recent, *new]
    return both if len(both) <= MOST_UNMARKED else _of(both[-1].mod_revision, both)


def _of(revision: int, changes: Sequence[Change]) -> Sequence[Change]:
    """The changes of one revision."""
    return [change for change in changes if change.mod_revision == revision]


Callback = Callable[[Change], None]


class RawKeys:
    def __init__(self) -> None:
        self._items: dict[str, KeyValue] = {}
        self._subscribers: list[tuple[str, Callback]] = []
        self._untold: list[Change] = []

    def get(self, key: str) -> KeyValue | None:
        return self._items.get(key)

    def items(self, prefix: str) -> list[KeyValue]:
        """In key order."""
        return [self._items[key] for key in sorted(self._items) if key.startswith(prefix)]

    def subscribe(self, prefix: str, callback: Callback) -> Callable[[], None]:
        """`callback` is called with each change of a key with this prefix, until the returned function is called."""
        subscriber = (prefix, callback)
        self._subscribers.append(subscriber)

        def unsubscribe() -> None:
            self._subscribers = [each for each in self._subscribers if each is not subscriber]

        return unsubscribe

    def apply(self, change: Change) -> None:
        """Applies one change; subscribers hear of it with the next `tell`."""
        old = self._items.pop(change.key, None)
        if change.value is not None:
            version = old.version + 1 if old is not None else 1
            self._items[change.key] = KeyValue(
                change.key, change.value, change.create_revision, change.mod_revision, version, change.lease
            )
        self._untold.append(change)

    def reset(self, revision: int, items: Iterable[KeyValue]) -> None:
        """Replaces the state by that of `revision`. Subscribers will be told of the difference: they follow the state and
        need not see every version, but must not miss that a key is gone."""
        new = {item.key: item for item in items}
        self._untold += difference(self._items, new, revision)
        self._items = new

    def tell(self) -> None:
        """Calls the subscribers with what they have not heard."""
        if not self._untold:
            return
        untold, self._untold = self._untold, []
        for change in untold:
            for prefix, callback in self._subscribers:
                if change.key.startswith(prefix):
                    callback(change)


def difference(old: Mapping[str, KeyValue], new: Mapping[str, KeyValue], revision: int) -> list[Change]:
    """What turns one state into the other: deletions, at `revision` for want of a better one, then puts in their order."""
    gone = [Change(key, None, 0, revision) for key, was in old.items() if key not in new or recreated(was, new[key])]
    puts = [item for key, item in new.items() if old.get(key) != item]
    puts.sort(key=lambda item: item.mod_revision)
    return gone + [Change(item.key, item.value, item.create_revision, item.mod_revision, item.lease) for item in puts]


def recreated(old: KeyValue, new: KeyValue) -> bool:
    """Was the key deleted in between?"""
    return old.create_revision != new.create_revision
