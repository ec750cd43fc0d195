"""How far the cache is: one revision for all resources, and those who wait for it to grow."""

import asyncio

from apiserver.cacher.errors import CacheBehind


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
