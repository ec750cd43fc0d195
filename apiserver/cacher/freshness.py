"""Asking the store for its revision, once for all who ask at the same time.

A read that had begun before somebody asked is of no use to him: it may not have seen what was written in between. So those who
come while a read is under way share the next one.
"""

import asyncio

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
