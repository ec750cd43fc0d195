"""An API server in this process, commands and a client."""

from collections.abc import AsyncIterator, Iterator

import pytest

from pinnace.client.client import Client
from pinnace.client.connection import Connection
from tests.integration.cli.commands import Commands, Server
from tests.integration.cli.forkserver import ForkServer
from tests.storage.memory import MemoryStorage


@pytest.fixture
async def server() -> AsyncIterator[str]:
    """Its address."""
    server = Server(MemoryStorage())
    await server.start()
    yield server.address
    await server.stop()


@pytest.fixture(scope="session")
def forkserver() -> Iterator[ForkServer]:
    server = ForkServer()
    yield server
    server.close()


@pytest.fixture
def pinnace(server: str, forkserver: ForkServer) -> Commands:
    return Commands([server], forkserver)


@pytest.fixture
async def client(server: str) -> AsyncIterator[Client]:
    connection = Connection([server])
    yield Client(connection)
    await connection.close()
