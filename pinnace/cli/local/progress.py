"""How far long work has come: told on stderr, and drawn where that is a terminal."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.status import Status
from rich.text import Text

from pinnace.cli.settings import Settings

QUIET = 5.0
"""Seconds after which a pipe is told, too, what is being waited for."""
UNFOLDED = 1 << 20
"""Columns, where there is no terminal."""


def console(settings: Settings, *, stderr: bool = False) -> Console:
    """Folds lines to fit where it is a terminal, and only there: in a pipe a line is a line."""
    made = Console(stderr=stderr, no_color=settings.no_color or None, highlight=False)
    if not made.is_terminal:
        made.width = UNFOLDED
    return made


class Steps:
    """Progress on stderr: on a terminal a line that moves, in a pipe a line for each step that is done."""

    def __init__(self, settings: Settings) -> None:
        self._console = console(settings, stderr=True)
        self._status: Status | None = None
        self._last_line = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.quiet()

    def waiting(self, what: str) -> None:
        text = Text(f"waiting for {what}")
        if self._console.is_terminal:
            text.truncate(self._console.width - 3, overflow="ellipsis")  # one line, with the spinner before it
            if self._status is None:
                self._status = self._console.status(text)
                self._status.start()
            self._status.update(text)
        elif time.monotonic() - self._last_line > QUIET:
            self.line(text.plain)

    def done(self, what: str) -> None:
        self._mark("✓", "green", what)

    def warn(self, what: str) -> None:
        self._mark("!", "yellow", what)

    def _mark(self, mark: str, colour: str, what: str) -> None:
        self.quiet()
        self._console.print(Text(f"{mark} ", style=colour), Text(what), sep="")
        self._last_line = time.monotonic()

    def line(self, text: str) -> None:
        """Plain text, for what is neither waited for nor done."""
        self._console.print(Text(text))
        self._last_line = time.monotonic()

    def quiet(self) -> None:
        """Takes the moving line away."""
        if self._status is not None:
            self._status.stop()
            self._status = None
