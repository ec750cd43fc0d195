"""The reflector: loads the storage into the cache, then follows its watch.

    load --> follow --watch interrupted--> resume at the last commit marker, whose change must be equal to the applied one
     ^          |------compacted---------> load; if the commit markers do not match, the storage was restored
     '----------'------lower or different revision: the storage was restored --> load
             '--> concurrently, load the resources of `ReflectorTarget.late_prefixes`

All keys are read at one revision. It is up to HISTORY revisions in the past, so that the following watch fills the event log of
a server that has just started. The watch covers the whole key space, so it delivers every revision.

A resumed watch starts at the last revision with a change of a commit marker. It must deliver the same change again. A marker
contains a nonce, so a restored storage has another value. Other keys are no proof, because two histories can contain the same
value. `CommitMarkers` in apiserver.cacher.event_history covers the case that this revision is compacted.

`split_into_batches` splits changes into batches of bounded size. `RawKeys` contains the keys that do not belong to a
resource, such as elections.
"""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from pinnace.api.resources import COMMITS_PREFIX, ROOT
from pinnace.apiserver.cacher.store import END
from pinnace.apiserver.storage.interface import (
    ChangeBatch,
    Compacted,
    KeyChange,
    KeyPage,
    KeyValue,
    Storage,
    StorageError,
    StorageUnavailable,
)
from pinnace.runtime.backoff import Backoff
from pinnace.runtime.clock import Clock
from pinnace.runtime.logs import StoreRestored
from pinnace.runtime.supervise import supervise
from pinnace.runtime.tasks import run_until_first

MAX_CHANGES = 1000
MAX_BYTES = 1 << 20
"""Maximum size of the values of a batch in bytes. A batch contains at least one revision, whatever its size."""

log = logging.getLogger(__name__)

HISTORY = 1000
"""The number of revisions before the current one at which a load reads, if etcd has not compacted them."""
HISTORY_RESTORED = 1
"""The same after a restore. Watches that started at another server can have revisions of the old history, and must end. At
least one revision is needed to resume the watch."""
EMPTY = 1
"""The revision of a new store, which is the same in all histories."""
FIRST_PAGE, LARGEST_PAGE = 500, 10_000
"""The number of keys of the first page, and the maximum of later pages. For every page, etcd 3.4 scans the rest of the range,
whatever the limit. With pages of 500, a load of 150,000 keys took more than 30 seconds."""
PAGE_BYTES = 8 << 20
"""The approximate size in bytes of the values in a page after the first."""
MOST_UNMARKED = 1000
"""Maximum number of stored changes since the last commit marker. Above it, only the changes of the last revision are kept."""
STALL_LIMIT = 3.0
"""Seconds after which a watch is restarted if it delivers nothing although the revision of the storage is higher. etcd can stop
sending events without closing the connection (Patroni 4.0.7)."""

Callback = Callable[[KeyChange], None]


def split_into_batches(received_changes: ChangeBatch, after: int) -> Iterator[ChangeBatch]:
    """Yield the changes after revision `after` in batches. The changes of a revision are not split.

    Older changes are dropped: an etcd member that lags can send them again on a watch that starts at a future revision
    (etcd#15271).
    """
    changes = received_changes.changes
    if changes and changes[0].mod_revision <= after:
        changes = [change for change in changes if change.mod_revision > after]
    start = 0
    while (end := _batch_end(changes, start)) < len(changes):
        yield ChangeBatch(changes[end - 1].mod_revision, changes[start:end])
        start = end
    yield ChangeBatch(max(received_changes.revision, after), changes[start:])


def _batch_end(changes: Sequence[KeyChange], start: int) -> int:
    """Return the end of the batch that begins at `start`."""
    end, size = start, 0
    while end < len(changes):
        if (end - start >= MAX_CHANGES or size >= MAX_BYTES) and changes[end].mod_revision != changes[end - 1].mod_revision:
            break
        size += len(changes[end].value or b"")
        end += 1
    return end


def next_page_limit(items: Sequence[KeyValue]) -> int:
    """Return the number of keys to request next, by the average size of these items."""
    size = sum(len(item.value) for item in items) // max(1, len(items))
    return max(1, min(LARGEST_PAGE, PAGE_BYTES // max(1, size)))


def skip_prefixes(page: KeyPage, prefixes: Sequence[str]) -> tuple[Sequence[KeyValue], str, bool]:
    """Return the items of a page before the first key with one of the prefixes, the key after which to continue, and whether
    there are more keys."""
    for number, item in enumerate(page.items):
        for prefix in prefixes:
            if item.key.startswith(prefix):
                return page.items[:number], prefix + END, True
    return page.items, page.items[-1].key if page.items else "", page.more


class StorageRestored(StorageError):
    """The storage has another history than the cache."""


class ReflectorTarget(Protocol):
    """The receiver of the state and its changes."""

    @property
    def revision(self) -> int:
        """The last applied revision; 0 before the first load."""
        ...

    @property
    def late_prefixes(self) -> Sequence[str]:
        """Prefixes of the keys that are loaded last."""
        ...

    def is_same_history(self, items: Sequence[KeyValue]) -> bool:
        """Report whether this state can belong to the same history as the current one. Its revision is not below the current
        revision. If the result is False, the histories differ."""
        ...

    def install_state(self, revision: int, items: Sequence[KeyValue]) -> None:
        """Replace the state by the one at `revision`. The items include commit markers, but no keys with `late_prefixes`. The
        state of these keys is discarded."""
        ...

    async def install_late_prefix(self, prefix: str, revision: int, items: Sequence[KeyValue]) -> None:
        """Set the state of a late prefix at `revision`, which was installed or applied, in time slices. If this is cancelled,
        the prefix remains without a state."""
        ...

    def apply_changes(self, changes: ChangeBatch) -> ChangeBatch | None:
        """Apply as many whole revisions as fit into a time slice. Return the remaining changes; None if there are none."""
        ...


class Reflector:
    """Loads the storage into a target, and keeps it up to date."""

    def __init__(self, storage: Storage, target: ReflectorTarget, clock: Clock, rng: random.Random) -> None:
        self._storage = storage
        self._target = target
        self._clock = clock
        self._rng = rng
        self._must_load = True
        self._history = HISTORY  # of the next load
        self.restored = False
        """True if the reason for the last load was a restore of the storage."""
        self._recent: Sequence[KeyChange] = ()  # applied changes since the last commit marker; empty after a load
        self._unproven: Sequence[KeyChange] = ()  # changes that a resumed watch must repeat
        self._repeated: list[KeyChange] = []
        self._missing: dict[str, int] = {}  # late prefixes that are not loaded, and the revision at which they are read
        self._goal: int | None = None
        self._stall: asyncio.Timeout | None = None
        self._expected = 0

    @property
    def alive(self) -> bool:
        """True if the watch is verified, has reached the revision at which it was opened, and all prefixes are loaded."""
        if self._goal is None or self._unproven or self._missing:
            return False
        return self._target.revision >= self._goal

    async def run(self) -> None:
        """Run until cancelled. While the storage is unavailable, the target does not change."""
        backoff = Backoff(initial=0.02, maximum=1.0, rng=self._rng)
        await supervise("watch cache", self._load_and_follow, retry_on=(StorageError,), backoff=backoff, clock=self._clock)

    def expect_revision(self, revision: int) -> None:
        """Record that the storage has reached `revision`. If the watch makes no progress within STALL_LIMIT, it is
        restarted."""
        if revision > self._target.revision and self._stall is not None and self._stall.when() is None:
            self._expected = revision
            self._extend_stall_limit(self._stall)

    async def _load_and_follow(self) -> None:
        now = await self._storage.current_revision()
        if now < self._target.revision:  # one response can be stale, from a member that was paused (etcd#20418)
            now = await self._storage.current_revision()
        if now < self._target.revision:
            restored = StoreRestored(self._target.revision).extra
            log.error(
                "the storage is at revision %d, and the cache at %d: the storage was restored from a backup",
                now,
                self._target.revision,
                extra=restored,
            )
            self._must_load, self._history = True, HISTORY_RESTORED
        if not self._recent and self._target.revision > EMPTY:
            self._must_load = True  # the watch has delivered nothing since the load, so it cannot be verified
        try:
            if self._must_load:
                await self._load_state(now)
                self._must_load, self._history = False, HISTORY
            revision = self._target.revision
            self._unproven = self._recent if self._recent and self._recent[-1].mod_revision == revision else ()
            self._goal = now
            await run_until_first(self._follow_watch(), self._load_late_prefixes())
        except Compacted:
            last = _changes_of_revision(self._target.revision, self._recent)
            if self._unproven and len(last) < len(self._unproven):
                self._recent = last
            else:
                self._must_load = True
            raise
        except StorageRestored as error:
            log.error("%s", error, extra=StoreRestored(self._target.revision).extra)
            self._must_load, self._history = True, HISTORY_RESTORED
        finally:
            self._goal = None
            self._unproven, self._repeated = (), []

    async def _load_state(self, now: int) -> None:
        try:
            revision = max(EMPTY, now - self._history)
            items = await self._read_all(revision)
        except Compacted as compacted:
            revision = compacted.compact_revision
            items = await self._read_all(revision)
        self.restored = self._history == HISTORY_RESTORED
        if not self.restored and 0 < self._target.revision <= revision and not self._target.is_same_history(items):
            raise StorageRestored(
                f"revision {revision} of the storage does not follow the applied revisions: the storage was restored"
            )
        self._target.install_state(revision, items)
        self._recent = ()
        self._missing = dict.fromkeys(self._target.late_prefixes, revision)
        log.info("loaded %d keys at revision %d", len(items), revision)

    async def _load_late_prefixes(self) -> None:
        """Load the late prefixes, then wait for cancellation."""
        backoff = Backoff(initial=0.02, maximum=1.0, rng=self._rng)
        while self._missing:
            prefix, revision = next(iter(self._missing.items()))
            try:
                items = await self._read_prefix(prefix, revision)
            except StorageError as error:
                log.info("cannot load %s: %s", prefix, error)
                if isinstance(error, Compacted):
                    self._missing[prefix] = self._target.revision
                await self._clock.sleep(backoff.next_delay())
            else:
                await self._target.install_late_prefix(prefix, revision, items)
                del self._missing[prefix]
                log.info("loaded %d keys below %s", len(items), prefix)
        await asyncio.Event().wait()

    async def _read_all(self, revision: int) -> list[KeyValue]:
        return await self._read_prefix(ROOT, revision, self._target.late_prefixes) + await self._read_prefix(
            COMMITS_PREFIX, revision
        )

    async def _read_prefix(self, prefix: str, revision: int, skipped: Sequence[str] = ()) -> list[KeyValue]:
        """Read all keys with the prefix, except those with a prefix in `skipped`."""
        items: list[KeyValue] = []
        after, limit, more = "", FIRST_PAGE, True
        while more:
            page = await self._storage.page(prefix, after=after, limit=limit, revision=revision)
            page_items, after, more = skip_prefixes(page, skipped)
            items += page_items
            limit = next_page_limit(page.items)
        return items

    async def _follow_watch(self) -> None:
        start = self._unproven[0].mod_revision if self._unproven else self._target.revision + 1
        watch = self._storage.watch(start)
        try:
            async with asyncio.timeout(None) as self._stall:
                async for received_changes in watch:
                    await self._apply_changes(received_changes, self._stall)
        except TimeoutError:
            self._storage.watch_stalled()
            raise StorageUnavailable(
                f"the watch delivers no events although the storage is at revision {self._expected}"
            ) from None
        finally:
            self._stall = None
            if isinstance(watch, AsyncGenerator):
                await watch.aclose()
        raise StorageUnavailable("the watch ended")

    async def _apply_changes(self, received_changes: ChangeBatch, stall: asyncio.Timeout) -> None:
        before = self._target.revision
        if self._unproven and not self._has_repeated_last_changes(received_changes):
            return
        for number, batch in enumerate(split_into_batches(received_changes, before)):
            if number:
                await asyncio.sleep(0)  # let other tasks run during a long backlog
            left = self._target.apply_changes(batch)
            if batch.changes:
                self._recent = _changes_since_marker(self._recent, batch.changes)
            while left is not None:
                self._record_progress(stall, before)
                await asyncio.sleep(0)
                left = self._target.apply_changes(left)
        self._record_progress(stall, before)

    def _record_progress(self, stall: asyncio.Timeout, before: int) -> None:
        if stall.when() is not None and self._target.revision > before:
            self._extend_stall_limit(stall)

    def _has_repeated_last_changes(self, received_changes: ChangeBatch) -> bool:
        """Report whether the watch has repeated the last applied changes. Raises StorageRestored if the changes differ."""
        revision = self._target.revision
        self._repeated += [change for change in received_changes.changes if change.mod_revision <= revision]
        if not received_changes.changes or received_changes.changes[-1].mod_revision < revision:
            return False
        if self._repeated != list(self._unproven):
            raise StorageRestored(f"revision {revision} of the storage differs from the applied one: the storage was restored")
        self._unproven, self._repeated = (), []
        return True

    def _extend_stall_limit(self, stall: asyncio.Timeout) -> None:
        behind = self._target.revision < self._expected
        stall.reschedule(asyncio.get_running_loop().time() + STALL_LIMIT if behind else None)


def _changes_since_marker(recent: Sequence[KeyChange], new: Sequence[KeyChange]) -> Sequence[KeyChange]:
    """Return the changes from the last revision with a change of a commit marker on."""
    for change in reversed(new):
        if change.value is not None and change.key.startswith(COMMITS_PREFIX):
            return [later_change for later_change in new if later_change.mod_revision >= change.mod_revision]
    both = [*recent, *new]
    return both if len(both) <= MOST_UNMARKED else _changes_of_revision(both[-1].mod_revision, both)


def _changes_of_revision(revision: int, changes: Sequence[KeyChange]) -> Sequence[KeyChange]:
    """Return the changes of one revision."""
    return [change for change in changes if change.mod_revision == revision]


class RawKeys:
    """Keys that do not belong to a resource, and the subscribers to their changes."""

    def __init__(self) -> None:
        self._items: dict[str, KeyValue] = {}
        self._subscribers: list[tuple[str, Callback]] = []
        self._undelivered: list[KeyChange] = []

    def get(self, key: str) -> KeyValue | None:
        return self._items.get(key)

    def items(self, prefix: str) -> list[KeyValue]:
        """Return the keys with a prefix, sorted."""
        return [self._items[key] for key in sorted(self._items) if key.startswith(prefix)]

    def subscribe(self, prefix: str, callback: Callback) -> Callable[[], None]:
        """Call `callback` with each change of a key with this prefix, until the returned function is called."""
        subscriber = (prefix, callback)
        self._subscribers.append(subscriber)

        def unsubscribe() -> None:
            self._subscribers = [other for other in self._subscribers if other is not subscriber]

        return unsubscribe

    def apply(self, change: KeyChange) -> None:
        """Apply one change. The next `flush` sends it to the subscribers."""
        old = self._items.pop(change.key, None)
        if change.value is not None:
            version = old.version + 1 if old is not None else 1
            self._items[change.key] = KeyValue(
                change.key, change.value, change.create_revision, change.mod_revision, version, change.lease
            )
        self._undelivered.append(change)

    def reset(self, revision: int, items: Iterable[KeyValue]) -> None:
        """Replace the state by the one at `revision`. The next `flush` sends the difference: subscribers need the state, but
        not every version of a key."""
        new = {item.key: item for item in items}
        self._undelivered += state_difference(self._items, new, revision)
        self._items = new

    def flush(self) -> None:
        """Send all pending changes to the subscribers."""
        if not self._undelivered:
            return
        undelivered, self._undelivered = self._undelivered, []
        for change in undelivered:
            for prefix, callback in self._subscribers:
                if change.key.startswith(prefix):
                    callback(change)


def state_difference(old: Mapping[str, KeyValue], new: Mapping[str, KeyValue], revision: int) -> list[KeyChange]:
    """Return the changes from one state to the other: deletions, then puts in order of revision. The revision of a deletion is
    unknown, and is set to `revision`."""
    gone = [KeyChange(key, None, 0, revision) for key, was in old.items() if key not in new or was_recreated(was, new[key])]
    puts = [item for key, item in new.items() if old.get(key) != item]
    puts.sort(key=lambda item: item.mod_revision)
    return gone + [KeyChange(item.key, item.value, item.create_revision, item.mod_revision, item.lease) for item in puts]


def was_recreated(old: KeyValue, new: KeyValue) -> bool:
    """Report whether the key was deleted between the two versions."""
    return old.create_revision != new.create_revision
