"""Tables: columns padded to their widest cell, three spaces apart, nothing after the last cell.

What goes where: results to stdout, everything else to stderr; what moves only to a terminal.

Objects and containers hold text of others. On a terminal its control characters are shown, not obeyed: an escape sequence could
rewrite what was printed before, set the window's title or answer for the user. Into a pipe or a file the text goes as it is.

The standard streams of a command, as it finds them and as it needs them.

They are UTF-8, whatever the locale says: manifests are, and what `get -o yaml` writes must be read again by `apply`, by other
programs and on other machines, as it was. File names that are no UTF-8 are written as the bytes that they are.
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


class Table:
    """Renders rows in one or several goes. Later rows keep the widths of the earlier ones (they only grow), so that what a
    watch appends stays aligned as well as can be known."""

    def __init__(self, headers: Sequence[str], *, show_headers: bool = True) -> None:
        self._headers = tuple(headers)
        self._show_headers = show_headers
        self._widths = [len(header) if show_headers else 0 for header in headers]

    def render(self, rows: Sequence[Sequence[str]]) -> str:
        """Lines, each with its newline; the headers stand before the first rows."""
        lines = [tuple(one_line(cell) for cell in row) for row in rows]
        if self._show_headers:
            lines.insert(0, self._headers)
            self._show_headers = False
        for line in lines:
            self._widths = [max(width, len(cell)) for width, cell in zip(self._widths, line, strict=True)]
        return "".join(self._line(line) + "\n" for line in lines)

    def _line(self, cells: Sequence[str]) -> str:
        return GAP.join(cell.ljust(width) for cell, width in zip(cells, self._widths, strict=True)).rstrip()


def one_line(text: str) -> str:
    """Text of others, fit for a cell: it neither breaks the line nor sends the terminal commands."""
    return text if text.isprintable() else "".join(filter(str.isprintable, " ".join(text.split())))


MANY = 200
"""From so many things on it is worth showing how far one is."""


_CONTROLS = re.compile(r"\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""All but tabs and line ends; also those that turn the direction of text, so that it reads as something else."""


def escaped(text: str) -> str:
    """The text with its control characters made visible: ESC is `^[`, a carriage return `\\r`, as with kubectl."""
    return _CONTROLS.sub(_visible, text)


def _visible(found: re.Match[str]) -> str:
    character = found[0]
    if character == "\r":
        return "\\r"
    return f"^{chr(ord(character) ^ 0x40)}" if character < "\x80" else character.encode("unicode_escape").decode()


def out(text: str, *, styled: bool = False) -> None:
    """Prints a result, which brings its own newline. `styled`: it has colours, and the text of others in it is escaped. (Not by
    click.echo: it writes past a bar that is being drawn.)"""
    sys.stdout.write(escaped(text) if sys.stdout.isatty() and not styled else text)
    sys.stdout.flush()


def bytes_out() -> Callable[[bytes], None]:
    """Prints a stream of bytes in pieces, as `out` prints text; a character may be divided between two pieces."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="backslashreplace")
    held = ""

    def write(data: bytes) -> None:
        nonlocal held
        if sys.stdout.isatty():
            text = held + decoder.decode(data, final=not data)
            held = "\r" if data and text.endswith("\r") else ""
            sys.stdout.write(escaped(text.removesuffix("\r") if held else text))
        else:
            sys.stdout.buffer.write(data)
        sys.stdout.flush()

    return write


def err(line: str) -> None:
    """Prints a line for people, without control characters."""
    print(one_line(line), file=sys.stderr, flush=True)


def note(text: str) -> None:
    """Prints something worth knowing, which is no result."""
    err(f"note: {text}")


def warning_once() -> Callable[[str], None]:
    """Prints what does not do what it seems to; what it has printed already, it does not print again."""
    told = set[str]()

    def warn(text: str) -> None:
        if text not in told:
            told.add(text)
            err(f"Warning: {text}")

    return warn


def is_live() -> bool:
    """May what was printed be drawn over?"""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


@contextmanager
def progress(label: str, total: int, *, no_color: bool = False) -> Iterator[Callable[[int], None]]:
    """A bar on the terminal while much is being done; gives the function that moves it on. Not in a pipe, nor for little."""
    if total < MANY or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, no_color=no_color or None)
    columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # Results keep going to stdout: only where that is the same terminal may the bar take them in.
    with Progress(*columns, console=console, transient=True, redirect_stdout=sys.stdout.isatty()) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.advance(task, done)


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
            raise Failure(f"cannot write the output: {why}", hint="changes made so far remain", code=ExitCode.OUTPUT) from error


class _Remarks(io.FileIO):
    """What cannot be written here is lost: there is nobody to tell, and the work is another matter."""

    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError:
            return memoryview(data).nbytes
