"""Reading a log file, or the end of it, and what is added to it: in pieces, however long it is."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

POLL = 0.1
"""Seconds between two looks at a file that is followed."""
CHUNK = 1 << 16


async def read(path: Path, lines: int | None, *, follow: bool) -> AsyncIterator[bytes]:
    """The last lines of the file (None: all of it); with `follow` then what is added, for ever. A file that became shorter was
    begun anew, and is read from its start. Can be cancelled after each piece. Raises OSError."""
    offset, end = _span(path, lines)
    while follow or offset < end:
        data, offset = _piece(path, offset)
        if data:
            yield data
        elif not follow:
            return
        await asyncio.sleep(0 if data else POLL)


def _span(path: Path, lines: int | None) -> tuple[int, int]:
    """The offsets at which the last lines begin, and end."""
    with path.open("rb") as file:
        end = file.seek(0, 2)
        return 0 if lines is None else _start(file, end, lines), end


def _start(file: BinaryIO, end: int, lines: int) -> int:
    if not lines:
        return end
    position = end - 1  # a line feed there ends the last line
    while position > 0:
        step = min(CHUNK, position)
        position -= step
        file.seek(position)
        data = file.read(step)
        here = data.count(b"\n")
        if here >= lines:
            return position + _nth_last(data, lines) + 1
        lines -= here
    return 0


def _nth_last(data: bytes, number: int) -> int:
    """The index of the line feed that is this one from the end; there are as many."""
    found = len(data)
    for _ in range(number):
        found = data.rfind(b"\n", 0, found)
    return found


def _piece(path: Path, offset: int) -> tuple[bytes, int]:
    """What is there, and where it ends."""
    try:
        with path.open("rb") as file:
            file.seek(0 if file.seek(0, 2) < offset else offset)
            return file.read(CHUNK), file.tell()
    except FileNotFoundError:
        return b"", 0
