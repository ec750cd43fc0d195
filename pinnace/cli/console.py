"""What goes where: results to stdout, everything else to stderr; a live picture only on a terminal."""

import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

MANY = 200
"""From so many things on it is worth showing how far one is."""


def out(text: str) -> None:
    """Prints a result, which brings its own newline."""
    click.echo(text, nl=False)


def note(text: str) -> None:
    """Prints something worth knowing, which is no result."""
    click.echo(f"note: {text}", err=True)


def is_live() -> bool:
    """May what was printed be drawn over?"""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


@contextmanager
def progress(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on the terminal while much is being done; gives the function that moves it on. Not in a pipe, nor for little."""
    if total < MANY or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # Results keep going to stdout: only where that is the same terminal may the bar take them in.
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=sys.stdout.isatty()) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.advance(task, done)


class Picture:
    """Text that is drawn in place, again whenever it is said to have changed and every second (ages grow)."""

    INTERVAL = 0.1
    """Seconds between two drawings, at least."""
    REFRESH = 1.0

    def __init__(self, text: Callable[[], str]) -> None:
        self._text = text
        self._changed = asyncio.Event()

    def changed(self) -> None:
        self._changed.set()

    async def run(self) -> None:
        """Draws until cancelled; the last drawing stays."""
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        with Live(console=Console(highlight=False), auto_refresh=False, vertical_overflow="ellipsis") as live:
            while True:
                self._changed.clear()
                live.update(Text(self._text().rstrip("\n"), no_wrap=True), refresh=True)
                await asyncio.sleep(self.INTERVAL)
                try:
                    async with asyncio.timeout(self.REFRESH):
                        await self._changed.wait()
                except TimeoutError:
                    continue
