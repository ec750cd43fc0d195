from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from pinnace.client.connection import Connection
from tests.unit.client.fakeserver import FakeServer, connect

Serve = Callable[[], Awaitable[FakeServer]]
Connect = Callable[..., Connection]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Starts fake servers."""
    servers: list[FakeServer] = []

    async def start() -> FakeServer:
        servers.append(await FakeServer().start())
        return servers[-1]

    yield start
    for server in servers:
        await server.stop()


@pytest.fixture(name="connect")
async def connect_fixture() -> AsyncIterator[Connect]:
    """Makes connections to servers, tried in the order given."""
    connections: list[Connection] = []

    def make(*servers: FakeServer | str) -> Connection:
        connections.append(connect(*servers))
        return connections[-1]

    yield make
    for connection in connections:
        await connection.close()
