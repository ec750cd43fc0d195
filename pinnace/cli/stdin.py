"""Reading standard input while other things go on, whatever it is: a terminal, a pipe or a file."""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import suppress

CHUNK = 1 << 16


async def chunks() -> AsyncIterator[bytes]:
    """To its end. A thread reads, one chunk ahead of whoever takes them; it dies with the process, wherever it is then."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Queue[bytes] = asyncio.Queue()
    taken = threading.Semaphore(1)

    def read() -> None:
        data = b"first"
        while data:
            taken.acquire()
            data = os.read(sys.stdin.fileno(), CHUNK)
            with suppress(RuntimeError):  # the loop is closed: nobody wants it any more
                loop.call_soon_threadsafe(ready.put_nowait, data)

    threading.Thread(target=read, daemon=True).start()
    while data := await ready.get():
        yield data
        taken.release()
