"""Which terms end when the store was restored: those that it had then, and no others, whoever notices it when."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from copy import deepcopy
from random import Random

import pytest

from apiserver.assembly import Assembly
from apiserver.storage.committer import TransactionPipeline, marker_keys
from apiserver.storage.interface import Committed, CompareFailed, OutOfSpace, Storage, Write
from pinnace.api.elections_pb2 import Election
from pinnace.api.resources import COMMITS_PREFIX, RESTORES_KEY, election_key
from pinnace.runtime.clock import SYSTEM_CLOCK
from tests.storage.memory import MemoryStorage
from tests.unit.cacher.flaky import FlakyStorage
from tests.unit.cacher.world import eventually

PATIENCE = 10.0
KEY = election_key("scheduler")
MORE = "/registry/more"
"""Than a backup has, which was made before."""


async def elect(storage: Storage, holder: str) -> None:
    answer = await storage.transact([Write(KEY, Election(name="scheduler", holder=holder).SerializeToString(), 0)])
    assert isinstance(answer, Committed)


async def leader(storage: Storage) -> str:
    record = await storage.get(KEY)
    return Election.FromString(record.value).holder if record else ""


async def ids(storage: Storage) -> int:
    note = await storage.get(RESTORES_KEY)
    return len(note.value.splitlines()) if note else 0


def copy_of(storage: MemoryStorage) -> MemoryStorage:
    """A backup."""
    copy = MemoryStorage()
    vars(copy).update({name: deepcopy(vars(storage)[name]) for name in ("_store", "_told")})
    return copy


class Server:
    def __init__(self, store: MemoryStorage) -> None:
        self.storage = FlakyStorage()
        """Its own way to the store that all have."""
        self.storage.restore(store)
        self.assembly = Assembly(self.storage)

    @property
    def ready(self) -> bool:
        return self.assembly.opening.readiness() is None

    async def told_of(self, key: str) -> None:
        await eventually(lambda: self.assembly.cacher.raw(key) is not None)

    async def cut_off(self) -> None:
        self.storage.leave()
        await eventually(lambda: not self.ready)

    async def come_back(self) -> None:
        self.storage.come_back()
        await eventually(lambda: self.ready)


def restore(servers: Sequence[Server], backup: MemoryStorage) -> MemoryStorage:
    """The store that all have from now on."""
    store = copy_of(backup)
    for server in servers:
        server.storage.restore(store)
    return store


@asynccontextmanager
async def two(store: MemoryStorage) -> AsyncIterator[tuple[Server, Server]]:
    """API servers, ready."""
    servers = Server(store), Server(store)
    running = [asyncio.ensure_future(server.assembly.run()) for server in servers]
    try:
        async with asyncio.timeout(PATIENCE):
            for server in servers:
                await server.assembly.opening.bootstrapped.wait()
        await eventually(lambda: all(server.ready for server in servers))
        yield servers
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


@pytest.fixture
async def backup() -> MemoryStorage:
    """With a leader."""
    storage = MemoryStorage()
    await elect(storage, "of the backup")
    return storage


async def test_leader_from_the_backup_is_deposed(backup: MemoryStorage) -> None:
    """He knows what has not happened, and his token, which the backup has, would let him act on that."""
    async with two(MemoryStorage()) as servers:
        for server in servers:
            await server.cut_off()
        store = restore(servers, backup)
        for server in servers:
            server.storage.come_back()
        await eventually(lambda: all(server.ready for server in servers))
        assert await leader(store) == ""
        assert await ids(store) == 1, "one of them has noted it"


async def test_a_server_that_notices_late_leaves_alone_who_was_elected_since(backup: MemoryStorage) -> None:
    """Every server ended all terms that it found, when it noticed: one that was cut off, those of hours later."""
    async with two(MemoryStorage()) as (first, late):
        await first.cut_off()
        await late.cut_off()
        store = restore((first, late), backup)
        await first.come_back()
        assert await leader(store) == ""
        await elect(store, "new")
        await late.come_back()
        assert late.assembly.cacher.restored and await leader(store) == "new"


async def test_a_second_restore_of_the_same_backup_ends_terms_again(backup: MemoryStorage) -> None:
    async with two(MemoryStorage()) as (first, away):
        await away.cut_off()
        for _ in range(2):
            await first.cut_off()
            store = restore((first, away), backup)
            assert await leader(store) == "of the backup"
            await first.come_back()
            assert await leader(store) == ""
        await elect(store, "new")
        await away.come_back()
        assert await leader(store) == "new", "nor does one end it that was away for both"


async def test_what_a_backup_has_of_an_earlier_restore_is_not_of_this_one(backup: MemoryStorage) -> None:
    """Its revision is below that of a term that was won after it, and before the backup was made."""
    async with two(MemoryStorage()) as (first, late):
        await first.cut_off()
        await late.cut_off()
        store = restore((first, late), backup)
        await first.come_back()
        await late.come_back()
        await elect(store, "between")
        second = copy_of(store)
        await store.transact([Write(MORE, b"", 0)])
        await late.told_of(MORE)
        await first.cut_off()
        await late.cut_off()
        store = restore((first, late), second)
        assert await ids(store) == 1 and await leader(store) == "between"
        await late.come_back()
        assert await ids(store) == 2 and await leader(store) == ""
        await elect(store, "new")
        await first.come_back()
        assert await ids(store) == 2 and await leader(store) == "new"


async def with_revisions_that_nobody_had(backup: MemoryStorage, above: int) -> MemoryStorage:
    """etcdutl snapshot restore --bump-revision --mark-compacted."""
    bumped, at = copy_of(backup), 0
    while await bumped.current_revision() < above:
        answer = await bumped.transact([Write("/bump", b"", at)])
        assert isinstance(answer, Committed)
        at = answer.revision
    await bumped.compact(at)
    return bumped


@pytest.mark.parametrize("begun", ["before", "after"])
async def test_a_restore_is_noticed_by_servers_whose_last_revision_is_compacted(begun: str) -> None:
    """They loaded anew, as after a pause, and let the leaders of the backup go on. `begun`: the chain of what was written after
    the backup was, or not, so that the backup has its marker at another place, or not at all."""
    store = MemoryStorage()
    lane = TransactionPipeline(store, marker_keys(Random(1)), SYSTEM_CLOCK, Random(1))
    async with two(store) as (first, late):
        await elect(store, "of the backup")
        if begun == "before":
            await lane.open()
        backup = copy_of(store)
        await lane.send([Write(MORE, b"", 0)])
        await first.told_of(MORE)
        await late.told_of(MORE)
        await first.cut_off()
        await late.cut_off()
        store = restore((first, late), await with_revisions_that_nobody_had(backup, first.assembly.cacher.revision + 2000))
        assert await leader(store) == "of the backup"
        await first.come_back()
        assert first.assembly.cacher.restored and await leader(store) == ""
        await elect(store, "new")
        await late.come_back()
        assert late.assembly.cacher.restored and await leader(store) == "new"


async def test_new_server_detects_a_restore_by_the_note_without_markers() -> None:
    store = MemoryStorage()
    lane = TransactionPipeline(store, marker_keys(Random(1)), SYSTEM_CLOCK, Random(1))
    async with two(store) as (first, late):
        await elect(store, "of the backup")
        backup = copy_of(store)
        await lane.send([Write(MORE, b"", 0)])
        await first.told_of(MORE)
        await first.cut_off()
        await late.cut_off()
        store = restore((first, late), await with_revisions_that_nobody_had(backup, first.assembly.cacher.revision + 2000))
        await first.come_back()
        await elect(store, "new")
        for marker in (await store.page(COMMITS_PREFIX)).items:
            await store.transact([Write(marker.key, None, marker.mod_revision)])
        await store.compact(await store.current_revision())
        late.storage.restore(store)  # which it is still
        await late.come_back()
        assert late.assembly.cacher.restored and await leader(store) == "new"


async def test_a_pause_is_not_taken_for_a_restore() -> None:
    store = MemoryStorage()
    async with two(store) as (_, away):
        await away.cut_off()
        await elect(store, "a")
        await store.transact([Write(MORE, b"", 0)])
        await store.compact(await store.current_revision())
        away.storage.restore(store)  # which it is still
        await away.come_back()
        assert away.assembly.cacher.loads == 2 and not away.assembly.cacher.restored
        assert await leader(store) == "a" and not await ids(store)


async def test_terms_end_where_there_is_no_space_to_note_it(monkeypatch: pytest.MonkeyPatch) -> None:
    transact = MemoryStorage.transact

    async def full(self: MemoryStorage, writes: Sequence[Write]) -> Committed | CompareFailed:
        if any(write.value is not None for write in writes):
            raise OutOfSpace("full")
        return await transact(self, writes)

    store = MemoryStorage()
    async with two(store) as (first, other):
        await elect(store, "of the backup")
        backup = copy_of(store)
        await store.transact([Write(MORE, b"", 0)])
        await first.told_of(MORE)
        await first.cut_off()
        await other.cut_off()
        store = restore((first, other), backup)
        monkeypatch.setattr(MemoryStorage, "transact", full)
        await first.come_back()
        assert await leader(store) == "" and not await ids(store)
