"""Verbs that work on local clusters for a while: what ends them, how the errors of clusters are told, and taking one down."""

import asyncio
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from pinnace.bench import BenchError
from pinnace.cli.local.progress import Steps
from pinnace.cli.outcomes import ExitCode, Failure, first
from pinnace.cli.terminal.console import err
from pinnace.cluster import errors
from pinnace.cluster.cluster import Cluster

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
