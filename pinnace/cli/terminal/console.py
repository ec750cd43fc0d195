"""What goes where: results to stdout, everything else to stderr; what moves only to a terminal."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pinnace.cli.terminal.table import one_line

MANY = 200
"""From so many things on it is worth showing how far one is."""


def out(text: str) -> None:
    """Prints a result, which brings its own newline. (Not by click.echo: it writes past a bar that is being drawn.)"""
    sys.stdout.write(text)
    sys.stdout.flush()


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
