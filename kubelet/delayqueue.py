"""Keys that are due now or later: one queue for all pods of a fleet, instead of a task for each.

A key is in the queue once, at the earliest time that was asked for; so the queue is as long as there are pods, at most. All
keys that are due come out together: looking after ten thousand pods that start at once takes a few turns of the event loop.
"""

import asyncio
import heapq
import math
from collections import OrderedDict
from itertools import count

from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.tasks import race


class DelayQueue:
    """For one consumer. Times are monotonic, in seconds."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._due: OrderedDict[str, None] = OrderedDict()
        self._times: dict[str, float] = {}
        self._heap: list[tuple[float, int, str]] = []  # with outdated entries: those whose time is not the key's any more
        self._order = count()
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._due) + len(self._times)

    def add(self, key: str) -> None:
        """Makes `key` due now."""
        self._times.pop(key, None)
        self._due[key] = None
        self._changed.set()

    def add_at(self, key: str, time: float) -> None:
        """Makes `key` due at `time`, unless it is due earlier anyway."""
        if key not in self._due and time < self._times.get(key, math.inf):
            self._times[key] = time
            heapq.heappush(self._heap, (time, next(self._order), key))
            self._changed.set()

    def discard(self, key: str) -> None:
        self._times.pop(key, None)
        self._due.pop(key, None)

    async def take(self, limit: int) -> list[str]:
        """Waits until something is due; at most `limit` keys, those that are due longest first."""
        while True:
            self._mature()
            if self._due:
                return [self._due.popitem(last=False)[0] for _ in range(min(limit, len(self._due)))]
            self._changed.clear()
            await self._wait()

    def _mature(self) -> None:
        """Keys whose time has come are due."""
        now = self._clock.monotonic()
        while self._heap and self._heap[0][0] <= now:
            time, _, key = heapq.heappop(self._heap)
            if self._times.get(key) == time:
                del self._times[key]
                self._due[key] = None

    async def _wait(self) -> None:
        """Until the queue has changed or its first key is due."""
        if not self._heap:
            await self._changed.wait()
            return
        delay = max(0.0, self._heap[0][0] - self._clock.monotonic())
        await race(self._changed.wait(), self._clock.sleep(delay))
