"""CPU time: detect a shortage, and pin a busy process to one processor."""

import logging
import os
import resource
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from pinnace.runtime.clock import SYSTEM_CLOCK, Clock

PREEMPTIONS_WHEN_SHORT = 1000
"""Preemptions per second above which CPU time counts as short. On two busy cores, an API server is preempted 8,000 to 11,000
times per second with 16 writing clients, and 1,000 times with one client, because its own threads compete (Linux 6.18, 2
cores)."""
log = logging.getLogger(__name__)
INTERVAL = 0.25
"""Seconds between two measurements."""


def count_preemptions() -> int:
    """Return the number of involuntary context switches of this process.

    Source: ru_nivcsw in https://man7.org/linux/man-pages/man2/getrusage.2.html
    """
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def no_preemptions() -> int:
    """A replacement for `count_preemptions` that reports no preemption."""
    return 0


class CpuPressure:
    """Detects a shortage of CPU time from the rate of preemptions."""

    def __init__(self, preempted: Callable[[], int], clock: Clock) -> None:
        self._preempted = preempted
        self._clock = clock
        self._count, self._looked = preempted(), clock.monotonic()

    def is_high(self) -> bool:
        """Return whether CPU time was short since the previous call."""
        count, looked = self._count, self._looked
        self._count, self._looked = self._preempted(), self._clock.monotonic()
        return self._count - count > PREEMPTIONS_WHEN_SHORT * (self._looked - looked)


PIN_ABOVE, RELEASE_BELOW = 10_000, 5_000
"""Context switches per second. The process is pinned at PIN_ABOVE and released below RELEASE_BELOW. Measured on two processors:
10,000 to 20,000 with 1,000 watchers, 15,000 to 26,000 with one create per call, at most 6,700 while thousands of pods are
bound and started."""


def count_context_switches() -> int:
    """Return the number of context switches of this process, voluntary and involuntary."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_nvcsw + usage.ru_nivcsw


def set_affinity(processors: Collection[int]) -> None:
    """Set the CPU affinity of all threads of this process. New threads inherit it."""
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # the thread has ended, or the processor is not available
            os.sched_setaffinity(int(thread.name), processors)


class ProcessorPinning:
    """Pins this process to `processor` while its rate of context switches is high, and releases it otherwise.

    Python runs on one processor at a time, and gRPC's threads exchange requests and responses with it. With many small calls,
    the threads wake each other 20,000 times per second across processors, and each wakeup finds a cold cache. Two API servers
    on two processors process one seventh more creates if each is pinned. With few large calls, such as a scheduler's, there are
    about a thousand switches per second, and the kernel chooses the processor. If `processor` is not available to the process,
    a warning is logged and the process is not pinned.

    Source: sched_setaffinity(2), getrusage(2)
    """

    def __init__(
        self,
        processor: int,
        *,
        clock: Clock = SYSTEM_CLOCK,
        switches: Callable[[], int] = count_context_switches,
        move: Callable[[Collection[int]], None] = set_affinity,
    ) -> None:
        self._all = os.sched_getaffinity(0)
        self._own = {processor}
        self._clock = clock
        self._switches = switches
        self._move = move

    async def run(self) -> None:
        """Measure and pin until cancelled."""
        if not self._own < self._all:
            log.warning("not pinning the process: processor %d is not available (available: %s)", *self._own, sorted(self._all))
            return
        stays, count, looked = False, self._switches(), self._clock.monotonic()
        while True:
            await self._clock.sleep(INTERVAL)
            before, since = count, looked
            count, looked = self._switches(), self._clock.monotonic()
            often = count - before > (RELEASE_BELOW if stays else PIN_ABOVE) * (looked - since)
            if often != stays:
                stays = often
                self._move(self._own if stays else self._all)
