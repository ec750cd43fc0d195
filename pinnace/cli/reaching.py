"""Finding the server: where it is said to be, and whether anybody answers there. Needs no gRPC, and so is quick."""

import asyncio
import os
import re
from collections.abc import Sequence

from pinnace.cli.outcomes import ExitCode, Failure
from pinnace.cli.settings import Settings
from pinnace.client.config import HINT, ClientConfig, ConfigError, load

CONNECT_TIMEOUT = 2.0


def configuration(settings: Settings) -> ClientConfig:
    """Where the API servers are. Raises Failure."""
    try:
        return load(settings.server, context=settings.context)
    except ConfigError as error:
        code = ExitCode.USAGE if settings.server or settings.context else ExitCode.UNAVAILABLE
        raise Failure(str(error), hint=error.hint, code=code) from None


async def reach(endpoints: Sequence[str]) -> None:
    """Returns once any API server accepts a connection. Raises Failure when none does: it names them all and the way out.

    Asked before anything else, because the client library would go on trying, as a component must; a person wants to know.
    """
    attempts = [asyncio.ensure_future(_accepts(endpoint)) for endpoint in endpoints]
    try:
        for attempt in asyncio.as_completed(attempts):
            if await attempt is None:
                return
    finally:
        for task in attempts:
            task.cancel()
    tried = ", ".join(f"{endpoint} ({task.result()})" for endpoint, task in zip(endpoints, attempts, strict=True))
    raise Failure(f"no API server answers at {tried}", hint=HINT, code=ExitCode.UNAVAILABLE)


async def _accepts(endpoint: str) -> str | None:
    """None, or why there is no connection."""
    host, _, port = endpoint.rpartition(":")
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except TimeoutError:
        return f"no answer in {CONNECT_TIMEOUT:.0f} s"
    except OSError as error:
        return _why(error)
    writer.close()
    return None


def _why(error: OSError) -> str:
    """ "connection refused": what the operating system says, whichever of the host's addresses were tried."""
    number = re.search(r"\[Errno (\d+)\]", str(error))
    return (os.strerror(int(number[1])) if number else error.strerror or str(error)).lower()
