"""Work queues: a delaying queue of keys, and a retry queue with exponential back-off per key.

`DelayQueue` is one queue for all pods of a fleet, instead of a task per pod. A key is in the queue once, at the earliest
requested time. All due keys are taken together, so ten thousand pods that start at once need few iterations of the event
loop.
"""

import asyncio
import heapq
import math
from collections import OrderedDict
from itertools import count

from pinnace.client.errors import ApiError
from pinnace.runtime.backoff import Backoffs
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


FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds; they double each time."""
NAMED = 5
"""Keys that are told of, at most."""


class RetryQueue:
    """By key. A key's pauses grow until it is settled."""

    def __init__(self, clock: Clock, longest: float = LONGEST_PAUSE) -> None:
        self._clock = clock
        self._errors: dict[str, ApiError] = {}
        self._pauses = Backoffs(FIRST_PAUSE, longest)
        self._later = DelayQueue(clock)

    @property
    def waiting(self) -> int:
        """Keys that are to be tried again."""
        return len(self._later)

    def add(self, key: str, error: ApiError) -> None:
        self._errors[key] = error
        self._later.add_at(key, self._clock.monotonic() + self._pauses.next(key))

    def tried(self, key: str) -> None:
        """It is, now: no need to wait."""
        if self._errors:
            self._later.discard(key)

    def settle(self, key: str) -> None:
        """It was done, or there is nothing to do any more."""
        if self._errors.pop(key, None) is not None:
            self._pauses.forget(key)
            self._later.discard(key)

    async def take(self, limit: int) -> list[str]:
        """Waits until some are to be tried again; at most `limit`."""
        return await self._later.take(limit)

    def told(self) -> str | None:
        """Which, and why the first of them; None: there are none."""
        if not self._errors:
            return None
        names = sorted(self._errors)
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        return f"{', '.join(names[:NAMED])}{more}: {self._errors[names[0]]}"
