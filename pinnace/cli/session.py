"""What a verb has while it talks to the server: a client, a namespace, a deadline.

No verb can hang: what runs in a session ends at its deadline, which is `--timeout`, or else what the verb says that it may take
(`wait_up_to`, `wait_for_ever`), or else 30 s.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager

from pinnace.cli.errors import explain, tell_hint, tell_lines
from pinnace.cli.outcomes import ExitCode, Failure, Report, Reported, first, worst
from pinnace.cli.servers import configuration, reach
from pinnace.cli.settings import Settings
from pinnace.cli.terminal import note, progress, until_reader_gone, warning_once
from pinnace.client.client import Client
from pinnace.client.config import ClientConfig
from pinnace.client.connection import Connection
from pinnace.client.errors import Unavailable
from pinnace.runtime import process, tracing

log = logging.getLogger(__name__)

DEFAULT_DEADLINE = 30.0
STORAGE_TIMEOUT = 3.0
"""Seconds for which servers that do not reach etcd are asked again, unless `--timeout` said otherwise: more than etcd takes to
elect another leader (pinnace.cluster.etcd)."""
TIME_EACH = 0.05
"""Seconds that each of many objects adds."""


class Session:
    """One command's connection. Errors of single items are told as they come (`failed`) and make up the exit code."""

    def __init__(self, settings: Settings, config: ClientConfig, client: Client, limit: asyncio.Timeout) -> None:
        self.client = client
        self.named_namespace = settings.namespace
        """What `-n` said; None: nothing."""
        self.namespace = settings.namespace or config.namespace
        self.looks_once = settings.timeout == 0
        """What is waited for must be there at once."""
        self.waiting_for = ""
        """What to name when time runs out, such as "pod/a to go"."""
        self._timeout = settings.timeout
        self._no_color = settings.no_color
        self._limit = limit
        self._failures: list[Report] = []
        self._untold: list[tuple[Report, str]] | None = None

    def wait_up_to(self, seconds: float) -> None:
        """Gives the command this long from now, unless `--timeout` said otherwise."""
        if self._timeout is None:
            self._limit.reschedule(asyncio.get_running_loop().time() + seconds)

    def wait_for_each(self, things: int) -> None:
        """Gives the command time for so many objects, unless `--timeout` said otherwise."""
        self.wait_up_to(DEFAULT_DEADLINE + TIME_EACH * things)

    def wait_for_ever(self) -> None:
        """Gives the command all the time that it takes, unless `--timeout` said otherwise."""
        if self._timeout is None:
            self._limit.reschedule(None)

    def look_back(self, revision: int | None) -> None:
        """What is read from now on is the state at that revision; None: that of now."""
        self.client = Client(self.client.connection, at=revision or 0)

    async def watch(self, watching: Awaitable[None]) -> None:
        """Awaits something endless: until interrupted, until the reader of stdout closes its pipe (raises ReaderGone), or for
        as long as `--timeout` says, which then is no failure."""
        self._limit.reschedule(None)
        limit = asyncio.timeout(self._timeout)
        try:
            async with limit:
                await until_reader_gone(watching)
        except TimeoutError:
            if not limit.expired():
                raise
            note(f"watched for {self._timeout:g} s, as asked")

    def progress(self, label: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
        """See console.progress."""
        return progress(label, total, no_color=self._no_color)

    @property
    def has_failed(self) -> bool:
        return bool(self._failures)

    def tell_failures_last(self) -> None:
        """Has the errors of single items told when the command ends, so that they are not apart from the ways out."""
        self._untold = []

    def failed(self, error: Exception, where: str = "") -> None:
        """Tells the expected error of one item, so that the command can go on with the next. Raises any other."""
        report = explain(error)
        if report is None:
            raise error
        if self._untold is None:
            tell_lines(report, where)
        else:
            self._untold.append((report, where))
        self._failures.append(report)

    def tell_failures(self) -> None:
        """Those that have not been told yet."""
        for report, where in self._untold or ():
            tell_lines(report, where)
        self._untold = None

    def finish(self) -> None:
        """Tells the ways out of what has failed, each once, and raises Reported with the worst of it; if anything has."""
        self.tell_failures()
        if self._failures:
            for hint in dict.fromkeys(report.hint for report in self._failures):
                tell_hint(hint)
            raise Reported(worst([report.code for report in self._failures]))


def run(settings: Settings, body: Callable[[Session], Awaitable[None]]) -> None:
    """Runs the part of a verb that talks to the server, to its end or its deadline."""
    try:
        process.run_command(_run(settings, body))
    except BaseExceptionGroup as group:
        raise first(group) from group


def _timed_out(message: str, met: Unavailable | None) -> Exception:
    """`met`: by the call that was under way."""
    known = explain(met) if met is not None else None
    if met is None or known is None:
        return TimeoutError(message)
    return Failure(f"{message}: {met.message}", hint=known.hint, code=ExitCode.UNAVAILABLE)


async def _run(settings: Settings, body: Callable[[Session], Awaitable[None]]) -> None:
    config = configuration(settings)
    log.debug("API servers: %s; namespace: %s", ", ".join(config.endpoints), settings.namespace or config.namespace)
    await reach(config)
    metadata = tracing.metadata(os.environ)
    connection = Connection(
        config.endpoints,
        tls=config.tls,
        metadata=metadata,
        on_warning=warning_once(),
        storage_timeout=STORAGE_TIMEOUT if settings.timeout is None else None,
    )
    began = asyncio.get_running_loop().time()
    limit = asyncio.timeout_at(began + (settings.timeout or DEFAULT_DEADLINE))
    session = Session(settings, config, Client(connection), limit)
    try:
        async with limit:
            await body(session)
            session.finish()
    except TimeoutError:
        deadline = limit.when()
        if not limit.expired() or deadline is None:
            raise
        what = f" waiting for {session.waiting_for}" if session.waiting_for else ""
        at, met = connection.given_up or (0.0, None)
        raise _timed_out(f"timed out after {deadline - began:.3g} s{what}", met if at >= deadline else None) from None
    finally:
        session.tell_failures()
        await connection.close()
