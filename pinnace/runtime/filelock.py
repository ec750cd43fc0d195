"""One at a time among processes that change the same file: flock on another file beside it, which is there only meanwhile.

Whoever is killed lets go of the lock by dying; the file that he leaves is taken over by the next.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

TIMEOUT = 10.0
"""Seconds: what is done under such a lock takes milliseconds."""
_POLL = 0.01


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
    while (handle := _attempt(path)) is None:
        if time.monotonic() >= deadline:
            raise TimeoutError(f"{path} could not be locked within {timeout:g} s: another process holds it")
        time.sleep(_POLL)  # flock waits without end, or not at all
    return handle


def _attempt(path: Path) -> int | None:
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except FileNotFoundError:
        with suppress(FileExistsError, FileNotFoundError):  # others may make and remove it meanwhile
            path.parent.mkdir(parents=True, exist_ok=True)
        return None
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
