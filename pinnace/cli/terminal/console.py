"""What goes where: results to stdout, everything else to stderr; what moves only to a terminal.

Objects and containers hold text of others. On a terminal its control characters are shown, not obeyed: an escape sequence could
rewrite what was printed before, set the window's title or answer for the user. Into a pipe or a file the text goes as it is.
"""

import codecs
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pinnace.cli.terminal.table import one_line

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
