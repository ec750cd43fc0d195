"""The supervised loop: retries, backoff with jitter, and log lines for activities that must continue after a failure.

Expected errors are retried. Any other error is a bug and ends the process through its task group.

A new failure is logged immediately. Repeated failures are logged every LOG_INTERVAL seconds with their count. The recovery is
logged once.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

from pinnace.runtime.backoff import Backoff
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.logs import ActivityFailed, ActivityRecovered

log = logging.getLogger(__name__)

LOG_INTERVAL = 30.0
"""Seconds between two log lines about the same failure, and seconds without a failure after which the activity has
recovered."""
KINDS = 10
"""The maximum number of different failures of a loop that are counted separately."""


async def supervise(
    name: str,
    attempt: Callable[[], Awaitable[None]],
    *,
    retry_on: tuple[type[Exception], ...],
    backoff: Backoff | None = None,
    clock: Clock = SYSTEM_CLOCK,
    healthy_after: float = 5.0,
    asked: Callable[[Exception], float] = lambda error: 0.0,
) -> None:
    """Call `attempt` repeatedly until cancelled. A call is expected to run for a long time; returning is not a failure. Errors
    of the types `retry_on` are retried, other errors are raised. Raises EndedEarly if `attempt` raises CancelledError although
    it was not cancelled.

    An attempt that lasted `healthy_after` seconds resets the backoff. `asked` returns the minimum delay for an error, in
    seconds.
    """
    task = asyncio.current_task()
    assert task is not None
    before = task.cancelling()
    backoff = backoff or Backoff()
    account = _FailureLog(name, clock)
    try:
        while True:
            started = clock.monotonic()
            try:
                await attempt()
                backoff.reset()
            except asyncio.CancelledError as error:
                if task.cancelling() > before:
                    raise
                raise EndedEarly(f"{name}: it cancelled itself") from error
            except retry_on as error:
                if clock.monotonic() - started >= healthy_after:
                    backoff.reset()
                delay = max(backoff.next_delay(), asked(error))
                account.record_failure(describe_error(error), delay)
                await clock.sleep(delay)
            else:
                await asyncio.sleep(0)
    finally:
        account.close()


class EndedEarly(Exception):
    """A permanent activity ended although it was not cancelled. The message names the activity."""


async def run_unending(name: str, activity: Callable[[], Awaitable[Any]]) -> NoReturn:
    """Run an activity that must not end before it is cancelled. Used for children of a TaskGroup, which ignores a child that
    returns or that raises CancelledError on its own.

    Raises EndedEarly if the activity returns, raises CancelledError on its own, or raises SystemExit or KeyboardInterrupt,
    which would end the process silently. Other exceptions are propagated.
    """
    task = asyncio.current_task()
    assert task is not None
    before = task.cancelling()
    try:
        await activity()
    except asyncio.CancelledError as error:
        if task.cancelling() > before:
            raise
        raise EndedEarly(f"{name}: it cancelled itself") from error
    except (SystemExit, KeyboardInterrupt) as error:
        raise EndedEarly(f"{name}: {describe_error(error)}") from error
    raise EndedEarly(f"{name}: it returned")


class _FailureLog:
    """Logs the failures of a loop until its recovery."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._failures = 0
        self._first = self._last = 0.0
        self._told: dict[str, tuple[float, int]] = {}  # the time of the log line, and the number of failures since
        self._recovery: asyncio.Task[None] | None = None

    def record_failure(self, what: str, delay: float) -> None:
        self._last = self._clock.monotonic()
        self._first = self._first if self._failures else self._last
        self._failures += 1
        if self._recovery is None:
            self._recovery = asyncio.create_task(self._log_recovery())
        told, times = self._told.pop(what, (None, 0))
        if told is not None and self._last - told < LOG_INTERVAL:
            self._told[what] = told, times + 1
            return
        often = f"{times + 1} more times in {self._last - told:.0f} s; " if told is not None else ""
        repeats = times + 1 if told is not None else 0
        failed = ActivityFailed(self._name, repeats).extra
        log.warning("%s: %s; %sretry in %.2f s", self._name, what, often, delay, extra=failed)
        self._told[what] = self._last, 0
        if len(self._told) > KINDS:
            del self._told[next(iter(self._told))]

    async def _log_recovery(self) -> None:
        while (remaining := self._last + LOG_INTERVAL - self._clock.monotonic()) > 0.0:
            await self._clock.sleep(remaining)
        if self._failures > 1:  # a single failure has been logged completely
            lasted = self._last - self._first
            well = ActivityRecovered(self._name, self._failures).extra
            log.info("%s: recovered from %d failures in %.0f s", self._name, self._failures, lasted, extra=well)
        self._failures = 0
        self._told.clear()
        self._recovery = None

    def close(self) -> None:
        if self._recovery is not None:
            self._recovery.cancel()


def describe_error(error: BaseException) -> str:
    """Format an error as one line of a log."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
