"""Terms after a restore: servers end exactly the terms of the backup, independent of when they notice the restore."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from copy import deepcopy
from random import Random

import pytest

from pinnace.api.elections_pb2 import Election
from pinnace.api.resources import COMMITS_PREFIX, RESTORES_KEY, election_key
from pinnace.apiserver.assembly import Assembly
from pinnace.apiserver.storage.committer import TransactionPipeline, marker_keys
from pinnace.apiserver.storage.interface import Committed, CompareFailed, OutOfSpace, Storage, Write
from pinnace.runtime.clock import SYSTEM_CLOCK
from tests.storage.memory import MemoryStorage
from tests.unit.cacher.flaky import FlakyStorage
from tests.unit.cacher.world import eventually

PATIENCE = 10.0
KEY = election_key("scheduler")
MORE = "/registry/more"
"""A key that is written after the backup."""


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
    """A backup of the store."""
    copy = MemoryStorage()
    vars(copy).update({name: deepcopy(vars(storage)[name]) for name in ("_store", "_told")})
    return copy


class Server:
    def __init__(self, store: MemoryStorage) -> None:
        self.storage = FlakyStorage()
        """This server's connection to the common store."""
        self.storage.restore(store)
        self.assembly = Assembly(self.storage)

    @property
    def ready(self) -> bool:
        return self.assembly.opening.readiness() is None

    async def told_of(self, key: str) -> None:
        await eventually(lambda: self.assembly.cacher.raw_key(key) is not None)

    async def cut_off(self) -> None:
        self.storage.leave()
        await eventually(lambda: not self.ready)

    async def come_back(self) -> None:
        self.storage.come_back()
        await eventually(lambda: self.ready)


def restore(servers: Sequence[Server], backup: MemoryStorage) -> MemoryStorage:
    """The restored store, which all servers use from now on."""
    store = copy_of(backup)
    for server in servers:
        server.storage.restore(store)
    return store


@asynccontextmanager
async def two(store: MemoryStorage) -> AsyncIterator[tuple[Server, Server]]:
    """Two API servers that are ready."""
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
    """A backup with a leader."""
    storage = MemoryStorage()
    await elect(storage, "of the backup")
    return storage


async def test_leader_from_the_backup_is_deposed(backup: MemoryStorage) -> None:
    """It knows of writes that the backup lacks, and its token is still valid in the backup."""
    async with two(MemoryStorage()) as servers:
        for server in servers:
            await server.cut_off()
        store = restore(servers, backup)
        for server in servers:
            server.storage.come_back()
        await eventually(lambda: all(server.ready for server in servers))
        assert await leader(store) == ""
        assert await ids(store) == 1, "exactly one server records the restore"


async def test_late_detection_keeps_the_new_leader(backup: MemoryStorage) -> None:
    """Each server used to end all current terms on detection. A partitioned server thus ended terms that began hours later."""
    async with two(MemoryStorage()) as (first, late):
        await first.cut_off()
        await late.cut_off()
        store = restore((first, late), backup)
        await first.come_back()
        assert await leader(store) == ""
        await elect(store, "new")
        await late.come_back()
        assert late.assembly.cacher.restored and await leader(store) == "new"


async def test_second_restore_of_a_backup_ends_its_terms_again(backup: MemoryStorage) -> None:
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
        assert await leader(store) == "new", "a server that missed both restores keeps the new leader"


async def test_restore_of_a_backup_with_an_earlier_restore_ends_its_terms(backup: MemoryStorage) -> None:
    """The recorded revision of the earlier restore is below the term that the backup contains."""
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


async def with_bumped_revision(backup: MemoryStorage, above: int) -> MemoryStorage:
    """As `etcdutl snapshot restore --bump-revision --mark-compacted`."""
    bumped, at = copy_of(backup), 0
    while await bumped.current_revision() < above:
        answer = await bumped.transact([Write("/bump", b"", at)])
        assert isinstance(answer, Committed)
        at = answer.revision
    await bumped.compact(at)
    return bumped


@pytest.mark.parametrize("begun", ["before", "after"])
async def test_restore_is_detected_when_the_last_revision_is_compacted(begun: str) -> None:
    """Servers took the compaction for a long pause and kept the leaders of the backup.

    `begun`: whether the pipeline was opened before or after the backup; then the backup has an older commit marker or none.
    """
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
        store = restore((first, late), await with_bumped_revision(backup, first.assembly.cacher.revision + 2000))
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
        store = restore((first, late), await with_bumped_revision(backup, first.assembly.cacher.revision + 2000))
        await first.come_back()
        await elect(store, "new")
        for marker in (await store.page(COMMITS_PREFIX)).items:
            await store.transact([Write(marker.key, None, marker.mod_revision)])
        await store.compact(await store.current_revision())
        late.storage.restore(store)  # the same store
        await late.come_back()
        assert late.assembly.cacher.restored and await leader(store) == "new"


async def test_pause_with_compaction_is_not_a_restore() -> None:
    store = MemoryStorage()
    async with two(store) as (_, away):
        await away.cut_off()
        await elect(store, "a")
        await store.transact([Write(MORE, b"", 0)])
        await store.compact(await store.current_revision())
        away.storage.restore(store)  # the same store
        await away.come_back()
        assert away.assembly.cacher.loads == 2 and not away.assembly.cacher.restored
        assert await leader(store) == "a" and not await ids(store)


async def test_restore_ends_terms_without_space_for_its_record(monkeypatch: pytest.MonkeyPatch) -> None:
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
