"""Files: a lock between processes, and the removal of any directory tree."""

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

TIMEOUT = 10.0
"""Seconds. Work under such a lock takes milliseconds."""
_POLL = 0.01
_MISSING = 20
"""Consecutive attempts that may find no parent directory: other processes may create and remove it meanwhile."""


@contextmanager
def locked(path: Path, timeout: float = TIMEOUT) -> Iterator[None]:
    """Holds the lock file `path`, which exists while the lock is held. Creates its directory.

    The lock is a flock(2): it is released when its holder dies, and the next process takes over the file that is left. Raises
    OSError; TimeoutError if another process holds the lock for `timeout` seconds."""
    handle = _acquire(path, timeout)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def _acquire(path: Path, timeout: float) -> int:
    deadline = time.monotonic() + timeout
    missing = 0  # times in a row
    while True:
        try:
            if (handle := _attempt(path)) is not None:
                return handle
            missing = 0
        except FileNotFoundError:
            missing += 1
            if missing > _MISSING:
                raise
            with suppress(FileExistsError, FileNotFoundError):
                path.parent.mkdir(parents=True, exist_ok=True)
        if time.monotonic() >= deadline:
            raise TimeoutError(f"{path} could not be locked within {timeout:g} s: another process holds it")
        time.sleep(_POLL)  # flock has no timeout


def _attempt(path: Path) -> int | None:
    """Takes the lock and returns its descriptor; None if the lock is held. Raises FileNotFoundError if there is no
    directory."""
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
    """Removes a directory tree; symbolic links are not followed. Raises OSError; a part may be removed then.

    Unlike shutil.rmtree, it makes read-only directories writable first (such as those of Go's module cache), and handles any
    depth: nested directories are moved up into `folder`.
    """
    if not stat.S_ISDIR(folder.lstat().st_mode):
        folder.unlink()
        return
    folder.chmod(stat.S_IRWXU)
    left = [folder]
    while left:
        here = left.pop()
        with os.scandir(here) as found:
            entries = list(found)
        for entry in entries:
            path = Path(entry.path)
            if not entry.is_dir(follow_symlinks=False):
                path.unlink()
                continue
            path.chmod(stat.S_IRWXU)  # also to move it
            left.append(path if here == folder else path.rename(folder / uuid4().hex))
        if here != folder:
            here.rmdir()
    folder.rmdir()
