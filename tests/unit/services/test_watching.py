"""How a watch begins, and how it goes on with another server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from apiserver.assembly import Assembly
from apiserver.registry.errors import Rejected
from apiserver.storage.memory import MemoryStorage
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.meta_v1_pb2 import ListOptions
from pinnace.api.pods_pb2 import CreatePodRequest, PodWatchResponse
from pinnace.api.resources import PODS
from pinnace.api.verbs_pb2 import ADDED, WatchRequest
from tests.builders import make_pod
from tests.unit.auth.matrix import PEOPLE, Caller

PATIENCE = 10.0
ADMIN = Caller(PEOPLE["admin"])


@asynccontextmanager
async def servers(count: int) -> AsyncIterator[list[Assembly]]:
    """API servers without a transport, over one storage, that send bookmarks all the time."""
    storage = MemoryStorage()
    assemblies = [Assembly(storage) for _ in range(count)]
    running = [asyncio.ensure_future(work) for assembly in assemblies for work in (assembly.run(), bookmarks(assembly))]
    try:
        async with asyncio.timeout(PATIENCE):
            for assembly in assemblies:
                await assembly.bootstrapped.wait()
        yield assemblies
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def bookmarks(assembly: Assembly) -> None:
    while True:
        await asyncio.sleep(0.01)
        assembly.cacher.of(PODS).bookmark()


async def create(server: Assembly, name: str) -> int:
    """The revision."""
    request = CreatePodRequest(object=make_pod(name).req(cpu="1").new())
    answer = await server.methods["/pinnace.v1.Pods/Create"].call(request, ADMIN)
    return int(Pod.FromString(answer).metadata.resourceVersion)


class Reader:
    """What a watch of pods has told."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.revision = 0
        """To resume from; 0: before the end of the initial state."""
        self.bookmarks = 0

    async def read(self, server: Assembly, *, names: int = 0, bookmarks: int = 0, **options: Any) -> None:
        """Until it has told so many, and is at a revision to resume from."""
        request = WatchRequest(options=ListOptions(**options))
        async with (
            asyncio.timeout(PATIENCE),
            aclosing(server.methods["/pinnace.v1.Pods/Watch"].stream(request, ADMIN)) as responses,
        ):
            async for each in responses:
                response = PodWatchResponse.FromString(each)
                assert all(event.type == ADDED for event in response.events)
                self.names += [event.object.metadata.name for event in response.events]
                self.revision = int(response.resourceVersion or 0)
                self.bookmarks += not response.events
                if self.revision and len(self.names) >= names and self.bookmarks >= bookmarks:
                    return


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["a", "b", "c"]),
        ({"resourceVersion": "0"}, ["a", "b", "c"]),
        ({"resourceVersion": "of a"}, ["b", "c"]),
        ({"resourceVersion": "of a", "sendInitialEvents": True, "resourceVersionMatch": "NotOlderThan"}, ["a", "b", "c"]),
        ({"resourceVersion": "of a", "sendInitialEvents": False, "resourceVersionMatch": "NotOlderThan"}, ["b", "c"]),
        ({"sendInitialEvents": True, "resourceVersionMatch": "NotOlderThan"}, ["a", "b", "c"]),
        ({"sendInitialEvents": False, "resourceVersionMatch": "NotOlderThan"}, ["c"]),
    ],
)
async def test_where_a_watch_begins(options: dict[str, Any], expected: list[str]) -> None:
    async with servers(1) as (server,):
        first = await create(server, "a")
        await create(server, "b")
        if options.get("resourceVersion") == "of a":
            options = options | {"resourceVersion": str(first)}
        reader = Reader()
        begun = asyncio.ensure_future(reader.read(server, bookmarks=0 if len(expected) > 1 else 1, **options))
        await begun
        await create(server, "c")
        await reader.read(server, names=len(expected), resourceVersion=str(reader.revision))
        assert reader.names == expected


@pytest.mark.parametrize(
    "options",
    [
        {"sendInitialEvents": True},
        {"sendInitialEvents": True, "resourceVersionMatch": "Exact"},
        {"resourceVersion": "1", "resourceVersionMatch": "NotOlderThan"},
    ],
)
async def test_what_says_nothing_clear_is_refused(options: dict[str, Any]) -> None:
    async with servers(1) as (server,):
        with pytest.raises(Rejected, match="NotOlderThan with sendInitialEvents"):
            await Reader().read(server, **options)


async def test_a_bookmark_is_a_place_to_go_on_from_with_any_server() -> None:
    async with servers(2) as (one, other):
        await create(one, "a")
        reader = Reader()
        await reader.read(one, names=1)
        await reader.read(one, bookmarks=1, resourceVersion=str(reader.revision))
        at = reader.revision
        assert await create(one, "b") > at
        await create(other, "c")
        await reader.read(other, names=3, resourceVersion=str(at))
        assert reader.names == ["a", "b", "c"]
