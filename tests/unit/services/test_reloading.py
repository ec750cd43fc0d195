"""Reads of what is loaded late, when it is loaded again while they wait."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import Event
from pinnace.api.events_pb2 import CreateEventRequest
from pinnace.api.resources import EVENTS
from pinnace.api.status import Code
from pinnace.api.verbs_pb2 import ListRequest
from pinnace.apiserver.assembly import Assembly
from pinnace.apiserver.errors import Rejected
from tests.storage.memory import MemoryStorage
from tests.unit.auth.matrix import PEOPLE, Caller

PATIENCE = 10.0
ADMIN = Caller(PEOPLE["admin"])


class Held(MemoryStorage):
    """Tells its revision only when it is let, and says when it was asked for it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.let = asyncio.Event(), asyncio.Event()
        self.let.set()

    async def current_revision(self) -> int:
        self.asked.set()
        await self.let.wait()
        return await super().current_revision()


@pytest.fixture
async def server() -> AsyncIterator[tuple[Assembly, Held]]:
    """An API server without a transport, that knows one event."""
    storage = Held()
    assembly = Assembly(storage)
    running = asyncio.ensure_future(assembly.run())
    async with asyncio.timeout(PATIENCE):
        await assembly.opening.bootstrapped.wait()
        event = Event(reason="Tested", involvedObject={"kind": "Pod", "name": "p", "namespace": "default"})
        event.metadata.name, event.metadata.namespace = "e", "default"
        await assembly.methods["/pinnace.v1.Events/Create"].call(CreateEventRequest(object=event), ADMIN)
    yield assembly, storage
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("Events/Get", {"namespace": "default", "name": "e"}),
        ("Events/List", {"namespace": "default"}),
        ("Tables/List", {"resource": "events"}),
    ],
)
async def test_reload_does_not_delete_objects(server: tuple[Assembly, Held], path: str, fields: dict[str, Any]) -> None:
    """The feed loads everything again when its watch was compacted away: events are unknown until they have come, too."""
    assembly, storage = server
    method = assembly.methods[f"/pinnace.v1.{path}"]
    request: Any = type(method.parse(b""))(**fields)
    storage.let.clear()
    storage.asked.clear()
    reading = asyncio.ensure_future(method.call(request, ADMIN))
    async with asyncio.timeout(PATIENCE):
        await storage.asked.wait()
    page = await storage.page("/registry/", limit=10_000)
    assembly.cacher.install_state(page.revision, page.items)
    storage.let.set()
    with pytest.raises(Rejected, match="not loaded") as caught:
        await asyncio.wait_for(reading, PATIENCE)
    assert caught.value.refusal.code is Code.UNAVAILABLE, "the client asks again"

    events = [item for item in page.items if item.key.startswith(EVENTS.prefix)]
    await assembly.cacher.install_late_prefix(EVENTS.prefix, page.revision, events)
    assert b"Tested" in await method.call(request, ADMIN)


async def test_other_tasks_run_while_many_events_are_loaded(server: tuple[Assembly, Held]) -> None:
    """An API server that starts with 100,000 events would otherwise send no heartbeat for seconds."""
    assembly, storage = server
    page = await storage.page("/registry/", limit=10_000)
    (event,) = (item for item in page.items if item.key.startswith(EVENTS.prefix))
    assembly.cacher.install_state(page.revision, page.items)
    loading = asyncio.ensure_future(
        assembly.cacher.install_late_prefix(
            EVENTS.prefix, page.revision, [event._replace(key=f"{event.key}{n}") for n in range(20_000)]
        )
    )
    turns = 0
    while not loading.done():
        turns += 1
        await asyncio.sleep(0)
    await loading
    assert turns > 20
    response = await assembly.methods["/pinnace.v1.Events/List"].call(ListRequest(namespace="default"), ADMIN)
    assert response.count(b"Tested") == 20_000
