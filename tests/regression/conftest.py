"""Servers and candidates that end with the test, however it ends."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

import pytest

from apiserver.services.elections import TIMING
from apiserver.sessions import Timing
from apiserver.storage.interface import Storage
from tests.contract.servers import Server
from tests.contract.voters import Voter


class Serve(Protocol):
    def __call__(self, storage: Storage, timing: Timing = TIMING) -> Awaitable[Server]:
        """Starts an API server that knows elections and heartbeats only. `timing` is that of elections."""
        ...


Vote = Callable[..., Voter]
"""Starts a candidate: its name, and the servers that it may go to."""


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    servers: list[Server] = []

    async def start(storage: Storage, timing: Timing = TIMING) -> Server:
        servers.append(await Server(storage, elections=timing).start())
        return servers[-1]

    yield start
    for server in servers:
        await server.kill()


@pytest.fixture
async def vote() -> AsyncIterator[Vote]:
    voters: list[Voter] = []

    def start(holder: str, *servers: Server) -> Voter:
        voters.append(Voter(holder, *servers))
        return voters[-1]

    yield start
    for voter in voters:
        await voter.stop()
