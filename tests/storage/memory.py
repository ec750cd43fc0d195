"""MemoryStorage: a Storage on top of tests.storage.mvcc. Nothing survives the process.

Leases expire by the clock that is passed in. The storage runs no task. Each call and each waiting watch deletes the keys of
expired leases.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence

from pinnace.apiserver.storage.interface import ChangeBatch, Committed, Compacted, CompareFailed, KeyPage, KeyValue, Write
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from tests.storage.mvcc import Mvcc

SIGN_OF_LIFE = 1.0
"""Seconds after which an idle watch yields an empty batch."""


class _Watcher:
    """The batches that a watch has not yielded yet."""

    def __init__(self, backlog: Sequence[ChangeBatch]) -> None:
        self.pending = deque(backlog)
        self.wake = asyncio.Event()


class MemoryStorage:
    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._store = Mvcc()
        self._told = self._store.revision
        self._watchers: dict[_Watcher, None] = {}  # in order of creation, so that runs are reproducible

    async def get(self, key: str, *, revision: int = 0) -> KeyValue | None:
        self._expire()
        return self._store.get(key, revision)

    async def page(self, prefix: str, *, after: str = "", limit: int = 500, revision: int = 0) -> KeyPage:
        self._expire()
        return self._store.page(prefix, after, limit, revision)

    async def current_revision(self) -> int:
        self._expire()
        return self._store.revision

    async def transact(self, writes: Sequence[Write]) -> Committed | CompareFailed:
        self._expire()
        answer = self._store.transact(writes)
        self._tell()
        return answer

    async def watch(self, start_revision: int) -> AsyncGenerator[ChangeBatch]:
        self._expire()
        if start_revision <= self._store.compacted:
            raise Compacted(self._store.compacted)
        told = start_revision - 1
        watcher = _Watcher(self._store.changes_after(told))
        self._watchers[watcher] = None
        try:
            yield ChangeBatch(told, ())
            while True:
                if not watcher.pending:
                    await self._wait(watcher)
                if not watcher.pending:
                    yield ChangeBatch(told, ())
                elif (batch := watcher.pending.popleft()).revision >= start_revision:
                    told = batch.revision
                    yield batch
        finally:
            del self._watchers[watcher]

    def watch_stalled(self) -> None:
        """Do nothing: there is no other member."""

    async def compact(self, revision: int) -> None:
        self._expire()
        self._store.compact(revision)

    async def grant_lease(self, ttl: int) -> int:
        return self._store.grant(ttl, self._clock.monotonic())

    async def renew_lease(self, lease: int) -> float:
        self._expire()
        return float(self._store.renew(lease, self._clock.monotonic()))

    async def lease_age(self, lease: int) -> float:
        self._expire()
        return self._store.lease_age(lease, self._clock.monotonic())

    async def revoke_lease(self, lease: int) -> None:
        self._expire()
        self._store.revoke(lease)
        self._tell()

    async def close(self) -> None:
        pass

    def _expire(self) -> None:
        self._store.expire(self._clock.monotonic())
        self._tell()

    def _tell(self) -> None:
        """Add new changes to the queues of the watchers before they can be compacted."""
        if self._store.revision == self._told:
            return
        new = self._store.changes_after(self._told)
        self._told = self._store.revision
        for watcher in self._watchers:
            watcher.pending.extend(new)
            watcher.wake.set()

    async def _wait(self, watcher: _Watcher) -> None:
        """Wait until the watcher has a change, a lease expires, or an empty batch is due."""
        pause = max(0.0, min(SIGN_OF_LIFE, self._store.next_expiry - self._clock.monotonic()))
        watcher.wake.clear()
        waits = [asyncio.ensure_future(watcher.wake.wait()), asyncio.ensure_future(self._clock.sleep(pause))]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        self._expire()
