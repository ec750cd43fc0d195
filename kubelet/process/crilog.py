"""Writing a container's output down, in the format of the CRI: a line for each line, with when and where it came from.

    2026-11-22T11:45:59.720367123Z stdout F hello
    2026-11-22T11:45:59.720401544Z stderr P a line that was not at its end when this was written, or longer than 16 KiB

The file is bounded: when it has its size it is renamed to <name>.1 (and .1 to .2, and so on), and the oldest goes.
Of the standard library only: every shim has it.

Source: https://github.com/kubernetes/design-proposals-archive/blob/main/node/kubelet-cri-logging.md
"""

import os
import time

MAX_LINE = 16 << 10
"""Bytes of one entry, as containerd's."""


def stamp(nanoseconds: int) -> str:
    """Of Unix time; RFC 3339, always as long, so that stamps compare as text."""
    seconds, rest = divmod(nanoseconds, 10**9)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest:09d}Z"


class LogWriter:
    """A disk that is full loses output; it does not stop the container."""

    def __init__(self, path: str, max_bytes: int, files: int) -> None:
        """`files`: how many there may be in all, the one that is written included. Raises OSError."""
        self._path = path
        self._max_bytes = max_bytes
        self._files = files
        self._pending: dict[str, bytes] = {}
        self._open()

    def write(self, stream: str, data: bytes) -> None:
        """What came from "stdout" or "stderr". What is behind the last end of a line waits for more."""
        *lines, rest = (self._pending.get(stream, b"") + data).split(b"\n")
        entries = [entry for line in lines for entry in _entries(line, b"F")]
        while len(rest) >= MAX_LINE:
            entries.append((b"P", rest[:MAX_LINE]))
            rest = rest[MAX_LINE:]
        self._pending[stream] = rest
        self._append(stream, entries)

    def close(self) -> None:
        """Writes what is left."""
        for stream, rest in self._pending.items():
            if rest:
                self._append(stream, [(b"P", rest)])
        os.close(self._file)

    def _append(self, stream: str, entries: list[tuple[bytes, bytes]]) -> None:
        if not entries:
            return
        head = f"{stamp(time.time_ns())} {stream} ".encode()
        encoded = b"".join(head + tag + b" " + content + b"\n" for tag, content in entries)
        try:
            if self._size and self._size + len(encoded) > self._max_bytes:
                self._rotate()
            self._size += os.write(self._file, encoded)
        except OSError:
            return

    def _rotate(self) -> None:
        for number in range(self._files - 1, 0, -1):
            older = f"{self._path}.{number - 1}" if number > 1 else self._path
            if os.path.exists(older):
                os.replace(older, f"{self._path}.{number}")
        os.close(self._file)
        self._open()

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (os.O_TRUNC if self._files == 1 else 0)
        self._file = os.open(self._path, flags, 0o640)
        self._size = os.fstat(self._file).st_size


def _entries(line: bytes, tag: bytes) -> list[tuple[bytes, bytes]]:
    """A whole line; all parts but the last of a long one are partial."""
    parts = [line[start : start + MAX_LINE] for start in range(0, len(line), MAX_LINE)] or [b""]
    return [(b"P", part) for part in parts[:-1]] + [(tag, parts[-1])]
