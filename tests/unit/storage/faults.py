"""A storage that loses answers, and a clock that does not make its tests wait."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from enum import Enum

from pinnace.apiserver.storage.interface import (
    ChangeBatch,
    CommitOutcomeUnknown,
    Committed,
    CompareFailed,
    KeyPage,
    KeyValue,
    OutOfSpace,
    Storage,
    StorageError,
    StorageUnavailable,
    Write,
)
from tests.storage.memory import MemoryStorage


class Fault(Enum):
    """What happens to a transaction."""

    NONE = "nothing: it is done and answered"
    NOT_SENT = "no connection: it is not done, and the sender knows"
    LOST_REQUEST = "it never arrives, and the sender does not know"
    LOST_ANSWER = "it is done, and the sender does not know"
    DELAYED = "the sender gives up, and later it arrives after all"


class JumpingClock:
    """Sleeping takes no time; the clock says that it did."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


class FullStorage(MemoryStorage):
    """When it is `full` it takes no puts; the first `late` of them are done all the same (as etcd's are)."""

    full = False
    late = 0

    async def transact(self, writes: Sequence[Write]) -> Committed | CompareFailed:
        if not self.full or all(write.value is None for write in writes):
            return await super().transact(writes)
        if self.late:
            self.late -= 1
            await super().transact(writes)
        raise OutOfSpace("full")


class FaultyStorage:
    """Does to each transaction what `faults` says, then nothing more. `groups` are the transactions that were tried.

    A transaction that is DELAYED arrives before the `delay`-th call after it, or by `deliver`.
    """

    def __init__(self, faults: Iterable[Fault | StorageError] = (), inner: Storage | None = None, *, delay: int = 2) -> None:
        self.inner = inner or MemoryStorage()
        self.groups: list[Sequence[Write]] = []
        self._faults = iter(faults)
        self._delay = delay
        self._delayed: list[tuple[int, Sequence[Write]]] = []
        self._calls = 0

    async def deliver(self, until: int | None = None) -> None:
        """Lets arrive what is due at that call; None: all."""
        while self._delayed and (until is None or self._delayed[0][0] <= until):
            _, writes = self._delayed.pop(0)
            with suppress(StorageError):  # nobody is there to hear it
                await self.inner.transact(writes)

    async def transact(self, writes: Sequence[Write]) -> Committed | CompareFailed:
        await self._tick()
        self.groups.append(writes)
        fault = next(self._faults, Fault.NONE)
        if isinstance(fault, StorageError):
            raise fault
        match fault:
            case Fault.NONE:
                return await self.inner.transact(writes)
            case Fault.NOT_SENT:
                raise StorageUnavailable("no connection")
            case Fault.LOST_ANSWER:
                await self.inner.transact(writes)
            case Fault.DELAYED:
                self._delayed.append((self._calls + self._delay, writes))
        raise CommitOutcomeUnknown("no answer")

    async def get(self, key: str, *, revision: int = 0) -> KeyValue | None:
        await self._tick()
        return await self.inner.get(key, revision=revision)

    async def page(self, prefix: str, *, after: str = "", limit: int = 500, revision: int = 0) -> KeyPage:
        return await self.inner.page(prefix, after=after, limit=limit, revision=revision)

    async def current_revision(self) -> int:
        return await self.inner.current_revision()

    def watch(self, start_revision: int) -> AsyncIterator[ChangeBatch]:
        return self.inner.watch(start_revision)

    def watch_stalled(self) -> None:
        self.inner.watch_stalled()

    async def compact(self, revision: int) -> None:
        await self.inner.compact(revision)

    async def grant_lease(self, ttl: int) -> int:
        return await self.inner.grant_lease(ttl)

    async def renew_lease(self, lease: int) -> float:
        return await self.inner.renew_lease(lease)

    async def lease_age(self, lease: int) -> float:
        return await self.inner.lease_age(lease)

    async def revoke_lease(self, lease: int) -> None:
        await self.inner.revoke_lease(lease)

    async def close(self) -> None:
        await self.inner.close()

    async def _tick(self) -> None:
        await asyncio.sleep(0)
        self._calls += 1
        await self.deliver(until=self._calls)
