"""Two replicas of the controllers in one process, before a real API server: the lead moves, and the work with it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import Namespace
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.resources import NAMESPACES
from pinnace.api.wellknown import CONTROLLERS_ELECTION
from pinnace.client.client import Client
from pinnace.client.errors import Fenced
from pinnace.controllers.manager import ControllerManager
from pinnace.controllers.runtime import Controller, ControllerContext, WatchedResource, key_of_object

PATIENCE = 10.0


class Endless:
    """Never ends with a key, unless it is made to."""

    name, workers, max_backoff = "endless", 100, 1.0

    def __init__(self) -> None:
        self.at: set[str] = set()

    @property
    def watches(self) -> Sequence[WatchedResource[Any]]:
        return [WatchedResource(NAMESPACES, key_of_object)]

    async def sync(self, key: str) -> float | None:
        self.at.add(key)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.at.discard(key)
        return None


@asynccontextmanager
async def replica(client: Client, name: str) -> AsyncIterator[Endless]:
    controller = Endless()
    manager = ControllerManager(client, name, lambda shared: [controller])
    running = asyncio.ensure_future(manager.run())
    try:
        yield controller
    finally:
        await manager.stop()
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def until_at(controller: Endless, key: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while key not in controller.at:  # noqa: ASYNC110 (another process: there is no event to wait for)
            await asyncio.sleep(0.01)


async def test_work_moves_with_the_lead_and_nothing_of_it_stays(client: Client) -> None:
    async with AsyncExitStack() as stack:
        replicas = {name: await stack.enter_async_context(replica(client, name)) for name in ("a", "b")}
        async with asyncio.timeout(PATIENCE):
            while not any(item.at for item in replicas.values()):  # noqa: ASYNC110 (another process elects)
                await asyncio.sleep(0.01)
        first = next(name for name, each in replicas.items() if each.at)
        second = "b" if first == "a" else "a"
        await until_at(replicas[first], "default")
        assert not replicas[second].at

        await client.namespaces.create(Namespace(metadata=ObjectMeta(name="late")))
        moved = await client.elections.transfer_leadership(CONTROLLERS_ELECTION, second)
        assert moved.after.holder == second
        await until_at(replicas[second], "default")
        assert {"default", "late"} <= replicas[second].at  # all that was written before the election, from the beginning
        assert not replicas[first].at


async def test_controller_resumed_after_its_term_writes_nothing(client: Client) -> None:
    """In the middle of a look, before it hears that its term is over."""
    seen: list[ControllerContext] = []

    def build(shared: ControllerContext) -> Sequence[Controller]:
        seen.append(shared)
        return [Endless()]

    manager = ControllerManager(client, "a", build)
    running = asyncio.ensure_future(manager.run())
    write = seen[0].client.namespaces.create
    async with asyncio.timeout(PATIENCE):
        while [election.holder for election in await client.elections.list() if election.name == CONTROLLERS_ELECTION] != ["a"]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        while True:
            with suppress(Fenced):
                await write(Namespace(metadata=ObjectMeta(name="in-time")))
                break
            await asyncio.sleep(0.01)
    await manager.stop()
    with pytest.raises(Fenced):
        await write(Namespace(metadata=ObjectMeta(name="too-late")))
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
