"""Recording events: like ones are merged, and all expire.

An event that is there already (by namespace and name, which reporters derive from what makes events alike) grows: its count
by the count sent, its lastTimestamp to the later one. Every event hangs on an etcd lease; events of the same minute share one,
so that expiry costs etcd next to nothing (as in Kubernetes' lease manager).
"""

from __future__ import annotations  # those of the steps below would be evaluated for every object

from collections.abc import Sequence

from apiserver.registry import errors
from apiserver.registry.admission import Request
from apiserver.registry.errors import Rejected
from apiserver.registry.mutation import Mutation, Outcome, Put, Version
from apiserver.registry.store import Store
from apiserver.storage.interface import Storage, StorageError
from pinnace.api.core_v1_pb2 import Event
from pinnace.api.resources import DEFAULT_NAMESPACE, EVENTS
from pinnace.api.times import to_seconds
from pinnace.runtime.clock import Clock

TTL = 3600
"""Seconds that an event lives after its last occurrence."""
LEASE_REUSE = 60
"""Seconds during which events share a lease."""
MAX_COUNT = 2**31 - 1
"""Occurrences that are counted: the field has 32 bits."""


class EventLeases:
    """Hands out the lease for events of now."""

    def __init__(self, storage: Storage, clock: Clock) -> None:
        self._storage = storage
        self._clock = clock
        self._lease = 0
        self._until = 0.0

    async def current(self) -> int:
        """Raises StorageError."""
        now = self._clock.monotonic()
        if now >= self._until:
            self._lease = await self._storage.grant_lease(TTL + LEASE_REUSE)
            self._until = now + LEASE_REUSE
        return self._lease


class EventRegistry:
    """The verb Record."""

    def __init__(self, store: Store[Event], leases: EventLeases) -> None:
        self._store = store
        self._leases = leases

    async def record(self, events: Sequence[Event], by: Request) -> list[Outcome]:
        try:
            lease = await self._leases.current()
        except StorageError as error:
            return [errors.from_storage(error)] * len(events)
        return await self._store.mutate([self._mutation(event, lease, by) for event in events])

    def _mutation(self, event: Event, lease: int, by: Request) -> Mutation[Event]:
        event.metadata.namespace = event.metadata.namespace or event.involvedObject.namespace or DEFAULT_NAMESPACE
        name = event.metadata.name

        def step(version: Version[Event] | None) -> Put[Event]:
            new = Event()
            new.CopyFrom(event)
            if version is None:
                self._store.complete(new, by)
            else:
                merge(new, version.obj)
                if violations := self._store.strategy.validate_update(new, version.obj):
                    raise Rejected(errors.invalid(EVENTS, name, violations))
            return Put(new, lease)

        return Mutation(EVENTS.key_of(event), name, step)


def merge(new: Event, old: Event) -> None:
    """Makes `new` the sum of both: identity and first occurrence of the old one, the message of the new, the later time."""
    count = min(max(1, new.count) + max(1, old.count), MAX_COUNT)
    last = max(new.lastTimestamp, old.lastTimestamp, key=to_seconds)
    message = new.message
    new.CopyFrom(old)
    new.metadata.resourceVersion = ""
    new.count, new.message = count, message
    new.lastTimestamp.CopyFrom(last)
