"""The storage that the API server needs: a revisioned key-value store with transactions, leases and a watch.

Implementations: `apiserver.storage.etcd`, and `tests.storage.memory`. One contract suite covers both
(tests/contract/test_storage.py).

    StorageError
    +-- Unavailable         no answer in time, no quorum or no connection. A read did not happen; a write raises
    |                       OutcomeUnknown instead, unless it certainly never left.
    +-- OutcomeUnknown      the answer of a write was lost: it may have happened, or may still happen.
    +-- Compacted           the revision is gone; `compact_revision` is the oldest that is left.
    +-- OutOfSpace          the store refuses puts (etcd's NOSPACE alarm). A transaction with puts may have happened, but
    |                       will not happen later.
    +-- LeaseNotFound       the lease has expired or was revoked.
    +-- TooLarge            the request exceeds the limit of the store; a retry does not help.

A refused transaction fails for the writes whose compare or guard does not hold (Conflict, GuardFailed); the others can be
sent again. Types that exist once for each write are NamedTuples: one costs a third of a frozen dataclass.

Storages around a storage: one below a key prefix, and one that measures calls.

`Prefixed` lets several control planes share one etcd: `/staging` and `/registry/pods/default/a` give
`/staging/registry/pods/default/a`. Revisions, compaction, leases and alarms belong to the whole etcd. Changes outside the
prefix stay in the watch, because every revision must pass; their keys get the prefix OUTSIDE, which no reader follows.

`Measured` reports the duration and the success of each call.
"""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar, cast

MAX_OPERATIONS = 128
"""Most writes and distinct guards, together, in one transaction (etcd's default --max-txn-ops)."""
MAX_BYTES = 1 << 20
"""Most bytes of values in one transaction (etcd's default --max-request-bytes is 1.5 MiB)."""


class StorageError(Exception):
    """Base of everything that a storage raises."""


class Unavailable(StorageError):
    pass


class OutcomeUnknown(StorageError):
    pass


class OutOfSpace(StorageError):
    pass


class LeaseNotFound(StorageError):
    pass


class TooLarge(StorageError):
    pass


class Compacted(StorageError):
    def __init__(self, compact_revision: int) -> None:
        super().__init__(f"compacted up to revision {compact_revision}")
        self.compact_revision = compact_revision


class KeyValue(NamedTuple):
    """One version of one key. `version` counts its writes since it was created, from 1."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    lease: int = 0


class Guard(NamedTuple):
    """A condition on another key: it exists and was created at exactly this revision (that is a fencing token); or, where it
    says so, it is the very version that was last modified at that one."""

    key: str
    create_revision: int
    mod_revision: int = 0
    """0: any version since it was created."""

    def holds(self, current: "KeyValue | None") -> bool:
        """`current`: the key as it is; None: absent."""
        if current is None:
            return False
        if self.mod_revision:
            return current.mod_revision == self.mod_revision
        return current.create_revision == self.create_revision


class Write(NamedTuple):
    """One compare-and-swap: happens only if `key` was last modified at `expected` and all `guards` hold."""

    key: str
    value: bytes | None
    """None deletes the key."""
    expected: int
    """The mod_revision that the key must have; 0: it must not exist."""
    guards: tuple[Guard, ...] = ()
    lease: int = 0
    """Attach the key to this lease; 0: a key that exists keeps the one it has, a new one has none."""
    grows: bool = False
    """An update that may use more of a quota: it is charged like a create."""


@dataclass(frozen=True, slots=True)
class Committed:
    """All writes of the transaction happened, at this one revision."""

    revision: int


@dataclass(frozen=True, slots=True)
class CompareFailed:
    """No write happened. `current` has the state of every key that was compared (guards too), None where it is absent."""

    revision: int
    current: Mapping[str, KeyValue | None]


@dataclass(frozen=True, slots=True)
class Page:
    """Some keys in order, as they were at `revision`. `more`: the range goes on after the last of them."""

    revision: int
    items: Sequence[KeyValue]
    more: bool


class Change(NamedTuple):
    """A key was put (`value` set; `create_revision == mod_revision` when it is new) or deleted (`value` None)."""

    key: str
    value: bytes | None
    create_revision: int
    mod_revision: int
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Changes:
    """Whole revisions: everything that changed up to `revision` and was not in the batches before, in order.
    Without changes it is a sign of life: nothing else happened up to `revision`."""

    revision: int
    changes: Sequence[Change]


class Storage(Protocol):
    """Every method has a deadline of its own (the implementation's) and raises StorageError only."""

    async def get(self, key: str, *, revision: int = 0) -> KeyValue | None:
        """The key now (linearizable), or as it was at `revision`. Raises Compacted."""
        ...

    async def page(self, prefix: str, *, after: str = "", limit: int = 500, revision: int = 0) -> Page:
        """Keys that begin with `prefix`, in order, those after `after`, at `revision` (0: now). Raises Compacted."""
        ...

    async def current_revision(self) -> int:
        """The store's revision now (linearizable)."""
        ...

    async def transact(self, writes: Sequence[Write]) -> Committed | CompareFailed:
        """All of the writes or none. Keys are distinct; at most MAX_OPERATIONS and MAX_BYTES. Raises OutcomeUnknown, and
        LeaseNotFound when all compares hold and a lease is gone."""
        ...

    def watch(self, start_revision: int) -> AsyncIterator[Changes]:
        """Every change of every key from `start_revision` on, in order, whole revisions only, until closed. What it tells of a
        revision is the same whenever it is asked.

        The first sign of life comes at once, the next ones when there is nothing to tell for a second or so. A watch can start
        right after every revision that can still be read: raises Compacted when `start_revision` <= compact_revision (perhaps
        after a sign of life), Unavailable when the stream breaks or falls silent: resume after the last `Changes.revision`.
        """
        ...

    def watch_stalled(self) -> None:
        """Whoever watched has given up: he was told nothing, although the store is known to be ahead. The next watch, and all
        else, goes to another member, if there is one."""
        ...

    async def compact(self, revision: int) -> None:
        """Forgets versions before `revision`; the last version of a key that exists stays as it is. Raises Compacted when that
        has happened already. A store that is out of space does it too, and takes puts again if that was enough."""
        ...

    async def grant_lease(self, ttl: int) -> int:
        """A new lease that runs out `ttl` seconds after its last renewal; its id, which is a secret: whoever says it is taken
        to be the owner of the session that the lease stands for. (One that is for tests may count.)"""
        ...

    async def renew_lease(self, lease: int) -> float:
        """Renews; the seconds it is good for from now. Raises LeaseNotFound."""
        ...

    async def lease_age(self, lease: int) -> float:
        """Seconds since the lease was granted or last renewed, to the second. Raises LeaseNotFound."""
        ...

    async def revoke_lease(self, lease: int) -> None:
        """Ends the lease and deletes its keys. A lease that is gone already is no error."""
        ...

    async def close(self) -> None: ...


class Conflict(Exception):
    """The key is not at `write.expected`; `current` is what it is instead, None when it is absent. Nothing was written."""

    def __init__(self, write: Write, current: KeyValue | None) -> None:
        super().__init__(f"{write.key} is at revision {current.mod_revision if current else 0}, not at {write.expected}")
        self.write = write
        self.current = current


class GuardFailed(Exception):
    """The guard does not hold; `current` is the guard's key now, None when it is absent. Nothing was written."""

    def __init__(self, guard: Guard, current: KeyValue | None) -> None:
        found = f"created at revision {current.create_revision}, modified at {current.mod_revision}" if current else "absent"
        modified = f", modified at {guard.mod_revision}" if guard.mod_revision else ""
        super().__init__(f"{guard.key} is {found}, not created at {guard.create_revision}{modified}")
        self.guard = guard
        self.current = current


class Denied(Exception):
    """Somebody who was asked before the transaction left will not have this write. Nothing was written."""


States = Mapping[str, KeyValue | None]
"""What some keys were at one revision; None: absent."""


def failure_of(write: Write, current: States) -> Conflict | GuardFailed | None:
    """Why `write` cannot happen in this state; None when it could. A lost fence says more than a lost race: it comes first."""
    for guard in write.guards:
        found = current[guard.key]
        if not guard.holds(found):
            return GuardFailed(guard, found)
    return None if is_at_expected(write, current[write.key]) else Conflict(write, current[write.key])


def is_at_expected(write: Write, state: KeyValue | None) -> bool:
    return (state.mod_revision if state else 0) == write.expected


OUTSIDE = "\0"
"""Begins the keys of others. No key of a control plane begins with it."""
RESERVED = ("registry", "pinnace.io")
"""Segments that no prefix may have: with one of them, keys of two control planes could be taken for each other's."""


def check_prefix(prefix: str) -> str:
    """The prefix as given. Raises ValueError with a message for the command line."""
    segments = prefix.split("/")
    if not prefix:
        return prefix
    if segments[0] or len(segments) == 1 or not all(segments[1:]) or not prefix.isprintable() or " " in prefix:
        raise ValueError(f'"{prefix}" is not a prefix: begin with "/" and do not end with it, such as "/staging"')
    if taken := [segment for segment in segments if segment in RESERVED]:
        raise ValueError(f'"{prefix}" cannot contain the segment "{taken[0]}": keys below the prefix begin with it')
    return prefix


class Prefixed:
    """As the storage inside, with every key below `prefix`."""

    def __init__(self, inner: Storage, prefix: str) -> None:
        self._inner = inner
        self._prefix = prefix

    async def get(self, key: str, *, revision: int = 0) -> KeyValue | None:
        found = await self._inner.get(self._prefix + key, revision=revision)
        return self._inside(found) if found is not None else None

    async def page(self, prefix: str, *, after: str = "", limit: int = 500, revision: int = 0) -> Page:
        after = self._prefix + after if after else ""
        page = await self._inner.page(self._prefix + prefix, after=after, limit=limit, revision=revision)
        return Page(page.revision, [self._inside(item) for item in page.items], page.more)

    async def current_revision(self) -> int:
        return await self._inner.current_revision()

    async def transact(self, writes: Sequence[Write]) -> Committed | CompareFailed:
        answer = await self._inner.transact([self._below(write) for write in writes])
        if isinstance(answer, Committed):
            return answer
        start = len(self._prefix)
        current = {key[start:]: self._inside(found) if found else None for key, found in answer.current.items()}
        return CompareFailed(answer.revision, current)

    async def watch(self, start_revision: int) -> AsyncGenerator[Changes]:
        async with aclosing(cast(AsyncGenerator[Changes], self._inner.watch(start_revision))) as told:
            async for changes in told:
                yield Changes(changes.revision, [self._seen(change) for change in changes.changes])

    def watch_stalled(self) -> None:
        self._inner.watch_stalled()

    async def compact(self, revision: int) -> None:
        await self._inner.compact(revision)

    async def grant_lease(self, ttl: int) -> int:
        return await self._inner.grant_lease(ttl)

    async def renew_lease(self, lease: int) -> float:
        return await self._inner.renew_lease(lease)

    async def lease_age(self, lease: int) -> float:
        return await self._inner.lease_age(lease)

    async def revoke_lease(self, lease: int) -> None:
        await self._inner.revoke_lease(lease)

    async def close(self) -> None:
        await self._inner.close()

    def _below(self, write: Write) -> Write:
        guards = tuple(guard._replace(key=self._prefix + guard.key) for guard in write.guards)
        return write._replace(key=self._prefix + write.key, guards=guards)

    def _inside(self, found: KeyValue) -> KeyValue:
        return found._replace(key=found.key[len(self._prefix) :])

    def _seen(self, change: Any) -> Any:
        key: str = change.key
        own = key.startswith(f"{self._prefix}/")
        return change._replace(key=key[len(self._prefix) :] if own else OUTSIDE + key)


R = TypeVar("R")
Observe = Callable[[str, float, bool], None]
"""(operation, seconds, did it fail?)"""


class Measured:
    """As the storage inside. Watches, which last, are not measured."""

    def __init__(self, inner: Storage, observe: Observe) -> None:
        self._inner = inner
        self._observe = observe

    async def get(self, key: str, *, revision: int = 0) -> KeyValue | None:
        return await self._timed("get", self._inner.get(key, revision=revision))

    async def page(self, prefix: str, *, after: str = "", limit: int = 500, revision: int = 0) -> Page:
        return await self._timed("list", self._inner.page(prefix, after=after, limit=limit, revision=revision))

    async def current_revision(self) -> int:
        return await self._timed("revision", self._inner.current_revision())

    async def transact(self, writes: Sequence[Write]) -> Committed | CompareFailed:
        return await self._timed("txn", self._inner.transact(writes))

    def watch(self, start_revision: int) -> AsyncIterator[Changes]:
        return self._inner.watch(start_revision)

    def watch_stalled(self) -> None:
        self._inner.watch_stalled()

    async def compact(self, revision: int) -> None:
        await self._timed("compact", self._inner.compact(revision))

    async def grant_lease(self, ttl: int) -> int:
        return await self._timed("lease-grant", self._inner.grant_lease(ttl))

    async def renew_lease(self, lease: int) -> float:
        return await self._timed("lease-renew", self._inner.renew_lease(lease))

    async def lease_age(self, lease: int) -> float:
        return await self._timed("lease-age", self._inner.lease_age(lease))

    async def revoke_lease(self, lease: int) -> None:
        await self._timed("lease-revoke", self._inner.revoke_lease(lease))

    async def close(self) -> None:
        await self._inner.close()

    async def _timed(self, operation: str, call: Awaitable[R]) -> R:
        began, failed = time.perf_counter(), False
        try:
            return await call
        except StorageError:
            failed = True
            raise
        finally:
            self._observe(operation, time.perf_counter() - began, failed)
