"""API servers in this process, for scenarios that need all of their services."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from apiserver.server import ApiServer
from apiserver.storage.interface import Storage
from tests.unit.cacher.world import eventually


@asynccontextmanager
async def serving(storage: Storage) -> AsyncIterator[str]:
    """An API server before the storage, ready; its address. It leaves the storage open."""
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
