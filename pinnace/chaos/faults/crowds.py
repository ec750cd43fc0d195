"""Clients that behave badly: they do not read what they asked for, or all come at once; and one who has the leader replaced."""

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

from pinnace.chaos.world import NotPossible, World
from pinnace.client.client import Client
from pinnace.client.connection import Connection
from pinnace.client.errors import ApiError
from pinnace.cluster.spec import ELECTION

STUCK = 5
CROWD = 40
ROUNDS = 3


class StuckWatchers:
    """Watchers of all pods that read the beginning and then nothing any more, each on a connection of its own."""

    def __init__(self, world: World, target: str, rng: random.Random) -> None:
        self._endpoint, self._tls = world.cluster.state.find(target).plan.address, world.cluster.tls
        self._connections: list[Connection] = []
        self._watches: list[AsyncGenerator[Any, None]] = []
        self.details = f"{STUCK} of them"

    async def begin(self) -> None:
        for _ in range(STUCK):
            connection = Connection([self._endpoint], tls=self._tls)
            self._connections.append(connection)
            watch = Client(connection).pods.watch()
            self._watches.append(watch)
            with suppress(ApiError):
                await anext(watch)

    async def end(self) -> None:
        for watch in self._watches:
            await watch.aclose()
        for connection in self._connections:
            await connection.close()
        self._watches, self._connections = [], []


class Handover:
    """Somebody asks that another scheduler lead: the present leader is let go."""

    def __init__(self, world: World, target: str, rng: random.Random) -> None:
        self._client = world.client
        self.details = ""

    async def begin(self) -> None:
        try:
            found = await self._client.elections.transfer(ELECTION)
        except ApiError as error:
            raise NotPossible(str(error)) from error
        self.details = f"from {found.before.holder} to {found.after.holder or 'nobody yet'}"

    async def end(self) -> None:
        """Nothing to undo."""


class Storm:
    """Clients that all connect, list, begin to watch, and go, again and again."""

    def __init__(self, world: World, target: str, rng: random.Random) -> None:
        self._endpoint, self._tls = world.cluster.state.find(target).plan.address, world.cluster.tls
        self._crowd: asyncio.Task[Any] | None = None
        self.details = f"{CROWD} clients, {ROUNDS} times"

    async def begin(self) -> None:
        self._crowd = asyncio.create_task(self._come())
        await asyncio.wait((self._crowd,))

    async def end(self) -> None:
        if self._crowd and not self._crowd.done():
            self._crowd.cancel()
            await asyncio.wait((self._crowd,))

    async def _come(self) -> None:
        for _ in range(ROUNDS):
            await asyncio.gather(*(self._visit() for _ in range(CROWD)))

    async def _visit(self) -> None:
        connection = Connection([self._endpoint], tls=self._tls)
        client = Client(connection)
        try:
            listing = await client.pods.list(page_size=100)
            watch = client.pods.watch(resource_version=listing.resource_version)
            try:
                await anext(watch)
            finally:
                await watch.aclose()
        except ApiError:
            pass  # being refused is what may happen to a crowd
        finally:
            await connection.close()
