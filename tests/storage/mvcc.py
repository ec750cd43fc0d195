"""The semantics of etcd in memory: revisions, versions, compaction, transactions, leases. Synchronous; time is passed in.

    transact, revoke, expire --> a new revision --> versions of keys, and the log --compact--> forgotten

As in etcd, the store keeps every version of every key until compaction. `expire` ends the leases that have expired at `now`
(monotonic seconds). Until then, their keys exist, but they cannot be renewed.

tests/contract/test_storage_random.py compares the store with etcd by random sequences of operations. MemoryStorage and the
simulation wrap it as a Storage.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from sortedcontainers import SortedDict

from pinnace.apiserver.storage.interface import (
    MAX_OPERATIONS,
    MAX_REQUEST_BYTES,
    ChangeBatch,
    Committed,
    Compacted,
    CompareFailed,
    KeyChange,
    KeyPage,
    KeyValue,
    LeaseNotFound,
    StorageError,
    TooLarge,
    Write,
    failure_of,
)

MIN_TTL = 1
"""Seconds. The minimum TTL of etcd is 1.5 times its election timeout, rounded up. pinnace.cluster.etcd sets that timeout."""


@dataclass(slots=True)
class _History:
    """The versions of one key, oldest first: the first revision of each version, and the state (None if absent)."""

    revisions: list[int] = field(default_factory=list)
    states: list[KeyValue | None] = field(default_factory=list)

    def at(self, revision: int) -> KeyValue | None:
        index = bisect_right(self.revisions, revision)
        return self.states[index - 1] if index else None

    def add(self, revision: int, state: KeyValue | None) -> None:
        self.revisions.append(revision)
        self.states.append(state)

    def forget_before(self, revision: int) -> None:
        """Drop all states before the one that holds at `revision`."""
        index = max(0, bisect_right(self.revisions, revision) - 1)
        del self.revisions[:index], self.states[:index]


@dataclass(slots=True)
class _Lease:
    ttl: int
    expires: float


class Mvcc:
    """`revision` is that of the last change. `compacted` is the oldest readable revision, or 0 before the first compaction."""

    def __init__(self) -> None:
        self.revision = 1
        self.compacted = 0
        self._keys: SortedDict = SortedDict()  # key -> _History
        self._log: list[ChangeBatch] = []  # one per revision after the compacted one
        self._leases: dict[int, _Lease] = {}
        self._last_lease = 0

    def get(self, key: str, revision: int = 0) -> KeyValue | None:
        return self._state(key, self._readable(revision))

    def page(self, prefix: str, after: str = "", limit: int = 0, revision: int = 0) -> KeyPage:
        at = self._readable(revision)
        items: list[KeyValue] = []
        for key in self._keys.irange(max(prefix, after), inclusive=(after < prefix, False)):
            if not key.startswith(prefix):
                break
            if (state := self._state(key, at)) is None:
                continue
            if limit and len(items) == limit:
                return KeyPage(at, items, more=True)
            items.append(state)
        return KeyPage(at, items, more=False)

    def transact(self, writes: Sequence[Write]) -> Committed | CompareFailed:
        _check_size(writes)
        keys = [write.key for write in writes] + [guard.key for write in writes for guard in write.guards]
        current = {key: self._state(key, self.revision) for key in keys}
        if any(failure_of(write, current) for write in writes):
            return CompareFailed(self.revision, current)
        if missing := {write.lease for write in writes} - self._leases.keys() - {0}:
            raise LeaseNotFound(f"lease {min(missing):x} has expired or was revoked")
        self._apply([write for write in writes if write.value is not None or write.expected])
        return Committed(self.revision)

    def compact(self, revision: int) -> None:
        if revision <= self.compacted:
            raise Compacted(self.compacted)
        if revision > self.revision:
            raise self._in_future(revision)
        del self._log[: revision - max(1, self.compacted)]
        self.compacted = revision
        for key, history in list(self._keys.items()):
            history.forget_before(revision)
            if history.states == [None]:
                del self._keys[key]

    def changes_after(self, revision: int) -> list[ChangeBatch]:
        """Return one batch per revision. Raises Compacted."""
        if revision < self.compacted:
            raise Compacted(self.compacted)
        return self._log[max(0, revision - max(1, self.compacted)) :]

    def grant(self, ttl: int, now: float) -> int:
        self._last_lease += 1
        granted = max(ttl, MIN_TTL)
        self._leases[self._last_lease] = _Lease(granted, now + granted)
        return self._last_lease

    def renew(self, lease: int, now: float) -> int:
        """Return the TTL in seconds."""
        result = self._leases.get(lease)
        if result is None or result.expires <= now:
            raise LeaseNotFound(f"lease {lease:x} has expired or was revoked")
        result.expires = now + result.ttl
        return result.ttl

    def lease_age(self, lease: int, now: float) -> float:
        """Return the seconds since the last renewal."""
        result = self._leases.get(lease)
        if result is None or result.expires <= now:
            raise LeaseNotFound(f"lease {lease:x} has expired or was revoked")
        return now - (result.expires - result.ttl)

    def revoke(self, lease: int) -> None:
        if self._leases.pop(lease, None) is not None:
            held = (history.states[-1] for history in self._keys.values())
            self._apply([Write(kv.key, None, kv.mod_revision) for kv in held if kv is not None and kv.lease == lease])

    def expire(self, now: float) -> None:
        """End the expired leases, each at its own revision."""
        for lease in [number for number, lease in self._leases.items() if lease.expires <= now]:
            self.revoke(lease)

    @property
    def next_expiry(self) -> float:
        """When the first lease expires, or infinity."""
        return min((lease.expires for lease in self._leases.values()), default=float("inf"))

    def extend_leases(self, now: float, more: float) -> None:
        """Reset each lease to its TTL plus `more` seconds, as a new leader of etcd does."""
        for lease in self._leases.values():
            lease.expires = now + lease.ttl + more

    def _readable(self, revision: int) -> int:
        """Return the revision to read at. 0 stands for the current revision."""
        if revision > self.revision:
            raise self._in_future(revision)
        if revision and revision < self.compacted:
            raise Compacted(self.compacted)
        return revision or self.revision

    def _in_future(self, revision: int) -> StorageError:
        return StorageError(f"revision {revision} is in the future, now is {self.revision}")

    def _state(self, key: str, revision: int) -> KeyValue | None:
        history: _History | None = self._keys.get(key)
        return history.at(revision) if history else None

    def _apply(self, writes: Sequence[Write]) -> None:
        """Apply writes whose compares hold as one revision."""
        if writes:
            self.revision += 1
            self._log.append(ChangeBatch(self.revision, [self._put(write) for write in writes]))

    def _put(self, write: Write) -> KeyChange:
        history: _History = self._keys.setdefault(write.key, _History())
        old = history.at(self.revision)
        if write.value is None:
            history.add(self.revision, None)
            return KeyChange(write.key, None, 0, self.revision)
        created, version = (old.create_revision, old.version + 1) if old else (self.revision, 1)
        lease = write.lease or (old.lease if old else 0)
        history.add(self.revision, KeyValue(write.key, write.value, created, self.revision, version, lease))
        return KeyChange(write.key, write.value, created, self.revision, lease)


def _check_size(writes: Sequence[Write]) -> None:
    keys = {write.key for write in writes}
    if len(keys) < len(writes):
        raise StorageError("a key occurs twice in one transaction")
    guards = {guard for write in writes for guard in write.guards}
    if len(writes) + len(guards) > MAX_OPERATIONS:
        raise TooLarge(f"{len(writes)} writes and {len(guards)} guards in one transaction, at most {MAX_OPERATIONS} together")
    if (size := sum(len(write.key) + len(write.value or b"") for write in writes)) > MAX_REQUEST_BYTES:
        raise TooLarge(f"{size} bytes in one transaction, at most {MAX_REQUEST_BYTES}")
