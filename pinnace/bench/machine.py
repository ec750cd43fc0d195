"""On what a figure was measured."""

import os
import platform
from dataclasses import dataclass

from pinnace.runtime.build import commit


@dataclass(frozen=True, slots=True)
class Machine:
    cores: int
    memory_gb: float
    kernel: str
    python: str
    commit: str
    """As pinnace.runtime.build says it."""


def this_machine() -> Machine:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return Machine(len(os.sched_getaffinity(0)), round(memory, 1), platform.release(), platform.python_version(), commit())
