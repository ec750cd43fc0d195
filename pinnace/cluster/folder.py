"""The folder of a local cluster, and the lock that protects it.

    <data_dir>/cluster.json   the state
    <data_dir>/lock           locked (flock), like the folder itself, during `up` and `down`; the kernel releases the lock of a
                              killed process
    <data_dir>/logs/          one log per process
    <data_dir>/etcd/          the data of the etcd members
    <data_dir>/pki/           the certificates (pinnace.cluster.certificates)
    <data_dir>/pods/          the pods' directories of the kubelets
    <data_dir>/volumes/       the volumes of the StorageClass standard
    <data_dir>/config/        copies of the components' configuration files (pinnace.cluster.inputs)

Nothing else is written or removed. Each folder has a mark (`.pinnace`) with the identity of its cluster. A folder without the
mark, and files that no component creates, are not removed. The logs of a failed start are kept, with a mark, until the next
start or `pinnace down`.
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
from pinnace.cluster.errors import ClusterBusy, FolderError
from pinnace.cluster.spec import (
    KUBELET,
    ClusterState,
    StateError,
    config_folder,
    etcd_folder,
    kubeconfig_file,
    pki_folder,
    pods_folder,
    volumes_folder,
)
from pinnace.runtime.files import remove_tree

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
MB = 1_000_000
MARK = ".pinnace"
FAILED, MADE = "failed", "made"
"""The content of the marker in the logs of a failed start."""
OURS: Mapping[str, Sequence[str]] = {
    "etcd": ("etcd-*",),
    "pki": ("*.crt*", "*.key*", "*.pub*", "*.conf*", "etcd", "users"),
    "pods": ("kubelet-*",),
    "volumes": ("pvc-*",),
    "logs": ("*.log", "core", "core.*"),
    "config": (
        "scheduler.yaml",
        "stages.yaml",
        "images.yaml",
        "machines.yaml",
        "tokens.csv",
        "plugins",
        "modules",
    ),
}
"""The files that components create in each directory."""
SEGMENT = 64 * MB
"""The size of a preallocated file of etcd's log. Source: `SegmentSizeBytes` in its server/storage/wal/wal.go."""


class ClusterFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._state = path / states.FILE
        self._draft = self._state.with_suffix(".tmp")
        self._lock = path / "lock"
        self.logs = path / "logs"
        self._kubeconfig = kubeconfig_file(path)
        self._contexts = path / "kubeconfigs"
        folders = (etcd_folder, pki_folder, pods_folder, volumes_folder, config_folder)
        self._folders = (*(folder(path) for folder in folders), self.logs)

    @contextmanager
    def translate_os_errors(self) -> Iterator[None]:
        """Convert an OSError, such as a full disk, into a FolderError."""
        try:
            yield
        except OSError as error:
            raise self._unusable_error(error) from error

    def create(self) -> list[Path]:
        """Create the directory and check that it is writable. Return the created directories, outermost first."""
        with self.translate_os_errors():
            missing = [folder for folder in (*reversed(self.path.parents), self.path) if not folder.exists()]
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not os.access(self.path, os.W_OK | os.X_OK, effective_ids=True):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return missing

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the existing directory. Raises Busy immediately if another `up` or `down` holds the lock."""
        with self.translate_os_errors():
            handles = self._acquire()
        try:
            yield
        finally:
            self._lock.unlink(missing_ok=True)
            for handle in handles:
                os.close(handle)

    def _acquire(self) -> list[int]:
        """Lock the lock file and the directory; one of them is sufficient. The file cannot be created on a full disk, which
        `down` must be able to free; NFS cannot lock directories. The file is locked first, because the creator of a directory
        removes it only if there is no lock file.
        """
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
                    raise self._busy_error("" if held else self._read_owner()) from None
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
                raise self._busy_error(self._read_owner()) from None
            with suppress(FileNotFoundError):
                if os.fstat(handle).st_ino == self._lock.stat().st_ino:
                    with suppress(OSError):  # the pid is informational, so a failed write is ignored
                        os.ftruncate(handle, 0)
                        os.pwrite(handle, str(os.getpid()).encode(), 0)
                    return handle
            os.close(handle)  # the previous holder removed the file between open and lock

    def _read_owner(self) -> str:
        """The pid of the lock holder; empty if it could not be written."""
        with suppress(OSError):
            return self._lock.read_bytes()[:32].decode(errors="replace").strip()
        return ""

    def _busy_error(self, owner: str) -> ClusterBusy:
        return ClusterBusy(
            f"another pinnace (pid {owner or '?'}) is starting or stopping the cluster in {self.path}",
            hint="wait until it has finished",
        )

    def read(self) -> ClusterState | None:
        """The stored state. None: there is none. Raises FolderError if it is invalid."""
        try:
            return states.decode_state(self._state.read_text())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unusable_error(error) from error
        except StateError as error:
            raise FolderError(
                f"{self._state} is not a valid state: {error}",
                hint="use another --data-dir if the file is not pinnace's; otherwise kill the processes of the cluster, "
                "remove the file, and start again",
            ) from error

    def write(self, state: ClusterState) -> None:
        """Atomic: a reader finds the old or the new state."""
        with self.translate_os_errors():
            self._draft.write_text(states.encode_state(state))
            self._draft.replace(self._state)

    def claim_folder(self, state: ClusterState, files: Mapping[str, bytes] | None = None) -> None:
        """Create the directories of a cluster, and then write its first state. `files`: the files of `config`, by relative
        path. Raises FolderError without leaving files, also if the directory contains data without a state, which pinnace must
        not remove. If the process is killed before the state is written, the next call removes what it has created.
        """
        self.remove_failed_start()
        for folder in self._folders:
            self._remove_unfinished(folder)
            if folder.exists():
                raise FolderError(
                    f"{folder} exists, but does not belong to a known cluster",
                    hint="use another --data-dir, or remove it",
                )
        try:
            with self.translate_os_errors():
                for folder in self._folders:
                    folder.mkdir(mode=0o700)
                    (folder / MARK).write_text(f"{state.identity}\n")
                for name, data in (files or {}).items():
                    path = config_folder(self.path) / name
                    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    path.write_bytes(data)
                    path.chmod(0o600)
            self.write(state)
        except BaseException:
            for folder in self._folders:  # there was none before
                if folder.exists():
                    remove_tree(folder)
            self._remove_kubeconfig()
            self._draft.unlink(missing_ok=True)
            self._state.unlink(missing_ok=True)
            raise

    def _remove_unfinished(self, folder: Path) -> None:
        """Remove a directory of a `claim_folder` that was killed before it wrote the state: it has nothing but its mark, or the
        copies of `config`."""
        if folder.is_symlink():
            return
        with suppress(OSError):
            names = {path.name for path in folder.iterdir()}
            if names <= {MARK} or (folder == config_folder(self.path) and MARK in names):
                remove_tree(folder)

    def remove(self, state: ClusterState, *, keep_logs: bool = False) -> list[Path]:
        """Remove all files that the cluster created, and return other files, which are kept. The directory itself remains,
        because it has the lock. With `keep_logs`, the logs remain, marked as those of a failed start. Raises FolderError; then
        the state remains, too.
        """
        kept = []
        for folder in self._folders:
            if keep_logs and folder == self.logs:
                continue
            try:
                kept += _remove_directory(folder, state.identity)
            except OSError as error:
                raise FolderError(
                    f"{folder} cannot be removed: {error.strerror or error}: {error.filename}",
                    hint="remove it manually, and try again",
                ) from error
        if keep_logs:
            with suppress(OSError):  # the disk is full: the next start reports these files as unknown
                (self.logs / MARK).write_text(json.dumps({FAILED: state.identity, MADE: [str(path) for path in state.made]}))
        self._remove_kubeconfig()
        self._draft.unlink(missing_ok=True)  # the disk was full, or the writer was killed
        self._state.unlink(missing_ok=True)
        return kept

    def remove_failed_start(self) -> list[Path] | None:
        """Remove the logs of a failed start. Return the directories that were created for it. None: there are none."""
        try:
            said = json.loads((self.logs / MARK).read_text())
            identity, made = str(said[FAILED]), [Path(item) for item in said[MADE]]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if self._state.exists():
            return None
        with self.translate_os_errors():
            (self.logs / MARK).write_text(f"{identity}\n")
            _remove_directory(self.logs, identity)
        return made

    def remove_empty_directories(self, made: Sequence[Path]) -> None:
        """Remove directories that `create` created, innermost first, up to the first that is not empty. Does not need the
        lock.
        """
        with suppress(OSError):
            for folder in reversed(made):
                folder.rmdir()

    def describe(self) -> str:
        """A description of the files that `remove` deletes."""
        size = _disk_usage(etcd_folder(self.path)) / MB
        return f"etcd's data ({size:,.1f} MB), certificates, logs and configuration"

    def kubeconfigs(self) -> list[Path]:
        """The files of users to which contexts of this cluster were written. Files that no longer exist are omitted."""
        try:
            return [path for path in map(Path, self._contexts.read_text().splitlines()) if path.exists()]
        except (OSError, UnicodeDecodeError):
            return []

    def add_kubeconfig(self, path: Path) -> None:
        """Remember a file to which a context of this cluster was written, so that `down` finds it."""
        known = self.kubeconfigs()
        if (path := path.absolute()) not in known:
            with self.translate_os_errors():
                self._contexts.write_text("".join(f"{item}\n" for item in (*known, path)))

    def _remove_kubeconfig(self) -> None:
        for suffix in ("", ".lock", ".pinnace-new"):
            self._kubeconfig.with_name(f"{self._kubeconfig.name}{suffix}").unlink(missing_ok=True)
        self._contexts.unlink(missing_ok=True)

    def pod_directories(self) -> list[Path]:
        """The directories in which kubelets store pods."""
        return sorted(pods_folder(self.path).glob(f"{KUBELET}-*"))

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def log_tail(self, name: str, lines: int = 15) -> list[str]:
        try:
            with self.log(name).open(errors="replace") as log:
                return [line.rstrip("\n") for line in deque(_omit_stack_traces(log), lines)]
        except OSError:
            return []

    def full_disk_hint(self, tail: Sequence[str]) -> str:
        """A hint for a process that exited because the disk is full, according to the end of its log, or because the log is
        empty; otherwise "".
        """
        with suppress(OSError):
            left = shutil.disk_usage(self.path).free
            if any("no space left" in line.lower() for line in tail) or (not tail and left < SEGMENT):
                return f"free disk space: {left // MB} MB are available, and etcd creates files of {SEGMENT // MB} MB"
        return ""

    def _unusable_error(self, error: OSError) -> FolderError:
        hint = "free some space" if error.errno in NO_ROOM else "use another --data-dir"
        return FolderError(f"{self.path} cannot be used: {error.strerror or error}", hint=hint)


def _remove_directory(folder: Path, identity: str) -> list[Path]:
    """Remove a directory of the cluster, except files that the cluster did not create, which are returned. Raises OSError."""
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
    foreign = [path for path in folder.iterdir() if path.name != MARK and not any(map(path.match, OURS[folder.name]))]
    if not foreign:
        remove_tree(folder)
        return []
    for path in folder.iterdir():
        if path not in foreign:
            remove_tree(path)
    return foreign


def _disk_usage(folder: Path) -> int:
    """Bytes on the disk, as in `du`."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            total += path.lstat().st_blocks * 512
    return total


def _omit_stack_traces(log: Iterable[str]) -> Iterator[str]:
    """Omit the stack traces that Go writes after an error. They would hide the error in the last lines of the log."""
    stack = False
    for line in log:
        stack = line.startswith("goroutine ") or (stack and not re.match(r"[\d{]", line))  # as lines of etcd's log begin
        if not stack:
            yield line
