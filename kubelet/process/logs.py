"""Reading a container's log again: its end or all of it, and what is added, over the files that it is kept in (see crilog).

Files are followed by what they are, not by their names: a reader that has one open goes on with the next newer one, whatever
that is called by then. One that is slower than two rotations misses what has been removed, as with any log that is bounded.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

CHUNK = 1 << 16
POLL = 0.1
"""Seconds between two looks at a log that is followed."""


class Wanted(NamedTuple):
    """`since` is a stamp (crilog.stamp), or empty; `tail` counts entries, as Kubernetes' kubelet does: the parts of a line that
    is longer than an entry count as several."""

    tail: int | None = None
    since: str = ""
    timestamps: bool = False
    limit: int | None = None
    follow: bool = False


async def read(path: Path, wanted: Wanted, ended: Callable[[], bool]) -> AsyncGenerator[bytes, None]:
    """In chunks. `ended`: nothing more will be written; that is when following ends."""
    render = _Renderer(wanted)
    file = _begin(path, wanted.tail)
    try:
        while file is not None:
            last = ended() or not wanted.follow
            newest = _is_newest(file, path)
            rest = b""
            while data := file.read(CHUNK):
                *lines, rest = (rest + data).split(b"\n")
                if text := render.lines(lines):
                    yield text
                if render.full:
                    return
            file.seek(-len(rest), os.SEEK_CUR)  # half a line: there will be more of it
            if not newest and (newer := _next(file, path)) is not None:
                file.close()
                file = newer
            elif newest and last:
                return
            else:
                await asyncio.sleep(POLL)
    finally:
        if file is not None:
            file.close()


class _Renderer:
    def __init__(self, wanted: Wanted) -> None:
        self._since = wanted.since.encode()
        self._timestamps = wanted.timestamps
        self._left = wanted.limit
        self._inside = False  # of a line

    @property
    def full(self) -> bool:
        return self._left == 0

    def lines(self, entries: list[bytes]) -> bytes:
        """Raises nothing: what is no entry is left out."""
        text = b"".join(part for entry in entries for part in self._entry(entry))
        if self._left is not None:
            text = text[: self._left]
            self._left -= len(text)
        return text

    def _entry(self, entry: bytes) -> Iterator[bytes]:
        moment, _, rest = entry.partition(b" ")
        _, _, rest = rest.partition(b" ")
        tag, blank, content = rest.partition(b" ")
        if blank and moment >= self._since:
            if self._timestamps and not self._inside:
                yield moment + b" "
            yield content
            self._inside = tag == b"P"
            if not self._inside:
                yield b"\n"


def _files(path: Path) -> list[Path]:
    """Newest first."""
    older = sorted((int(each.suffix[1:]), each) for each in path.parent.glob(f"{path.name}.[0-9]*"))
    return [path, *(each for _, each in older)]


def _begin(path: Path, tail: int | None) -> BinaryIO | None:
    """The file with the first wanted entry, and there; None when there is no log."""
    file = None
    for candidate in _files(path):
        if (older := _open(candidate)) is None:
            continue
        if file is not None:
            file.close()
        file = older
        if tail is not None:
            offset, tail = _back(file, tail)
            file.seek(offset)
            if tail < 0:
                break
    return file


def _back(file: BinaryIO, lines: int) -> tuple[int, int]:
    """Where the last so many lines begin, and how many of them must be in older files; -1: none, not even the end of one."""
    position = file.seek(0, os.SEEK_END)
    while position > 0:
        step = min(CHUNK, position)
        position -= step
        file.seek(position)
        block = file.read(step)
        end = len(block)
        while (end := block.rfind(b"\n", 0, end)) >= 0:
            if lines == 0:
                return position + end + 1, -1
            lines -= 1
    return 0, lines


def _is_newest(file: BinaryIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:  # just being rotated, or the pod is gone
        return not path.parent.exists()


def _next(file: BinaryIO, path: Path) -> BinaryIO | None:
    """The one that is newer than this one; None while there is none, in the middle of a rotation."""
    mine, newer = os.fstat(file.fileno()), None
    for candidate in _files(path):
        opened = _open(candidate)
        if opened is not None and os.path.samestat(os.fstat(opened.fileno()), mine):
            opened.close()
            break
        if newer is not None:
            newer.close()
        newer = opened
    return newer


def _open(path: Path) -> BinaryIO | None:
    try:
        return path.open("rb")
    except FileNotFoundError:
        return None
