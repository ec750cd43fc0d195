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
from pinnace.runtime.backoff import KeyedBackoff
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.tasks import race


class DelayQueue:
    """For one consumer. Times are monotonic, in seconds."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._due: OrderedDict[str, None] = OrderedDict()
        self._times: dict[str, float] = {}
        self._heap: list[tuple[float, int, str]] = []  # may contain outdated entries with another time than the key
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
        """Waits until keys are due. Returns at most `limit` keys, longest due first."""
        while True:
            self._mature()
            if self._due:
                return [self._due.popitem(last=False)[0] for _ in range(min(limit, len(self._due)))]
            self._changed.clear()
            await self._wait()

    def _mature(self) -> None:
        """Moves keys whose time has come to the due keys."""
        now = self._clock.monotonic()
        while self._heap and self._heap[0][0] <= now:
            time, _, key = heapq.heappop(self._heap)
            if self._times.get(key) == time:
                del self._times[key]
                self._due[key] = None

    async def _wait(self) -> None:
        """Waits until the queue changes or its first key is due."""
        if not self._heap:
            await self._changed.wait()
            return
        delay = max(0.0, self._heap[0][0] - self._clock.monotonic())
        await race(self._changed.wait(), self._clock.sleep(delay))


FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds, doubled for each retry."""
NAMED = 5
"""Maximum number of keys in a message."""


class RetryQueue:
    """The back-off by key, kept until the key is settled."""

    def __init__(self, clock: Clock, longest: float = LONGEST_PAUSE) -> None:
        self._clock = clock
        self._errors: dict[str, ApiError] = {}
        self._pauses = KeyedBackoff(FIRST_PAUSE, longest)
        self._later = DelayQueue(clock)

    @property
    def waiting(self) -> int:
        """Keys that will be retried."""
        return len(self._later)

    def add(self, key: str, error: ApiError) -> None:
        self._errors[key] = error
        self._later.add_at(key, self._clock.monotonic() + self._pauses.next(key))

    def tried(self, key: str) -> None:
        """The key is retried now."""
        if self._errors:
            self._later.discard(key)

    def settle(self, key: str) -> None:
        """The key succeeded or is obsolete."""
        if self._errors.pop(key, None) is not None:
            self._pauses.forget(key)
            self._later.discard(key)

    async def take(self, limit: int) -> list[str]:
        """Waits until retries are due. Returns at most `limit` keys."""
        return await self._later.take(limit)

    def told(self) -> str | None:
        """The keys, with the error of the first one. None: there are none."""
        if not self._errors:
            return None
        names = sorted(self._errors)
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        return f"{', '.join(names[:NAMED])}{more}: {self._errors[names[0]]}"
