"""How a watch begins, and how it goes on with another server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.meta_v1_pb2 import ListOptions
from pinnace.api.pods_pb2 import CreatePodRequest, PodWatchResponse
from pinnace.api.resources import PODS
from pinnace.api.status import Code
from pinnace.api.verbs_pb2 import ADDED, Known, ListRequest, WatchRequest
from pinnace.apiserver.assembly import Assembly
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.flow import control, send_budget
from pinnace.apiserver.flow.levels import WORKLOAD
from tests.builders import make_pod
from tests.storage.memory import MemoryStorage
from tests.unit.auth.matrix import OTHER, OWN, PEOPLE, Caller, serving

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
                await assembly.opening.bootstrapped.wait()
        yield assemblies
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def bookmarks(assembly: Assembly) -> None:
    while True:
        await asyncio.sleep(0.01)
        assembly.cacher.cache_of(PODS).send_bookmarks()


async def create(server: Assembly, name: str, namespace: str = "default", **annotations: str) -> int:
    """The revision."""
    request = CreatePodRequest(object=make_pod(name, namespace=namespace).req(cpu="1").new())
    request.object.metadata.annotations.update(annotations)
    answer = await server.methods["/pinnace.v1.Pods/Create"].call(request, ADMIN)
    return int(Pod.FromString(answer).metadata.resourceVersion)


class Reader:
    """What a watch of pods has told."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.revision = 0
        """To resume from; 0: before the end of the initial state."""
        self.known = Known()
        """The same, with its history."""
        self.bookmarks = 0

    async def read(
        self, server: Assembly, *, names: int = 0, bookmarks: int = 0, known: Known | None = None, **options: Any
    ) -> None:
        """Until it has told so many, and is at a revision to resume from."""
        request = WatchRequest(options=ListOptions(**options), known=known)
        async with (
            asyncio.timeout(PATIENCE),
            aclosing(server.methods["/pinnace.v1.Pods/Watch"].stream(request, ADMIN)) as responses,
        ):
            async for item in responses:
                response = PodWatchResponse.FromString(item)
                assert all(event.type == ADDED for event in response.events)
                self.names += [event.object.metadata.name for event in response.events]
                self.revision = int(response.resourceVersion or 0)
                self.known = Known(resourceVersion=response.resourceVersion, history=response.history)
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
async def test_watch_with_contradictory_options_is_refused(options: dict[str, Any]) -> None:
    async with servers(1) as (server,):
        with pytest.raises(Rejected, match="NotOlderThan with sendInitialEvents"):
            await Reader().read(server, **options)


async def test_bookmark_is_a_place_to_go_on_from_with_any_server() -> None:
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


async def test_history_of_known_objects_is_the_same_on_every_server() -> None:
    async with servers(2) as (one, other):
        await create(one, "a")
        reader = Reader()
        await reader.read(one, names=1)
        known = reader.known
        assert known.history
        await create(one, "b")
        await reader.read(other, names=2, known=known, resourceVersion=known.resourceVersion)
        await reader.read(other, names=4, known=known)
        assert reader.names == ["a", "b", "a", "b"]


@pytest.mark.parametrize("begin", [{}, {"resourceVersion": "known"}])
@pytest.mark.parametrize("ahead", [0, 1000])
async def test_watch_of_another_history_expires(begin: dict[str, Any], ahead: int) -> None:
    """Neither with changes nor with the present state, whether the store has passed the revision or not."""
    async with servers(1) as (server,), servers(1) as (restored,):
        await create(server, "a")
        await create(restored, "a")
        reader = Reader()
        await reader.read(server, names=1)
        known = Known(resourceVersion=str(reader.revision + ahead), history=reader.known.history)
        if not ahead:
            await create(restored, "b")
        options = dict.fromkeys(begin, known.resourceVersion)
        with pytest.raises(Rejected, match="list again") as rejected:
            await reader.read(restored, bookmarks=1, known=known, **options)
        refusal = rejected.value.refusal
        assert (refusal.code, refusal.reason) == (Code.FAILED_PRECONDITION, "HistoryChanged")


async def test_unread_watches_use_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """And is told where to go on, with all that happened since."""
    for bound in ("MAX_UNSENT_BYTES", "MAX_WAITING", "MINIMUM"):
        monkeypatch.setattr(send_budget, bound, 1 << 19)
    async with servers(1) as (server,), AsyncExitStack() as stack:
        begin = await create(server, "first")
        charged = vars(server)["_flow"].levels[WORKLOAD].flow(ADMIN.user.name).budget
        readings = []
        for number in range(20):
            options = ListOptions(resourceVersion=str(begin), labelSelector=f"!k{number}")
            watch = server.methods["/pinnace.v1.Pods/Watch"].stream(WatchRequest(options=options), ADMIN)
            await stack.enter_async_context(aclosing(watch))
            readings.append((watch, asyncio.ensure_future(anext(watch))))
        names = [f"p{number}" for number in range(100)]
        for name in names:
            last = await create(server, name, filling="x" * 10_000)
            assert charged.unsent_bytes + charged.waiting <= 1 << 20
        assert len(charged.watches) < 20
        watch, reading = readings[0]
        reader = Reader()
        reader.names = [event.object.metadata.name for event in PodWatchResponse.FromString(await reading).events]
        with pytest.raises(Rejected, match="watcher is too slow") as caught:
            await anext(watch)
        at = dict(caught.value.refusal.metadata)["resourceVersion"]
        await stack.aclose()
        assert charged.unsent_bytes + charged.waiting == 0
        await reader.read(server, names=100, resourceVersion=at)
        assert (reader.names, reader.revision) == (names, last)


class Unread(Caller):
    """Takes no answer."""

    def on_response_taken(self, callback: Callable[[], None]) -> None:
        return


async def test_unread_responses_do_not_block_other_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do they end a watch, or have a list refused."""
    monkeypatch.setattr(send_budget, "MAX_UNSENT_BYTES", 1 << 18)
    monkeypatch.setattr(control, "MAX_UNSENT_BYTES", 1 << 18)
    monkeypatch.setattr(send_budget, "MINIMUM", 1 << 16)
    scheduler = Caller(PEOPLE["scheduler"])
    async with serving() as server, AsyncExitStack() as stack:
        for number in range(10):
            await create(server, f"large-{number}", OWN, filling="x" * 30_000)
        options = ListOptions(sendInitialEvents=False, resourceVersionMatch="NotOlderThan")
        watch = server.methods["/pinnace.v1.Pods/Watch"].stream(WatchRequest(options=options), scheduler)
        await stack.enter_async_context(aclosing(watch))
        reading = asyncio.ensure_future(anext(watch))
        lister = server.methods["/pinnace.v1.Pods/List"]
        for person in ("editor", "viewer", "namespace admin"):
            await lister.call(ListRequest(namespace=OWN), Unread(PEOPLE[person]))
        with pytest.raises(Rejected, match="responses are unread"):
            await lister.call(ListRequest(namespace=OWN), Unread(PEOPLE["viewer"]))
        async with asyncio.timeout(PATIENCE):
            for number in range(5):
                name = f"news-{number}"
                await create(server, name, OTHER, filling="y" * 30_000)
                told = PodWatchResponse.FromString(await reading)
                assert [event.object.metadata.name for event in told.events] == [name]
                reading = asyncio.ensure_future(anext(watch))
                await lister.call(ListRequest(namespace=OTHER), scheduler)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


@pytest.mark.parametrize(("person", "bounded"), [("admin", False), ("viewer", True), ("scheduler", True)])
async def test_only_masters_have_as_many_watches_as_they_like(
    person: str, bounded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "MAX_WATCHES", 2)
    async with serving() as server, AsyncExitStack() as stack:
        for number in range(3):
            request = WatchRequest(namespace=OWN)
            watch = server.methods["/pinnace.v1.Pods/Watch"].stream(request, Caller(PEOPLE[person]))
            await stack.enter_async_context(aclosing(watch))
            if bounded and number == 2:
                with pytest.raises(Rejected, match="2 watches are open") as caught:
                    await anext(watch)
                assert caught.value.refusal.code is Code.UNAVAILABLE
            else:
                assert await anext(watch)
