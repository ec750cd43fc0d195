"""Whether there is CPU time enough for a process."""

import resource


def preempted() -> int:
    """How often the kernel has taken the CPU from this process so far, to give it to others. Where there is enough for all it
    is hardly ever; of which processes is not told.

    Source: ru_nivcsw in https://man7.org/linux/man-pages/man2/getrusage.2.html
    """
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def never() -> int:
    """As `preempted`, of a process that has the CPU whenever it wants."""
    return 0
