"""Processes by /proc (Linux): whether a process is the one that was started, its CPU time and its memory.

Pids are reused. A pid with its start time identifies a process until the machine reboots; the boot id covers that.

Source: proc_pid_stat(5), proc_pid_status(5).
"""

import os
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_STATE, _PARENT, _UTIME, _STIME, _CUTIME, _CSTIME, _STARTED, _RSS = 0, 1, 11, 12, 13, 14, 19, 21
"""Fields of /proc/<pid>/stat, counted from the one after the command's name."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Identifies one process. `started` is in clock ticks since the boot `boot`."""

    pid: int
    started: int
    boot: str


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """What a process has used so far: CPU seconds (user and system, all threads), and its peak and present resident memory in
    MB (10^6)."""

    cpu_s: float
    peak_rss_mb: float
    rss_mb: float = 0.0


@dataclass(frozen=True, slots=True)
class Entry:
    """A snapshot of one process. `started` is in clock ticks since the machine booted; `rss`, its resident memory, in bytes.
    `cpu_s` is its own CPU time, `waited_s` that of descendants that have ended and were waited for, both in seconds."""

    pid: int
    parent: int
    started: int
    cpu_s: float
    waited_s: float
    rss: int

    @property
    def age(self) -> float:
        """Seconds."""
        return time.clock_gettime(time.CLOCK_BOOTTIME) - self.started / _TICKS


def boot_id() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def identify(pid: int) -> Identity | None:
    """None if no process with this pid runs. A zombie, which has ended and waits to be reaped, does not run."""
    fields = _stat(pid)
    return Identity(pid, int(fields[_STARTED]), boot_id()) if fields else None


def alive(process: Identity) -> bool:
    return identify(process.pid) == process


def suspended(process: Identity) -> bool:
    """Whether the process is stopped, by SIGSTOP or the like."""
    fields = _stat(process.pid)
    return bool(fields) and fields[_STATE] in "Tt" and int(fields[_STARTED]) == process.started


def send_signal(process: Identity, number: signal.Signals) -> bool:
    """Signals this process, and never another one that got its pid since. Returns False if the process is gone."""
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


def own() -> Iterator[tuple[int, list[str]]]:
    """The pid and the command line of each process of this user."""
    user = os.geteuid()
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                if entry.stat().st_uid == user and (line := (entry / "cmdline").read_bytes()):
                    yield int(entry.name), os.fsdecode(line).removesuffix("\0").split("\0")
            except OSError:
                continue


def descendants(processes: Iterable[Identity]) -> list[Identity]:
    """All running descendants of these processes."""
    children: dict[int, list[Entry]] = {}
    for entry in table().values():
        children.setdefault(entry.parent, []).append(entry)
    boot = boot_id()
    left, found = [process.pid for process in processes], list[Identity]()
    while left:
        below = children.pop(left.pop(), [])
        found += (Identity(entry.pid, entry.started, boot) for entry in below)
        left += (entry.pid for entry in below)
    return found


def usage(process: Identity) -> ProcessUsage | None:
    """None when it is gone."""
    fields = _stat(process.pid)
    try:
        status = (_PROC / str(process.pid) / "status").read_text()
    except OSError:
        return None
    if not fields or int(fields[_STARTED]) != process.started:
        return None
    return ProcessUsage(
        (int(fields[_UTIME]) + int(fields[_STIME])) / _TICKS, _megabytes(status, "VmHWM"), _megabytes(status, "VmRSS")
    )


def table() -> dict[int, Entry]:
    """All processes, by pid, including zombies: otherwise their CPU time would disappear and reappear. Takes about 60 us per
    process."""
    pids = [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]
    return {pid: _entry(pid, fields) for pid in pids if (fields := _fields(pid))}


def _entry(pid: int, fields: Sequence[str]) -> Entry:
    def seconds(first: int, second: int) -> float:
        return (int(fields[first]) + int(fields[second])) / _TICKS

    return Entry(
        pid, int(fields[_PARENT]), int(fields[_STARTED]), seconds(_UTIME, _STIME), seconds(_CUTIME, _CSTIME),
        int(fields[_RSS]) * _PAGE,
    )  # fmt: skip


def _megabytes(status: str, name: str) -> float:
    """A line of /proc/<pid>/status, which is in KiB, as MB."""
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith(f"{name}:")), 0) * 1024 / 1e6


def _stat(pid: int) -> list[str]:
    """As `_fields`; [] if the process does not run."""
    fields = _fields(pid)
    return [] if not fields or fields[_STATE] in "ZX" else fields


def _fields(pid: int) -> list[str]:
    """The fields after the command's name, which may contain spaces and brackets; [] if there is no such process."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return []
    return text.rpartition(")")[2].split()
