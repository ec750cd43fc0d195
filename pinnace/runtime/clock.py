"""Clocks that can be replaced in tests and simulations, and timers that measure the silence of a peer.

Leases and timeouts use `monotonic`, which is independent of the wall clock. `time` is used for displayed timestamps.
"""

import asyncio
import time
from typing import Protocol

LATENESS = 2.0
"""A step counts for at most this multiple of its length."""


class Clock(Protocol):
    def monotonic(self) -> float:
        """Return the seconds since an arbitrary point. The value never decreases."""
        ...

    def time(self) -> float:
        """Return the Unix time in seconds."""
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


class SilenceTimer:
    """Measures the time since a peer was last heard from. Does no I/O; times are monotonic seconds.

    Only time in which the observer runs counts. An observer that was paused, starved of CPU or swapped out reads messages late
    that arrived in time, and must not attribute its own pause to the peer. The observer polls at regular intervals, and a step
    that took too long counts for at most LATENESS times its length.
    """

    def __init__(self, limit: float, step: float, now: float) -> None:
        """`limit`: seconds of silence after which `has_exceeded_limit` is true. `step`: seconds between two calls."""
        self._limit = limit
        self._longest = step * LATENESS
        self._silent = 0.0
        self._looked = now

    def record_message(self, now: float) -> None:
        self._silent = 0.0
        self._looked = now

    def silence_seconds(self, now: float) -> float:
        """Poll, and return the seconds since the peer was last heard from."""
        self._silent += min(now - self._looked, self._longest)
        self._looked = now
        return self._silent

    def has_exceeded_limit(self, now: float) -> bool:
        """Poll, and return whether the peer has been silent for `limit` seconds."""
        return self.silence_seconds(now) >= self._limit


class HeartbeatTimer:
    def __init__(self, interval: float, patience: float, now: float) -> None:
        """`interval`: seconds between two heartbeats. `patience`: seconds without an acknowledgement after which `is_silent` is
        true."""
        self.interval = interval
        self._silence = SilenceTimer(patience, interval, now)
        self._sequence = 0
        self._sent: dict[int, float] = {}

    def record_beat(self, now: float) -> int:
        """Record that a heartbeat is sent now. Return its sequence number."""
        self._sequence += 1
        self._sent[self._sequence] = now
        return self._sequence

    def record_acknowledgement(self, sequence: int, now: float) -> float | None:
        """Record an acknowledgement. Return the time at which the heartbeat was sent, or None if the sequence is unknown."""
        sent = self._sent.get(sequence)
        if sent is not None:
            self._silence.record_message(now)
            self._sent = {number: at for number, at in self._sent.items() if number > sequence}
        return sent

    def is_silent(self, now: float) -> bool:
        """Return whether no heartbeat was acknowledged for `patience` seconds. Call it once per interval."""
        return self._silence.has_exceeded_limit(now)
