"""How far long work has come: told on stderr, and drawn where that is a terminal.

Verbs that work on local clusters for a while: what ends them, how the errors of clusters are told, and taking one down.

How a story is told on a terminal: chapters, lines, moments, and what is to be thought of it.
"""

import asyncio
import signal
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

from rich.console import Console
from rich.status import Status
from rich.text import Text

from pinnace.bench import BenchError
from pinnace.cli.outcomes import ExitCode, Failure, first
from pinnace.cli.settings import Settings
from pinnace.cli.terminal import err
from pinnace.cluster import errors
from pinnace.cluster.cluster import Cluster

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


R = TypeVar("R")

_CODES: tuple[tuple[type[errors.ClusterError], ExitCode], ...] = (
    (errors.SpecError, ExitCode.USAGE),
    (errors.FolderError, ExitCode.USAGE),
    (errors.NoCluster, ExitCode.NOT_FOUND),
    (errors.OtherOptions, ExitCode.CONFLICT),
    (errors.AlreadyRunning, ExitCode.CONFLICT),
    (errors.Busy, ExitCode.CONFLICT),
    (errors.StartTimeout, ExitCode.UNAVAILABLE),
)


def run(main: Coroutine[Any, Any, R], *, hangup: bool = False) -> R:
    """Runs a verb to its end. SIGINT and SIGTERM cancel it, so that it cleans up, and then end it as an interrupt; so does,
    with `hangup`, the end of the terminal. Each further one cancels again what waits by then: no clean-up is left out, as it
    would be if asyncio raised the KeyboardInterrupt of the second SIGINT."""
    numbers = [signal.SIGTERM, *([signal.SIGHUP] if hangup else [])]
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as a shell leaves it to what runs in its background
        numbers.append(signal.SIGINT)

    async def body() -> R:
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()
        for number in numbers:
            loop.add_signal_handler(number, task.cancel)
        try:
            return await main
        finally:  # there is nothing to clean up any more: what is left, such as a thread at work, may be interrupted
            for number in numbers:
                loop.remove_signal_handler(number)

    try:
        return asyncio.run(body())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


@contextmanager
def translated() -> Iterator[None]:
    """Turns the errors of local clusters into those that the command line tells."""
    try:
        yield
    except BaseExceptionGroup as group:
        with translated():
            raise first(group) from group
    except BenchError as error:
        raise Failure(str(error)) from error
    except errors.ClusterError as error:
        code = next((code for kind, code in _CODES if isinstance(error, kind)), ExitCode.SERVER)
        for name, tail in error.logs.items() if isinstance(error, errors.StartFailed) else ():
            where = error.paths.get(name) if isinstance(error, errors.StartFailed) else None
            if tail:
                err(f"The last lines of the log of {name}{f' ({where})' if where else ''}:")
            for line in tail:
                err(f"  | {line}")
        raise Failure(error.message, hint=error.hint, code=code) from error


async def remove(cluster: Cluster, steps: Steps) -> None:
    """Takes a cluster down, and says what is removed."""
    folder = cluster.spec.data_dir
    steps.line(f"removing the cluster in {folder}: {cluster.folder.describe()}")
    steps.waiting(f"{len(cluster.state.processes)} processes to end")
    removed = await cluster.down()
    if removed.killed:
        steps.line(f"did not end when asked, and had to be killed: {', '.join(removed.killed)}")
    for path in removed.kept:
        steps.warn(f"{path} was not made by this cluster, and is still there")
    left = "" if removed.kept else "; nothing is left of it"
    steps.done(f"the cluster in {folder} is down{left}")


GOOD, BAD = "green", "bold red"


@dataclass(frozen=True, slots=True)
class Judgement:
    """One line of a verdict."""

    good: bool
    what: str
    figure: str


class Story:
    """Chapters and lines on stdout, colours only on a terminal."""

    def __init__(self, settings: Settings, steps: Steps) -> None:
        self.steps = steps
        self._console = Console(no_color=settings.no_color or None, highlight=False, soft_wrap=True)

    def chapter(self, title: str, text: str) -> None:
        self.steps.quiet()
        self._console.print(Text(f"\n{title}", style="bold"))
        self._console.print(Text(text))

    def line(self, text: str, style: str = "") -> None:
        self.steps.quiet()
        self._console.print(Text(f"  {text}" if text else "", style=style))

    def moment(self, seconds: float, what: str) -> None:
        """So long after the start, which is told as "t = 0 ms" and seven spaces: up to ten seconds are aligned."""
        self.line(f"  + {seconds * 1000:5,.0f} ms   {what}")

    def judgement(self, good: bool, what: str, figure: str, width: int = 38) -> None:
        """`width`: of the column before the figures."""
        self.line(f"{'✓' if good else '✗'} {what:<{width}}{figure}", GOOD if good else BAD)
