"""Work queues after client-go's: a delaying queue, a rate-limited queue for workers, and a queue of rejected keys.

A key is in a queue once. Times are monotonic, in seconds.

`DelayingQueue` has one consumer, which takes all due keys together. It replaces a task per key: ten thousand pods that start
at once need few iterations of the event loop. The other two queues delay keys with it.

Source: https://pkg.go.dev/k8s.io/client-go/util/workqueue
"""

import asyncio
import heapq
import math
from collections import OrderedDict
from itertools import count

from pinnace.client.errors import ApiError
from pinnace.runtime.backoff import KeyedBackoff
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.tasks import run_until_first

BASE_BACKOFF, MAX_BACKOFF = 0.005, 1000.0
"""Default backoff of a `RateLimitingQueue` in seconds, after the first failure and at most."""
REJECTED_BASE_BACKOFF, REJECTED_MAX_BACKOFF = 1.0, 60.0
"""Default backoff of a `RejectedQueue` in seconds, after the first rejection and at most."""
_DOUBLINGS = 60
"""Number of failures after which the backoff of a `RateLimitingQueue` stops growing."""
_BATCH = 256
"""Number of delayed keys that a `RateLimitingQueue` moves at once."""
MAX_NAMED_KEYS = 5
"""Maximum number of keys in a message."""


class DelayingQueue:
    """A queue of keys with times, for one consumer."""

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
        """Make `key` due now."""
        self._times.pop(key, None)
        self._due[key] = None
        self._changed.set()

    def add_at(self, key: str, time: float) -> None:
        """Make `key` due at `time`, unless it is due earlier anyway."""
        if key not in self._due and time < self._times.get(key, math.inf):
            self._times[key] = time
            heapq.heappush(self._heap, (time, next(self._order), key))
            self._changed.set()

    def add_after(self, key: str, seconds: float) -> None:
        """Make `key` due after `seconds`, unless it is due earlier anyway."""
        self.add_at(key, self._clock.monotonic() + seconds)

    def discard(self, key: str) -> None:
        self._times.pop(key, None)
        self._due.pop(key, None)

    async def get_batch(self, limit: int) -> list[str]:
        """Wait until keys are due. Return at most `limit` keys, longest due first."""
        while True:
            self._move_due_keys()
            if self._due:
                return [self._due.popitem(last=False)[0] for _ in range(min(limit, len(self._due)))]
            self._changed.clear()
            await self._wait_for_change()

    def _move_due_keys(self) -> None:
        """Move keys whose time has come to the due keys."""
        now = self._clock.monotonic()
        while self._heap and self._heap[0][0] <= now:
            time, _, key = heapq.heappop(self._heap)
            if self._times.get(key) == time:
                del self._times[key]
                self._due[key] = None

    async def _wait_for_change(self) -> None:
        """Wait until the queue changes or its first key is due."""
        if not self._heap:
            await self._changed.wait()
            return
        delay = max(0.0, self._heap[0][0] - self._clock.monotonic())
        await run_until_first(self._changed.wait(), self._clock.sleep(delay))


class RateLimitingQueue:
    """The work queue of the workers of a controller. `run` moves delayed keys."""

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK, base: float = BASE_BACKOFF, maximum: float = MAX_BACKOFF) -> None:
        self._base = base
        self._maximum = maximum
        self._waiting: asyncio.Queue[str] = asyncio.Queue()
        self._dirty: set[str] = set()  # keys that wait for a worker, or were added while one has them
        self._processing: set[str] = set()
        self._failures: dict[str, int] = {}
        self._delayed = DelayingQueue(clock)

    def __len__(self) -> int:
        """Return the number of keys that wait for a worker."""
        return self._waiting.qsize()

    def add(self, key: str) -> None:
        if key not in self._dirty:
            self._dirty.add(key)
            if key not in self._processing:
                self._waiting.put_nowait(key)

    def add_after(self, key: str, seconds: float) -> None:
        """Add the key after `seconds`. Of several calls, the earliest time counts."""
        if seconds <= 0:
            self.add(key)
        else:
            self._delayed.add_after(key, seconds)

    def add_rate_limited(self, key: str) -> float:
        """Add the key after its backoff. Return the backoff in seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = min(failures + 1, _DOUBLINGS)
        delay = min(self._maximum, self._base * 2.0**failures)
        self.add_after(key, delay)
        return delay

    def num_requeues(self, key: str) -> int:
        """Return the number of consecutive failures of the key."""
        return self._failures.get(key, 0)

    def forget(self, key: str) -> None:
        """Reset the backoff of the key."""
        self._failures.pop(key, None)

    async def get(self) -> str:
        """Wait for a key. No other worker gets it until `done`."""
        key = await self._waiting.get()
        self._dirty.discard(key)
        self._processing.add(key)
        return key

    def done(self, key: str) -> None:
        self._processing.discard(key)
        if key in self._dirty:
            self._waiting.put_nowait(key)

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            for key in await self._delayed.get_batch(_BATCH):
                self.add(key)


class RejectedQueue:
    """Keys that the API server rejected, with the error and the backoff of each. The backoff is kept until `forget`."""

    def __init__(self, clock: Clock, maximum: float = REJECTED_MAX_BACKOFF) -> None:
        self._errors: dict[str, ApiError] = {}
        self._backoffs = KeyedBackoff(REJECTED_BASE_BACKOFF, maximum)
        self._delayed = DelayingQueue(clock)

    @property
    def num_waiting(self) -> int:
        """Return the number of keys that will be retried."""
        return len(self._delayed)

    def add_rate_limited(self, key: str, error: ApiError) -> None:
        self._errors[key] = error
        self._delayed.add_after(key, self._backoffs.next_delay(key))

    def cancel_retry(self, key: str) -> None:
        """Remove the scheduled retry, because the key is retried now. The backoff is kept."""
        if self._errors:
            self._delayed.discard(key)

    def forget(self, key: str) -> None:
        """Reset the backoff of the key, which succeeded or is obsolete."""
        if self._errors.pop(key, None) is not None:
            self._backoffs.forget(key)
            self._delayed.discard(key)

    async def get_batch(self, limit: int) -> list[str]:
        """Wait until retries are due. Return at most `limit` keys."""
        return await self._delayed.get_batch(limit)

    def describe_errors(self) -> str | None:
        """Return the keys with the error of the first one, or None."""
        if not self._errors:
            return None
        names = sorted(self._errors)
        more = f" and {len(names) - MAX_NAMED_KEYS} more" if len(names) > MAX_NAMED_KEYS else ""
        return f"{', '.join(names[:MAX_NAMED_KEYS])}{more}: {self._errors[names[0]]}"
