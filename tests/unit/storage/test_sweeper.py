"""Markers that nobody moves are swept away; a store that is away is waited for."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pinnace.api.resources import commit_key
from pinnace.apiserver.storage.committer import SWEEP_INTERVAL, MarkerSweeper
from pinnace.apiserver.storage.interface import Page, Storage, Unavailable
from tests.clock import FakeClock
from tests.contract.steps import put, take
from tests.storage.memory import MemoryStorage

IDLE, BUSY, OTHER = commit_key("x", 1), commit_key("y", 1), "/registry/pods/default/a"


@asynccontextmanager
async def sweeping(storage: Storage) -> AsyncIterator[FakeClock]:
    clock = FakeClock()
    running = asyncio.create_task(MarkerSweeper(storage, clock).run())
    try:
        await clock.advance(0)
        yield clock
    finally:
        running.cancel()
        await asyncio.wait([running])


async def test_marker_that_has_not_moved_is_swept() -> None:
    storage = MemoryStorage()
    revisions = {key: await put(storage, key) for key in (IDLE, BUSY, OTHER)}
    async with sweeping(storage) as clock:
        moved = await put(storage, BUSY, b"next", expected=revisions[BUSY])
        assert [await storage.get(key) is None for key in revisions] == [False] * 3
        await clock.advance(SWEEP_INTERVAL)
        assert [await storage.get(key) is None for key in revisions] == [True, False, False]
        await put(storage, BUSY, b"and again", expected=moved)
        await clock.advance(SWEEP_INTERVAL)
        assert await storage.get(BUSY) is not None
        await clock.advance(SWEEP_INTERVAL)
        assert await storage.get(BUSY) is None


async def test_oldest_go_first() -> None:
    """While one stands that has not moved, a newer one that is missing was not swept: pinnace.apiserver.cacher.store."""
    storage = MemoryStorage()
    keys = [commit_key(server, 1) for server in "cab"]
    for key in keys:
        await put(storage, key)
    began = await storage.current_revision()
    async with sweeping(storage) as clock:
        await clock.advance(SWEEP_INTERVAL)
    assert [change.key for change in await take(storage.watch(began + 1), began + 3)] == keys


async def test_more_than_a_page() -> None:
    storage = MemoryStorage()
    for number in range(1100):
        await put(storage, commit_key("x", number))
    async with sweeping(storage) as clock:
        await clock.advance(SWEEP_INTERVAL)
        assert not (await storage.page(commit_key("x", 0)[:-1])).items


async def test_store_that_is_away_is_waited_for() -> None:
    class Away(MemoryStorage):
        away = False

        async def page(self, prefix: str, *, after: str = "", limit: int = 500, revision: int = 0) -> Page:
            if self.away:
                raise Unavailable("away")
            return await super().page(prefix, after=after, limit=limit, revision=revision)

    storage = Away()
    await put(storage, IDLE)
    async with sweeping(storage) as clock:
        storage.away = True
        await clock.advance(SWEEP_INTERVAL)
        storage.away = False
        assert await storage.get(IDLE) is not None
        await clock.advance(SWEEP_INTERVAL)
        assert await storage.get(IDLE) is None
