"""Shims as the kubelet sees them: starting one, finding one that runs, telling it to look at its files."""

import fcntl
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import kubelet
from kubelet.process import files

ENVIRONMENT = {"PYTHONPATH": str(Path(str(kubelet.__file__)).parents[1]), "PYTHONDONTWRITEBYTECODE": "1"}
"""Of what is begun with nothing but the standard library and this package."""
_ERRORS = "shim.log"
_children: dict[int, "subprocess.Popen[bytes]"] = {}
"""Shims that this process has started and not reaped."""


def start(folder: Path) -> tuple[int, int]:
    """Starts the shim of an attempt whose plan is in the folder: its pid, and a descriptor at whose end the container's process
    runs, or never will. Raises OSError."""
    lock = os.open(folder / files.LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    readable, writable = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with (folder / _ERRORS).open("ab") as errors:
            child = subprocess.Popen(
                [sys.executable, "-S", "-P", "-m", "kubelet.process.shim", str(folder), str(lock), str(writable)],
                env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=errors,
                stderr=errors, pass_fds=(lock, writable), start_new_session=True,
            )  # fmt: skip
    except BaseException:
        os.close(readable)
        raise
    finally:
        os.close(lock)
        os.close(writable)
    _children[child.pid] = child
    return child.pid, readable


def reap(pid: int) -> None:
    """Of a shim that has ended."""
    if (child := _children.pop(pid, None)) is not None:
        child.wait()


def reap_ended() -> None:
    """All that have ended, whoever else looked after them."""
    for pid, child in list(_children.items()):
        if child.poll() is not None:
            _children.pop(pid, None)


def lives(folder: Path) -> bool:
    """Is there a shim of this attempt, even if it has not come to say so?"""
    try:
        lock = os.open(folder / files.LOCK, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def handle(folder: Path) -> int | None:
    """A pidfd of the shim of this attempt; None when it has ended, or has not said yet which it is: see `lives`."""
    try:
        descriptor = os.pidfd_open(int((folder / files.LOCK).read_text() or "0"))
    except (FileNotFoundError, ProcessLookupError, ValueError, OSError):
        return None
    if lives(folder):
        return descriptor
    os.close(descriptor)
    return None


def stop(folder: Path, grace: float, deadline: float) -> None:
    """Tells the shim to end its process: see files.Stop. Nothing, when there is no shim. Raises OSError."""
    files.write(str(folder / files.STOP), files.Stop(grace=grace, deadline=deadline))
    _signal(folder, files.NUDGE)


def kill(folder: Path) -> bool:
    """Has the shim kill its process, and leaves no word of it to later kubelets. False: no shim lives. Until then say it again:
    one that has just begun, or was begun by a kubelet of before, does not heed the signal, and is told by a file, for which
    there may be no room yet."""
    if _heeds(folder, files.KILL):
        _signal(folder, files.KILL)
    elif lives(folder):
        with suppress(OSError):
            stop(folder, 0.0, 0.0)
    return lives(folder)


def _heeds(folder: Path, number: int) -> bool:
    """Does the shim have a handler for the signal? Without one it would die of it, and leave behind what it looks after."""
    try:
        status = Path(f"/proc/{int((folder / files.LOCK).read_text())}/status").read_text()
        caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    except (OSError, ValueError, StopIteration):
        return False
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def _signal(folder: Path, number: int) -> None:
    if (descriptor := handle(folder)) is not None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, number)
        os.close(descriptor)
