"""The folder of a local cluster, and who may change it.

    <data_dir>/cluster.json   the state
    <data_dir>/lock           held (flock) by the `up` or `down` that is at work, and so is the folder itself; a killed one lets
                              go of them by dying
    <data_dir>/logs/          one log a process
    <data_dir>/etcd/          the data of the etcd members
    <data_dir>/pki/           the certificates, and who uses which (pinnace.cluster.certificates)

Only these are ever written or removed, and the folders only together with the state that says they are ours.
"""

import errno
import fcntl
import os
import re
import shutil
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pinnace.cluster import state as states
from pinnace.cluster.errors import Busy, FolderError
from pinnace.cluster.spec import etcd_folder, pki_folder, pods_folder
from pinnace.cluster.state import ClusterState, StateError
from pinnace.runtime.trees import remove_tree

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
MB = 1_000_000
SEGMENT = 64 * MB
"""A file of etcd's log, which has its size from the beginning. Source: `SegmentSizeBytes` in its server/storage/wal/wal.go."""


class Folder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._state = path / states.FILE
        self._draft = self._state.with_suffix(".tmp")
        self._lock = path / "lock"
        self.logs = path / "logs"
        self._folders = (etcd_folder(path), pki_folder(path), pods_folder(path), self.logs)

    @contextmanager
    def usable(self) -> Iterator[None]:
        """Turns an OSError, such as that of a full disk, into a FolderError."""
        try:
            yield
        except OSError as error:
            raise self._unusable(error) from error

    def create(self) -> list[Path]:
        """Makes sure that it is there and can be written to; the folders that had to be made, outermost first."""
        missing = [folder for folder in (*reversed(self.path.parents), self.path) if not folder.exists()]
        with self.usable():
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return missing

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps every other `up` and `down` out of the folder, which exists. Raises Busy at once when one is at work."""
        with self.usable():
            handles = self._acquire()
        try:
            yield
        finally:
            self._lock.unlink(missing_ok=True)
            for handle in handles:
                os.close(handle)

    def _acquire(self) -> list[int]:
        """The locks of the file and of the folder. On a full disk, which `down` is to free, there may be no room for the file;
        and not every file system can lock a folder (NFS cannot). Either is enough; whoever can have both has both. The file
        comes first: a folder that has one is not removed by somebody who has made it and is refused."""
        held = []
        try:
            try:
                held.append(self._acquire_file())
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
            folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(folder)
                if isinstance(error, BlockingIOError):
                    raise self._busy("" if held else self._owner()) from None
                if not held:
                    raise
            else:
                held.append(folder)
        except BaseException:
            for handle in held:
                self._lock.unlink(missing_ok=True)
                os.close(handle)
            raise
        return held

    def _acquire_file(self) -> int:
        while True:
            handle = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(handle)
                raise self._busy(self._owner()) from None
            with suppress(FileNotFoundError):
                if os.fstat(handle).st_ino == self._lock.stat().st_ino:
                    with suppress(OSError):  # the pid is for people: without room for it the lock is held all the same
                        os.ftruncate(handle, 0)
                        os.pwrite(handle, str(os.getpid()).encode(), 0)
                    return handle
            os.close(handle)  # the holder before us removed the file between our open and our lock

    def _owner(self) -> str:
        """The pid of who holds the lock; empty where there was no room for it."""
        with suppress(OSError):
            return self._lock.read_bytes()[:32].decode(errors="replace").strip()
        return ""

    def _busy(self, owner: str) -> Busy:
        return Busy(
            f"another pinnace (pid {owner or '?'}) is starting or stopping the cluster in {self.path}",
            hint="wait until it is done",
        )

    def read(self) -> ClusterState | None:
        """None when there is no state. Raises FolderError when there is one that cannot be understood."""
        try:
            return states.decode(self._state.read_text())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unusable(error) from error
        except StateError as error:
            raise FolderError(
                f"{self._state} cannot be understood: {error}",
                hint="if it is not pinnace's, choose another folder with --data-dir; if it is, end its processes by hand, "
                "remove that file, and start again",
            ) from error

    def write(self, state: ClusterState) -> None:
        """All or nothing: a reader sees the state before or after."""
        with self.usable():
            self._draft.write_text(states.encode(state))
            self._draft.replace(self._state)

    def claim(self, state: ClusterState) -> None:
        """Writes the first state of a cluster, and makes what it needs. Raises FolderError, and leaves nothing; also when data
        is there already that no state accounts for: it is not ours to remove."""
        for folder in self._folders:
            if folder.exists():
                raise FolderError(
                    f"{folder} is there already, and belongs to no cluster that pinnace knows",
                    hint="choose another folder with --data-dir, or remove it",
                )
        try:
            self.write(state)
            with self.usable():
                for folder in self._folders:
                    folder.mkdir(mode=0o700)
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """Removes all that a cluster has left here. The folder itself stays: it holds the lock. Raises FolderError; then the
        state stays, too, so that what is left is still known to be ours."""
        for folder in self._folders:
            try:
                if folder.exists():
                    remove_tree(folder)
            except OSError as error:
                raise FolderError(
                    f"{folder} cannot be removed: {error.strerror or error}: {error.filename}",
                    hint="remove it by hand, and try again",
                ) from error
        self._draft.unlink(missing_ok=True)  # the disk was full, or its writer was killed
        self._state.unlink(missing_ok=True)

    def prune(self, made: Sequence[Path]) -> None:
        """Removes folders that `create` has made, innermost first, up to the first that is not empty. Without the lock."""
        with suppress(OSError):
            for folder in reversed(made):
                folder.rmdir()

    def pods(self) -> list[Path]:
        """The folders in which kubelets keep their pods."""
        return sorted(pods_folder(self.path).glob("*"))

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def log_tail(self, name: str, lines: int = 15) -> list[str]:
        try:
            with self.log(name).open(errors="replace") as log:
                return [line.rstrip("\n") for line in deque(_without_stacks(log), lines)]
        except OSError:
            return []

    def lack_of_room(self, tail: Sequence[str]) -> str:
        """What helps a process that has ended for want of room, as the end of its log shows, or shows by being empty; "" when
        that is not why."""
        with suppress(OSError):
            left = shutil.disk_usage(self.path).free
            if any("no space left" in line.lower() for line in tail) or (not tail and left < SEGMENT):
                return f"free some space: {left // MB} MB are left, and etcd makes files of {SEGMENT // MB} MB"
        return ""

    def _unusable(self, error: OSError) -> FolderError:
        hint = "free some space" if error.errno in NO_ROOM else "choose another folder with --data-dir"
        return FolderError(f"{self.path} cannot be used: {error.strerror or error}", hint=hint)


def _without_stacks(log: Iterable[str]) -> Iterator[str]:
    """Go writes them after what has happened, so long that they would be all that is told of an etcd that has died."""
    stack = False
    for line in log:
        stack = line.startswith("goroutine ") or (stack and not re.match(r"[\d{]", line))  # as lines of etcd's log begin
        if not stack:
            yield line
