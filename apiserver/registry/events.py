"""Events: expiry, merging of similar events, and a limit on how many are kept.

An event that exists already is merged: its count grows by the count that is sent, and its lastTimestamp becomes the later one.
Reporters derive the name of an event from the properties by which events are similar, so an event without a name is refused.
Every write attaches the event to an etcd lease. Events of the same minute share a lease, so expiry is cheap for etcd (as with
Kubernetes' lease manager).

Retention: the number of events and their total size in bytes are limited.

    within limits --more events--> over a limit --claim the key--> the excess is deleted, in transactions of MAX_OPERATIONS
                                       |            |                       '--> SLACK below the limit
                                       '--interval--'--another server has moved the key within OWNER_TIMEOUT

Deletion is fair: every namespace keeps the same number of events, or all of them where it has fewer (max-min fairness), and
likewise for bytes. So a namespace that floods loses its own events. The events that were written longest ago are deleted first.

One server deletes, without an election: each transaction moves a key under compare-and-swap, as the compactor does. A server
that sees the key move waits until it has not moved for OWNER_TIMEOUT seconds. A store that is out of space accepts no puts:
then every server deletes, and skips events that another server has deleted. A delete compares the version of the event: an
event that was written meanwhile stays.

A limit can be exceeded between two checks, CHECK_INTERVAL seconds apart. The store reclaims the space with the next compactions
(apiserver.storage.compactor).
"""

from __future__ import annotations  # those of the steps below would be evaluated for every object

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from apiserver import errors
from apiserver.cacher.cacher import Cacher
from apiserver.cacher.store import CacheBehind, CacheEntry, CacheError
from apiserver.errors import Rejected
from apiserver.registry.admission import Request
from apiserver.registry.mutation import Mutation, Outcome, Put, Version, WriteCommitter
from apiserver.registry.store import Store
from apiserver.storage.committer import CommitOutcome
from apiserver.storage.interface import (
    MAX_OPERATIONS,
    Committed,
    CompareFailed,
    KeyValue,
    OutOfSpace,
    Storage,
    StorageError,
    Write,
)
from pinnace.api.core_v1_pb2 import Event
from pinnace.api.resources import DEFAULT_NAMESPACE, EVENTS, EVENTS_TRIM_KEY, namespace_of
from pinnace.api.scalars import to_seconds
from pinnace.api.status import Code, Refusal, Violation
from pinnace.runtime.clock import Clock

TTL = 3600
"""Seconds that an event lives after its last occurrence."""
LEASE_REUSE = 60
"""Seconds during which events share a lease."""
MAX_EVENT_COUNT = 2**31 - 1
"""Occurrences that are counted: the field has 32 bits."""


class Expiring:
    """A WriteCommitter that attaches events to leases."""

    def __init__(self, committer: WriteCommitter, storage: Storage, clock: Clock) -> None:
        self._committer = committer
        self._storage = storage
        self._clock = clock
        self._lease = 0
        self._until = 0.0

    async def commit_many(self, writes: Sequence[Write]) -> list[CommitOutcome]:
        if all(write.value is None for write in writes):
            return await self._committer.commit_many(writes)
        try:
            lease = await self._current()
        except StorageError as error:
            return [error] * len(writes)
        return await self._committer.commit_many(
            [write if write.value is None else write._replace(lease=lease) for write in writes]
        )

    async def _current(self) -> int:
        """The lease for events that are written now. Raises StorageError."""
        now = self._clock.monotonic()
        if now >= self._until:
            self._lease = await self._storage.grant_lease(TTL + LEASE_REUSE)
            self._until = now + LEASE_REUSE
        return self._lease


class EventRegistry:
    """The verb Record."""

    def __init__(self, store: Store[Event]) -> None:
        self._store = store

    async def record(self, events: Sequence[Event], by: Request) -> list[Outcome]:
        """Records events, one outcome per event. Equal events are one write with a larger count. Before a dry run the caller
        refreshes the caches."""
        keys = [event.SerializeToString(deterministic=True) for event in events]
        different = dict(zip(keys, events, strict=True))
        for key, times in Counter(keys).items():
            multiply(different[key], times)
        by_key = dict(zip(different, await self._mutate(list(different.values()), by), strict=True))
        if forbidden := [key for key, outcome in by_key.items() if _is_forbidden(outcome)]:  # perhaps by a cache that is behind
            with suppress(CacheError, StorageError):
                await self._store.refresh()
                again = await self._mutate([different[key] for key in forbidden], by)
                by_key.update(zip(forbidden, again, strict=True))
        return [by_key[key] for key in keys]

    async def _mutate(self, events: Sequence[Event], by: Request) -> list[Outcome]:
        return await self._store.mutate([self._mutation(event, by) for event in events], dry_run=by.dry_run)

    def _mutation(self, event: Event, by: Request) -> Mutation[Event] | Refusal:
        event.metadata.namespace = event.metadata.namespace or event.involvedObject.namespace or DEFAULT_NAMESPACE
        event.metadata.resourceVersion = ""  # merged into any version, or created again after expiry
        name = event.metadata.name
        if not name:
            return errors.invalid(
                EVENTS, "", [Violation("metadata.name", "Required value: events are recorded by their names")]
            )

        def step(version: Version[Event] | None) -> Put[Event]:
            new = Event()
            new.CopyFrom(event)
            if version is None:
                self._store.complete(new, by)
            else:
                self._store.admit_update(new, version.obj, by)
                merge(new, version.obj)
                if violations := self._store.strategy.validate_update(new, version.obj):
                    raise Rejected(errors.invalid(EVENTS, name, violations))
            return Put(new)

        return Mutation(EVENTS.key_of(event), name, step)


def _is_forbidden(outcome: Outcome) -> bool:
    return isinstance(outcome, Refusal) and outcome.code is Code.PERMISSION_DENIED


def multiply(event: Event, times: int) -> None:
    """Makes the event what it is when it has happened so many times; one whose count cannot be is left for validation."""
    if times > 1 and event.count >= 0:
        event.count = min(max(1, event.count) * times, MAX_EVENT_COUNT)


def merge(new: Event, old: Event) -> None:
    """Makes `new` the sum of both: identity and first occurrence of the old one, the message of the new, the later time."""
    count = min(max(1, new.count) + max(1, old.count), MAX_EVENT_COUNT)
    last = max(new.lastTimestamp, old.lastTimestamp, key=to_seconds)
    message = new.message
    new.CopyFrom(old)
    new.metadata.resourceVersion = ""
    new.count, new.message = count, message
    new.lastTimestamp.CopyFrom(last)


log = logging.getLogger(__name__)

MAX_RETAINED = 100_000
MAX_RETAINED_BYTES = 64 << 20
"""Of keys and values. An event has some 400; in the memory of an API server it is twice as much."""
SLACK = 1 / 16
"""Of a bound: so much less is left, so that there is a pause before the next deletes."""
CHECK_INTERVAL = 1.0
"""Seconds."""
MAX_CONSIDERED = 20 * (MAX_OPERATIONS - 1)
"""Events that are looked for at once, which takes some 5 ms of the event loop, and deleted before there is a pause..."""
PAUSE = 0.05
"""...of so many seconds."""
OWNER_TIMEOUT = 10.0
"""Seconds. Longer than a transaction takes, and than a server that deletes pauses while there is a surplus."""
MAX_DELETES = MAX_OPERATIONS - 1
"""Of a transaction."""
CACHE_TIMEOUT = 5.0
"""Seconds until the cache has what was deleted."""


@dataclass(frozen=True, slots=True)
class EventLimits:
    count: int = MAX_RETAINED
    size: int = MAX_RETAINED_BYTES
    """Bytes."""


class ExcessEvent(NamedTuple):
    """An event that is to go, as it was seen."""

    key: str
    revision: int
    reason: str
    """count, or bytes."""


class _Share:
    """Of one namespace: its events, those first that were written longest ago."""

    __slots__ = ("entries", "size")

    def __init__(self) -> None:
        self.entries: dict[str, CacheEntry[Any]] = {}
        self.size = 0


class EventUsage:
    """The events that there are: an apiserver.cacher.cacher.CacheObserver. `size`: bytes."""

    def __init__(self) -> None:
        self.count = 0
        self.size = 0
        self._shares: dict[str, _Share] = {}

    def reset(self, entries: Iterable[CacheEntry[Any]]) -> None:
        self.count = self.size = 0
        self._shares = {}
        for entry in sorted(entries, key=lambda entry: entry.mod_revision):
            self.change(None, entry)

    def change(self, old: CacheEntry[Any] | None, new: CacheEntry[Any] | None) -> None:
        """An event that is written again goes to the end."""
        if old is not None:
            self._remove(old)
        if new is not None:
            self._add(new)

    def surplus(self, bounds: EventLimits, most: int) -> Sequence[ExcessEvent]:
        """What must go, so that a bound that is exceeded has SLACK, or the first `most` of it; nothing within the bounds. By
        namespace, oldest first."""
        counts = {name: len(share.entries) for name, share in self._shares.items()}
        sizes = {name: share.size for name, share in self._shares.items()}
        by_count = _level(counts.values(), int(bounds.count * (1 - SLACK))) if self.count > bounds.count else None
        by_size = _level(sizes.values(), int(bounds.size * (1 - SLACK))) if self.size > bounds.size else None
        doomed: list[ExcessEvent] = []
        for name, share in self._shares.items():
            count, size = counts[name], sizes[name]
            for entry in share.entries.values():
                if by_count is not None and count > by_count:
                    reason = "count"
                elif by_size is not None and size > by_size:
                    reason = "bytes"
                else:
                    break
                if len(doomed) >= most:
                    return doomed
                doomed.append(ExcessEvent(entry.key, entry.mod_revision, reason))
                count, size = count - 1, size - _size(entry)
        return doomed

    def _add(self, entry: CacheEntry[Any]) -> None:
        namespace = namespace_of(entry.key)
        share = self._shares.get(namespace)
        if share is None:
            share = self._shares[namespace] = _Share()
        share.entries[entry.key] = entry
        size = _size(entry)
        share.size += size
        self.size += size
        self.count += 1

    def _remove(self, entry: CacheEntry[Any]) -> None:
        namespace = namespace_of(entry.key)
        share = self._shares[namespace]
        del share.entries[entry.key]
        size = _size(entry)
        share.size -= size
        self.size -= size
        self.count -= 1
        if not share.entries:
            del self._shares[namespace]


def _size(entry: CacheEntry[Any]) -> int:
    return len(entry.key) + len(entry.value)


def _level(amounts: Iterable[int], most: int) -> int:
    """The most that each may keep, so that all together keep no more than `most`."""
    left, ordered = most, sorted(amounts)
    for number, amount in enumerate(ordered):
        share = left // (len(ordered) - number)
        if amount > share:
            return share
        left -= amount
    return ordered[-1] if ordered else 0


class Retention:
    """`run` deletes what is over the bounds, until cancelled. `held`: what there is. `dropped`: how many events this server has
    deleted, by the bound that was exceeded."""

    def __init__(self, storage: Storage, cacher: Cacher, clock: Clock, bounds: EventLimits) -> None:
        self.held = EventUsage()
        self.dropped = {"count": 0, "bytes": 0}
        self._storage = storage
        self._cacher = cacher
        self._cache = cacher.of(EVENTS)
        self._cache.observe(self.held)
        self._clock = clock
        self._bounds = bounds
        self._key_at = 0  # the key's mod_revision, when last seen; 0: there was none
        self._mine = False
        self._moved = float("-inf")  # when another server's move was seen

    async def run(self) -> None:
        while True:
            await self._clock.sleep(CHECK_INTERVAL)
            try:
                while await self._take_turn():
                    await self._clock.sleep(PAUSE)
            except (StorageError, CacheBehind) as error:
                log.warning("events over the bound are not deleted: %s", error)

    async def _take_turn(self) -> bool:
        """Has anything been deleted? Raises StorageError, CacheBehind."""
        if not self._cache.loaded or (not self._mine and self._clock.monotonic() < self._moved + OWNER_TIMEOUT):
            return False
        doomed = self.held.surplus(self._bounds, MAX_CONSIDERED)
        if not doomed or not (self._mine or await self._claim()):
            return False
        revision = 0
        for start in range(0, len(doomed), MAX_DELETES):
            deleted = await self._delete(doomed[start : start + MAX_DELETES])
            if deleted is None:
                break
            revision = max(revision, deleted)
        await self._cacher.wait_for(revision, CACHE_TIMEOUT)
        return revision > 0

    async def _claim(self) -> bool:
        """Is it for this server to delete? Raises StorageError."""
        try:
            return isinstance(await self._transact(()), Committed)
        except OutOfSpace:
            return True

    async def _delete(self, doomed: Sequence[ExcessEvent]) -> int | None:
        """Those that are still as they were. The revision; 0: none is; None: another server deletes. Raises StorageError."""
        while doomed:
            deletes = [Write(each.key, None, expected=each.revision) for each in doomed]
            key_at = self._key_at
            try:
                answer = await self._transact(deletes)
            except OutOfSpace:
                answer = await self._storage.transact(deletes)
            if isinstance(answer, Committed):
                for each in doomed:
                    self.dropped[each.reason] += 1
                return answer.revision
            if self._key_at != key_at:
                return None
            doomed = [each for each in doomed if _revision(answer.current[each.key]) == each.revision]
        return 0

    async def _transact(self, deletes: Sequence[Write]) -> Committed | CompareFailed:
        """Moves the key as well, and remembers where it is. Raises StorageError."""
        answer = await self._storage.transact([Write(EVENTS_TRIM_KEY, b"", expected=self._key_at), *deletes])
        if isinstance(answer, Committed):
            self._key_at, self._mine = answer.revision, True
        elif (found := _revision(answer.current[EVENTS_TRIM_KEY])) != self._key_at:
            self._key_at, self._mine, self._moved = found, False, self._clock.monotonic()
        return answer


def _revision(current: KeyValue | None) -> int:
    return current.mod_revision if current is not None else 0
