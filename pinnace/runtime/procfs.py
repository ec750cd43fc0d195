"""Read the identity, CPU time and memory of processes from /proc (Linux). Detect a shortage of CPU time,
and pin a busy process to one processor.

A pid can be reused. A pid and a start time identify a process until the machine reboots. The boot ID distinguishes reboots.

Source: proc_pid_stat(5), proc_pid_status(5).
"""

import logging
import os
import resource
import signal
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pinnace.runtime.clock import SYSTEM_CLOCK, Clock

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_STATE, _PARENT, _UTIME, _STIME, _CUTIME, _CSTIME, _STARTED, _RSS = 0, 1, 11, 12, 13, 14, 19, 21
"""Indexes of the fields of /proc/<pid>/stat after the command name."""


@dataclass(frozen=True, slots=True)
class Identity:
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
class Entry:
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


def boot_id() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def identify(pid: int) -> Identity | None:
    """Return the identity of a running process, or None. Zombies do not count as running."""
    fields = _stat(pid)
    return Identity(pid, int(fields[_STARTED]), boot_id()) if fields else None


def alive(process: Identity) -> bool:
    return identify(process.pid) == process


def suspended(process: Identity) -> bool:
    """Return whether the process is stopped, for example by SIGSTOP."""
    fields = _stat(process.pid)
    return bool(fields) and fields[_STATE] in "Tt" and int(fields[_STARTED]) == process.started


def send_signal(process: Identity, number: signal.Signals) -> bool:
    """Send a signal to this process. Return False if the process has ended. A process that reuses the pid is never
    signalled."""
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
    """Return the process whose command line is exactly `argv`, or None."""
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
    """Yield the pid and command line of each process of this user."""
    user = os.geteuid()
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                if entry.stat().st_uid == user and (line := (entry / "cmdline").read_bytes()):
                    yield int(entry.name), os.fsdecode(line).removesuffix("\0").split("\0")
            except OSError:
                continue


def descendants(processes: Iterable[Identity]) -> list[Identity]:
    """Return all running descendants of these processes."""
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
    """Return the usage of the process, or None if it has ended."""
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
    """Return all processes by pid. Zombies are included, so that their CPU time does not disappear from the totals. Takes about
    60 us per process."""
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
    """Return a field of /proc/<pid>/status, which is in KiB, in MB."""
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith(f"{name}:")), 0) * 1024 / 1e6


def _stat(pid: int) -> list[str]:
    """Return the fields like `_fields`, or [] if the process is not running."""
    fields = _fields(pid)
    return [] if not fields or fields[_STATE] in "ZX" else fields


def _fields(pid: int) -> list[str]:
    """Return the fields after the command name, which can contain spaces and parentheses. Return [] if the process does not
    exist."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return []
    return text.rpartition(")")[2].split()


PREEMPTIONS_WHEN_SHORT = 1000
"""Preemptions per second above which CPU time counts as short. On two busy cores, an API server is preempted 8,000 to 11,000
times per second with 16 writing clients, and 1,000 times with one client, because its own threads compete (Linux 6.18, 2
cores)."""


def preempted() -> int:
    """Return the number of involuntary context switches of this process.

    Source: ru_nivcsw in https://man7.org/linux/man-pages/man2/getrusage.2.html
    """
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def never() -> int:
    """A replacement for `preempted` that reports no preemption."""
    return 0


class Pressure:
    """Detects a shortage of CPU time from the rate of preemptions."""

    def __init__(self, preempted: Callable[[], int], clock: Clock) -> None:
        self._preempted = preempted
        self._clock = clock
        self._count, self._looked = preempted(), clock.monotonic()

    def is_high(self) -> bool:
        """Return whether CPU time was short since the previous call."""
        count, looked = self._count, self._looked
        self._count, self._looked = self._preempted(), self._clock.monotonic()
        return self._count - count > PREEMPTIONS_WHEN_SHORT * (self._looked - looked)


log = logging.getLogger(__name__)

PIN_ABOVE, RELEASE_BELOW = 10_000, 5_000
"""Context switches per second. The process is pinned at PIN_ABOVE and released below RELEASE_BELOW. Measured on two processors:
10,000 to 20,000 with 1,000 watchers, 15,000 to 26,000 with one create per call, at most 6,700 while thousands of pods are
bound and started."""
INTERVAL = 0.25
"""Seconds between two measurements."""


def switches() -> int:
    """Return the number of context switches of this process, voluntary and involuntary."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_nvcsw + usage.ru_nivcsw


def move(processors: Collection[int]) -> None:
    """Set the CPU affinity of all threads of this process. New threads inherit it."""
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # the thread has ended, or the processor is not available
            os.sched_setaffinity(int(thread.name), processors)


class Affinity:
    """Pins this process to `processor` while its rate of context switches is high, and releases it otherwise.

    Python runs on one processor at a time, and gRPC's threads exchange requests and responses with it. With many small calls,
    the threads wake each other 20,000 times per second across processors, and each wakeup finds a cold cache. Two API servers
    on two processors process one seventh more creates if each is pinned. With few large calls, such as a scheduler's, there are
    about a thousand switches per second, and the kernel chooses the processor. If `processor` is not available to the process,
    a warning is logged and the process is not pinned.

    Source: sched_setaffinity(2), getrusage(2)
    """

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
        """Measure and pin until cancelled."""
        if not self._own < self._all:
            log.warning("not pinning the process: processor %d is not available (available: %s)", *self._own, sorted(self._all))
            return
        stays, count, looked = False, self._switches(), self._clock.monotonic()
        while True:
            await self._clock.sleep(INTERVAL)
            before, since = count, looked
            count, looked = self._switches(), self._clock.monotonic()
            often = count - before > (RELEASE_BELOW if stays else PIN_ABOVE) * (looked - since)
            if often != stays:
                stays = often
                self._move(self._own if stays else self._all)
