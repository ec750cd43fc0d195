"""A clock that stands still until the test moves it."""

import asyncio
import heapq
from itertools import count


class FakeClock:
    """A `pinnace.runtime.clock.Clock`. Sleepers wake in the order of their times, by `advance` only."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self._now = now
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = count()

    def monotonic(self) -> float:
        return self._now

    def time(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), woken))
        await woken

    async def advance(self, seconds: float) -> None:
        """Moves time, and lets each sleeper whose time has come run until it waits again."""
        end = self._now + seconds
        await self._settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            at, _, woken = heapq.heappop(self._sleepers)
            self._now = max(self._now, at)
            if not woken.done():
                woken.set_result(None)
                await self._settle()
        self._now = end
        await self._settle()

    def stall(self, seconds: float) -> None:
        """Moves time while nobody runs, as when the process was stopped. Sleepers wake late, by the next `advance`."""
        self._now += seconds

    async def _settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)
