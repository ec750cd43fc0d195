"""The interface to storage: a revisioned key-value store with transactions, leases and a watch.

Implementations: `pinnace.apiserver.storage.etcd`, and `tests.storage.memory`. The contract tests run with both
(tests/contract/test_storage.py).

    StorageError
    +-- StorageUnavailable    no response in time, no quorum or no connection. A read did not happen. A write raises
    |                       CommitOutcomeUnknown instead, unless it was never sent.
    +-- CommitOutcomeUnknown  the response to a write was lost: it may have happened, or may still happen.
    +-- Compacted           the revision was compacted; `compact_revision` is the oldest remaining revision.
    +-- OutOfSpace          the store refuses puts (etcd's NOSPACE alarm). A transaction with puts may have happened, but
    |                       will not happen later.
    +-- LeaseNotFound       the lease has expired or was revoked.
    +-- TooLarge            the request exceeds the limit of the store; a retry does not help.

A refused transaction fails for the writes whose compare or guard does not hold (WriteConflict, GuardFailed). The other writes
can be sent again. Types with an instance per write are NamedTuples, which are created in a third of the time of a frozen
dataclass.

`PrefixedStorage` lets several control planes share one etcd: `/staging` and `/registry/pods/default/a` become
`/staging/registry/pods/default/a`. Revisions, compaction, leases and alarms are those of the whole etcd. The watch also
delivers changes outside the prefix, because it must deliver every revision. Their keys start with OUTSIDE, and no reader uses
them.

`MeasuredStorage` reports the duration and the success of each call.
"""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar, cast

MAX_OPERATIONS = 128
"""Maximum number of writes and distinct guards in one transaction (etcd's default of --max-txn-ops)."""
MAX_BYTES = 1 << 20
"""Maximum total size of the values of several writes in one transaction, in bytes."""
MAX_REQUEST_BYTES = 3 << 19
"""Maximum size of a request in bytes: keys, values and the encoding (etcd's default of --max-request-bytes, 1.5 MiB). A single
write may fill it."""

OUTSIDE = "\0"
"""The start of keys outside the prefix. No key of a control plane starts with it."""
RESERVED = ("registry", "pinnace.io")
"""Forbidden segments of a prefix. With them, keys of two control planes could be confused."""

R = TypeVar("R")
Observe = Callable[[str, float, bool], None]
"""Called with (operation, seconds, whether the operation failed)."""


class StorageError(Exception):
    """The base class of all exceptions that a storage raises."""


class StorageUnavailable(StorageError):
    pass


class CommitOutcomeUnknown(StorageError):
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
    """One version of one key. `version` counts the writes since the creation, from 1."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    lease: int = 0


class Guard(NamedTuple):
    """A condition on another key: it exists and was created at exactly this revision (a fencing token). With `mod_revision`, it
    must also be the version that was written at that revision."""

    key: str
    create_revision: int
    mod_revision: int = 0
    """0: any version since the creation."""

    def holds(self, current: "KeyValue | None") -> bool:
        """Return whether the condition holds. `current`: the present state of the key, or None."""
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
    """The required mod_revision of the key; 0: the key must not exist."""
    guards: tuple[Guard, ...] = ()
    lease: int = 0
    """The lease to which the key is attached. 0: an existing key keeps its lease, and a new key has none."""
    grows: bool = False
    """The update may use more of a quota, so it is charged like a create."""
    companions: tuple["Write", ...] = ()
    """Writes of other keys that happen in the same transaction, or not at all. They have no guards, lease or companions. A
    delete with `expected` 0 compares only. The committer sends them; `Storage.transact` does not accept them."""


@dataclass(frozen=True, slots=True)
class Committed:
    """All writes of the transaction happened at this revision."""

    revision: int


@dataclass(frozen=True, slots=True)
class CompareFailed:
    """No write happened. `current` has the state of every compared key, including guards; None if it does not exist."""

    revision: int
    current: Mapping[str, KeyValue | None]


@dataclass(frozen=True, slots=True)
class KeyPage:
    """Some keys in order, at `revision`. `more`: whether keys follow after the last one."""

    revision: int
    items: Sequence[KeyValue]
    more: bool


class KeyChange(NamedTuple):
    """A key was put (`value` is set; `create_revision == mod_revision` for a new key) or deleted (`value` is None)."""

    key: str
    value: bytes | None
    create_revision: int
    mod_revision: int
    lease: int = 0


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """Whole revisions: all changes up to `revision` that were not in earlier batches, in order. An empty batch is a progress
    notification: nothing else happened up to `revision`."""

    revision: int
    changes: Sequence[KeyChange]


class Storage(Protocol):
    """Every method has a deadline, which the implementation sets, and raises only StorageError."""

    async def get(self, key: str, *, revision: int = 0) -> KeyValue | None:
        """Return the present key (linearizable), or the key at `revision`. Raises Compacted."""
        ...

    async def page(self, prefix: str, *, after: str = "", limit: int = 500, revision: int = 0) -> KeyPage:
        """Return keys that start with `prefix`, in order, after the key `after`, at `revision` (0: now). Raises Compacted."""
        ...

    async def current_revision(self) -> int:
        """Return the present revision of the store (linearizable)."""
        ...

    async def transact(self, writes: Sequence[Write]) -> Committed | CompareFailed:
        """Run all of the writes or none. Their keys are distinct, and they are within MAX_OPERATIONS. Raises TooLarge above
        MAX_REQUEST_BYTES, CommitOutcomeUnknown, and LeaseNotFound if all compares hold and a lease is gone."""
        ...

    def watch(self, start_revision: int) -> AsyncIterator[ChangeBatch]:
        """Yield every change of every key from `start_revision` on, in order and in whole revisions, until closed. Each watch
        yields the same changes for a revision.

        The first progress notification comes at once, later ones about every second without changes. A watch can start after
        every revision that can still be read. Raises Compacted if `start_revision` <= compact_revision (possibly after a
        progress notification), and StorageUnavailable if the stream fails: resume after the last `ChangeBatch.revision`.
        """
        ...

    def watch_stalled(self) -> None:
        """Report that the watch has delivered nothing although the store is ahead. Later watches and calls use another member,
        if there is one."""
        ...

    async def compact(self, revision: int) -> None:
        """Remove the versions before `revision`. The last version of an existing key stays. Raises Compacted if this has
        already happened. A store that is out of space also frees the space, and accepts puts again if it is sufficient."""
        ...

    async def grant_lease(self, ttl: int) -> int:
        """Grant a lease that expires `ttl` seconds after its last renewal, and return its id.

        The id is a secret: a peer that presents it owns the session of the lease. (Tests may use consecutive ids.)
        """
        ...

    async def renew_lease(self, lease: int) -> float:
        """Renew the lease and return its remaining seconds. Raises LeaseNotFound."""
        ...

    async def lease_age(self, lease: int) -> float:
        """Return the seconds since the last grant or renewal, with a precision of a second. Raises LeaseNotFound."""
        ...

    async def revoke_lease(self, lease: int) -> None:
        """Revoke the lease and delete its keys. A missing lease is not an error."""
        ...

    async def close(self) -> None: ...


class WriteConflict(Exception):
    """The key is not at `write.expected`. `current`: its present state, or None. Nothing was written."""

    def __init__(self, write: Write, current: KeyValue | None) -> None:
        super().__init__(f"{write.key} is at revision {current.mod_revision if current else 0}, not at {write.expected}")
        self.write = write
        self.current = current


class GuardFailed(Exception):
    """The guard does not hold. `current`: the present state of the guard's key, or None. Nothing was written."""

    def __init__(self, guard: Guard, current: KeyValue | None) -> None:
        state = f"created at revision {current.create_revision}, modified at {current.mod_revision}" if current else "absent"
        modified = f", modified at {guard.mod_revision}" if guard.mod_revision else ""
        super().__init__(f"{guard.key} is {state}, not created at {guard.create_revision}{modified}")
        self.guard = guard
        self.current = current


class WriteDenied(Exception):
    """The write was denied before the transaction was sent. Nothing was written."""


States = Mapping[str, KeyValue | None]
"""The state of some keys at one revision; None for a key that does not exist."""


def expand_companions(writes: Sequence[Write]) -> Sequence[Write]:
    """Return the writes with their companions as writes of their own."""
    if not any(write.companions for write in writes):
        return writes
    return [item for write in writes for item in (write._replace(companions=()), *write.companions)]


def failure_of(write: Write, current: States) -> WriteConflict | GuardFailed | None:
    """Return the reason why `write` cannot happen in this state, or None. A failed guard has precedence over a conflict of the
    key, which has precedence over the conflict of a companion."""
    for guard in write.guards:
        state = current[guard.key]
        if not guard.holds(state):
            return GuardFailed(guard, state)
    compared = (write, *write.companions)
    return next(
        (WriteConflict(write, current[write.key]) for write in compared if not is_at_expected(write, current[write.key])), None
    )


def is_at_expected(write: Write, state: KeyValue | None) -> bool:
    return (state.mod_revision if state else 0) == write.expected


def check_prefix(prefix: str) -> str:
    """Validate the prefix and return it. Raises ValueError with a message for the command line."""
    segments = prefix.split("/")
    if not prefix:
        return prefix
    if segments[0] or len(segments) == 1 or not all(segments[1:]) or not prefix.isprintable() or " " in prefix:
        raise ValueError(f'"{prefix}" is not a prefix: it must start with "/" and not end with it, such as "/staging"')
    if taken := [segment for segment in segments if segment in RESERVED]:
        raise ValueError(f'"{prefix}" cannot contain the segment "{taken[0]}": keys below the prefix start with it')
    return prefix


class PrefixedStorage:
    """A storage whose keys are below `prefix` in the inner storage."""

    def __init__(self, inner: Storage, prefix: str) -> None:
        self._inner = inner
        self._prefix = prefix

    async def get(self, key: str, *, revision: int = 0) -> KeyValue | None:
        item = await self._inner.get(self._prefix + key, revision=revision)
        return self._strip_prefix(item) if item is not None else None

    async def page(self, prefix: str, *, after: str = "", limit: int = 500, revision: int = 0) -> KeyPage:
        after = self._prefix + after if after else ""
        page = await self._inner.page(self._prefix + prefix, after=after, limit=limit, revision=revision)
        return KeyPage(page.revision, [self._strip_prefix(item) for item in page.items], page.more)

    async def current_revision(self) -> int:
        return await self._inner.current_revision()

    async def transact(self, writes: Sequence[Write]) -> Committed | CompareFailed:
        answer = await self._inner.transact([self._add_prefix(write) for write in writes])
        if isinstance(answer, Committed):
            return answer
        start = len(self._prefix)
        current = {key[start:]: self._strip_prefix(result) if result else None for key, result in answer.current.items()}
        return CompareFailed(answer.revision, current)

    async def watch(self, start_revision: int) -> AsyncGenerator[ChangeBatch]:
        async with aclosing(cast(AsyncGenerator[ChangeBatch], self._inner.watch(start_revision))) as change_stream:
            async for changes in change_stream:
                yield ChangeBatch(changes.revision, [self._strip_change_prefix(change) for change in changes.changes])

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

    def _add_prefix(self, write: Write) -> Write:
        guards = tuple(guard._replace(key=self._prefix + guard.key) for guard in write.guards)
        return write._replace(key=self._prefix + write.key, guards=guards)

    def _strip_prefix(self, item: KeyValue) -> KeyValue:
        return item._replace(key=item.key[len(self._prefix) :])

    def _strip_change_prefix(self, change: Any) -> Any:
        key: str = change.key
        own = key.startswith(f"{self._prefix}/")
        return change._replace(key=key[len(self._prefix) :] if own else OUTSIDE + key)


class MeasuredStorage:
    """A storage that measures the calls of the inner storage, except watches."""

    def __init__(self, inner: Storage, observe: Observe) -> None:
        self._inner = inner
        self._observe = observe

    async def get(self, key: str, *, revision: int = 0) -> KeyValue | None:
        return await self._measure_call("get", self._inner.get(key, revision=revision))

    async def page(self, prefix: str, *, after: str = "", limit: int = 500, revision: int = 0) -> KeyPage:
        return await self._measure_call("list", self._inner.page(prefix, after=after, limit=limit, revision=revision))

    async def current_revision(self) -> int:
        return await self._measure_call("revision", self._inner.current_revision())

    async def transact(self, writes: Sequence[Write]) -> Committed | CompareFailed:
        return await self._measure_call("txn", self._inner.transact(writes))

    def watch(self, start_revision: int) -> AsyncIterator[ChangeBatch]:
        return self._inner.watch(start_revision)

    def watch_stalled(self) -> None:
        self._inner.watch_stalled()

    async def compact(self, revision: int) -> None:
        await self._measure_call("compact", self._inner.compact(revision))

    async def grant_lease(self, ttl: int) -> int:
        return await self._measure_call("lease-grant", self._inner.grant_lease(ttl))

    async def renew_lease(self, lease: int) -> float:
        return await self._measure_call("lease-renew", self._inner.renew_lease(lease))

    async def lease_age(self, lease: int) -> float:
        return await self._measure_call("lease-age", self._inner.lease_age(lease))

    async def revoke_lease(self, lease: int) -> None:
        await self._measure_call("lease-revoke", self._inner.revoke_lease(lease))

    async def close(self) -> None:
        await self._inner.close()

    async def _measure_call(self, operation: str, call: Awaitable[R]) -> R:
        began, failed = time.perf_counter(), False
        try:
            return await call
        except StorageError:
            failed = True
            raise
        finally:
            self._observe(operation, time.perf_counter() - began, failed)
