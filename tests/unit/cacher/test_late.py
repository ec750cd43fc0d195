"""What is much and not urgent is loaded late: a server that starts serves all else at once, and misses nothing of it either."""

import asyncio

import pytest

from pinnace.api.core_v1_pb2 import Event
from pinnace.api.resources import EVENTS, NODES, PODS
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.cacher.reflector import skip_prefixes
from pinnace.apiserver.cacher.store import END, CacheBehind, SelectionPredicate
from pinnace.apiserver.storage.interface import Committed, KeyPage, KeyValue, Write
from tests.builders import make_node
from tests.storage.memory import MemoryStorage
from tests.unit.cacher.world import eventually, running

ALL_EVENTS = SelectionPredicate.parse(EVENTS, "", "", "")


class Slow(MemoryStorage):
    """Reads of events wait until they are let."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.let = asyncio.Event(), asyncio.Event()

    async def page(self, prefix: str, *, after: str = "", limit: int = 500, revision: int = 0) -> KeyPage:
        if prefix == EVENTS.prefix:
            self.asked.set()
            await self.let.wait()
        return await super().page(prefix, after=after, limit=limit, revision=revision)


async def write(storage: MemoryStorage, key: str, value: bytes | None) -> int:
    state = await storage.get(key)
    outcome = await storage.transact([Write(key, value, state.mod_revision if state else 0)])
    assert isinstance(outcome, Committed)
    return outcome.revision


async def tell(storage: MemoryStorage, name: str, message: str | None) -> int:
    event = Event(message=message or "")
    event.metadata.name, event.metadata.namespace = name, "default"
    return await write(storage, EVENTS.key_of(event), None if message is None else event.SerializeToString())


def messages(cacher: Cacher) -> dict[str, str]:
    return {entry.obj.metadata.name: entry.obj.message for entry in cacher.cache_of(EVENTS).select(ALL_EVENTS)}


@pytest.fixture
async def storage() -> Slow:
    slow = Slow()
    for number in range(600):
        await tell(slow, f"e{number:03d}", "old")
    await write(slow, NODES.key("", "n1"), make_node("n1").build().SerializeToString())
    return slow


@pytest.mark.parametrize("compacted", [False, True])
async def test_all_else_is_there_before_the_events_are(storage: Slow, *, compacted: bool) -> None:
    async with running(Cacher(storage)) as cacher:
        await asyncio.wait_for(storage.asked.wait(), 5)
        since = cacher.revision
        assert cacher.cache_of(NODES).get(NODES.key("", "n1")) is not None and cacher.cache_of(PODS).loaded
        assert not cacher.cache_of(EVENTS).loaded and not cacher.ready
        with pytest.raises(CacheBehind, match="not loaded"):
            cacher.cache_of(EVENTS).watch(ALL_EVENTS, None)
        await tell(storage, "e000", None)
        await tell(storage, "e001", "new")
        last = await tell(storage, "late", "new")
        await cacher.wait_for(last, 5)
        if compacted:
            await storage.compact(last)
        storage.let.set()
        await eventually(lambda: cacher.ready)
        result = messages(cacher)
        assert len(result) == 600 and "e000" not in result and (result["e001"], result["late"]) == ("new", "new")
        if not compacted:
            told = cacher.cache_of(EVENTS).watch(ALL_EVENTS, since)
            assert await asyncio.wait_for(told.__anext__(), 5), "what came meanwhile can be watched"
        revision = await tell(storage, "e002", "newer")
        await cacher.wait_for(revision, 5)
        assert messages(cacher)["e002"] == "newer"


def test_page_is_cut_where_something_is_skipped() -> None:
    def page(*keys: str, more: bool) -> KeyPage:
        return KeyPage(7, [KeyValue(key, b"", 1, 1, 1) for key in keys], more)

    result, after, more = skip_prefixes(page("/r/a", "/r/e/1", "/r/e/2", more=False), ["/r/e/"])
    assert ([item.key for item in result], after, more) == (["/r/a"], "/r/e/" + END, True), "there may be more behind it"
    result, after, more = skip_prefixes(page("/r/a", "/r/f", more=False), ["/r/e/"])
    assert ([item.key for item in result], after, more) == (["/r/a", "/r/f"], "/r/f", False)
    assert skip_prefixes(page(more=False), ["/r/e/"]) == ([], "", False)
