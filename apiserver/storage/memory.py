"""MemoryStorage: etcd's semantics in a dictionary, for tests and simulation. Nothing survives the process.

It keeps every version of every key until it is compacted, as etcd does; leases expire by the clock that is passed in. It runs
no task of its own: what has expired is deleted when somebody calls, or by a watch that waits.
"""

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

from sortedcontainers import SortedDict

from apiserver.storage.interface import (
    MAX_BYTES,
    MAX_OPERATIONS,
    Change,
    Changes,
    Committed,
    Compacted,
    KeyValue,
    LeaseNotFound,
    Page,
    Refused,
    StorageError,
    TooLarge,
    Write,
)
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock

SIGN_OF_LIFE = 1.0
"""Seconds after which a watch that has nothing to tell says so."""


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
    """By the clock's monotonic time."""


class _Watcher:
    """What one watch has not taken yet."""

    def __init__(self, backlog: Sequence[Changes]) -> None:
        self.pending = deque(backlog)
        self.wake = asyncio.Event()


class MemoryStorage:
    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._revision = 1
        self._compacted = 0
        self._keys: SortedDict = SortedDict()  # key -> _History
        self._log: list[Changes] = []  # one for each revision after the compacted one
        self._leases: dict[int, _Lease] = {}
        self._last_lease = 0
        self._watchers: dict[_Watcher, None] = {}  # in the order in which they came, so that a run can be repeated

    async def get(self, key: str, *, revision: int = 0) -> KeyValue | None:
        return self._state(key, self._readable(revision))

    async def page(self, prefix: str, *, after: str = "", limit: int = 500, revision: int = 0) -> Page:
        at = self._readable(revision)
        items: list[KeyValue] = []
        for key in self._keys.irange(max(prefix, after), inclusive=(after < prefix, False)):
            if not key.startswith(prefix):
                break
            if (state := self._state(key, at)) is None:
                continue
            if len(items) == limit:
                return Page(at, items, more=True)
            items.append(state)
        return Page(at, items, more=False)

    async def current_revision(self) -> int:
        return self._readable(0)

    async def transact(self, writes: Sequence[Write]) -> Committed | Refused:
        self._expire()
        _check_size(writes)
        guards = {guard for write in writes for guard in write.guards}
        current = {key: self._state(key, self._revision) for key in [w.key for w in writes] + [g.key for g in guards]}
        if any(_mod_revision(current[write.key]) != write.expected for write in writes) or any(
            (state := current[guard.key]) is None or state.create_revision != guard.create_revision for guard in guards
        ):
            return Refused(self._revision, current)
        if missing := {write.lease for write in writes} - self._leases.keys() - {0}:
            raise LeaseNotFound(f"lease {missing.pop():x} has expired or was revoked")
        return Committed(self._apply([write for write in writes if write.value is not None or write.expected]))

    async def watch(self, start_revision: int) -> AsyncGenerator[Changes]:
        self._expire()
        if start_revision <= self._compacted:
            raise Compacted(self._compacted)
        told = start_revision - 1
        watcher = _Watcher([changes for changes in self._log if changes.revision > told])
        self._watchers[watcher] = None
        try:
            yield Changes(told, ())
            while True:
                if not watcher.pending:
                    await self._wait(watcher)
                if not watcher.pending:
                    yield Changes(told, ())
                elif (batch := watcher.pending.popleft()).revision >= start_revision:
                    told = batch.revision
                    yield batch
        finally:
            del self._watchers[watcher]

    async def compact(self, revision: int) -> None:
        self._expire()
        if revision <= self._compacted:
            raise Compacted(self._compacted)
        if revision > self._revision:
            raise StorageError(f"revision {revision} is in the future, now is {self._revision}")
        self._compacted = revision
        self._log = [changes for changes in self._log if changes.revision > revision]
        for key, history in list(self._keys.items()):
            history.forget_before(revision)
            if history.states == [None]:
                del self._keys[key]

    async def grant_lease(self, ttl: int) -> int:
        self._last_lease += 1
        self._leases[self._last_lease] = _Lease(ttl, self._clock.monotonic() + ttl)
        return self._last_lease

    async def renew_lease(self, lease: int) -> float:
        self._expire()
        if (found := self._leases.get(lease)) is None:
            raise LeaseNotFound(f"lease {lease:x} has expired or was revoked")
        found.expires = self._clock.monotonic() + found.ttl
        return float(found.ttl)

    async def revoke_lease(self, lease: int) -> None:
        self._expire()
        if self._leases.pop(lease, None) is not None:
            self._delete_keys_of(lease)

    async def close(self) -> None:
        pass

    def _readable(self, revision: int) -> int:
        """The revision to read at, for one that was asked for (0: now)."""
        self._expire()
        if revision > self._revision:
            raise StorageError(f"revision {revision} is in the future, now is {self._revision}")
        if revision and revision < self._compacted:
            raise Compacted(self._compacted)
        return revision or self._revision

    def _state(self, key: str, revision: int) -> KeyValue | None:
        history: _History | None = self._keys.get(key)
        return history.at(revision) if history else None

    def _apply(self, writes: Sequence[Write]) -> int:
        """Makes one revision of writes that are known to hold; the store's revision afterwards."""
        if not writes:
            return self._revision
        self._revision += 1
        changes = Changes(self._revision, [self._put(write) for write in writes])
        self._log.append(changes)
        for watcher in self._watchers:
            watcher.pending.append(changes)
            watcher.wake.set()
        return self._revision

    def _put(self, write: Write) -> Change:
        history: _History = self._keys.setdefault(write.key, _History())
        old = history.at(self._revision)
        if write.value is None:
            history.add(self._revision, None)
            return Change(write.key, None, 0, self._revision)
        created, version = (old.create_revision, old.version + 1) if old else (self._revision, 1)
        lease = write.lease or (old.lease if old else 0)
        history.add(self._revision, KeyValue(write.key, write.value, created, self._revision, version, lease))
        return Change(write.key, write.value, created, self._revision, lease)

    def _expire(self) -> None:
        now = self._clock.monotonic()
        for lease in [number for number, lease in self._leases.items() if lease.expires <= now]:
            del self._leases[lease]
            self._delete_keys_of(lease)

    def _delete_keys_of(self, lease: int) -> None:
        states = (history.states[-1] for history in self._keys.values())
        self._apply([Write(kv.key, None, kv.mod_revision) for kv in states if kv is not None and kv.lease == lease])

    async def _wait(self, watcher: _Watcher) -> None:
        """Until there is something for the watcher, a lease has run out, or it is time for a sign of life."""
        next_expiry = min((lease.expires for lease in self._leases.values()), default=float("inf"))
        pause = max(0.0, min(SIGN_OF_LIFE, next_expiry - self._clock.monotonic()))
        watcher.wake.clear()
        waits = [asyncio.ensure_future(watcher.wake.wait()), asyncio.ensure_future(self._clock.sleep(pause))]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        self._expire()


def _mod_revision(state: KeyValue | None) -> int:
    return state.mod_revision if state else 0


def _check_size(writes: Sequence[Write]) -> None:
    keys = {write.key for write in writes}
    if len(keys) < len(writes):
        raise StorageError("a key occurs twice in one transaction")
    guards = {guard for write in writes for guard in write.guards}
    if len(writes) + len(guards) > MAX_OPERATIONS:
        raise TooLarge(f"{len(writes)} writes and {len(guards)} guards in one transaction, at most {MAX_OPERATIONS} together")
    if (size := sum(len(write.value or b"") for write in writes)) > MAX_BYTES:
        raise TooLarge(f"{size} bytes of values in one transaction, at most {MAX_BYTES}")
