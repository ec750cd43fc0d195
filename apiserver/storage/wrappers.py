"""Storages around a storage: one below a key prefix, and one that measures calls.

`Prefixed` lets several control planes share one etcd: `/staging` and `/registry/pods/default/a` give
`/staging/registry/pods/default/a`. Revisions, compaction, leases and alarms belong to the whole etcd. Changes outside the
prefix stay in the watch, because every revision must pass; their keys get the prefix OUTSIDE, which no reader follows.

`Measured` reports the duration and the success of each call.
"""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, TypeVar, cast

from apiserver.storage.interface import Changes, Committed, KeyValue, Page, Refused, Storage, StorageError, Write

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

    async def transact(self, writes: Sequence[Write]) -> Committed | Refused:
        answer = await self._inner.transact([self._below(write) for write in writes])
        if isinstance(answer, Committed):
            return answer
        start = len(self._prefix)
        current = {key[start:]: self._inside(found) if found else None for key, found in answer.current.items()}
        return Refused(answer.revision, current)

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

    async def transact(self, writes: Sequence[Write]) -> Committed | Refused:
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
