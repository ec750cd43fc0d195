"""The standard streams of a command, as it finds them and as it needs them.

They are UTF-8, whatever the locale says: manifests are, and what `get -o yaml` writes must be read again by `apply`, by other
programs and on other machines, as it was. File names that are no UTF-8 are written as the bytes that they are.
"""

import io
import os
import stat
import sys
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from pinnace.cli.outcomes import ExitCode, Failure, ReaderGone

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


async def until_reader_gone(watching: Awaitable[None]) -> None:
    """Awaits `watching`. Raises ReaderGone when stdout is a pipe whose reader closes it, though nothing is written then: the
    shell of `pinnace get events -w | head -1` waits for both programs."""
    if not stat.S_ISFIFO(os.fstat(STDOUT).st_mode):
        await watching
        return
    import asyncio  # here: `pinnace --help` needs no event loop, and it takes 50 ms to import

    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(watching)
    gone = False

    def closed() -> None:  # the writing end of a pipe is never readable: the selector reports its error
        nonlocal gone
        gone = True
        loop.remove_reader(pipe)
        task.cancel()

    pipe = os.dup(STDOUT)  # standard error may be the same pipe, and a caller may watch it
    loop.add_reader(pipe, closed)
    try:
        await task
    except asyncio.CancelledError:
        if gone:
            raise ReaderGone from None
        raise
    finally:
        loop.remove_reader(pipe)
        os.close(pipe)


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
