"""What the kernel knows of a process, from /proc (Linux): whether it is the one we started, its CPU time and memory.

A pid alone names nothing for long: it is used again. A pid with its start time names one process for ever (until the machine
boots again, which the boot's id tells).

Source: proc_pid_stat(5), proc_pid_status(5).
"""

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_STATE, _UTIME, _STIME, _STARTED = 0, 11, 12, 19
"""Fields of /proc/<pid>/stat, counted from the one after the command's name."""


@dataclass(frozen=True, slots=True)
class Identity:
    """One process, now and later. `started` is in clock ticks since the boot `boot`."""

    pid: int
    started: int
    boot: str


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process has used so far: CPU seconds (user and system, all threads), and its resident memory in MB (10^6): the
    most that it was, and now."""

    cpu_s: float
    peak_rss_mb: float
    rss_mb: float = 0.0


def boot_id() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def identify(pid: int) -> Identity | None:
    """None when no process with this pid runs. One that has ended and waits to be reaped (a zombie) does not run."""
    fields = _stat(pid)
    return Identity(pid, int(fields[_STARTED]), boot_id()) if fields else None


def alive(process: Identity) -> bool:
    return identify(process.pid) == process


def send_signal(process: Identity, number: signal.Signals) -> bool:
    """Signals this very process and no other that got its pid since. False: it is gone."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        if not alive(process):
            return False
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def find(argv: Sequence[str]) -> Identity | None:
    """The process that runs exactly this command line."""
    wanted = b"".join(os.fsencode(argument) + b"\0" for argument in argv)
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                found = (entry / "cmdline").read_bytes() == wanted
            except OSError:
                continue
            if found:
                return identify(int(entry.name))
    return None


def usage(process: Identity) -> Usage | None:
    """None when it is gone."""
    fields = _stat(process.pid)
    try:
        status = (_PROC / str(process.pid) / "status").read_text()
    except OSError:
        return None
    if not fields or int(fields[_STARTED]) != process.started:
        return None
    return Usage((int(fields[_UTIME]) + int(fields[_STIME])) / _TICKS, _megabytes(status, "VmHWM"), _megabytes(status, "VmRSS"))


def _megabytes(status: str, name: str) -> float:
    """Of a line of /proc/<pid>/status that is in KiB."""
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith(f"{name}:")), 0) * 1024 / 1e6


def _stat(pid: int) -> list[str]:
    """The fields after the command's name (which may itself hold spaces and brackets); [] when it does not run."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return []
    fields = text.rpartition(")")[2].split()
    return [] if fields[_STATE] in "ZX" else fields
