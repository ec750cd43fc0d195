"""Writing a container's output down, in the format of the CRI: a line for each line, with when and where it came from.

    2026-11-22T11:45:59.720367123Z stdout F hello
    2026-11-22T11:45:59.720401544Z stderr P a line that was not at its end when this was written, or longer than 16 KiB

The file is bounded: when it has its size it is renamed to <name>.1 (and .1 to .2, and so on), and the oldest goes.
It consists of whole entries. What cannot be written is counted, and told in an entry of stderr before the next that can be.
Of the standard library only: every shim has it.

Source: https://github.com/kubernetes/design-proposals-archive/blob/main/node/kubelet-cri-logging.md
"""

import os
import time
from contextlib import suppress

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
        self._lost: int | None = None  # lines; 0: parts of one
        self._why = ""
        self._file = _open(path)
        self._size = os.fstat(self._file).st_size

    def write(self, stream: str, data: bytes) -> None:
        """What came from "stdout" or "stderr". What is behind the last end of a line waits for more."""
        *lines, rest = (self._pending.get(stream, b"") + data).split(b"\n")
        entries = [entry for line in lines for entry in _entries(line, b"F")]
        while len(rest) >= MAX_LINE:
            entries.append((b"P", rest[:MAX_LINE]))
            rest = rest[MAX_LINE:]
        self._pending[stream] = rest
        self._append(stream, entries)

    def flush(self) -> None:
        """Writes what is left."""
        for stream, rest in self._pending.items():
            if rest:
                self._append(stream, [(b"P", rest)])
        self._pending.clear()
        self._tell_loss()

    def close(self) -> None:
        """Writes what is left."""
        self.flush()
        os.close(self._file)

    def _append(self, stream: str, entries: list[tuple[bytes, bytes]]) -> None:
        if not entries:
            return
        written = self._put(_encoded(stream, entries)) if self._tell_loss() else 0
        if written < len(entries):
            self._lost = (self._lost or 0) + sum(tag == b"F" for tag, _ in entries[written:])

    def _tell_loss(self) -> bool:
        """Whether there is nothing more to tell of it."""
        if self._lost is not None:
            many = self._lost > 1
            text = f"{self._lost if many else 1} line{'s were' if many else ' was'} lost: {self._why}"
            if not self._put(_encoded("stderr", [(b"F", text.encode())])):
                return False
            self._lost = None
        return True

    def _put(self, data: bytes) -> int:
        """How many of the entries were written, the first ones; of the others nothing is in the file."""
        written = 0
        try:
            if self._size and self._size + len(data) > self._max_bytes:
                self._rotate()
            while written < len(data):
                written += os.write(self._file, data[written:])
        except OSError as error:
            self._why = os.strerror(error.errno or 0).lower()
        whole = data.rfind(b"\n", 0, written) + 1
        if whole < written:
            with suppress(OSError):
                os.ftruncate(self._file, self._size + whole)
        self._size += whole
        return data.count(b"\n", 0, whole)

    def _rotate(self) -> None:
        """Raises OSError; what was open stays open then."""
        fresh = _open(f"{self._path}.new")
        try:
            for number in range(self._files - 1, 0, -1):
                older = f"{self._path}.{number - 1}" if number > 1 else self._path
                if os.path.exists(older):
                    os.replace(older, f"{self._path}.{number}")
            os.replace(f"{self._path}.new", self._path)
        except OSError:
            os.close(fresh)
            raise
        os.close(self._file)
        self._file, self._size = fresh, 0


def _open(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)


def _encoded(stream: str, entries: list[tuple[bytes, bytes]]) -> bytes:
    head = f"{stamp(time.time_ns())} {stream} ".encode()
    return b"".join(head + tag + b" " + content + b"\n" for tag, content in entries)


def _entries(line: bytes, tag: bytes) -> list[tuple[bytes, bytes]]:
    """A whole line; all parts but the last of a long one are partial."""
    parts = [line[start : start + MAX_LINE] for start in range(0, len(line), MAX_LINE)] or [b""]
    return [(b"P", part) for part in parts[:-1]] + [(tag, parts[-1])]
