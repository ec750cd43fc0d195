"""Watches that lose, repeat or reorder events, or stop."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from pinnace.api.resources import PODS
from pinnace.apiserver.cacher import reflector as feed
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.storage.etcd import EtcdStorage
from pinnace.apiserver.storage.etcd import storage as etcd_storage_module
from pinnace.apiserver.storage.etcd import storage as etcd_watch
from pinnace.apiserver.storage.etcd.members import EtcdMember
from pinnace.apiserver.storage.etcd.storage import watch_member
from pinnace.apiserver.storage.interface import ChangeBatch, Compacted, KeyPage, StorageUnavailable, Write
from tests.contract.steps import done, put
from tests.regression.fakewatch import Script, canceled, member, progress, puts, revisions
from tests.storage.memory import MemoryStorage
from tests.unit.cacher.world import CASES, Reader, World, pod, running

ALL_PODS = CASES[0].selection
DEADLINE = 5.0


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reduce intervals from seconds to milliseconds."""
    monkeypatch.setattr(etcd_watch, "PROBE_INTERVAL", 0.01)
    monkeypatch.setattr(etcd_watch, "SILENCE_LIMIT", 0.05)


async def taken(batches: AsyncGenerator[ChangeBatch], until: int) -> list[ChangeBatch]:
    """Return the batches up to that revision."""
    received: list[ChangeBatch] = []
    async with asyncio.timeout(DEADLINE), aclosing(batches):
        async for batch in batches:
            received.append(batch)
            if batch.revision >= until:
                break
    return received


async def drained(batches: AsyncGenerator[ChangeBatch]) -> list[ChangeBatch]:
    """Read the watch until it raises an error."""
    return await taken(batches, until=1 << 62)


async def test_etcd_15271_watch_drops_repeated_events() -> None:
    """An isolated etcd member received a snapshot from the leader and sent old events to its watchers again (23826, then 23143,
    ...): https://github.com/etcd-io/etcd/issues/15271

    Here: objects in the cache and in all informers would revert to old versions.
    Guard: the FragmentAssembler drops events that do not exceed the last returned revision."""
    script = Script(puts(7, 8, 9), puts(5, 6, 7), puts(8, 9, 10))
    batches = await taken(watch_member(member(script), 7), until=10)
    assert revisions(batches) == [7, 8, 9, 10]
    assert [batch.revision for batch in batches] == sorted(batch.revision for batch in batches)


class Rewinding(MemoryStorage):
    """A storage whose watch repeats all earlier batches after each new one."""

    async def watch(self, start_revision: int) -> AsyncGenerator[ChangeBatch]:
        earlier: list[ChangeBatch] = []
        async with aclosing(super().watch(start_revision)) as inner:
            async for batch in inner:
                yield batch
                if batch.changes:
                    earlier.append(batch)
                    for again in earlier:
                        yield again


async def test_etcd_15271_cache_drops_repeated_events() -> None:
    """As above, for a storage that returns repeated events. Guard: `batches` in the watch cache drops them."""
    world = World(Rewinding())
    await world.put(pod("a"))
    async with running(Cacher(world.storage)) as cacher:
        start = cacher.revision
        reader = Reader(cacher.cache_of(PODS).watch(ALL_PODS, start), start)
        await world.put(pod("a", app="web"))
        await world.delete("a")
        last = await world.put(pod("b"))
        await reader.until(last)
        assert reader.events == world.events(lambda pod: True, start, last)


async def test_etcd_17529_watch_detects_a_gap_in_the_events() -> None:
    """A slow watcher, one of hundreds on a stream, lost its position at a compaction. etcd did not cancel it and continued
    161,000 revisions later: https://github.com/etcd-io/etcd/issues/17529

    Here: the cache would miss those changes permanently and consider itself up to date.
    Guard: every revision changes some key, and the watch covers all keys, so consecutive revisions have no gap. The Assembler
    raises an error for a gap. The storage then restarts the watch, and etcd reports the compaction."""
    batches = watch_member(member(Script(puts(13_001), puts(13_002), puts(174_748))), 13_001)
    assert revisions([await anext(batches), await anext(batches)]) == [13_001, 13_002]
    with pytest.raises(StorageUnavailable, match=r"13003 to 174747"):
        await anext(batches)


async def test_etcd_17529_watch_detects_a_gap_during_replay() -> None:
    """As above, while the watch replays past revisions."""
    with pytest.raises(StorageUnavailable, match="7 to 8"):
        await drained(watch_member(member(Script(puts(6), puts(9, 10))), 7))


@pytest.mark.usefixtures("hasty")
async def test_etcd_17529_watch_detects_that_it_lags_behind_the_store() -> None:
    """As above. Before the gap, the watcher received no events for minutes, although the stream answered progress requests.

    Here: informers of that server would receive only bookmarks until a client requests a fresh read.
    Guard: the response to a progress request contains the store's revision. A watch that does not reach it in time fails."""
    script = Script(puts(6), puts(7), probed=progress(9))
    with pytest.raises(StorageUnavailable, match="store is at revision 9"):
        await drained(watch_member(member(script), 7))


@pytest.mark.usefixtures("hasty")
async def test_etcd_17529_idle_watch_stays_open() -> None:
    """The watch has reached the store's revision. A progress response may also overtake events (etcd#15220)."""
    idle = Script(puts(7), probed=progress(7))
    batches = watch_member(member(idle), 7)
    async with asyncio.timeout(DEADLINE), aclosing(batches):
        for _ in range(20):
            assert (await anext(batches)).revision <= 7
    overtaken = Script(puts(7), progress(9), puts(8, 9), probed=progress(9))
    batches = watch_member(member(overtaken), 7)
    async with asyncio.timeout(DEADLINE), aclosing(batches):
        result = [await anext(batches) for _ in range(20)]
    assert revisions(result) == [7, 8, 9]


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(
    ("message", "raised"), [(canceled(compact_revision=9), Compacted), (canceled("bye"), StorageUnavailable)]
)
async def test_patroni_4_0_7_canceled_message_ends_the_watch(message: object, raised: type[Exception]) -> None:
    """etcd cancels a watch by a message, for example after a compaction, and leaves the stream open. Patroni continued to read
    the stream and missed all later changes: https://github.com/patroni/patroni/pull/3426

    Here: the cache would receive no changes. Guard: `canceled` ends the watch, with Compacted if the message contains a
    compacted revision."""
    with pytest.raises(raised):
        await drained(watch_member(member(Script(puts(7), message, probed=progress(7))), 7))


class Members(EtcdStorage):
    """Two etcd members with the same content. The watch of the first stays open but returns no changes."""

    def __init__(self, store: MemoryStorage) -> None:
        super().__init__(["etcd-0:2379", "etcd-1:2379"])
        self.store = store

    async def current_revision(self) -> int:
        return await self.store.current_revision()

    async def page(self, prefix: str, *, after: str = "", limit: int = 500, revision: int = 0) -> KeyPage:
        return await self.store.page(prefix, after=after, limit=limit, revision=revision)

    async def watch_member(self, member: EtcdMember, start_revision: int, *_: object) -> AsyncGenerator[ChangeBatch]:
        async with aclosing(self.store.watch(start_revision)) as inner:
            yield await anext(inner)
            if member.endpoint == "etcd-0:2379":
                await asyncio.Event().wait()
            async for batch in inner:
                yield batch


async def test_patroni_4_0_7_cache_switches_to_another_member_when_its_watch_stalls(monkeypatch: pytest.MonkeyPatch) -> None:
    """As above, when the member answers progress requests with an old revision.

    Here: the storage restarted the watch with the same member forever. Guard: the reflector knows the store's revision from
    reads. It reports the stalled watch to the storage, which switches to another member."""
    monkeypatch.setattr(feed, "STALL_LIMIT", 0.05)
    world = World()
    storage = Members(world.storage)
    monkeypatch.setattr(etcd_storage_module, "watch_member", storage.watch_member)
    async with running(Cacher(storage)) as cacher:
        last = await world.put(pod("a"))
        assert await cacher.wait_until_fresh(DEADLINE) >= last
    await storage.close()


async def test_etcd_18089_19179_watch_does_not_miss_a_delete_at_the_compacted_revision(etcd_storage: EtcdStorage) -> None:
    """etcd permits a watch from the compacted revision. If that revision deleted a key, compaction may have removed the
    tombstone, and the watch omits the delete: https://github.com/etcd-io/etcd/issues/18089 and .../19179

    Here: a server whose watch was interrupted would keep a deleted pod forever.
    Guard: the watch starts one revision earlier than needed, so that etcd reports the compaction."""
    await put(etcd_storage, "/registry/pods/default/stays")
    created = await put(etcd_storage, "/registry/pods/default/goes")
    gone = await done(etcd_storage, Write("/registry/pods/default/goes", None, created))
    await etcd_storage.compact(gone)
    last = await put(etcd_storage, "/registry/pods/default/later")
    with pytest.raises(Compacted):
        await taken(etcd_storage.watch(gone), until=last)
    script = Script(puts(gone))
    await taken(watch_member(member(script), gone), until=gone)
    assert script.created_from == gone - 1


async def test_kubernetes_107133_watch_starts_at_a_revision_of_another_resource() -> None:
    """A reflector resumed at the revision of a list, which was etcd's current one, on a server whose cache of that kind had not
    changed for long. It received "too large resource version" forever: https://github.com/kubernetes/kubernetes/issues/107133

    Here: an informer could never resume on another server.
    Guard: all resources share one revision, which every change of any key increments, including keys of unknown resources."""
    world = World()
    await world.put(pod("a"))
    async with running(Cacher(world.storage)) as cacher:
        now = await put(world.storage, "/no/resource/of/ours")
        await cacher.wait_for(now, DEADLINE)
        reader = Reader(cacher.cache_of(PODS).watch(ALL_PODS, now), now)
        last = await world.put(pod("b"))
        await reader.until(last)
        assert [event.name for event in reader.events] == ["default/b"]
