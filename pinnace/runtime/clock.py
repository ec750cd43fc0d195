"""Time as a parameter, so that decisions can be tested and simulated.

Leases and timeouts go by `monotonic`: a clock that is set an hour back must change nothing. `time` is for stamps that people
read, and decides nothing.

How long a peer has been silent, as far as one can tell.

Only time in which the observer was awake counts. One that was stalled itself (stopped, starved, swapping) hears late what was
said in time; it must not hold its own pause against the other. So the observer looks at regular steps, and a step that took
longer than it should counts as if it had not.

The heartbeats of one stream: when each was sent, and how long none has been answered. Pure; times are monotonic seconds.
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
"""A step counts for at most this many times its length: a busy machine is late now and then."""


class Silence:
    """A pure value but for its state; times are monotonic seconds."""

    def __init__(self, limit: float, step: float, now: float) -> None:
        """`limit`: seconds of silence that are too many. `step`: seconds between two calls of `exceeded`."""
        self._limit = limit
        self._longest = step * LATENESS
        self._silent = 0.0
        self._looked = now

    def heard(self, now: float) -> None:
        self._silent = 0.0
        self._looked = now

    def lasts(self, now: float) -> float:
        """Looks. For how long has the peer been silent, in seconds? Whoever asks counts as an observer: else one that nobody
        looks at would never be silent for longer than a step."""
        self._silent += min(now - self._looked, self._longest)
        self._looked = now
        return self._silent

    def exceeded(self, now: float) -> bool:
        """Looks. Has the peer been silent for too long?"""
        return self.lasts(now) >= self._limit


class Pulse:
    def __init__(self, interval: float, patience: float, now: float) -> None:
        """`interval`: seconds between two beats. `patience`: seconds without an answer after which the server is `silent`."""
        self.interval = interval
        self._silence = Silence(patience, interval, now)
        self._sequence = 0
        self._sent: dict[int, float] = {}

    def beat(self, now: float) -> int:
        """The sequence number of a beat that is sent now."""
        self._sequence += 1
        self._sent[self._sequence] = now
        return self._sequence

    def answered(self, sequence: int, now: float) -> float | None:
        """When the answered beat had been sent; None if it never was."""
        sent = self._sent.get(sequence)
        if sent is not None:
            self._silence.heard(now)
            self._sent = {number: at for number, at in self._sent.items() if number > sequence}
        return sent

    def silent(self, now: float) -> bool:
        """Ask once per interval. Has the server owed an answer for too long?"""
        return self._silence.exceeded(now)
