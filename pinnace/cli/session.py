"""The connection, namespace and deadline of one command.

Every command has a deadline: `--timeout`, the limit that the verb sets with `wait_up_to`, or the default of 30 s.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager

from pinnace.cli.errors import explain_error, print_hint, print_report_lines
from pinnace.cli.outcomes import ErrorReport, ExitCode, Failure, Reported, first_error, usage_failure, worst_exit_code
from pinnace.cli.servers import connect_to_any_server, load_configuration
from pinnace.cli.settings import Settings
from pinnace.cli.terminal import print_note, show_progress, until_reader_gone, warning_once
from pinnace.client.client import Client
from pinnace.client.config import ClientConfig
from pinnace.client.connection import Connection, Metadata, impersonation_metadata
from pinnace.client.errors import Unavailable
from pinnace.runtime import process, tracing

log = logging.getLogger(__name__)

DEFAULT_DEADLINE = 30.0
STORAGE_TIMEOUT = 3.0
"""Seconds during which requests are retried on API servers that do not reach etcd, if `--timeout` is not set. It exceeds the
duration of an election of etcd (pinnace.cluster.etcd)."""
TIME_EACH = 0.05
"""Additional seconds for each object of a command."""


class CommandSession:
    """The connection of one command. Errors of single items are printed immediately (`report_failure`) and determine the exit
    code."""

    def __init__(self, settings: Settings, config: ClientConfig, client: Client, limit: asyncio.Timeout) -> None:
        self.client = client
        self.namespace = settings.namespace or config.namespace
        self.waiting_for = ""
        """The condition for the timeout message, such as "the deletion of pod/a"."""
        self._timeout = settings.timeout
        self._no_color = settings.no_color
        self._limit = limit
        self._failures: list[ErrorReport] = []

    def wait_up_to(self, seconds: float) -> None:
        """Set the deadline to this number of seconds from now, unless `--timeout` is set."""
        if self._timeout is None:
            self._limit.reschedule(asyncio.get_running_loop().time() + seconds)

    def wait_for_each(self, things: int) -> None:
        """Extend the deadline for this number of objects, unless `--timeout` is set."""
        self.wait_up_to(DEFAULT_DEADLINE + TIME_EACH * things)

    def wait_for_ever(self) -> None:
        """Remove the deadline, unless `--timeout` is set."""
        if self._timeout is None:
            self._limit.reschedule(None)

    async def await_watch(self, watching: Awaitable[None]) -> None:
        """Await a watch until an interrupt, or until `--timeout` elapses, which is not an error. Raises ReaderGone when the
        reader of stdout closes the pipe."""
        self._limit.reschedule(None)
        limit = asyncio.timeout(self._timeout)
        try:
            async with limit:
                await until_reader_gone(watching)
        except TimeoutError:
            if not limit.expired():
                raise
            print_note(f"the watch ended after --timeout ({self._timeout:g} s)")

    def progress(self, label: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
        """See terminal.progress."""
        return show_progress(label, total, no_color=self._no_color)

    def report_failure(self, error: Exception, where: str = "") -> None:
        """Report the expected error of one item, so that the command can continue with the next. Raises an unexpected error."""
        report = explain_error(error)
        if report is None:
            raise error
        print_report_lines(report, where)
        self._failures.append(report)

    def raise_if_failed(self) -> None:
        """Print each distinct hint once, and raise Reported with the worst exit code, if any item failed."""
        if self._failures:
            for hint in dict.fromkeys(report.hint for report in self._failures):
                print_hint(hint)
            raise Reported(worst_exit_code([report.code for report in self._failures]))


def run_session(settings: Settings, body: Callable[[CommandSession], Awaitable[None]]) -> None:
    """Run the part of a verb that uses a connection, until it returns or its deadline passes."""
    try:
        process.run_command(_run_with_client(settings, body))
    except BaseExceptionGroup as group:
        raise first_error(group) from group


def _timed_out(message: str, met: Unavailable | None) -> Exception:
    """Return the error of a command that timed out. `met` is the error of the call in progress at the deadline."""
    known = explain_error(met) if met is not None else None
    if met is None or known is None:
        return TimeoutError(message)
    return Failure(f"{message}: {met.message}", hint=known.hint, code=ExitCode.UNAVAILABLE)


def _impersonation_metadata(settings: Settings, config: ClientConfig) -> Metadata:
    """Return the call metadata for --as and --as-group, or for the fields of the kubeconfig. Raises Failure (usage)."""
    if settings.acting_as is None:
        if settings.acting_groups:
            raise usage_failure("--as-group requires --as", hint="name the user with --as")
        return impersonation_metadata(config.acting_as, config.acting_groups) if config.acting_as else ()
    return impersonation_metadata(settings.acting_as, settings.acting_groups)


async def _run_with_client(settings: Settings, body: Callable[[CommandSession], Awaitable[None]]) -> None:
    config = load_configuration(settings, can_impersonate=True)
    log.debug("API servers: %s; namespace: %s", ", ".join(config.endpoints), settings.namespace or config.namespace)
    await connect_to_any_server(config)
    metadata = [*tracing.trace_metadata(os.environ), *_impersonation_metadata(settings, config)]
    connection = Connection(
        config.endpoints,
        tls=config.tls,
        metadata=metadata,
        on_warning=warning_once(),
        storage_timeout=STORAGE_TIMEOUT if settings.timeout is None else None,
    )
    began = asyncio.get_running_loop().time()
    limit = asyncio.timeout_at(began + (settings.timeout or DEFAULT_DEADLINE))
    session = CommandSession(settings, config, Client(connection), limit)
    try:
        async with limit:
            await body(session)
            session.raise_if_failed()
    except TimeoutError:
        deadline = limit.when()
        if not limit.expired() or deadline is None:
            raise
        what = f" waiting for {session.waiting_for}" if session.waiting_for else ""
        at, met = connection.given_up or (0.0, None)
        raise _timed_out(f"timed out after {deadline - began:.3g} s{what}", met if at >= deadline else None) from None
    finally:
        await connection.close()
