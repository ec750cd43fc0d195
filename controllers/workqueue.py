"""What a controller has to look at: keys of objects, each at most once, and each in the hands of one worker at most.

             add                          get                         done
    (absent) ----> waiting for a worker -------> being looked at ------------> (absent)
       ^  add_after,        ^                          | add
       |  add_rate_limited  |                          v
       +----> asleep -------+                 being looked at, and once more afterwards --done--> waiting for a worker

Guarantees: a key that is added is looked at after that moment, however often and whenever it was added; no two workers have
one key at a time. The queue is as long as there are objects, at most. The back-off is a key's own: from BASE seconds, doubled
with each failure, up to `maximum`, until `forget`.

Source: the semantics are client-go's, https://pkg.go.dev/k8s.io/client-go/util/workqueue.
"""

import asyncio
import heapq
import math
from itertools import count

from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.race import race

BASE = 0.005
MAX_BACKOFF = 1000.0
"""Of a controller that has no reason for another."""
_DOUBLINGS = 60
"""More failures make no difference."""


class WorkQueue:
    """`run` wakes the keys that sleep. Times are monotonic, in seconds."""

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK, base: float = BASE, maximum: float = MAX_BACKOFF) -> None:
        self._clock = clock
        self._base = base
        self._maximum = maximum
        self._waiting: asyncio.Queue[str] = asyncio.Queue()
        self._wanted: set[str] = set()  # to be looked at: those that wait, and those that will once more
        self._busy: set[str] = set()
        self._failures: dict[str, int] = {}
        self._asleep: dict[str, float] = {}
        self._heap: list[tuple[float, int, str]] = []  # with outdated entries: those whose time is not the key's any more
        self._order = count()
        self._earlier = asyncio.Event()

    def __len__(self) -> int:
        """Keys that wait for a worker."""
        return self._waiting.qsize()

    def add(self, key: str) -> None:
        if key not in self._wanted:
            self._wanted.add(key)
            if key not in self._busy:
                self._waiting.put_nowait(key)

    def add_after(self, key: str, seconds: float) -> None:
        """As `add`, in `seconds`; the earliest of several wins."""
        if seconds <= 0:
            self.add(key)
            return
        time = self._clock.monotonic() + seconds
        if time < self._asleep.get(key, math.inf):
            self._asleep[key] = time
            heapq.heappush(self._heap, (time, next(self._order), key))
            if self._heap[0][2] == key:
                self._earlier.set()

    def add_rate_limited(self, key: str) -> float:
        """As `add`, after the key's back-off, which grows; the seconds until then."""
        failures = self._failures.get(key, 0)
        self._failures[key] = min(failures + 1, _DOUBLINGS)
        delay = min(self._maximum, self._base * 2.0**failures)
        self.add_after(key, delay)
        return delay

    def failures(self, key: str) -> int:
        """How often in a row it was added so."""
        return self._failures.get(key, 0)

    def forget(self, key: str) -> None:
        """The key's back-off begins anew."""
        self._failures.pop(key, None)

    async def get(self) -> str:
        """Waits for a key. It is the caller's alone until `done`."""
        key = await self._waiting.get()
        self._wanted.discard(key)
        self._busy.add(key)
        return key

    def done(self, key: str) -> None:
        self._busy.discard(key)
        if key in self._wanted:
            self._waiting.put_nowait(key)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            now = self._clock.monotonic()
            while self._heap and self._heap[0][0] <= now:
                time, _, key = heapq.heappop(self._heap)
                if self._asleep.get(key) == time:
                    del self._asleep[key]
                    self.add(key)
            self._earlier.clear()
            if self._heap:
                await race(self._earlier.wait(), self._clock.sleep(self._heap[0][0] - now))
            else:
                await self._earlier.wait()
