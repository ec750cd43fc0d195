"""On what a figure was measured."""

import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Machine:
    cores: int
    memory_gb: float
    kernel: str
    python: str
    commit: str
    """Of this source tree, with "+" when it has been changed since; "" when it is not in git."""


def this_machine() -> Machine:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return Machine(len(os.sched_getaffinity(0)), round(memory, 1), platform.release(), platform.python_version(), _commit())


def _commit() -> str:
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--exclude=*"],
            cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return described.stdout.strip()
