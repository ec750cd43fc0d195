"""Time as a parameter, so that decisions can be tested and simulated.

Leases and timeouts go by `monotonic`: a clock that is set an hour back must change nothing. `time` is for stamps that people
read, and decides nothing.
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
