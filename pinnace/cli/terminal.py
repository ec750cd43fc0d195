"""Output of a command: tables, escaping of control characters, progress bars, and the standard streams.

Results are written to stdout and all other messages to stderr. Text of objects and containers is not trusted: on a terminal,
its control characters are displayed as visible characters, because an escape sequence can overwrite earlier output, set the
window title or simulate input. Output to a pipe or a file is not modified.

The standard streams use UTF-8 in every locale, so that `apply` can read the output of `get -o yaml` on any machine. File names
that are not valid UTF-8 are written as their original bytes.
"""

import codecs
import io
import os
import re
import stat
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pinnace.cli.outcomes import ExitCode, Failure, ReaderGone

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


GAP = "   "
PROGRESS_MINIMUM = 200
"""Minimum number of items for a progress bar."""
_CONTROLS = re.compile(r"\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters except tab and newline, and the Unicode controls of text direction, which can disguise text."""
STDIN, STDOUT, STDERR = range(3)


class Table:
    """A table with left-aligned columns, three spaces apart. Rows can be rendered in several calls, as by a watch; column
    widths then only increase."""

    def __init__(self, headers: Sequence[str], *, show_headers: bool = True) -> None:
        self._headers = tuple(headers)
        self._show_headers = show_headers
        self._widths = [len(header) if show_headers else 0 for header in headers]

    def render(self, rows: Sequence[Sequence[str]]) -> str:
        """Return the rows as lines. The first call also returns the headers."""
        lines = [tuple(one_line(cell) for cell in row) for row in rows]
        if self._show_headers:
            lines.insert(0, self._headers)
            self._show_headers = False
        for line in lines:
            self._widths = [max(width, len(cell)) for width, cell in zip(self._widths, line, strict=True)]
        return "".join(self._format_row(line) + "\n" for line in lines)

    def _format_row(self, cells: Sequence[str]) -> str:
        return GAP.join(cell.ljust(width) for cell, width in zip(cells, self._widths, strict=True)).rstrip()


def one_line(text: str) -> str:
    """Return the text without line breaks and control characters, for a table cell."""
    return text if text.isprintable() else "".join(filter(str.isprintable, " ".join(text.split())))


def escape_control_characters(text: str) -> str:
    """Replace control characters by visible ones, as kubectl does: ESC by `^[`, a carriage return by `\\r`."""
    return _CONTROLS.sub(_show_control_character, text)


def _show_control_character(found: re.Match[str]) -> str:
    character = found[0]
    if character == "\r":
        return "\\r"
    return f"^{chr(ord(character) ^ 0x40)}" if character < "\x80" else character.encode("unicode_escape").decode()


def print_result(text: str, *, styled: bool = False) -> None:
    """Print a result, which includes its newline. `styled`: the text contains colours, and untrusted text in it is already
    escaped. click.echo is not used, because its output would damage a progress bar."""
    sys.stdout.write(escape_control_characters(text) if sys.stdout.isatty() and not styled else text)
    sys.stdout.flush()


def print_bytes() -> Callable[[bytes], None]:
    """Return a function that prints a stream of bytes. A character can be split between two calls."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="backslashreplace")
    held = ""

    def write(data: bytes) -> None:
        nonlocal held
        if sys.stdout.isatty():
            text = held + decoder.decode(data, final=not data)
            held = "\r" if data and text.endswith("\r") else ""
            sys.stdout.write(escape_control_characters(text.removesuffix("\r") if held else text))
        else:
            sys.stdout.buffer.write(data)
        sys.stdout.flush()

    return write


def print_error_line(line: str) -> None:
    """Print a line to stderr, without control characters."""
    print(one_line(line), file=sys.stderr, flush=True)


def print_note(text: str) -> None:
    """Print additional information to stderr."""
    print_error_line(f"note: {text}")


def warning_once() -> Callable[[str], None]:
    """Return a function that prints each distinct warning once."""
    told = set[str]()

    def warn(text: str) -> None:
        if text not in told:
            told.add(text)
            print_error_line(f"Warning: {text}")

    return warn


def is_live() -> bool:
    """Return whether earlier output on stdout can be overwritten."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


@contextmanager
def show_progress(label: str, total: int, *, no_color: bool = False) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal if `total` is large, and yield the function that advances it."""
    if total < PROGRESS_MINIMUM or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, no_color=no_color or None)
    columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # Results are still written to stdout. The bar redirects stdout only if it is the same terminal.
    with Progress(*columns, console=console, transient=True, redirect_stdout=sys.stdout.isatty()) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.advance(task, done)


def prepare_streams() -> None:
    """Replace sys.stdin, sys.stdout and sys.stderr by streams with the properties above."""
    for descriptor in (STDIN, STDOUT, STDERR):
        _open_null_device(descriptor)
    if sys.stdin is None:
        sys.stdin = open(STDIN, encoding="utf-8", closefd=False)  # noqa: SIM115 (open until the process exits)
    elif isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="strict")
    sys.stdout = _wrap_as_text(_StdoutStream(STDOUT, "w", closefd=False))
    sys.stderr = _wrap_as_text(_MessageStream(STDERR, "w", closefd=False), line_buffering=True)


async def until_reader_gone(watching: Awaitable[None]) -> None:
    """Await `watching`. Raises ReaderGone when stdout is a pipe and its reader closes it, even if nothing is written: in
    `pinnace get events -w | head -1` the shell waits for both programs."""
    if not stat.S_ISFIFO(os.fstat(STDOUT).st_mode):
        await watching
        return
    import asyncio  # `pinnace --help` does not need it, and the import takes 50 ms

    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(watching)
    gone = False

    def closed() -> None:  # the write end of a pipe is never readable, so the selector reports an error
        nonlocal gone
        gone = True
        loop.remove_reader(pipe)
        task.cancel()

    pipe = os.dup(STDOUT)  # stderr can be the same pipe, and a caller can watch it
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


def _open_null_device(descriptor: int) -> None:
    """Open /dev/null for a closed descriptor (`>&-`), so that no file or connection receives its number."""
    try:
        os.fstat(descriptor)
    except OSError:
        os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def _wrap_as_text(raw: io.FileIO, *, line_buffering: bool = False) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding="utf-8", errors="surrogateescape", line_buffering=line_buffering or raw.isatty()
    )


class _StdoutStream(io.FileIO):
    """The raw stream of stdout. A failed write raises Failure once; later writes are discarded."""

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
            raise Failure(f"cannot write the output: {why}", hint="changes made so far remain", code=ExitCode.OUTPUT) from error


class _MessageStream(io.FileIO):
    """The raw stream of stderr. Failed writes are ignored, because they cannot be reported."""

    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError:
            return memoryview(data).nbytes
