"""Events: expiry, merging of similar events, and limits on their number and size.

A recorded event that already exists is merged: its count grows by the count in the request, and its lastTimestamp becomes the
later one. Reporters derive the name of an event from the properties that similar events share, so an event without a name is
refused. Every write attaches the event to an etcd lease. Events of the same minute share a lease, as with Kubernetes' lease
manager, to keep the number of leases small.

EventRetention: the number of events and their total size in bytes are limited.

    within limits --more events--> over a limit --claim the key--> the excess is deleted, in transactions of MAX_OPERATIONS
                                       |            |                       '--> SLACK below the limit
                                       '--interval--'--another server has moved the key within OWNER_TIMEOUT

Deletion is fair (max-min fairness): every namespace keeps the same number of events, or all of its events if it has fewer. The
same applies to bytes. A namespace with too many events loses only its own. The events with the oldest writes are deleted first.

One server at a time deletes, without an election: each transaction moves a key under compare-and-swap, as the compactor does.
When another server moves the key, a server waits until the key has not moved for OWNER_TIMEOUT seconds. When etcd is out of
space it accepts no puts. Then every server deletes, and skips events that another server has deleted. A delete compares the
revision of the event, so an event that was written in the meantime stays.

Between two checks, which are CHECK_INTERVAL seconds apart, events may exceed a limit. etcd reclaims the space with the next
compactions (apiserver.storage.compactor).
"""

from __future__ import annotations  # otherwise, annotations of nested functions are evaluated at every call

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from pinnace.api.core_v1_pb2 import Event
from pinnace.api.resources import DEFAULT_NAMESPACE, EVENTS, EVENTS_TRIM_KEY, namespace_of
from pinnace.api.scalars import to_seconds
from pinnace.api.status import Code, Refusal, Violation
from pinnace.apiserver import errors
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.cacher.store import CacheBehind, CacheEntry, CacheError
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry.admission import WriteRequest
from pinnace.apiserver.registry.mutation import Mutation, ObjectVersion, Outcome, PutObject, WriteCommitter
from pinnace.apiserver.registry.store import Store
from pinnace.apiserver.storage.committer import CommitOutcome
from pinnace.apiserver.storage.interface import (
    MAX_OPERATIONS,
    Committed,
    CompareFailed,
    KeyValue,
    OutOfSpace,
    Storage,
    StorageError,
    Write,
)
from pinnace.runtime.clock import Clock

TTL = 3600
"""Seconds from the last occurrence of an event to its expiry."""
LEASE_REUSE = 60
"""Seconds during which events share a lease."""
MAX_EVENT_COUNT = 2**31 - 1
"""Maximum value of the count field, which has 32 bits."""

log = logging.getLogger(__name__)

MAX_RETAINED = 100_000
MAX_RETAINED_BYTES = 64 << 20
"""Bytes of keys and values. An event has about 400 bytes, and uses twice as much in the memory of an API server."""
SLACK = 1 / 16
"""Fraction of a limit that a cleanup frees in addition to the excess, so that the next cleanup is not due at once."""
CHECK_INTERVAL = 1.0
"""Seconds."""
MAX_CONSIDERED = 20 * (MAX_OPERATIONS - 1)
"""Events that are deleted between two pauses. Their selection blocks the event loop for about 5 ms."""
PAUSE = 0.05
"""Seconds."""
OWNER_TIMEOUT = 10.0
"""Seconds. Longer than a transaction, and longer than the pauses of a server that deletes."""
MAX_DELETES = MAX_OPERATIONS - 1
"""Deletes per transaction."""
CACHE_TIMEOUT = 5.0
"""Seconds for the cache to reach the revision of a delete."""


class LeasedEventCommitter:
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
            lease = await self._current_lease()
        except StorageError as error:
            return [error] * len(writes)
        return await self._committer.commit_many(
            [write if write.value is None else write._replace(lease=lease) for write in writes]
        )

    async def _current_lease(self) -> int:
        """Return the lease for events that are written now. Raises StorageError."""
        now = self._clock.monotonic()
        if now >= self._until:
            self._lease = await self._storage.grant_lease(TTL + LEASE_REUSE)
            self._until = now + LEASE_REUSE
        return self._lease


class EventRegistry:
    """Implements the method Record."""

    def __init__(self, store: Store[Event]) -> None:
        self._store = store

    async def record(self, events: Sequence[Event], by: WriteRequest) -> list[Outcome]:
        """Record events and return one outcome per event. Equal events become one write with a larger count. Before a dry run,
        the caller must refresh the caches."""
        keys = [event.SerializeToString(deterministic=True) for event in events]
        different = dict(zip(keys, events, strict=True))
        for key, times in Counter(keys).items():
            multiply_event_count(different[key], times)
        by_key = dict(zip(different, await self._write_events(list(different.values()), by), strict=True))
        if forbidden := [key for key, outcome in by_key.items() if _is_forbidden_outcome(outcome)]:  # the cache may be behind
            with suppress(CacheError, StorageError):
                await self._store.refresh_caches()
                again = await self._write_events([different[key] for key in forbidden], by)
                by_key.update(zip(forbidden, again, strict=True))
        return [by_key[key] for key in keys]

    async def _write_events(self, events: Sequence[Event], by: WriteRequest) -> list[Outcome]:
        return await self._store.run_mutations([self._build_mutation(event, by) for event in events], dry_run=by.dry_run)

    def _build_mutation(self, event: Event, by: WriteRequest) -> Mutation[Event] | Refusal:
        event.metadata.namespace = event.metadata.namespace or event.involvedObject.namespace or DEFAULT_NAMESPACE
        event.metadata.resourceVersion = ""  # the event is merged into any version, or created again after expiry
        name = event.metadata.name
        if not name:
            return errors.invalid(
                EVENTS, "", [Violation("metadata.name", "Required value: an event is recorded under its name")]
            )

        def step(version: ObjectVersion[Event] | None) -> PutObject[Event]:
            new = Event()
            new.CopyFrom(event)
            if version is None:
                self._store.admit_object(new, by)
            else:
                self._store.admit_update(new, version.obj, by)
                merge_events(new, version.obj)
                if violations := self._store.strategy.validate_update(new, version.obj):
                    raise Rejected(errors.invalid(EVENTS, name, violations))
            return PutObject(new)

        return Mutation(EVENTS.key_of(event), name, step)


def _is_forbidden_outcome(outcome: Outcome) -> bool:
    return isinstance(outcome, Refusal) and outcome.code is Code.PERMISSION_DENIED


def multiply_event_count(event: Event, times: int) -> None:
    """Multiply the count of an event. A negative count is left for validation."""
    if times > 1 and event.count >= 0:
        event.count = min(max(1, event.count) * times, MAX_EVENT_COUNT)


def merge_events(new: Event, old: Event) -> None:
    """Merge `old` into `new`: identity and first occurrence of `old`, message of `new`, sum of the counts, later timestamp."""
    count = min(max(1, new.count) + max(1, old.count), MAX_EVENT_COUNT)
    last = max(new.lastTimestamp, old.lastTimestamp, key=to_seconds)
    message = new.message
    new.CopyFrom(old)
    new.metadata.resourceVersion = ""
    new.count, new.message = count, message
    new.lastTimestamp.CopyFrom(last)


@dataclass(frozen=True, slots=True)
class EventLimits:
    count: int = MAX_RETAINED
    size: int = MAX_RETAINED_BYTES
    """Bytes."""


class ExcessEvent(NamedTuple):
    """An event to delete, with its revision in the cache."""

    key: str
    revision: int
    reason: str
    """The exceeded limit: "count" or "bytes"."""


class _NamespaceEvents:
    """The events of one namespace, ordered by their last write, oldest first."""

    __slots__ = ("entries", "size")

    def __init__(self) -> None:
        self.entries: dict[str, CacheEntry[Any]] = {}
        self.size = 0


class EventUsage:
    """The number and size of the cached events (an apiserver.cacher.cacher.CacheObserver). `size` is in bytes."""

    def __init__(self) -> None:
        self.count = 0
        self.size = 0
        self._shares: dict[str, _NamespaceEvents] = {}

    def reset_entries(self, entries: Iterable[CacheEntry[Any]]) -> None:
        self.count = self.size = 0
        self._shares = {}
        for entry in sorted(entries, key=lambda entry: entry.mod_revision):
            self.handle_change(None, entry)

    def handle_change(self, old: CacheEntry[Any] | None, new: CacheEntry[Any] | None) -> None:
        """Update the usage. A new version of an event moves to the end of its namespace."""
        if old is not None:
            self._remove(old)
        if new is not None:
            self._add(new)

    def select_excess(self, bounds: EventLimits, most: int) -> Sequence[ExcessEvent]:
        """Return the first `most` events to delete, grouped by namespace, oldest first.

        The deletes reduce an exceeded limit to SLACK below the limit. Within the limits, the result is empty.
        """
        counts = {name: len(share.entries) for name, share in self._shares.items()}
        sizes = {name: share.size for name, share in self._shares.items()}
        by_count = (
            _largest_namespace_share(counts.values(), int(bounds.count * (1 - SLACK))) if self.count > bounds.count else None
        )
        by_size = _largest_namespace_share(sizes.values(), int(bounds.size * (1 - SLACK))) if self.size > bounds.size else None
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
                count, size = count - 1, size - _entry_size(entry)
        return doomed

    def _add(self, entry: CacheEntry[Any]) -> None:
        namespace = namespace_of(entry.key)
        share = self._shares.get(namespace)
        if share is None:
            share = self._shares[namespace] = _NamespaceEvents()
        share.entries[entry.key] = entry
        size = _entry_size(entry)
        share.size += size
        self.size += size
        self.count += 1

    def _remove(self, entry: CacheEntry[Any]) -> None:
        namespace = namespace_of(entry.key)
        share = self._shares[namespace]
        del share.entries[entry.key]
        size = _entry_size(entry)
        share.size -= size
        self.size -= size
        self.count -= 1
        if not share.entries:
            del self._shares[namespace]


def _entry_size(entry: CacheEntry[Any]) -> int:
    return len(entry.key) + len(entry.value)


def _largest_namespace_share(amounts: Iterable[int], most: int) -> int:
    """Return the largest share per namespace for which the total is at most `most`."""
    remaining, ordered = most, sorted(amounts)
    for number, amount in enumerate(ordered):
        share = remaining // (len(ordered) - number)
        if amount > share:
            return share
        remaining -= amount
    return ordered[-1] if ordered else 0


class EventRetention:
    """Deletes events over the limits: `run` does so until it is cancelled. `usage`: the present usage. `dropped`: the number of
    events that this server has deleted, by exceeded limit."""

    def __init__(self, storage: Storage, cacher: Cacher, clock: Clock, bounds: EventLimits) -> None:
        self.usage = EventUsage()
        self.dropped = {"count": 0, "bytes": 0}
        self._storage = storage
        self._cacher = cacher
        self._cache = cacher.cache_of(EVENTS)
        self._cache.observe(self.usage)
        self._clock = clock
        self._bounds = bounds
        self._key_at = 0  # last seen mod_revision of the key; 0: the key did not exist
        self._owns_turn = False
        self._taken_by_other_at = float("-inf")  # time of the last move by another server

    async def run(self) -> None:
        while True:
            await self._clock.sleep(CHECK_INTERVAL)
            try:
                while await self._delete_excess_events():
                    await self._clock.sleep(PAUSE)
            except (StorageError, CacheBehind) as error:
                log.warning("events over the limit are not deleted: %s", error)

    async def _delete_excess_events(self) -> bool:
        """Delete up to MAX_CONSIDERED events and return whether any was deleted. Raises StorageError, CacheBehind."""
        if not self._cache.loaded or (
            not self._owns_turn and self._clock.monotonic() < self._taken_by_other_at + OWNER_TIMEOUT
        ):
            return False
        doomed = self.usage.select_excess(self._bounds, MAX_CONSIDERED)
        if not doomed or not (self._owns_turn or await self._claim_deletion_turn()):
            return False
        revision = 0
        for start in range(0, len(doomed), MAX_DELETES):
            deleted = await self._delete_unchanged(doomed[start : start + MAX_DELETES])
            if deleted is None:
                break
            revision = max(revision, deleted)
        await self._cacher.wait_for(revision, CACHE_TIMEOUT)
        return revision > 0

    async def _claim_deletion_turn(self) -> bool:
        """Return whether this server may delete. Raises StorageError."""
        try:
            return isinstance(await self._delete_and_move_key(()), Committed)
        except OutOfSpace:
            return True

    async def _delete_unchanged(self, doomed: Sequence[ExcessEvent]) -> int | None:
        """Delete the events that have not changed.

        Return the revision, 0 if all events have changed, or None if another server deletes. Raises StorageError.
        """
        while doomed:
            deletes = [Write(event.key, None, expected=event.revision) for event in doomed]
            key_at = self._key_at
            try:
                answer = await self._delete_and_move_key(deletes)
            except OutOfSpace:
                answer = await self._storage.transact(deletes)
            if isinstance(answer, Committed):
                for event in doomed:
                    self.dropped[event.reason] += 1
                return answer.revision
            if self._key_at != key_at:
                return None
            doomed = [event for event in doomed if _revision_of(answer.current[event.key]) == event.revision]
        return 0

    async def _delete_and_move_key(self, deletes: Sequence[Write]) -> Committed | CompareFailed:
        """Move the key and run the deletes in one transaction; store the position of the key. Raises StorageError."""
        answer = await self._storage.transact([Write(EVENTS_TRIM_KEY, b"", expected=self._key_at), *deletes])
        if isinstance(answer, Committed):
            self._key_at, self._owns_turn = answer.revision, True
        elif (revision := _revision_of(answer.current[EVENTS_TRIM_KEY])) != self._key_at:
            self._key_at, self._owns_turn, self._taken_by_other_at = revision, False, self._clock.monotonic()
        return answer


def _revision_of(current: KeyValue | None) -> int:
    return current.mod_revision if current is not None else 0
