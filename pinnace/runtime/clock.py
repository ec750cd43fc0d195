"""Time as a parameter, so that decisions can be tested and simulated; and timers that measure how long a peer has been silent.

Leases and timeouts use `monotonic`, so that they do not depend on the wall clock. `time` is for timestamps that people read.
"""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    def monotonic(self) -> float:
        """Seconds since some fixed point; never goes back."""
        ...

    def time(self) -> float:
        """Unix time, in seconds."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def monotonic(self) -> float:
        return time.monotonic()

    def time(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


SYSTEM_CLOCK = SystemClock()


LATENESS = 2.0
"""A step counts for at most this many times its length."""


class SilenceTimer:
    """Measures how long a peer has been silent. Does no I/O; times are monotonic seconds.

    Only time in which the observer runs counts. An observer that was stalled (stopped, starved of CPU, swapping) processes late
    what was sent in time, and must not blame the peer for its own pause. So the observer polls at regular steps, and a step
    that took too long counts for at most LATENESS times its length.
    """

    def __init__(self, limit: float, step: float, now: float) -> None:
        """`limit`: seconds of silence after which `exceeded` is true. `step`: seconds between two calls of `exceeded`."""
        self._limit = limit
        self._longest = step * LATENESS
        self._silent = 0.0
        self._looked = now

    def heard(self, now: float) -> None:
        self._silent = 0.0
        self._looked = now

    def lasts(self, now: float) -> float:
        """Polls, and returns for how many seconds the peer has been silent."""
        self._silent += min(now - self._looked, self._longest)
        self._looked = now
        return self._silent

    def exceeded(self, now: float) -> bool:
        """Polls, and returns whether the peer has been silent for `limit` seconds."""
        return self.lasts(now) >= self._limit


class HeartbeatTimer:
    def __init__(self, interval: float, patience: float, now: float) -> None:
        """`interval`: seconds between two heartbeats. `timeout`: seconds without an answer after which the server is
        `silent`."""
        self.interval = interval
        self._silence = SilenceTimer(patience, interval, now)
        self._sequence = 0
        self._sent: dict[int, float] = {}

    def beat(self, now: float) -> int:
        """Records that a heartbeat is sent now. Returns its sequence number."""
        self._sequence += 1
        self._sent[self._sequence] = now
        return self._sequence

    def answered(self, sequence: int, now: float) -> float | None:
        """Records an answer. Returns when the answered heartbeat was sent; None if there was no such heartbeat."""
        sent = self._sent.get(sequence)
        if sent is not None:
            self._silence.heard(now)
            self._sent = {number: at for number, at in self._sent.items() if number > sequence}
        return sent

    def silent(self, now: float) -> bool:
        """Whether the server has not answered for `timeout` seconds. Call it once per interval."""
        return self._silence.exceeded(now)
