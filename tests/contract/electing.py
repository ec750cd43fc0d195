"""Helpers of the election tests."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from pinnace.api.elections_pb2 import Term
from pinnace.api.resources import election_key
from pinnace.apiserver.election.service import TIMING
from pinnace.apiserver.services.sessions import Timing
from pinnace.apiserver.storage.interface import KeyValue, Storage
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
        """Start an API server that only serves elections and heartbeats. `timing` applies to elections."""
        ...


Vote = Callable[..., Voter]
"""Starts a candidate with a name and the servers that it can use."""


@asynccontextmanager
async def serving() -> AsyncIterator[ServeOn]:
    """Stop the servers at the end."""
    servers: list[Server] = []

    async def start(storage: Storage, timing: Timing = TIMING) -> Server:
        servers.append(await Server(storage, elections=timing).start())
        return servers[-1]

    yield start
    for server in servers:
        await server.kill()


@asynccontextmanager
async def voting() -> AsyncIterator[Vote]:
    """Stop the candidates at the end."""
    voters: list[Voter] = []

    def start(holder: str, *servers: Server) -> Voter:
        voters.append(Voter(holder, *servers))
        return voters[-1]

    yield start
    for voter in voters:
        await voter.stop()


async def record_until(storage: Storage, condition: Callable[[KeyValue | None], bool]) -> KeyValue | None:
    """Return the election's key once it meets the condition. Watch the storage directly."""
    revision = await storage.current_revision()
    if condition(record := await storage.get(KEY)):
        return record
    async with asyncio.timeout(PATIENCE):
        async for changes in storage.watch(revision + 1):
            if any(change.key == KEY for change in changes.changes) and condition(record := await storage.get(KEY)):
                return record
    raise AssertionError("the watch ended")


async def history_until(server: Server, condition: Callable[[Sequence[Term]], bool]) -> Sequence[Term]:
    """Return the election's terms once they meet the condition. Servers write terms with a delay."""
    connection = connect(server.address)
    try:
        async with asyncio.timeout(PATIENCE):
            async for _ in server.storage.watch(await server.storage.current_revision() + 1):
                if condition(terms := await ElectionClient(connection).list_terms(ELECTION)):
                    return terms
    finally:
        await connection.close()
    raise AssertionError("the watch ended")
