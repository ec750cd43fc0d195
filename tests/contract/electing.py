"""What the tests of elections share."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from apiserver.election.service import TIMING
from apiserver.services.sessions import Timing
from apiserver.storage.interface import KeyValue, Storage
from pinnace.api.elections_pb2 import Term
from pinnace.api.resources import election_key
from pinnace.client.client import ElectionClient
from tests.contract.servers import PATIENCE, Server
from tests.contract.voters import ELECTION, Voter
from tests.unit.client.fakeserver import connect

KEY = election_key(ELECTION)
HASTY = Timing(interval=0.05, silence=0.3, ttl=2)
PATIENT = Timing(interval=2.0, silence=10.0, ttl=20)


class Serve(Protocol):
    def __call__(self, timing: Timing = TIMING) -> Awaitable[Server]: ...


class ServeOn(Protocol):
    def __call__(self, storage: Storage, timing: Timing = TIMING) -> Awaitable[Server]:
        """Starts an API server that knows elections and heartbeats only. `timing` is that of elections."""
        ...


Vote = Callable[..., Voter]
"""Starts a candidate: its name, and the servers that it may go to."""


@asynccontextmanager
async def serving() -> AsyncIterator[ServeOn]:
    """The servers end with it."""
    servers: list[Server] = []

    async def start(storage: Storage, timing: Timing = TIMING) -> Server:
        servers.append(await Server(storage, elections=timing).start())
        return servers[-1]

    yield start
    for server in servers:
        await server.kill()


@asynccontextmanager
async def voting() -> AsyncIterator[Vote]:
    """The candidates end with it."""
    voters: list[Voter] = []

    def start(holder: str, *servers: Server) -> Voter:
        voters.append(Voter(holder, *servers))
        return voters[-1]

    yield start
    for voter in voters:
        await voter.stop()


async def record_until(storage: Storage, condition: Callable[[KeyValue | None], bool]) -> KeyValue | None:
    """The election's key, once it is as wanted; follows the storage itself."""
    revision = await storage.current_revision()
    if condition(record := await storage.get(KEY)):
        return record
    async with asyncio.timeout(PATIENCE):
        async for changes in storage.watch(revision + 1):
            if any(change.key == KEY for change in changes.changes) and condition(record := await storage.get(KEY)):
                return record
    raise AssertionError("the watch ended")


async def history_until(server: Server, condition: Callable[[Sequence[Term]], bool]) -> Sequence[Term]:
    """The election's terms, once they are as wanted: they are written down after the fact."""
    connection = connect(server.address)
    try:
        async with asyncio.timeout(PATIENCE):
            async for _ in server.storage.watch(await server.storage.current_revision() + 1):
                if condition(terms := await ElectionClient(connection).history(ELECTION)):
                    return terms
    finally:
        await connection.close()
    raise AssertionError("the watch ended")
