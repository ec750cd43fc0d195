"""A process that stands for election, and says on stdout what becomes of it:

    {"at": 12.5, "elected": 7}, {"at": 13.1, "lost": "..."}, and every PULSE seconds {"at": 12.6, "token": 7}, or
    {"at": 12.4, "standing": true} while it has a session but does not lead

`at` is CLOCK_MONOTONIC, which all processes of one machine share. SIGTERM: it resigns.
"""

import asyncio
import json
import sys
import time
from typing import Any

from pinnace.client.connection import Connection
from pinnace.client.election import LeaderElector
from pinnace.runtime.process import run_component

PULSE = 0.02


def say(at: float | None = None, **what: Any) -> None:
    """`at`: now, if nothing else is said."""
    print(json.dumps({"at": time.monotonic() if at is None else at, **what}), flush=True)


async def main(stop: asyncio.Event) -> None:
    _, election, holder, *servers = sys.argv
    connection = Connection(servers)
    candidate = LeaderElector(
        connection, election, holder, on_elected=lambda token: say(elected=token), on_lost=lambda reason: say(lost=reason)
    )
    campaigning = asyncio.ensure_future(candidate.run())
    while not stop.is_set():
        at = time.monotonic()  # first: it may be frozen at any moment, and led then
        if (token := candidate.token) is not None:
            say(at, token=token)
        elif candidate.healthy is None:
            say(standing=True)
        try:
            async with asyncio.timeout(PULSE):
                await stop.wait()
        except TimeoutError:
            continue
    await candidate.release()
    await campaigning
    await connection.close()


if __name__ == "__main__":
    sys.exit(run_component(main))
