"""Clients that behave badly: they do not read what they asked for, come all at once, or flood a server without any right; and
one that has the leader replaced."""

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from typing import Any

from grpc.aio import AioRpcError

from pinnace.bench.errors import BenchError
from pinnace.bench.flood import PROCESSES, Made, flooded
from pinnace.bench.unprivileged import NOBODY, STRANGER, registered
from pinnace.chaos.faults.base import Measuring
from pinnace.chaos.world import NotPossible, World
from pinnace.client.client import Client
from pinnace.client.connection import Connection
from pinnace.client.errors import ApiError
from pinnace.cluster import certificates
from pinnace.cluster.spec import ELECTION, Plan, pki_folder
from pinnace.pki import Subject
from pinnace.pki.folder import Folder, Wanted
from pinnace.runtime.tls import TlsFiles

STUCK = 5
CROWD = 40
ROUNDS = 3
TOKEN_LISTEN = "--token-listen"
FLOOD_CALLS = 2_000
"""That are open at once."""
FLOOD_LIMIT = 120.0
"""Seconds after which a flood ends by itself, if whoever began it has died."""
FLOOD_NICE = 5
"""The flood stands for another machine: its own processes must not take the processors of the cluster."""


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


class Flood(Measuring):
    """A caller without rights keeps calls open, of all methods of all services that the server names, and begins a new one as
    soon as one ends: a stranger with a certificate and no role, or a caller without a token at the port for tokens. Others are
    answered, pods are bound, and leadership stays where it is."""

    def __init__(self, world: World, target: str, rng: random.Random, who: str = "") -> None:
        """`who`: "": one of them, by chance."""
        super().__init__()
        self._world = world
        self._target = target
        self._who = who or rng.choice((NOBODY, STRANGER))
        self._stack = AsyncExitStack()
        self._made: Made | None = None
        self.details = ""

    async def begin(self) -> None:
        cluster = self._world.cluster
        plan = cluster.state.find(self._target).plan
        try:
            found = await registered(plan.address, cluster.tls)
        except (BenchError, AioRpcError) as error:
            raise NotPossible(str(error)) from error
        methods = [method for of_service in found.values() for method in of_service]
        named = [argument for method in methods for argument in ("--method", method)]
        calls = ("--calls", f"{FLOOD_CALLS // PROCESSES}")
        address, tls = self._shown(plan)
        self._made = await self._stack.enter_async_context(
            flooded(address, tls, lambda number: [*named, *calls], FLOOD_LIMIT, nice=FLOOD_NICE)
        )
        self.details = f"{self._target}, as {self._who}, {FLOOD_CALLS:,} calls of {len(methods)} methods"

    async def end(self) -> None:
        made, self._made = self._made, None
        await self._stack.aclose()
        if made is not None:
            ended = made.outcomes.total() - made.outcomes["wanted"]
            self.read(self._target, "calls of the flood that were refused or answered", ended, least=FLOOD_CALLS / 4)

    def _shown(self, plan: Plan) -> tuple[str, TlsFiles]:
        """The address that is flooded, and what is shown there."""
        folder = pki_folder(self._world.cluster.spec.data_dir)
        if self._who == NOBODY:
            return plan.argv[plan.argv.index(TOKEN_LISTEN) + 1], TlsFiles(folder / "ca.crt")
        Folder(folder).provide([Wanted(STRANGER, Subject(STRANGER))], datetime.now(UTC))
        return plan.address, certificates.files(folder, STRANGER)
