"""A storage that tells how long each of its calls took, whatever came of it."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

from apiserver.storage.interface import Changes, Committed, KeyValue, Page, Refused, Storage, StorageError, Write

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
