"""The files through which a shim and the kubelet communicate, in the directory of one container attempt. Standard library only.

    plan.json       kubelet -> shim   what to start
    lock            locked (flock) while the shim lives; contains its pid
    running.json    shim -> kubelet   the process has started
    stop.json       kubelet -> shim   end the process, and when to kill it; SIGURG announces a change. SIGUSR1 means: kill it
                                      now, for a pod that is removed; that needs no disk space
    exit.json       shim -> kubelet   the process has exited, and how; then the shim exits
    log, log.1 ...  its output

The lock shows whether the shim lives; unlike a pid, it cannot be reused by another process. Records are replaced atomically.
"""

import json
import os
import signal
from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

PLAN, LOCK, RUNNING, STOP, EXIT, LOG = "plan.json", "lock", "running.json", "stop.json", "exit.json", "log"
NUDGE = signal.SIGURG
"""The default action of this signal is to ignore it, so it does not kill a shim that has no handler yet."""
KILL = signal.SIGUSR1
"""Sent only to shims with a handler. Without one, the shim would die and its processes would continue."""


class BindMount(TypedDict):
    """A file or directory of the machine that a container sees at another path."""

    source: str
    target: str
    read_only: bool


class ProcessPlan(TypedDict):
    argv: Sequence[str]
    env: dict[str, str]
    cwd: str
    memory: int | None
    """The limit of data memory of each process, in bytes."""
    log_bytes: int
    log_files: int
    message_path: str
    """The file with the termination message."""
    message_bytes: int
    """Maximum bytes of the message."""
    message_from_log: bool
    """Use the end of the log if the process fails without a message."""
    mounts: list[BindMount]
    """The mounts of the container in a mount namespace of its own. Empty: it has none (see mounts)."""
    hostname: NotRequired[str]
    """The host name in the namespace."""
    terminal: NotRequired[bool]
    """Whether stdin is a terminal, which becomes the controlling terminal."""
    enter: NotRequired[int]
    """The pid of a process whose mount namespace is entered first, for a command in a running container."""


class RunningRecord(TypedDict):
    pid: int
    started: int
    """In clock ticks since the boot `boot`. Pid and start time identify the process (pinnace.runtime.procfs)."""
    boot: str
    at: float
    """Unix time."""


class StopRecord(TypedDict):
    grace: float
    deadline: float
    """Monotonic time of the machine. All processes share this clock until the next boot."""


class ExitRecord(TypedDict):
    code: int
    started: float
    finished: float
    """Both are Unix times."""
    reason: str
    message: str


def write_record(path: str, record: Mapping[str, Any]) -> None:
    """Raises OSError."""
    fresh = f"{path}.new"
    with open(fresh, "w") as file:
        json.dump(record, file)
    os.replace(fresh, path)


def read_record(path: str) -> Any:
    """None: there is no such record."""
    try:
        with open(path) as file:
            return json.load(file)
    except FileNotFoundError:
        return None
