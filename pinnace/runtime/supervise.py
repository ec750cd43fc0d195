"""The one supervised loop: it owns backoff, jitter and the log line of every activity that must go on after a failure.

Errors that are named as expected are retried; any other is a bug and ends the process through its task group, loudly.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from pinnace.runtime.backoff import Backoff
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock

log = logging.getLogger(__name__)


async def supervise(
    name: str,
    attempt: Callable[[], Awaitable[None]],
    *,
    retry_on: tuple[type[Exception], ...],
    backoff: Backoff | None = None,
    clock: Clock = SYSTEM_CLOCK,
    healthy_after: float = 5.0,
) -> None:
    """Runs `attempt` again and again, until cancelled. It is expected to run long; returning is not a failure.

    An attempt that lasted `healthy_after` seconds resets the backoff.
    """
    backoff = backoff or Backoff()
    while True:
        started = clock.monotonic()
        try:
            await attempt()
            backoff.reset()
        except retry_on as error:
            if clock.monotonic() - started >= healthy_after:
                backoff.reset()
            delay = backoff.next()
            log.warning("%s: %s; again in %.2f s", name, describe(error), delay)
            await clock.sleep(delay)
        else:
            await asyncio.sleep(0)


def describe(error: BaseException) -> str:
    """One line for a log."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
