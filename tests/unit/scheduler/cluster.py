"""An API server in this process, on a storage in memory, and whole schedulers before it."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.resources import election_key
from pinnace.api.scheduling_v1_pb2 import PriorityClass
from pinnace.apiserver.server import ApiServer
from pinnace.apiserver.storage.interface import Write
from pinnace.client.client import Client
from pinnace.client.connection import Connection
from pinnace.client.errors import NotFound
from pinnace.scheduler.config import Configuration
from pinnace.scheduler.scheduler import Scheduler
from tests.builders import NodeBuilder, PodBuilder, make_node
from tests.storage.memory import MemoryStorage
from tests.unit.cacher.world import eventually

PATIENCE = 10.0
TICK = 0.05
QUICK = Configuration(initial_backoff=0.05, max_backoff=0.1)


class Cluster:
    """An API server, and schedulers that are started, stopped and killed."""

    def __init__(self) -> None:
        self.storage = MemoryStorage()
        self.server = ApiServer(self.storage)
        self.address = ""
        self._changed = asyncio.Event()
        self._connections: list[Connection] = []
        self._running: dict[Scheduler, asyncio.Task[None]] = {}

    async def start(self) -> None:
        self.address = await self.server.start("127.0.0.1:0")
        self.client = self.connect()
        self.server.cacher.subscribe("/registry/", lambda change: self._changed.set())
        await eventually(lambda: self.server.readiness() is None)

    def connect(self) -> Client:
        self._connections.append(Connection([self.address]))
        return Client(self._connections[-1])

    def schedule(self, name: str, client: Client | None = None, configuration: Configuration | None = None) -> Scheduler:
        scheduler = Scheduler(client or self.connect(), name, configuration or QUICK)
        self._running[scheduler] = asyncio.ensure_future(scheduler.run())
        return scheduler

    async def kill(self, scheduler: Scheduler) -> None:
        running = self._running.pop(scheduler)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    async def close(self) -> None:
        for scheduler in list(self._running):
            await self.kill(scheduler)
        for connection in self._connections:
            await connection.close()
        await self.server.stop()

    async def depose(self) -> None:
        """Ends the present term, as the API server does with a leader that has fallen silent."""
        current = await self.storage.get(election_key("scheduler"))
        assert current is not None
        await self.storage.transact([Write(current.key, None, current.mod_revision)])

    async def create(self, *objects: NodeBuilder | PodBuilder) -> None:
        """Nodes are Ready."""
        for obj in objects:
            if isinstance(obj, PodBuilder):
                await self.client.pods.create(obj.new())
            else:
                await self.client.nodes.create(obj.condition("Ready", "True").new())

    async def create_class(self, name: str, **fields: Any) -> None:
        """Of priority 10."""
        await self.client.priority_classes.create(PriorityClass(metadata=ObjectMeta(name=name), value=10, **fields))

    async def leader(self) -> str:
        try:
            return (await self.client.elections.get("scheduler")).holder
        except NotFound:
            return ""

    async def pod(self, name: str) -> Pod:
        return await self.client.pods.get(name, "default")

    async def events(self) -> list[str]:
        listing = await self.client.events.list("default")
        return sorted(f"{event.involvedObject.name} {event.reason}: {event.message}" for event in listing.items)

    async def until(self, wanted: Callable[[], Any]) -> Any:
        """Asks after every change of the store, and now and then, until the answer is true; that answer."""
        async with asyncio.timeout(PATIENCE):
            while not (answer := await wanted()):
                self._changed.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), TICK)
        return answer

    async def bound(self, name: str) -> str:
        """The node of a pod, once it has one."""

        async def node() -> str:
            return (await self.pod(name)).spec.nodeName

        result: str = await self.until(node)
        return result


def small(name: str) -> NodeBuilder:
    return make_node(name).capacity(cpu=1, memory="1Gi", pods=10)


async def sees(scheduler: Scheduler, pods: int) -> bool:
    return sum(scheduler.count_pending().values()) == pods
