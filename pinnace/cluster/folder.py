"""The folder of a local cluster, and who may change it.

    <data_dir>/cluster.json   the state
    <data_dir>/lock           held (flock) by the `up` or `down` that is at work, and so is the folder itself; a killed one lets
                              go of them by dying
    <data_dir>/logs/          one log a process
    <data_dir>/etcd/          the data of the etcd members
    <data_dir>/pki/           the certificates, and who uses which (pinnace.cluster.certificates)
    <data_dir>/pods/          what kubelets keep of their pods
    <data_dir>/config/        copies of the files that the components are configured with (pinnace.cluster.inputs)

Only these are ever written or removed. Each folder has a mark (`.pinnace`) with the identity of its cluster. A folder without
that mark, and a file that no part of the cluster has made, are not removed. The logs of a start that has failed are kept, with
a mark, until the next start or `pinnace down`.
"""

import errno
import fcntl
import json
import os
import re
import shutil
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pinnace.cluster import spec as states
from pinnace.cluster.errors import Busy, FolderError
from pinnace.cluster.spec import (
    KUBELET,
    ClusterState,
    StateError,
    config_folder,
    etcd_folder,
    kubeconfig_file,
    pki_folder,
    pods_folder,
)
from pinnace.runtime.files import remove_tree

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
MB = 1_000_000
MARK = ".pinnace"
FAILED, MADE = "failed", "made"
"""What the mark in the logs of a start that failed says."""
OURS: Mapping[str, Sequence[str]] = {
    "etcd": ("etcd-*",),
    "pki": ("*.crt*", "*.key*", "*.conf*", "etcd", "users"),
    "pods": ("kubelet-*",),
    "logs": ("*.log", "core", "core.*"),
    "config": ("scheduler.yaml", "admission.yaml", "stages.yaml", "machines.yaml", "tokens.csv", "plugins", "modules"),
}
"""What the parts of a cluster make in each of its folders."""
SEGMENT = 64 * MB
"""A file of etcd's log, which has its size from the beginning. Source: `SegmentSizeBytes` in its server/storage/wal/wal.go."""


class Folder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._state = path / states.FILE
        self._draft = self._state.with_suffix(".tmp")
        self._lock = path / "lock"
        self.logs = path / "logs"
        self._kubeconfig = kubeconfig_file(path)
        self._folders = (etcd_folder(path), pki_folder(path), pods_folder(path), config_folder(path), self.logs)

    @contextmanager
    def usable(self) -> Iterator[None]:
        """Turns an OSError, such as that of a full disk, into a FolderError."""
        try:
            yield
        except OSError as error:
            raise self._unusable(error) from error

    def create(self) -> list[Path]:
        """Makes sure that it is there and can be written to; the folders that had to be made, outermost first."""
        with self.usable():
            missing = [folder for folder in (*reversed(self.path.parents), self.path) if not folder.exists()]
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not os.access(self.path, os.W_OK | os.X_OK, effective_ids=True):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
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

    def claim(self, state: ClusterState, files: Mapping[str, bytes] | None = None) -> None:
        """Writes the first state of a cluster, and makes what it needs. `files`: of the folder `config`, by their paths there.
        Raises FolderError, and leaves nothing; also when data is there already that no state accounts for: it is not ours to
        remove."""
        self.forget_failed_start()
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
                    (folder / MARK).write_text(f"{state.identity}\n")
                for name, data in (files or {}).items():
                    path = config_folder(self.path) / name
                    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    path.write_bytes(data)
                    path.chmod(0o600)
        except BaseException:
            for folder in self._folders:  # none was there before
                if folder.exists():
                    remove_tree(folder)
            self._kubeconfig.unlink(missing_ok=True)
            self._draft.unlink(missing_ok=True)
            self._state.unlink(missing_ok=True)
            raise

    def remove(self, state: ClusterState, *, keep_logs: bool = False) -> list[Path]:
        """Removes all that this cluster has left here; what was kept, because nothing proves that it is the cluster's. The
        folder itself stays: it holds the lock. With `keep_logs` the logs stay, marked as those of a start that failed. Raises
        FolderError; then the state stays, too, so that what is left is still known to be ours."""
        kept = []
        for folder in self._folders:
            if keep_logs and folder == self.logs:
                continue
            try:
                kept += _remove(folder, state.identity)
            except OSError as error:
                raise FolderError(
                    f"{folder} cannot be removed: {error.strerror or error}: {error.filename}",
                    hint="remove it by hand, and try again",
                ) from error
        if keep_logs:
            with suppress(OSError):  # of a full disk: then they are a stranger's to the next start, which says so
                (self.logs / MARK).write_text(json.dumps({FAILED: state.identity, MADE: [str(each) for each in state.made]}))
        self._kubeconfig.unlink(missing_ok=True)
        self._draft.unlink(missing_ok=True)  # the disk was full, or its writer was killed
        self._state.unlink(missing_ok=True)
        return kept

    def forget_failed_start(self) -> list[Path] | None:
        """Removes the logs of a start that failed: the folders that had been made for it. None: there are none."""
        try:
            said = json.loads((self.logs / MARK).read_text())
            identity, made = str(said[FAILED]), [Path(each) for each in said[MADE]]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if self._state.exists():
            return None
        with self.usable():
            (self.logs / MARK).write_text(f"{identity}\n")
            _remove(self.logs, identity)
        return made

    def prune(self, made: Sequence[Path]) -> None:
        """Removes folders that `create` has made, innermost first, up to the first that is not empty. Without the lock."""
        with suppress(OSError):
            for folder in reversed(made):
                folder.rmdir()

    def describe(self) -> str:
        """What `remove` is about to remove, for people."""
        size = _size(etcd_folder(self.path)) / MB
        return f"etcd's data ({size:,.1f} MB), certificates, logs and configuration"

    def pods(self) -> list[Path]:
        """The folders in which kubelets keep their pods."""
        return sorted(pods_folder(self.path).glob(f"{KUBELET}-*"))

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


def _remove(folder: Path, identity: str) -> list[Path]:
    """Removes one of our folders, without what nothing proves to be ours: that. Raises OSError."""
    if not folder.is_symlink() and not folder.exists():
        return []
    if identity and not folder.is_symlink():
        try:
            marked = (folder / MARK).read_text().strip() == identity
        except OSError:
            marked = False
        if not marked:
            return [folder]
    if folder.is_symlink():
        folder.unlink()
        return []
    foreign = [each for each in folder.iterdir() if each.name != MARK and not any(map(each.match, OURS[folder.name]))]
    if not foreign:
        remove_tree(folder)
        return []
    for each in folder.iterdir():
        if each not in foreign:
            remove_tree(each)
    return foreign


def _size(folder: Path) -> int:
    """Bytes that it takes on the disk, as `du` counts."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            total += path.lstat().st_blocks * 512
    return total


def _without_stacks(log: Iterable[str]) -> Iterator[str]:
    """Go writes them after what has happened, so long that they would be all that is told of an etcd that has died."""
    stack = False
    for line in log:
        stack = line.startswith("goroutine ") or (stack and not re.match(r"[\d{]", line))  # as lines of etcd's log begin
        if not stack:
            yield line
