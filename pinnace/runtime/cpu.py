"""Whether there is CPU time enough for a process.

A process stays on one processor while its threads switch very often.

Python runs on one processor at a time, and gRPC's threads hand it what comes and take what goes. Where many calls come one by
one they wake each other 20,000 times a second, across processors where there are several, and each time the next processor's
cache is empty: two API servers on two processors take a seventh more creates where each stays on its own.
With few large calls, as of a scheduler, there are some thousand switches; then the kernel chooses the processor.

Source: sched_setaffinity(2), getrusage(2)
"""

import logging
import os
import resource
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from pinnace.runtime.clock import SYSTEM_CLOCK, Clock

SHORT = 1000
"""Times a second that a process is preempted. An API server to which 16 clients write on two busy cores is 8,000 to 11,000
times, and 1,000 times with a single one, as its own threads take turns (Linux 6.18, 2 cores; cb526227)."""


def preempted() -> int:
    """How often the kernel has taken the CPU from this process so far, to give it to others.

    Source: ru_nivcsw in https://man7.org/linux/man-pages/man2/getrusage.2.html
    """
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def never() -> int:
    """As `preempted`, of a process that has the CPU whenever it wants."""
    return 0


class Pressure:
    """Whether CPU time is short. `preempted`: as above."""

    def __init__(self, preempted: Callable[[], int], clock: Clock) -> None:
        self._preempted = preempted
        self._clock = clock
        self._count, self._looked = preempted(), clock.monotonic()

    def is_high(self) -> bool:
        """Has it been, since it was asked last?"""
        count, looked = self._count, self._looked
        self._count, self._looked = self._preempted(), self._clock.monotonic()
        return self._count - count > SHORT * (self._looked - looked)


log = logging.getLogger(__name__)

OFTEN, SELDOM = 10_000, 5_000
"""Context switches a second from which it stays, and below which it does not any more. (Measured on two processors: 10,000 to
20,000 with 1,000 watchers, 15,000 to 26,000 with creates, one a call; 6,700 at most with thousands of pods that are bound and
run.)"""
INTERVAL = 0.25
"""Seconds between two looks."""


def switches() -> int:
    """How often a thread of this process has given up a processor, or was made to."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_nvcsw + usage.ru_nivcsw


def move(processors: Collection[int]) -> None:
    """All threads of this process; what they start then stays with them."""
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has ended, or a processor has been taken from us
            os.sched_setaffinity(int(thread.name), processors)


class Affinity:
    """`run` it. `processor`: where the process stays; one that it may not use is none."""

    def __init__(
        self,
        processor: int,
        *,
        clock: Clock = SYSTEM_CLOCK,
        switches: Callable[[], int] = switches,
        move: Callable[[Collection[int]], None] = move,
    ) -> None:
        self._all = os.sched_getaffinity(0)
        self._own = {processor}
        self._clock = clock
        self._switches = switches
        self._move = move

    async def run(self) -> None:
        """Until cancelled."""
        if not self._own < self._all:
            log.warning("processor %d is not one of several of ours (%s): the kernel chooses", *self._own, sorted(self._all))
            return
        stays, count, looked = False, self._switches(), self._clock.monotonic()
        while True:
            await self._clock.sleep(INTERVAL)
            before, since = count, looked
            count, looked = self._switches(), self._clock.monotonic()
            often = count - before > (SELDOM if stays else OFTEN) * (looked - since)
            if often != stays:
                stays = often
                self._move(self._own if stays else self._all)
