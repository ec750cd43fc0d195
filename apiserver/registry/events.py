"""Events: all of them expire, and like ones are merged when they are recorded.

An event that is there already (by namespace and name, which reporters derive from what makes events alike) grows: its count
by the count sent, its lastTimestamp to the later one. One without a name is like no other: it is refused. Every event hangs on
an etcd lease, whichever verb wrote it last; events of the same minute share one, so that expiry costs etcd next to nothing (as
in Kubernetes' lease manager).
"""

from __future__ import annotations  # those of the steps below would be evaluated for every object

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from apiserver import errors
from apiserver.cacher.errors import CacheError
from apiserver.errors import Rejected
from apiserver.registry.admission import Request
from apiserver.registry.mutation import Commits, Mutation, Outcome, Put, Version
from apiserver.registry.store import Store
from apiserver.storage.committer import Outcome as Committal
from apiserver.storage.interface import Storage, StorageError, Write
from pinnace.api.core_v1_pb2 import Event
from pinnace.api.resources import DEFAULT_NAMESPACE, EVENTS
from pinnace.api.scalars import to_seconds
from pinnace.api.status import Code, Refusal, Violation
from pinnace.runtime.clock import Clock

TTL = 3600
"""Seconds that an event lives after its last occurrence."""
LEASE_REUSE = 60
"""Seconds during which events share a lease."""
MAX_COUNT = 2**31 - 1
"""Occurrences that are counted: the field has 32 bits."""


class Expiring:
    """Commits events: a Commits that gives each its time."""

    def __init__(self, committer: Commits, storage: Storage, clock: Clock) -> None:
        self._committer = committer
        self._storage = storage
        self._clock = clock
        self._lease = 0
        self._until = 0.0

    async def commit_many(self, writes: Sequence[Write]) -> list[Committal]:
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
        """The lease of events of now. Raises StorageError."""
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
        """One that is there many times is one of a larger count: a single write, and not as many in a row. A dry run is told by
        caches that are up to date."""
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
        event.metadata.resourceVersion = ""  # it grows, whichever it is, and one that has expired begins anew
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
        event.count = min(max(1, event.count) * times, MAX_COUNT)


def merge(new: Event, old: Event) -> None:
    """Makes `new` the sum of both: identity and first occurrence of the old one, the message of the new, the later time."""
    count = min(max(1, new.count) + max(1, old.count), MAX_COUNT)
    last = max(new.lastTimestamp, old.lastTimestamp, key=to_seconds)
    message = new.message
    new.CopyFrom(old)
    new.metadata.resourceVersion = ""
    new.count, new.message = count, message
    new.lastTimestamp.CopyFrom(last)
