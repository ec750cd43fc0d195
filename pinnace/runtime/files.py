"""One at a time among processes that change the same file: flock on another file beside it, which is there only meanwhile.

Whoever is killed lets go of the lock by dying; the file that he leaves is taken over by the next.

Removing what programs have left of which nothing is known: a tree of any shape.
"""

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

TIMEOUT = 10.0
"""Seconds: what is done under such a lock takes milliseconds."""
_POLL = 0.01
_MISSING = 20
"""Attempts in a row without its folder: others may make and remove that meanwhile, but not for ever."""


@contextmanager
def locked(path: Path, timeout: float = TIMEOUT) -> Iterator[None]:
    """Holds the lock `path`; makes the folder that it is in. Raises OSError; TimeoutError, which is one, when another process
    holds the lock for so long."""
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
        time.sleep(_POLL)  # flock waits without end, or not at all


def _attempt(path: Path) -> int | None:
    """None: it is held. Raises FileNotFoundError when its folder is not there, or takes no file."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    held = False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held = os.fstat(handle).st_ino == path.stat().st_ino
    except (BlockingIOError, FileNotFoundError):
        pass  # it is held; or its holder removed the file between our open and our lock
    finally:
        if not held:
            os.close(handle)
    return handle if held else None


def remove_tree(folder: Path) -> None:
    """Removes a folder and all that is in it; what a symbolic link names stays. Raises OSError, and then a part may be gone.

    Beyond what shutil.rmtree does: directories that their owner has made read-only are made writable first (Go's module cache
    is full of them), and no depth is too deep. For that, directories further down are moved up into the folder.
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
