"""A cluster out of single processes, as much of it as a test starts."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from pinnace.client.client import Client
from pinnace.client.connection import Connection
from tests.conftest import EtcdServer, wipe
from tests.integration.processes import Component

Start = Callable[..., Component]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts components: module, name, arguments. They are killed after the test."""
    running: list[Component] = []

    def start_one(module: str, name: str, *arguments: str, insecure: bool = True) -> Component:
        running.append(Component(tmp_path, module, name, *arguments, insecure=insecure))
        return running[-1]

    yield start_one
    for component in reversed(running):
        component.kill()


@pytest.fixture
async def apiserver(etcd: EtcdServer, start: Start) -> Component:
    """One, with an empty etcd, ready."""
    await wipe(etcd.endpoint)
    server = start("apiserver", "apiserver-0", "--etcd", etcd.endpoint)
    await server.ready()
    return server


@pytest.fixture
async def client(apiserver: Component) -> AsyncIterator[Client]:
    connection = Connection([apiserver.address])
    yield Client(connection)
    await connection.close()
