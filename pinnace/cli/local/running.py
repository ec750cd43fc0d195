"""Output, errors and signals of commands for local clusters that run for several seconds."""

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

from pinnace.cli.outcomes import ExitCode, Failure, first_error
from pinnace.cli.settings import Settings
from pinnace.cli.terminal import print_error_line
from pinnace.cluster import errors
from pinnace.cluster.cluster import Cluster
from pinnace.verification.bench import BenchError

QUIET = 5.0
"""Seconds without output after which a line is printed if stderr is not a terminal."""
UNFOLDED = 1 << 20
"""Width of the output, in columns, if it is not a terminal."""
R = TypeVar("R")
_CODES: tuple[tuple[type[errors.ClusterError], ExitCode], ...] = (
    (errors.SpecError, ExitCode.USAGE),
    (errors.FolderError, ExitCode.USAGE),
    (errors.NoCluster, ExitCode.NOT_FOUND),
    (errors.OtherOptions, ExitCode.CONFLICT),
    (errors.AlreadyRunning, ExitCode.CONFLICT),
    (errors.ClusterBusy, ExitCode.CONFLICT),
    (errors.StartTimeout, ExitCode.UNAVAILABLE),
)
GOOD, BAD = "green", "bold red"


def create_console(settings: Settings, *, stderr: bool = False) -> Console:
    """Return a console that wraps lines on a terminal only."""
    made = Console(stderr=stderr, no_color=settings.no_color or None, highlight=False)
    if not made.is_terminal:
        made.width = UNFOLDED
    return made


class Steps:
    """Progress on stderr: a status line on a terminal; otherwise one line for each completed step."""

    def __init__(self, settings: Settings) -> None:
        self._console = create_console(settings, stderr=True)
        self._status: Status | None = None
        self._last_line = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.quiet()

    def waiting(self, what: str) -> None:
        text = Text(f"waiting for {what}")
        if self._console.is_terminal:
            text.truncate(self._console.width - 3, overflow="ellipsis")  # leaves space for the spinner
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
        """Print a line without a mark."""
        self._console.print(Text(text))
        self._last_line = time.monotonic()

    def quiet(self) -> None:
        """Remove the status line."""
        if self._status is not None:
            self._status.stop()
            self._status = None


def run_coroutine(main: Coroutine[Any, Any, R], *, hangup: bool = False) -> R:
    """Run a coroutine. SIGINT, SIGTERM and, with `hangup`, SIGHUP cancel it, so that its cleanup runs, and KeyboardInterrupt is
    raised. A further signal cancels the operation in progress and not the cleanup, unlike the second SIGINT in asyncio."""
    numbers = [signal.SIGTERM, *([signal.SIGHUP] if hangup else [])]
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # a shell ignores SIGINT for background jobs
        numbers.append(signal.SIGINT)

    async def body() -> R:
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()
        for number in numbers:
            loop.add_signal_handler(number, task.cancel)
        try:
            return await main
        finally:  # the cleanup is complete; a remaining thread can be interrupted
            for number in numbers:
                loop.remove_signal_handler(number)

    try:
        return asyncio.run(body())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


@contextmanager
def translate_cluster_errors() -> Iterator[None]:
    """Convert errors of local clusters into Failure."""
    try:
        yield
    except BaseExceptionGroup as group:
        with translate_cluster_errors():
            raise first_error(group) from group
    except BenchError as error:
        raise Failure(str(error)) from error
    except errors.ClusterError as error:
        code = next((code for kind, code in _CODES if isinstance(error, kind)), ExitCode.SERVER)
        for name, tail in error.logs.items() if isinstance(error, errors.StartFailed) else ():
            where = error.paths.get(name) if isinstance(error, errors.StartFailed) else None
            if tail:
                print_error_line(f"Last lines of the log of {name}{f' ({where})' if where else ''}:")
            for line in tail:
                print_error_line(f"  | {line}")
        raise Failure(error.message, hint=error.hint, code=code) from error


async def remove_cluster(cluster: Cluster, steps: Steps) -> None:
    """Delete a cluster, and print its content."""
    folder = cluster.spec.data_dir
    steps.line(f"deleting the cluster in {folder}: {cluster.folder.describe()}")
    steps.waiting(f"{len(cluster.state.processes)} processes to exit")
    removed = await cluster.down()
    if removed.killed:
        steps.line(f"killed, because they did not exit after SIGTERM: {', '.join(removed.killed)}")
    for path in removed.kept:
        steps.warn(f"{path} was not created by this cluster and is not deleted")
    left = "" if removed.kept else "; all its files are deleted"
    steps.done(f"the cluster in {folder} is deleted{left}")


@dataclass(frozen=True, slots=True)
class VerdictLine:
    """One line of a verdict."""

    good: bool
    what: str
    figure: str


class StoryPrinter:
    """Sections and lines on stdout, with colours on a terminal only."""

    def __init__(self, settings: Settings, steps: Steps) -> None:
        self.steps = steps
        self._console = Console(no_color=settings.no_color or None, highlight=False, soft_wrap=True)

    def print_chapter(self, title: str, text: str) -> None:
        self.steps.quiet()
        self._console.print(Text(f"\n{title}", style="bold"))
        self._console.print(Text(text))

    def print_line(self, text: str, style: str = "") -> None:
        self.steps.quiet()
        self._console.print(Text(f"  {text}" if text else "", style=style))

    def print_moment(self, seconds: float, what: str) -> None:
        """Print a line with the time since the start. Up to 10 s the times are aligned with "t = 0 ms" and seven spaces."""
        self.print_line(f"  + {seconds * 1000:5,.0f} ms   {what}")

    def print_verdict_line(self, good: bool, what: str, figure: str, width: int = 38) -> None:
        """Print one line of a verdict. `width` is the width of the column before the figure."""
        self.print_line(f"{'✓' if good else '✗'} {what:<{width}}{figure}", GOOD if good else BAD)
