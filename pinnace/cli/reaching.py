"""Finding the server: where it is said to be, and whether anybody answers there. Needs no gRPC, and so is quick."""

import asyncio
import os
import re
from pathlib import Path

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


async def reach(config: ClientConfig) -> None:
    """Returns once any API server accepts a connection. Raises Failure when none does: it names them all and the way out.

    Asked before anything else, because the client library would go on trying, as a component must; a person wants to know.
    """
    endpoints = config.endpoints
    attempts = [asyncio.ensure_future(_accepts(endpoint)) for endpoint in endpoints]
    try:
        for attempt in asyncio.as_completed(attempts):
            if await attempt is None:
                return
    finally:
        for task in attempts:
            task.cancel()
    tried = ", ".join(f"{endpoint} ({task.result()})" for endpoint, task in zip(endpoints, attempts, strict=True))
    raise Failure(f"no API server answers at {tried}", hint=_way_out(config.data_dir), code=ExitCode.UNAVAILABLE)


def _way_out(data_dir: Path | None) -> str:
    """When no API server answers. `data_dir`: of the local cluster that is configured."""
    from pinnace.cluster.spec import default_data_dir  # only now: what works must be quick
    from pinnace.cluster.state import FILE

    if data_dir is None or not (data_dir / FILE).exists():
        return HINT
    where = "" if data_dir == default_data_dir() else f" --data-dir {data_dir}"
    return f"start its processes again with `pinnace restart{where}`; `pinnace status{where}` shows which run"


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
