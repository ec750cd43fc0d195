"""The life of a component's process: run until SIGTERM or SIGINT, stop gracefully, die loudly on a bug."""

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)

GC_THRESHOLDS = (20_000, 5, 1_000)
"""For gc.set_threshold. Our processes hold millions of objects for as long as they live, and make few cycles: with Python's
defaults a quarter of the API servers' CPU time went into looking through them, in pauses that a heartbeat can feel. The second
figure bounds the pauses, of all but full collections, which are rare: of 100,000 objects at a time. (Of a million it was
half a second, and of several processes at once while a cluster filled: leaders and nodes were taken to be dead.)"""


def run(main: Callable[[asyncio.Event], Awaitable[None]], *, grace: float = 10.0) -> int:
    """Runs `main(stop)` on a new event loop. `stop` is set by the first SIGTERM or SIGINT; `main` then returns, within
    `grace` seconds, or is cancelled. Returns the exit code: 0 when it ended as asked, 1 when it failed."""

    async def supervised() -> int:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        task = asyncio.ensure_future(main(stop))
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            log.info("stopping")
            await asyncio.wait((task,), timeout=grace)
        if not task.done():
            log.error("still busy after %.0f s; cancelled", grace)
            task.cancel()
            await asyncio.wait((task,), timeout=1.0)
            return 1
        stopping.cancel()
        if error := task.exception():
            expected = isinstance(error, OSError)  # a port that is taken, a file that is not there: no bug of ours
            log.critical("%s", error if expected else "failed", exc_info=None if expected else error)
            return 1
        return 0

    gc.set_threshold(*GC_THRESHOLDS)
    try:
        return asyncio.run(supervised())
    except KeyboardInterrupt:
        return 130
    finally:
        sys.stderr.flush()
