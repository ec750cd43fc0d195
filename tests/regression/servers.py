"""Complete API servers in the test process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pinnace.apiserver.server import ApiServer
from pinnace.apiserver.storage.interface import Storage
from tests.unit.cacher.world import eventually


@asynccontextmanager
async def serving(storage: Storage) -> AsyncIterator[str]:
    """Run an API server until it is ready and yield its address. The storage stays open."""
    server = ApiServer(storage)
    address = await server.start("127.0.0.1:0")
    task = asyncio.ensure_future(server.run())
    try:
        await eventually(lambda: server.readiness() is None)
        yield address
    finally:
        await server.stop()
        task.cancel()
        await asyncio.wait((task,))
