"""The standard streams of a command, as it finds them and as it needs them.

They are UTF-8, whatever the locale says: manifests are, and what `get -o yaml` writes must be read again by `apply`, by other
programs and on other machines, as it was. File names that are no UTF-8 are written as the bytes that they are.
"""

import io
import os
import sys
from typing import TYPE_CHECKING

from pinnace.cli.outcomes import ExitCode, Failure

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

STDIN, STDOUT, STDERR = range(3)


def prepare() -> None:
    """Makes sys.stdin, sys.stdout and sys.stderr what they are from now on."""
    for descriptor in (STDIN, STDOUT, STDERR):
        _provide(descriptor)
    if sys.stdin is None:
        sys.stdin = open(STDIN, encoding="utf-8", closefd=False)  # noqa: SIM115 (as long as the process)
    elif isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="strict")
    sys.stdout = _text(_Results(STDOUT, "w", closefd=False))
    sys.stderr = _text(_Remarks(STDERR, "w", closefd=False), line_buffering=True)


def _provide(descriptor: int) -> None:
    """What is closed (`>&-`) is nobody's wish to read or write; and no file or connection may get its number."""
    try:
        os.fstat(descriptor)
    except OSError:
        os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def _text(raw: io.FileIO, *, line_buffering: bool = False) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding="utf-8", errors="surrogateescape", line_buffering=line_buffering or raw.isatty()
    )


class _Results(io.FileIO):
    """Whoever writes to it need not know that a disk may be full. Nothing is written after a failure, which is told once."""

    _failed = False

    def write(self, data: "ReadableBuffer", /) -> int:
        if self._failed:
            return memoryview(data).nbytes
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            self._failed = True
            why = (error.strerror or str(error)).lower()
            raise Failure(
                f"cannot write the output: {why}", hint="what was done until then stays done", code=ExitCode.OUTPUT
            ) from error


class _Remarks(io.FileIO):
    """What cannot be written here is lost: there is nobody to tell, and the work is another matter."""

    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError:
            return memoryview(data).nbytes
