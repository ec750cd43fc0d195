"""Leases: the standard verbs, and current values for the Lease objects of nodes and elections.

A fleet's session writes the Lease object of a node when the fleet claims the node, and attaches it to the etcd lease of the
session. Heartbeats renew only the etcd lease. So `get` and `list` set renewTime to the time of the last renewal, with a
precision of a second, which etcd knows for the sessions of all API servers. They read each session from etcd at most once per
second.

The Lease objects of elections in kube-system show the leaders, and candidates do not compete for them. They are written after
each change of the term (election.term_history). `get` and `list` set holder, acquireTime and renewTime from the election's key
and its session.

These values are not stored: the resourceVersion stays the same, and watches send no events for them. Watches, and lists at an
exact revision, return the stored values. So do all reads while etcd is unavailable.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from pinnace.api.coordination_v1_pb2 import Lease, LeaseList
from pinnace.api.elections_pb2 import Election
from pinnace.api.integers import parse_natural
from pinnace.api.meta_v1_pb2 import MicroTime
from pinnace.api.resources import LEASES, NODE_LEASE_NAMESPACE, SYSTEM_NAMESPACE, election_key
from pinnace.api.scalars import to_micro_time, to_seconds
from pinnace.api.verbs_pb2 import DeleteCollectionRequest, GetRequest, ListRequest
from pinnace.api.wellknown import BIRTH_ANNOTATION, FENCE_ANNOTATION, STREAM_ANNOTATION
from pinnace.apiserver.auth.audit import AuditSink
from pinnace.apiserver.auth.authorizer import Authorizer
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.registry.store import Store
from pinnace.apiserver.services.methods import Context
from pinnace.apiserver.services.resource import ResourceService
from pinnace.apiserver.services.sessions import election_of
from pinnace.apiserver.storage.interface import KeyValue, Storage, StorageError
from pinnace.runtime.clock import Clock
from pinnace.runtime.tasks import TimeSlice

RENEWAL_CACHE_SECONDS = 1.0
"""Seconds for which a response of etcd is used. Its precision is a second."""
MAX_SESSIONS = 10_000
"""Maximum number of sessions in the cache."""
_STAMPED = frozenset({NODE_LEASE_NAMESPACE, SYSTEM_NAMESPACE, ""})


class LeaseService(ResourceService[Lease]):
    def __init__(
        self,
        store: Store[Lease],
        cacher: Cacher,
        audit: AuditSink,
        authorizer: Authorizer,
        storage: Storage,
        clock: Clock,
    ) -> None:
        super().__init__(store, cacher, audit, authorizer)
        self._renewal_times = RenewalTimes(cacher, storage, clock)
        self._clock = clock

    async def get(self, request: GetRequest, context: Context) -> bytes:
        data = await super().get(request, context)
        if request.namespace not in _STAMPED:
            return data
        lease = Lease.FromString(data)
        await self._renewal_times.load_sessions((lease,))
        self._renewal_times.stamp_lease(lease)
        return lease.SerializeToString()

    async def list(self, request: ListRequest | DeleteCollectionRequest, context: Context) -> bytes:
        data = await super().list(request, context)
        past = request.options.resourceVersionMatch == "Exact"
        if request.namespace not in _STAMPED or past or isinstance(request, DeleteCollectionRequest):
            return data
        leases, turn = LeaseList.FromString(data), TimeSlice(self._clock)
        await self._renewal_times.load_sessions(leases.items)
        for lease in leases.items:
            self._renewal_times.stamp_lease(lease)
            await turn.end()
        return leases.SerializeToString()


class RawKeyReader(Protocol):
    """The part of the cacher that RenewalTimes uses."""

    def raw_key(self, key: str) -> KeyValue | None: ...


class RenewalTimes:
    """The renewal times of sessions. `load_sessions` reads them from etcd. `stamp_lease` writes them into an object,
    without I/O."""

    def __init__(self, cacher: RawKeyReader, storage: Storage, clock: Clock) -> None:
        self._cacher = cacher
        self._storage = storage
        self._clock = clock
        self._sessions: dict[str, int] = {}
        """Sessions by the stream that wrote the Lease object of a node; 0: the stream has no session."""
        self._renewed: dict[int, tuple[float, float]] = {}
        """By session: its last renewal in Unix seconds, and the time of the read from etcd in monotonic seconds."""

    async def load_sessions(self, leases: Sequence[Lease]) -> None:
        streams = {stream: lease.metadata.name for lease in leases if (stream := _writer_stream(lease))}
        unknown = {stream: node for stream, node in streams.items() if stream not in self._sessions}
        wanted = {session for lease in leases if (session := self._session_of(lease))}
        for stream, result in zip(unknown, await asyncio.gather(*map(self._read_session, unknown.values())), strict=True):
            if result is not None:
                self._sessions[stream] = result
                wanted.add(result)
        now = self._clock.monotonic()
        stale = [
            number
            for number in wanted - {0}
            if now - self._renewed.get(number, (0.0, float("-inf")))[1] >= RENEWAL_CACHE_SECONDS
        ]
        await asyncio.gather(*map(self._read_renewal, stale))
        for known in (self._sessions, self._renewed):
            if len(known) > MAX_SESSIONS:
                known.clear()

    def stamp_lease(self, lease: Lease) -> None:
        if (election := _election_of(lease)) is not None:
            self._set_current_leader(lease, election)
        if (renewed := self._renewed.get(self._session_of(lease))) is not None:
            at = to_micro_time(renewed[0])
            if to_seconds(at) > to_seconds(lease.spec.renewTime):
                lease.spec.renewTime.CopyFrom(at)

    def _session_of(self, lease: Lease) -> int:
        """Return the session of a Lease object; 0 if it is unknown or does not exist."""
        if (election := _election_of(lease)) is not None:
            record = self._cacher.raw_key(election_key(election))
            return record.lease if record is not None else 0
        return self._sessions.get(_writer_stream(lease), 0)

    async def _read_session(self, node: str) -> int | None:
        """Return the session to which the Lease object of a node is attached; None if etcd is unavailable or the object is
        missing."""
        try:
            record = await self._storage.get(LEASES.key(NODE_LEASE_NAMESPACE, node))
        except StorageError:
            return None
        return record.lease if record is not None else None

    async def _read_renewal(self, session: int) -> None:
        try:
            age = await self._storage.lease_age(session)
        except StorageError:
            self._renewed.pop(session, None)
        else:
            self._renewed[session] = self._clock.time() - age, self._clock.monotonic()

    def _set_current_leader(self, lease: Lease, election: str) -> None:
        """Set the fields from the present leader. The stored object may be older."""
        record = self._cacher.raw_key(election_key(election))
        if record is None:
            lease.spec.holderIdentity = ""
            return
        result = election_of(record)
        lease.metadata.annotations[FENCE_ANNOTATION] = f"{election}/{result.token}"
        lease.spec.holderIdentity = result.holder
        for moment in (lease.spec.acquireTime, lease.spec.renewTime):
            moment.CopyFrom(_later_time(result, moment))


def _later_time(election: Election, moment: MicroTime) -> MicroTime:
    return max(election.since, moment, key=to_seconds)


def _writer_stream(lease: Lease) -> str:
    """Return the stream that wrote the Lease object of a node; "" for other Lease objects."""
    if lease.metadata.namespace != NODE_LEASE_NAMESPACE or BIRTH_ANNOTATION not in lease.metadata.annotations:
        return ""
    return lease.metadata.annotations.get(STREAM_ANNOTATION, "")


def _election_of(lease: Lease) -> str | None:
    """Return the election that a Lease object shows, or None."""
    if lease.metadata.namespace != SYSTEM_NAMESPACE:
        return None
    election, _, token = lease.metadata.annotations.get(FENCE_ANNOTATION, "").rpartition("/")
    return election if election and parse_natural(token) is not None else None
