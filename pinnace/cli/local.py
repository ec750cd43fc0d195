"""What the verbs of local clusters share: the folder's flag, how progress looks, what ends them, how errors are told."""

import asyncio
import signal
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import click
from click.core import ParameterSource
from rich.console import Console
from rich.status import Status
from rich.text import Text

from pinnace.bench.errors import BenchError
from pinnace.cli.outcomes import ExitCode, Failure
from pinnace.cli.servers import configuration
from pinnace.cli.settings import Settings
from pinnace.client import config
from pinnace.cluster import errors
from pinnace.cluster.folder import NO_ROOM
from pinnace.cluster.spec import default_data_dir

R = TypeVar("R")

QUIET = 5.0
"""Seconds after which a pipe is told, too, what is being waited for."""
UNFOLDED = 1 << 20
"""Columns, where there is no terminal."""
_CODES: tuple[tuple[type[errors.ClusterError], ExitCode], ...] = (
    (errors.SpecError, ExitCode.USAGE),
    (errors.FolderError, ExitCode.USAGE),
    (errors.NoCluster, ExitCode.NOT_FOUND),
    (errors.AlreadyRunning, ExitCode.CONFLICT),
    (errors.Busy, ExitCode.CONFLICT),
    (errors.StartTimeout, ExitCode.UNAVAILABLE),
)

data_dir_option = click.option(
    "--data-dir",
    type=click.Path(path_type=Path, resolve_path=True),
    envvar="PINNACE_DATA_DIR",
    show_envvar=True,
    metavar="DIR",
    help="The cluster's folder: state, logs, etcd's data.  [default: $XDG_STATE_HOME/pinnace/default]",
)


def present_data_dir(settings: Settings, named: Path | None) -> Path:
    """The folder of the local cluster that is meant: what --data-dir says, that of --context, $PINNACE_DATA_DIR, that of the
    cluster that commands talk to, or the default one. Raises Failure when --context names no local cluster."""
    if named is not None and not (settings.context and _by_environment()):
        return named
    if settings.context:
        found = configuration(settings).data_dir
        if found is None:
            message = f'the cluster of context "{settings.context}" is no local one'
            raise Failure(message, hint="if it is, name its folder with --data-dir", code=ExitCode.NOT_FOUND)
        return found
    with suppress(config.ConfigError):
        if found := config.load(settings.server).data_dir:
            return found
    return default_data_dir()


def _by_environment() -> bool:
    """Whether it is a variable that has named the folder."""
    context = click.get_current_context(silent=True)
    return context is not None and context.get_parameter_source("data_dir") is ParameterSource.ENVIRONMENT


def write_context(found: config.ClientConfig) -> str:
    """Lets other commands find the cluster. The context that was the current one until then, if it is another's, or "". Raises
    Failure."""
    name = _context_name(found.data_dir or default_data_dir())
    with _configuration():
        before = config.current_context()
        config.write_context(name, found)
    return before if before != name else ""


def remove_context(data_dir: Path) -> None:
    """The opposite. Raises Failure."""
    with _configuration():
        config.remove_context(_context_name(data_dir))


def _context_name(data_dir: Path) -> str:
    return "local" if data_dir == default_data_dir() else f"local:{data_dir}"


@contextmanager
def _configuration() -> Iterator[None]:
    try:
        yield
    except config.ConfigError as error:
        raise Failure(str(error), hint=error.hint) from error
    except OSError as error:
        hint = "free some space" if error.errno in NO_ROOM else "name another file with PINNACE_CONFIG"
        raise Failure(f"the client configuration cannot be written: {error}", hint=hint) from error


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
            raise _leaf(group) from group
    except BenchError as error:
        raise Failure(str(error)) from error
    except errors.ClusterError as error:
        code = next((code for kind, code in _CODES if isinstance(error, kind)), ExitCode.SERVER)
        if isinstance(error, errors.StartFailed) and error.log_tail:
            click.echo(f"The last lines of the log of {error.process}:", err=True)
            for line in error.log_tail:
                click.echo(f"  | {line}", err=True)
        raise Failure(error.message, hint=error.hint, code=code) from error


def _leaf(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error of a group of tasks: the others were cancelled because of it."""
    first = group.exceptions[0]
    return _leaf(first) if isinstance(first, BaseExceptionGroup) else first


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
        self.quiet()
        self._console.print(Text("✓ ", style="green"), Text(what), sep="")
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
