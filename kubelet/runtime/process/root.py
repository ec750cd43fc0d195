"""The root directory of a process runtime, and its shims: starts, finds, signals and removes them.

`python -m pinnace.kubelet.runtime.process.root [--keep] FOLDER` kills everything that a stopped kubelet has left in a root
directory and removes the directory (as `kubeadm reset` does). With `--keep` the directory stays, and the next kubelet finds
containers that were killed, as after a reboot. It does nothing if the directory is missing, and fails if no kubelet has created
it.
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

import pinnace
from pinnace.kubelet.runtime.process import files
from pinnace.runtime.clock import Clock
from pinnace.runtime.files import remove_tree

SHIM = "pinnace.kubelet.runtime.process.shim"
SHIM_ENVIRONMENT = {"PYTHONPATH": str(Path(str(pinnace.__file__)).parents[1]), "PYTHONDONTWRITEBYTECODE": "1"}
"""Python options for processes that use only the standard library and this package."""
_ERRORS = "shim.log"
_children: dict[int, "subprocess.Popen[bytes]"] = {}
"""Shims that this process has started and not reaped."""
log = logging.getLogger(__name__)
POLL = 0.02
"""Seconds between checks of a dying process."""
RESET_TIMEOUT = 10.0
"""Maximum seconds until the kubelet has exited, and then until all processes have exited."""


def start_shim(folder: Path) -> tuple[int, int]:
    """Start the shim of an attempt whose plan is in the directory. Return the pid, and a descriptor that is closed when the
    container's process runs or has failed to start. Raises OSError.
    """
    lock = os.open(folder / files.LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    readable, writable = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with (folder / _ERRORS).open("ab") as errors:
            child = subprocess.Popen(
                [sys.executable, "-S", "-P", "-m", SHIM, str(folder), str(lock), str(writable)],
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
    """Reap a shim that has exited."""
    if (child := _children.pop(pid, None)) is not None:
        child.wait()


def reap_ended_shims() -> None:
    """Reap all shims that have exited."""
    for pid, child in list(_children.items()):
        if child.poll() is not None:
            _children.pop(pid, None)


def is_shim_alive(folder: Path) -> bool:
    """Whether a shim of this attempt is alive, even if it has not written its record."""
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
    """A pidfd of the shim of this attempt. None if it has exited or has not written its record yet; see `lives`."""
    try:
        descriptor = os.pidfd_open(int((folder / files.LOCK).read_text() or "0"))
    except (FileNotFoundError, ProcessLookupError, ValueError, OSError):
        return None
    if is_shim_alive(folder):
        return descriptor
    os.close(descriptor)
    return None


def stop_shim(folder: Path, grace: float, deadline: float) -> None:
    """Ask the shim to stop its process: see files.StopRecord. No effect if there is no shim. Raises OSError."""
    files.write_record(str(folder / files.STOP), files.StopRecord(grace=grace, deadline=deadline))
    _signal_shim(folder, files.NUDGE)


def kill_shim(folder: Path) -> bool:
    """Ask the shim to kill its process, without a record for later kubelets. Return False if no shim is alive; otherwise call
    it again. A shim that has just started, or that an earlier kubelet started, ignores the signal and reads a file instead. The
    disk may be too full for this file.
    """
    if _handles_signal(folder, files.KILL):
        _signal_shim(folder, files.KILL)
    elif is_shim_alive(folder):
        with suppress(OSError):
            stop_shim(folder, 0.0, 0.0)
    return is_shim_alive(folder)


def _handles_signal(folder: Path, number: int) -> bool:
    """Whether the shim has a handler for the signal. Without one, the signal would kill the shim and leave its processes
    running.
    """
    try:
        status = Path(f"/proc/{int((folder / files.LOCK).read_text())}/status").read_text()
        caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    except (OSError, ValueError, StopIteration):
        return False
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def _signal_shim(folder: Path, number: int) -> None:
    if (descriptor := shim_pidfd(folder)) is not None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, number)
        os.close(descriptor)


NODE, ADDRESS = "node", "address"
ENTRIES = PODS, REMOVED, LOCK = "pods", "removed", "lock"
"""The content of the directory."""


class RuntimeRoot:
    """The root directory, locked by one kubelet."""

    def __init__(self, path: Path) -> None:
        """Raises OSError, also if another kubelet has locked the directory."""
        self.path = path.absolute()
        self.removing: set[Path] = set()
        """Removed pods that a task of this process cleans up."""
        self._pods, self._removed = self.path / PODS, self.path / REMOVED
        for folder in (self._pods, self._removed):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise OSError(f"{self.path} is in use by another kubelet: use another --root-dir") from None

    def close(self) -> None:
        os.close(self._lock)

    def pod_directory(self, uid: str) -> Path:
        return self._pods / uid

    def pod_directories(self) -> list[Path]:
        return sorted(self._pods.iterdir())

    def removed_pod_directories(self) -> list[Path]:
        """Removed pods that an earlier kubelet has not finished cleaning up."""
        return sorted(self._removed.iterdir())

    def read_pod_node(self, folder: Path) -> str:
        """The node of a pod; empty if it was never recorded."""
        try:
            return (folder / NODE).read_text()
        except FileNotFoundError:
            return ""

    def has_pod(self, uid: str) -> bool:
        """Whether this runtime has prepared the pod. `uid`: see `attempt_directories`."""
        return _is_file_name(uid) and self.pod_directory(uid).is_dir()

    def read_pod_address(self, uid: str) -> str:
        """The address of a prepared pod; empty if there is none. `uid`: see `attempt_directories`."""
        try:
            return (self.pod_directory(uid) / ADDRESS).read_text() if _is_file_name(uid) else ""
        except FileNotFoundError:
            return ""

    def attempt_directories(self, uid: str, container: str) -> list[Path]:
        """The kept directories of the attempts of a container, the latest last. Names of callers are validated: a name that
        leads elsewhere has no directories.
        """
        if not (_is_file_name(uid) and _is_file_name(container)):
            return []
        home = self.pod_directory(uid) / "containers" / container
        return [home / str(number) for number in sorted(int(path.name) for path in home.glob("[0-9]*"))]

    def move_to_removed(self, folder: Path) -> Path:
        """Move a pod to the removed pods, and return the new path. The move fails if the pod's containers have made it
        read-only.
        """
        folder.chmod(0o700)
        for number in count():
            target = self._removed / f"{folder.name}.{number}"
            if not target.exists():
                break
        return folder.rename(target)


def _is_file_name(name: str) -> bool:
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name


async def remove_pod(folder: Path, clock: Clock, one_by_one: asyncio.Lock) -> None:
    """Kill and delete a removed pod, in a thread, because volumes can have many files. One pod at a time, because there are
    few threads. After a cancellation the thread continues; the process waits for it and keeps its lock.
    """
    await kill_pod_containers(folder, clock)
    async with one_by_one:
        try:
            await asyncio.to_thread(remove_tree, folder)
        except OSError as error:
            log.warning("files of a removed pod remain until the next start: %s", error)


async def kill_pod_containers(folder: Path, clock: Clock) -> None:
    """Kill the containers of a pod."""
    while request_pod_kill(folder):
        await clock.sleep(POLL)
    reap_ended_shims()


def request_pod_kill(pod: Path) -> list[Path]:
    """Ask all shims of a pod to kill their processes (see shims.kill). Return the directories of attempts whose shims are
    still alive.
    """
    return [lock.parent for lock in pod.glob(f"containers/*/*/{files.LOCK}") if kill_shim(lock.parent)]


def reset_root(folder: Path, *, keep: bool = False) -> None:
    """Raises OSError, also if a kubelet uses the directory or a process does not exit."""
    if not folder.exists():
        return
    if foreign := {path.name for path in folder.iterdir()} - set(ENTRIES):
        raise OSError(f"{folder} is not the directory of a process runtime: it contains {sorted(foreign)[0]}")
    root = _claim_pod_folder(folder)
    pods = [*root.pod_directories(), *root.removed_pod_directories()]
    deadline = time.monotonic() + RESET_TIMEOUT
    while alive := [attempt for pod in pods for attempt in request_pod_kill(pod)]:
        if time.monotonic() >= deadline:
            raise OSError(f"processes in {alive[0]} do not exit")
        time.sleep(POLL)
    if not keep:
        remove_tree(folder)
    root.close()


def _claim_pod_folder(folder: Path) -> RuntimeRoot:
    """The directory of a pod from now on."""
    deadline = time.monotonic() + RESET_TIMEOUT
    while True:
        try:
            return RuntimeRoot(folder)
        except OSError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(POLL)


if __name__ == "__main__":
    try:
        reset_root(Path(sys.argv[-1]), keep=sys.argv[1:-1] == ["--keep"])
    except OSError as error:
        sys.exit(str(error))
