"""The root directory of a process runtime, and its shims: starts, finds, signals and removes them.

`python -m kubelet.runtime.process.root [--keep] FOLDER` kills everything that a stopped kubelet has left in a root directory
and removes the directory (as `kubeadm reset` does). With `--keep` the directory stays, and the next kubelet finds containers
that were killed, as after a reboot. It does nothing if the directory is missing, and fails if no kubelet has created it.
"""

import asyncio
import fcntl
import logging
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from itertools import count
from pathlib import Path

import kubelet
from kubelet.runtime.process import files
from pinnace.runtime.clock import Clock
from pinnace.runtime.files import remove_tree

SHIM_ENVIRONMENT = {"PYTHONPATH": str(Path(str(kubelet.__file__)).parents[1]), "PYTHONDONTWRITEBYTECODE": "1"}
"""Of what is begun with nothing but the standard library and this package."""
_ERRORS = "shim.log"
_children: dict[int, "subprocess.Popen[bytes]"] = {}
"""Shims that this process has started and not reaped."""


def start_shim(folder: Path) -> tuple[int, int]:
    """Starts the shim of an attempt whose plan is in the folder: its pid, and a descriptor at whose end the container's process
    runs, or never will. Raises OSError."""
    lock = os.open(folder / files.LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    readable, writable = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with (folder / _ERRORS).open("ab") as errors:
            child = subprocess.Popen(
                [sys.executable, "-S", "-P", "-m", "kubelet.runtime.process.shim", str(folder), str(lock), str(writable)],
                env=SHIM_ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=errors,
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


def reap_shim(pid: int) -> None:
    """Of a shim that has ended."""
    if (child := _children.pop(pid, None)) is not None:
        child.wait()


def reap_ended_shims() -> None:
    """All that have ended, whoever else looked after them."""
    for pid, child in list(_children.items()):
        if child.poll() is not None:
            _children.pop(pid, None)


def shim_lives(folder: Path) -> bool:
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


def shim_pidfd(folder: Path) -> int | None:
    """A pidfd of the shim of this attempt; None when it has ended, or has not said yet which it is: see `lives`."""
    try:
        descriptor = os.pidfd_open(int((folder / files.LOCK).read_text() or "0"))
    except (FileNotFoundError, ProcessLookupError, ValueError, OSError):
        return None
    if shim_lives(folder):
        return descriptor
    os.close(descriptor)
    return None


def stop_shim(folder: Path, grace: float, deadline: float) -> None:
    """Tells the shim to end its process: see files.Stop. Nothing, when there is no shim. Raises OSError."""
    files.write(str(folder / files.STOP), files.Stop(grace=grace, deadline=deadline))
    _signal(folder, files.NUDGE)


def kill_shim(folder: Path) -> bool:
    """Has the shim kill its process, and leaves no word of it to later kubelets. False: no shim lives. Until then say it again:
    one that has just begun, or was begun by a kubelet of before, does not heed the signal, and is told by a file, for which
    there may be no room yet."""
    if _heeds(folder, files.KILL):
        _signal(folder, files.KILL)
    elif shim_lives(folder):
        with suppress(OSError):
            stop_shim(folder, 0.0, 0.0)
    return shim_lives(folder)


def _heeds(folder: Path, number: int) -> bool:
    """Does the shim have a handler for the signal? Without one it would die of it, and leave behind what it looks after."""
    try:
        status = Path(f"/proc/{int((folder / files.LOCK).read_text())}/status").read_text()
        caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    except (OSError, ValueError, StopIteration):
        return False
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def _signal(folder: Path, number: int) -> None:
    if (descriptor := shim_pidfd(folder)) is not None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, number)
        os.close(descriptor)


log = logging.getLogger(__name__)

NODE = "node"
ENTRIES = PODS, REMOVED, LOCK = "pods", "removed", "lock"
"""All that is in the folder."""
POLL = 0.02
"""Seconds between looks at something that is dying."""


class Root:
    """One kubelet's, for as long as it lives."""

    def __init__(self, path: Path) -> None:
        """Raises OSError: also when another kubelet has it."""
        self.path = path.absolute()
        self.removing: set[Path] = set()
        """Pods that were put away, and that somebody of this process sees to."""
        self._pods, self._removed = self.path / PODS, self.path / REMOVED
        for folder in (self._pods, self._removed):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise OSError(f"{self.path} is in use by another kubelet: give each a --root-dir of its own") from None

    def close(self) -> None:
        os.close(self._lock)

    def pod(self, uid: str) -> Path:
        return self._pods / uid

    def pods(self) -> list[Path]:
        return sorted(self._pods.iterdir())

    def removed(self) -> list[Path]:
        """Pods that an earlier kubelet has put away, and not been done with."""
        return sorted(self._removed.iterdir())

    def node(self, folder: Path) -> str:
        """On which node a pod is; empty when it was never said."""
        try:
            return (folder / NODE).read_text()
        except FileNotFoundError:
            return ""

    def attempts(self, uid: str, container: str) -> list[Path]:
        """The folders of the attempts at a container that are kept, the latest last. Both names may be a caller's: none that
        leads elsewhere has any."""
        if not all(name not in ("", ".", "..") and "/" not in name and "\0" not in name for name in (uid, container)):
            return []
        home = self.pod(uid) / "containers" / container
        return [home / str(number) for number in sorted(int(each.name) for each in home.glob("[0-9]*"))]

    def move_to_removed(self, folder: Path) -> Path:
        """Moves a pod out of the way: where to. Its containers may have made it read-only, and then it does not move."""
        folder.chmod(0o700)
        for number in count():
            target = self._removed / f"{folder.name}.{number}"
            if not target.exists():
                break
        return folder.rename(target)


async def remove_pod(folder: Path, clock: Clock, one_by_one: asyncio.Lock) -> None:
    """Kills what is left of a pod that was put away, and removes it: in a thread, for a volume may have any number of files;
    one pod after the other, for there are few threads. When it is cancelled, the thread goes on to its end; the process waits
    for that, and keeps its lock so long."""
    await end_pod(folder, clock)
    async with one_by_one:
        try:
            await asyncio.to_thread(remove_tree, folder)
        except OSError as error:
            log.warning("what a pod has left stays until the next start: %s", error)


async def end_pod(folder: Path, clock: Clock) -> None:
    """Kills what runs of a pod."""
    while kill_pod(folder):
        await clock.sleep(POLL)
    reap_ended_shims()


def kill_pod(pod: Path) -> list[Path]:
    """Tells all shims of a pod to kill: see shims.kill. The folders of the attempts whose shims live still."""
    return [lock.parent for lock in pod.glob(f"containers/*/*/{files.LOCK}") if kill_shim(lock.parent)]


RESET_TIMEOUT = 10.0
"""Seconds in which the kubelet must have ended, and then everything must be dead."""


def reset(folder: Path, *, keep: bool = False) -> None:
    """Raises OSError: also when a kubelet has the folder, or something does not die."""
    if not folder.exists():
        return
    if foreign := {each.name for each in folder.iterdir()} - set(ENTRIES):
        raise OSError(f"{folder} is not the folder of a process runtime: it has {sorted(foreign)[0]}")
    root = _taken(folder)
    pods = [*root.pods(), *root.removed()]
    deadline = time.monotonic() + RESET_TIMEOUT
    while alive := [attempt for pod in pods for attempt in kill_pod(pod)]:
        if time.monotonic() >= deadline:
            raise OSError(f"what runs in {alive[0]} does not end")
        time.sleep(POLL)
    if not keep:
        remove_tree(folder)
    root.close()


def _taken(folder: Path) -> Root:
    """Its own, from now on."""
    deadline = time.monotonic() + RESET_TIMEOUT
    while True:
        try:
            return Root(folder)
        except OSError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(POLL)


if __name__ == "__main__":
    try:
        reset(Path(sys.argv[-1]), keep=sys.argv[1:-1] == ["--keep"])
    except OSError as error:
        sys.exit(str(error))
