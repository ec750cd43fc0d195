"""Whether there is CPU time enough for a process."""

import resource
from collections.abc import Callable

from pinnace.runtime.clock import Clock

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
