"""Reading the end of a log file, and what is added to it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

POLL = 0.1
"""Seconds between two looks at a file that is followed."""
CHUNK = 1 << 16


def tail(path: Path, lines: int | None) -> tuple[bytes, int]:
    """The last lines of the file (None: all of it), and the offset of its end. Raises OSError."""
    with path.open("rb") as file:
        end = file.seek(0, 2)
        start, data = end, b""
        while start > 0 and (lines is None or data.count(b"\n") <= lines):
            step = min(CHUNK, start)
            start -= step
            file.seek(start)
            data = file.read(step) + data
    if lines is not None:
        data = b"".join(data.splitlines(keepends=True)[-lines:] if lines else [])
    return data, end


async def follow(path: Path, offset: int) -> AsyncIterator[bytes]:
    """What is added after `offset`, for ever. A file that became shorter was begun anew, and is read from its start."""
    while True:
        await asyncio.sleep(POLL)
        data, offset = _added(path, offset)
        if data:
            yield data


def _added(path: Path, offset: int) -> tuple[bytes, int]:
    try:
        with path.open("rb") as file:
            file.seek(0 if file.seek(0, 2) < offset else offset)
            return file.read(), file.tell()
    except FileNotFoundError:
        return b"", 0
