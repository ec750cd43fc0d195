"""How far the cache is, and how far the storage is.

`Progress` is the revision that the cache has reached, for all resources; callers can wait for it to grow. `Freshness` reads
the revision of the storage, once for all callers that ask at the same time. A caller that comes while a read is under way
shares the next read: the one under way may miss a write that happened before the call.
"""

import asyncio

from apiserver.cacher.errors import CacheBehind
from apiserver.storage.interface import Storage, StorageError


class Freshness:
    """One read at a time."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._asking: list[asyncio.Future[int]] = []
        self._asked = asyncio.Event()

    async def ask(self) -> int:
        """The store's revision at some instant after the call (linearizable). Has no deadline. Raises StorageError."""
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._asking.append(answer)
        self._asked.set()
        return await answer

    async def run(self) -> None:
        """Answers until cancelled."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            asking, self._asking = self._asking, []
            try:
                revision = await self._storage.current_revision()
            except StorageError as error:
                _refuse(asking, error)
            else:
                _answer(asking, revision)


def _answer(asking: list[asyncio.Future[int]], revision: int) -> None:
    for answer in asking:
        if not answer.done():
            answer.set_result(revision)


def _refuse(asking: list[asyncio.Future[int]], error: StorageError) -> None:
    for answer in asking:
        if not answer.done():
            answer.set_exception(error)


class Progress:
    """`revision`: every change of the store up to here is applied; 0 before the first load."""

    def __init__(self) -> None:
        self.revision = 0
        self._waiting: dict[asyncio.Future[None], int] = {}

    def advance(self, revision: int) -> None:
        """Moves on, and lets go those who waited for it."""
        self.revision = revision
        for waiter, wanted in self._waiting.items():
            if wanted <= revision and not waiter.done():
                waiter.set_result(None)

    async def wait_for(self, revision: int, timeout: float) -> None:
        """Returns when `revision` is reached; at least a first load is always waited for. Raises CacheBehind."""
        wanted = max(1, revision)
        if self.revision >= wanted:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = wanted
        try:
            async with asyncio.timeout(timeout):
                await waiter
        except TimeoutError:
            raise CacheBehind(revision, self.revision) from None
        finally:
            del self._waiting[waiter]
