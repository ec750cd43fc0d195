"""etcd's semantics as a value in memory: revisions, versions, compaction, transactions, leases. Synchronous; time is passed in.

    transact, revoke, expire --> a new revision --> versions of keys, and the log --compact--> forgotten

Every version of every key is kept until it is compacted, as in etcd. Leases do not end by themselves: what has run out by `now`
(monotonic seconds) is deleted by `expire`; until then its keys are there, but it cannot be renewed.

Proven equal to etcd by random sequences of operations (tests/contract/test_storage_random.py). MemoryStorage and the simulation
put a Storage before it.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from sortedcontainers import SortedDict

from apiserver.storage.interface import (
    MAX_BYTES,
    MAX_OPERATIONS,
    Change,
    Changes,
    Committed,
    Compacted,
    CompareFailed,
    KeyValue,
    LeaseNotFound,
    Page,
    StorageError,
    TooLarge,
    Write,
    failure_of,
)

MIN_TTL = 1
"""Seconds: etcd grants no less (one and a half times its election timeout, rounded up; ours is in pinnace.cluster.etcd)."""


@dataclass(slots=True)
class _History:
    """The versions of one key, oldest first: the revision from which each holds, and the state then (None: absent)."""

    revisions: list[int] = field(default_factory=list)
    states: list[KeyValue | None] = field(default_factory=list)

    def at(self, revision: int) -> KeyValue | None:
        index = bisect_right(self.revisions, revision)
        return self.states[index - 1] if index else None

    def add(self, revision: int, state: KeyValue | None) -> None:
        self.revisions.append(revision)
        self.states.append(state)

    def forget_before(self, revision: int) -> None:
        """Keeps the state at `revision` and all that came after it."""
        index = max(0, bisect_right(self.revisions, revision) - 1)
        del self.revisions[:index], self.states[:index]


@dataclass(slots=True)
class _Lease:
    ttl: int
    expires: float


class Mvcc:
    """`revision`: of the last change; `compacted`: the oldest that can be read, 0 when nothing was compacted."""

    def __init__(self) -> None:
        self.revision = 1
        self.compacted = 0
        self._keys: SortedDict = SortedDict()  # key -> _History
        self._log: list[Changes] = []  # one for each revision after the compacted one
        self._leases: dict[int, _Lease] = {}
        self._last_lease = 0

    def get(self, key: str, revision: int = 0) -> KeyValue | None:
        return self._state(key, self._readable(revision))

    def page(self, prefix: str, after: str = "", limit: int = 0, revision: int = 0) -> Page:
        at = self._readable(revision)
        items: list[KeyValue] = []
        for key in self._keys.irange(max(prefix, after), inclusive=(after < prefix, False)):
            if not key.startswith(prefix):
                break
            if (state := self._state(key, at)) is None:
                continue
            if limit and len(items) == limit:
                return Page(at, items, more=True)
            items.append(state)
        return Page(at, items, more=False)

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

    def changes_after(self, revision: int) -> list[Changes]:
        """One for each revision. Raises Compacted."""
        if revision < self.compacted:
            raise Compacted(self.compacted)
        return self._log[max(0, revision - max(1, self.compacted)) :]

    def grant(self, ttl: int, now: float) -> int:
        self._last_lease += 1
        granted = max(ttl, MIN_TTL)
        self._leases[self._last_lease] = _Lease(granted, now + granted)
        return self._last_lease

    def renew(self, lease: int, now: float) -> int:
        """The seconds it is good for."""
        found = self._leases.get(lease)
        if found is None or found.expires <= now:
            raise LeaseNotFound(f"lease {lease:x} has expired or was revoked")
        found.expires = now + found.ttl
        return found.ttl

    def lease_age(self, lease: int, now: float) -> float:
        """Seconds since the last renewal."""
        found = self._leases.get(lease)
        if found is None or found.expires <= now:
            raise LeaseNotFound(f"lease {lease:x} has expired or was revoked")
        return now - (found.expires - found.ttl)

    def revoke(self, lease: int) -> None:
        if self._leases.pop(lease, None) is not None:
            held = (history.states[-1] for history in self._keys.values())
            self._apply([Write(kv.key, None, kv.mod_revision) for kv in held if kv is not None and kv.lease == lease])

    def expire(self, now: float) -> None:
        """Ends the leases that have run out, each at a revision of its own."""
        for lease in [number for number, lease in self._leases.items() if lease.expires <= now]:
            self.revoke(lease)

    @property
    def next_expiry(self) -> float:
        """When the first lease runs out; infinity: never."""
        return min((lease.expires for lease in self._leases.values()), default=float("inf"))

    def extend_leases(self, now: float, more: float) -> None:
        """As a new leader of etcd does: each has all its time again, and `more` seconds."""
        for lease in self._leases.values():
            lease.expires = now + lease.ttl + more

    def _readable(self, revision: int) -> int:
        """The revision to read at, for one that was asked for (0: now)."""
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
        """Makes one revision of writes that are known to hold."""
        if writes:
            self.revision += 1
            self._log.append(Changes(self.revision, [self._put(write) for write in writes]))

    def _put(self, write: Write) -> Change:
        history: _History = self._keys.setdefault(write.key, _History())
        old = history.at(self.revision)
        if write.value is None:
            history.add(self.revision, None)
            return Change(write.key, None, 0, self.revision)
        created, version = (old.create_revision, old.version + 1) if old else (self.revision, 1)
        lease = write.lease or (old.lease if old else 0)
        history.add(self.revision, KeyValue(write.key, write.value, created, self.revision, version, lease))
        return Change(write.key, write.value, created, self.revision, lease)


def _check_size(writes: Sequence[Write]) -> None:
    keys = {write.key for write in writes}
    if len(keys) < len(writes):
        raise StorageError("a key occurs twice in one transaction")
    guards = {guard for write in writes for guard in write.guards}
    if len(writes) + len(guards) > MAX_OPERATIONS:
        raise TooLarge(f"{len(writes)} writes and {len(guards)} guards in one transaction, at most {MAX_OPERATIONS} together")
    if (size := sum(len(write.value or b"") for write in writes)) > MAX_BYTES:
        raise TooLarge(f"{size} bytes of values in one transaction, at most {MAX_BYTES}")
