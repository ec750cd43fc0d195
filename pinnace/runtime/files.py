"""A lock between processes, and the removal of directory trees."""

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

TIMEOUT = 10.0
"""Seconds to wait for a lock. Locks are held for milliseconds."""
_POLL = 0.01
_MISSING = 20
"""The maximum number of consecutive attempts without a parent directory. Other processes may create and remove it
concurrently."""


@contextmanager
def hold_file_lock(path: Path, timeout: float = TIMEOUT) -> Iterator[None]:
    """Hold the lock file `path`. The file and its directory are created, and the file is removed when the lock is released.

    The lock is a flock(2). The kernel releases it if its holder dies, and the next process reuses the remaining file. Raises
    OSError, and TimeoutError if another process holds the lock for `timeout` seconds."""
    handle = _acquire_lock(path, timeout)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def _acquire_lock(path: Path, timeout: float) -> int:
    deadline = time.monotonic() + timeout
    missing = 0  # consecutive attempts without the directory
    while True:
        try:
            if (handle := _try_lock(path)) is not None:
                return handle
            missing = 0
        except FileNotFoundError:
            missing += 1
            if missing > _MISSING:
                raise
            with suppress(FileExistsError, FileNotFoundError):
                path.parent.mkdir(parents=True, exist_ok=True)
        if time.monotonic() >= deadline:
            raise TimeoutError(f"timed out locking {path} after {timeout:g} s: another process holds the lock")
        time.sleep(_POLL)  # flock has no timeout


def _try_lock(path: Path) -> int | None:
    """Try to take the lock. Return its descriptor, or None if the lock is held. Raises FileNotFoundError if the directory does
    not exist."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    held = False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held = os.fstat(handle).st_ino == path.stat().st_ino
    except (BlockingIOError, FileNotFoundError):
        pass  # the lock is held, or its holder removed the file between open and flock
    finally:
        if not held:
            os.close(handle)
    return handle if held else None


def remove_tree(folder: Path) -> None:
    """Remove a directory tree. Symbolic links are not followed. Raises OSError; a part of the tree may have been removed.

    Unlike shutil.rmtree, it makes read-only directories writable first (for example, Go's module cache), and supports any
    depth: nested directories are moved into `folder`.
    """
    if not stat.S_ISDIR(folder.lstat().st_mode):
        folder.unlink()
        return
    folder.chmod(stat.S_IRWXU)
    left = [folder]
    while left:
        here = left.pop()
        with os.scandir(here) as scan:
            entries = list(scan)
        for entry in entries:
            path = Path(entry.path)
            if not entry.is_dir(follow_symlinks=False):
                path.unlink()
                continue
            path.chmod(stat.S_IRWXU)  # required for the move as well
            left.append(path if here == folder else path.rename(folder / os.urandom(16).hex()))
        if here != folder:
            here.rmdir()
    folder.rmdir()
