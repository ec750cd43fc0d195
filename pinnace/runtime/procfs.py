"""Read the identity, CPU time and memory of processes from /proc (Linux).

A pid can be reused. A pid and a start time identify a process until the machine reboots. The boot ID distinguishes reboots.

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
"""Indexes of the fields of /proc/<pid>/stat after the command name."""


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """The identity of a process. `started` is in clock ticks since the boot with the ID `boot`."""

    pid: int
    started: int
    boot: str


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """The resources that a process has used: CPU seconds (user and system, all threads), and its peak and current resident
    memory in MB (10^6 bytes)."""

    cpu_s: float
    peak_rss_mb: float
    rss_mb: float = 0.0


@dataclass(frozen=True, slots=True)
class ProcessEntry:
    """A snapshot of a process. `started` is in clock ticks since the boot. `rss` is the resident memory in bytes. `cpu_s` is
    the CPU time of the process, and `waited_s` of its ended and reaped descendants, both in seconds."""

    pid: int
    parent: int
    started: int
    cpu_s: float
    waited_s: float
    rss: int

    @property
    def age(self) -> float:
        """The age of the process in seconds."""
        return time.clock_gettime(time.CLOCK_BOOTTIME) - self.started / _TICKS


def read_boot_id() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def can_listen(port: int) -> bool:
    """Return whether processes of this user may listen on the port."""
    try:
        lowest = int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text())
    except (OSError, ValueError):
        lowest = 1024
    return os.geteuid() == 0 or port >= lowest


def identify_process(pid: int) -> ProcessIdentity | None:
    """Return the identity of a running process, or None. Zombies do not count as running."""
    fields = _stat_fields_if_running(pid)
    return ProcessIdentity(pid, int(fields[_STARTED]), read_boot_id()) if fields else None


def is_running(process: ProcessIdentity) -> bool:
    return identify_process(process.pid) == process


def is_suspended(process: ProcessIdentity) -> bool:
    """Return whether the process is stopped, for example by SIGSTOP."""
    fields = _stat_fields_if_running(process.pid)
    return bool(fields) and fields[_STATE] in "Tt" and int(fields[_STARTED]) == process.started


def send_signal(process: ProcessIdentity, number: signal.Signals) -> bool:
    """Send a signal to this process. Return False if the process has ended. A process that reuses the pid is never
    signalled."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        if not is_running(process):
            return False
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def find_process(argv: Sequence[str]) -> ProcessIdentity | None:
    """Return the process whose command line is exactly `argv`, or None."""
    wanted = b"".join(os.fsencode(argument) + b"\0" for argument in argv)
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                result = (entry / "cmdline").read_bytes() == wanted
            except OSError:
                continue
            if result:
                return identify_process(int(entry.name))
    return None


def list_own_processes() -> Iterator[tuple[int, list[str]]]:
    """Yield the pid and command line of each process of this user."""
    user = os.geteuid()
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                if entry.stat().st_uid == user and (line := (entry / "cmdline").read_bytes()):
                    yield int(entry.name), os.fsdecode(line).removesuffix("\0").split("\0")
            except OSError:
                continue


def find_descendants(processes: Iterable[ProcessIdentity]) -> list[ProcessIdentity]:
    """Return all running descendants of these processes."""
    children: dict[int, list[ProcessEntry]] = {}
    for entry in read_process_table().values():
        children.setdefault(entry.parent, []).append(entry)
    boot = read_boot_id()
    left, identities = [process.pid for process in processes], list[ProcessIdentity]()
    while left:
        below = children.pop(left.pop(), [])
        identities += (ProcessIdentity(entry.pid, entry.started, boot) for entry in below)
        left += (entry.pid for entry in below)
    return identities


def read_usage(process: ProcessIdentity) -> ProcessUsage | None:
    """Return the usage of the process, or None if it has ended."""
    fields = _stat_fields_if_running(process.pid)
    try:
        status = (_PROC / str(process.pid) / "status").read_text()
    except OSError:
        return None
    if not fields or int(fields[_STARTED]) != process.started:
        return None
    return ProcessUsage(
        (int(fields[_UTIME]) + int(fields[_STIME])) / _TICKS, _read_megabytes(status, "VmHWM"), _read_megabytes(status, "VmRSS")
    )


def reset_peaks(processes: Sequence[ProcessIdentity]) -> float:
    """Start the measurement of `peak_memory` anew. Return the resident memory of these processes and their descendants in MB.
    Raises OSError."""
    identities = [*processes, *find_descendants(processes)]
    for process in identities:
        (_PROC / str(process.pid) / "clear_refs").write_text("5\n")
    return sum(each.rss_mb for process in identities if (each := read_usage(process)))


def peak_memory(processes: Sequence[ProcessIdentity]) -> float:
    """Return the sum of the peaks of these processes and their running descendants in MB."""
    return sum(each.peak_rss_mb for process in (*processes, *find_descendants(processes)) if (each := read_usage(process)))


def read_process_table() -> dict[int, ProcessEntry]:
    """Return all processes by pid. Zombies are included, so that their CPU time does not disappear from the totals. Takes about
    60 us per process."""
    pids = [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]
    return {pid: _build_entry(pid, fields) for pid in pids if (fields := _stat_fields(pid))}


def _build_entry(pid: int, fields: Sequence[str]) -> ProcessEntry:
    def seconds(first: int, second: int) -> float:
        return (int(fields[first]) + int(fields[second])) / _TICKS

    return ProcessEntry(
        pid, int(fields[_PARENT]), int(fields[_STARTED]), seconds(_UTIME, _STIME), seconds(_CUTIME, _CSTIME),
        int(fields[_RSS]) * _PAGE,
    )  # fmt: skip


def _read_megabytes(status: str, name: str) -> float:
    """Return a field of /proc/<pid>/status, which is in KiB, in MB."""
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith(f"{name}:")), 0) * 1024 / 1e6


def _stat_fields_if_running(pid: int) -> list[str]:
    """Return the fields like `_stat_fields`, or [] if the process is not running."""
    fields = _stat_fields(pid)
    return [] if not fields or fields[_STATE] in "ZX" else fields


def _stat_fields(pid: int) -> list[str]:
    """Return the fields after the command name, which can contain spaces and parentheses. Return [] if the process does not
    exist."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return []
    return text.rpartition(")")[2].split()
