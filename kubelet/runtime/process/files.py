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
from typing import Any, TypedDict

PLAN, LOCK, RUNNING, STOP, EXIT, LOG = "plan.json", "lock", "running.json", "stop.json", "exit.json", "log"
NUDGE = signal.SIGURG
"""Of all signals that mean nothing by themselves: a shim that does not listen yet is not killed by it."""
KILL = signal.SIGUSR1
"""Sent to shims that listen only: of others it is the death, and what they look after would run on."""


class Plan(TypedDict):
    argv: Sequence[str]
    env: dict[str, str]
    cwd: str
    memory: int | None
    """Bytes of data that each process may have (see limits)."""
    log_bytes: int
    log_files: int
    message_path: str
    """The file with the termination message."""
    message_bytes: int
    """Of the message, at most."""
    message_from_log: bool
    """When the process fails and has written no message, the end of its log is the message."""


class Running(TypedDict):
    pid: int
    started: int
    """In clock ticks since the boot `boot`: with the pid, the identity of the process (pinnace.runtime.procfs)."""
    boot: str
    at: float
    """Unix time."""


class Stop(TypedDict):
    grace: float
    deadline: float
    """On the machine's monotonic clock, which all processes share until it boots again."""


class Ended(TypedDict):
    code: int
    started: float
    finished: float
    """Both in Unix time."""
    reason: str
    message: str


def write(path: str, record: Mapping[str, Any]) -> None:
    """Raises OSError."""
    fresh = f"{path}.new"
    with open(fresh, "w") as file:
        json.dump(record, file)
    os.replace(fresh, path)


def read(path: str) -> Any:
    """None when there is no such record."""
    try:
        with open(path) as file:
            return json.load(file)
    except FileNotFoundError:
        return None
