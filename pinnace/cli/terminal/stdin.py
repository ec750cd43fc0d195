"""Reading standard input while other things go on, whatever it is: a terminal, a pipe or a file."""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import suppress

from pinnace.cli.outcomes import usage

CHUNK = 1 << 16


async def chunks() -> AsyncIterator[bytes]:
    """To its end. A thread reads, one chunk ahead of whoever takes them; it dies with the process, wherever it is then. Raises
    Failure (usage) when it cannot be read."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    taken = threading.Semaphore(1)
    descriptor = sys.stdin.fileno()

    def read() -> None:
        found: bytes | OSError = b"first"
        while found and not isinstance(found, OSError):
            taken.acquire()
            try:
                found = os.read(descriptor, CHUNK)
            except OSError as error:
                found = error
            with suppress(RuntimeError):  # the loop is closed: nobody wants it any more
                loop.call_soon_threadsafe(ready.put_nowait, found)

    threading.Thread(target=read, daemon=True).start()
    while data := await ready.get():
        if isinstance(data, OSError):
            message = f"standard input cannot be read: {(data.strerror or str(data)).lower()}"
            raise usage(message, hint="without -i it is not read") from data
        yield data
        taken.release()
