"""Termination messages: why a container has ended, in its own words.

A container writes its message to the file at its terminationMessagePath, which is empty when it starts; the last bytes count.
With the terminationMessagePolicy FallbackToLogsOnError a container that fails without a message has the end of its log as
message: 80 lines or 2,048 bytes. Of the standard library only: every shim has it.

Source: https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/
"""

import os
import stat
from contextlib import suppress

LOG_LINES = 80
LOG_BYTES = 2048
_SCANNED = 1 << 16
"""Bytes of each log file that are read for the message: stamps make entries longer than their text."""


def make(path: str) -> None:
    """An empty file. A path that cannot be made has no message."""
    with suppress(OSError, ValueError):  # ValueError: of a null character
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666))


def read(path: str, limit: int) -> str:
    """The last `limit` bytes; empty when there is no regular file."""
    return _text(_tail(path, limit), limit)


def end_of_log(path: str, files: int, limit: int) -> str:
    """The last lines of a log in the format of the CRI."""
    data = b""
    for number in range(files):
        data = _tail(f"{path}.{number}" if number else path, _SCANNED) + data
        if data.count(b"\n") > LOG_LINES or len(data) >= _SCANNED:
            break
    text = b""
    for entry in data.splitlines()[-LOG_LINES:]:
        _, _, rest = entry.partition(b" ")
        _, _, rest = rest.partition(b" ")
        tag, _, content = rest.partition(b" ")
        text += content if tag == b"P" else content + b"\n"
    limit = min(limit, LOG_BYTES)
    return _text(text[-limit:], limit)


def _tail(path: str, limit: int) -> bytes:
    """Not through a symbolic link, which the container may have put there."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (OSError, ValueError):
        return b""
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return b""
        return os.pread(descriptor, limit, max(0, status.st_size - limit))
    finally:
        os.close(descriptor)


def _text(data: bytes, limit: int) -> str:
    """What is no UTF-8 is replaced, in as many bytes at most."""
    return data.decode(errors="replace").encode()[-limit:].decode(errors="ignore") if data else ""
