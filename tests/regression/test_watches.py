"""Watches that lost, repeated or reordered events, or said nothing any more."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from apiserver.cacher import reflector as feed
from apiserver.cacher.cacher import Cacher
from apiserver.storage.etcd import EtcdStorage
from apiserver.storage.etcd import storage as etcd_storage_module
from apiserver.storage.etcd import storage as etcd_watch
from apiserver.storage.etcd.members import Member
from apiserver.storage.etcd.storage import watch
from apiserver.storage.interface import Changes, Compacted, Page, Unavailable, Write
from pinnace.api.resources import PODS
from tests.contract.steps import done, put
from tests.regression.fakewatch import Script, canceled, member, progress, revisions, told
from tests.storage.memory import MemoryStorage
from tests.unit.cacher.world import CASES, Reader, World, pod, running

ALL_PODS = CASES[0].selection
DEADLINE = 5.0


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes seconds takes milliseconds."""
    monkeypatch.setattr(etcd_watch, "PROBE_INTERVAL", 0.01)
    monkeypatch.setattr(etcd_watch, "SILENCE_LIMIT", 0.05)


async def taken(batches: AsyncGenerator[Changes], until: int) -> list[Changes]:
    """What is told, up to that revision."""
    found: list[Changes] = []
    async with asyncio.timeout(DEADLINE), aclosing(batches):
        async for batch in batches:
            found.append(batch)
            if batch.revision >= until:
                break
    return found


async def drained(batches: AsyncGenerator[Changes]) -> list[Changes]:
    """What is told, until it ends with an error. Raises that."""
    return await taken(batches, until=1 << 62)


async def test_etcd_15271_a_member_that_was_restored_tells_the_past_again() -> None:
    """A member that had been cut off and got a snapshot from the leader told its watchers again what they had been told (23826,
    then 23143, ...): https://github.com/etcd-io/etcd/issues/15271

    Here: objects in the cache, and in every informer behind it, would go back to old versions.
    Kept by: the Assembler drops what is not after the last revision that came out."""
    script = Script(told(7, 8, 9), told(5, 6, 7), told(8, 9, 10))
    batches = await taken(watch(member(script), 7), until=10)
    assert revisions(batches) == [7, 8, 9, 10]
    assert [batch.revision for batch in batches] == sorted(batch.revision for batch in batches)


class Rewinding(MemoryStorage):
    """Its watch tells everything twice."""

    async def watch(self, start_revision: int) -> AsyncGenerator[Changes]:
        told_before: list[Changes] = []
        async with aclosing(super().watch(start_revision)) as inner:
            async for batch in inner:
                yield batch
                if batch.changes:
                    told_before.append(batch)
                    for again in told_before:
                        yield again


async def test_etcd_15271_whoever_watches_a_cache_sees_every_version_once() -> None:
    """As above, should the storage itself let it through. Kept by: `batches` in the cacher leaves repeats out."""
    world = World(Rewinding())
    await world.put(pod("a"))
    async with running(Cacher(world.storage)) as cacher:
        start = cacher.revision
        reader = Reader(cacher.of(PODS).watch(ALL_PODS, start), start)
        await world.put(pod("a", app="web"))
        await world.delete("a")
        last = await world.put(pod("b"))
        await reader.until(last)
        assert reader.events == world.events(lambda pod: True, start, last)


async def test_etcd_17529_a_gap_in_the_events_is_noticed() -> None:
    """A slow watcher among hundreds on one stream lost its place at a compaction, was not told, and went on 161,000 revisions
    later: https://github.com/etcd-io/etcd/issues/17529

    Here: the cache would lack those changes for ever, and call itself up to date.
    Kept by: every revision changes some key and the watch is of all keys, so revisions that follow one another have no gap; the
    Assembler refuses one. The watch is then opened anew, and etcd says that it was compacted."""
    batches = watch(member(Script(told(13_001), told(13_002), told(174_748))), 13_001)
    assert revisions([await anext(batches), await anext(batches)]) == [13_001, 13_002]
    with pytest.raises(Unavailable, match=r"13003 to 174747"):
        await anext(batches)


async def test_etcd_17529_a_gap_at_the_beginning_is_noticed() -> None:
    """As above, while the watch catches up with what it was asked for."""
    with pytest.raises(Unavailable, match="7 to 8"):
        await drained(watch(member(Script(told(6), told(9, 10))), 7))


@pytest.mark.usefixtures("hasty")
async def test_etcd_17529_a_watcher_that_is_forgotten_on_a_living_stream_is_noticed() -> None:
    """As above; before the gap there were minutes without an event, on a stream that answered requests for progress.

    Here: informers behind that server would hear bookmarks and no news, as long as nobody asks for a fresh read there.
    Kept by: the answer to a request for progress says the store's revision; a watch that does not get there in time is dead."""
    script = Script(told(6), told(7), probed=progress(9))
    with pytest.raises(Unavailable, match="store is at revision 9"):
        await drained(watch(member(script), 7))


@pytest.mark.usefixtures("hasty")
async def test_etcd_17529_an_idle_watch_is_not_taken_for_a_forgotten_one() -> None:
    """One that is at the store's revision has nothing to tell; and the answer to a request may overtake events (etcd#15220)."""
    idle = Script(told(7), probed=progress(7))
    batches = watch(member(idle), 7)
    async with asyncio.timeout(DEADLINE), aclosing(batches):
        for _ in range(20):
            assert (await anext(batches)).revision <= 7
    overtaken = Script(told(7), progress(9), told(8, 9), probed=progress(9))
    batches = watch(member(overtaken), 7)
    async with asyncio.timeout(DEADLINE), aclosing(batches):
        found = [await anext(batches) for _ in range(20)]
    assert revisions(found) == [7, 8, 9]


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(("said", "raised"), [(canceled(compact_revision=9), Compacted), (canceled("bye"), Unavailable)])
async def test_patroni_4_0_7_a_watch_that_is_cancelled_on_an_open_stream(said: object, raised: type[Exception]) -> None:
    """etcd cancels a watch (compacted, say) by a message and leaves the stream open; Patroni went on reading it, and missed all
    that happened from then on: https://github.com/patroni/patroni/pull/3426

    Here: the cache would stand still. Kept by: `canceled` ends the watch, as Compacted when it says so."""
    with pytest.raises(raised):
        await drained(watch(member(Script(told(7), said, probed=progress(7))), 7))


class Members(EtcdStorage):
    """Both have what is in a storage, and the first has a watch that is alive and tells nothing."""

    def __init__(self, store: MemoryStorage) -> None:
        super().__init__(["etcd-0:2379", "etcd-1:2379"])
        self.store = store

    async def current_revision(self) -> int:
        return await self.store.current_revision()

    async def page(self, prefix: str, *, after: str = "", limit: int = 500, revision: int = 0) -> Page:
        return await self.store.page(prefix, after=after, limit=limit, revision=revision)

    async def told_by(self, member: Member, start_revision: int) -> AsyncGenerator[Changes]:
        async with aclosing(self.store.watch(start_revision)) as inner:
            yield await anext(inner)
            if member.endpoint == "etcd-0:2379":
                await asyncio.Event().wait()
            async for batch in inner:
                yield batch


async def test_patroni_4_0_7_a_member_whose_watches_tell_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """As above, when the member answers requests for progress and knows nothing of the store's revision.

    Here: the watch was opened anew, at the same member, without end. Kept by: the feed, which knows the revision from reads,
    tells the storage that it gave the watch up, and the storage leaves the member."""
    monkeypatch.setattr(feed, "STALL_LIMIT", 0.05)
    world = World()
    storage = Members(world.storage)
    monkeypatch.setattr(etcd_storage_module, "watch", storage.told_by)
    async with running(Cacher(storage)) as cacher:
        last = await world.put(pod("a"))
        assert await cacher.fresh(DEADLINE) >= last
    await storage.close()


async def test_etcd_18089_19179_the_delete_at_the_compacted_revision(etcd_storage: EtcdStorage) -> None:
    """A watch from exactly the compacted revision is allowed; when that revision deleted a key, the tombstone may be compacted
    away, and the watch begins without it: https://github.com/etcd-io/etcd/issues/18089 and .../19179

    Here: a server whose watch was broken meanwhile would keep a deleted pod for ever.
    Kept by: the watch is opened one revision earlier than needed, so that etcd says "compacted" where it might lie."""
    await put(etcd_storage, "/registry/pods/default/stays")
    created = await put(etcd_storage, "/registry/pods/default/goes")
    gone = await done(etcd_storage, Write("/registry/pods/default/goes", None, created))
    await etcd_storage.compact(gone)
    last = await put(etcd_storage, "/registry/pods/default/later")
    with pytest.raises(Compacted):
        await taken(etcd_storage.watch(gone), until=last)
    script = Script(told(gone))
    await taken(watch(member(script), gone), until=gone)
    assert script.created_from == gone - 1


async def test_kubernetes_107133_a_revision_at_which_no_object_of_the_kind_changed() -> None:
    """A reflector that had the revision of a list (etcd's of now) asked for it at a server whose cache of that kind had
    long not changed: "too large resource version", for ever: https://github.com/kubernetes/kubernetes/issues/107133

    Here: an informer that resumes on another server would never get in.
    Kept by: one revision for all resources, moved on by every change of any key, known or not."""
    world = World()
    await world.put(pod("a"))
    async with running(Cacher(world.storage)) as cacher:
        now = await put(world.storage, "/no/resource/of/ours")
        await cacher.wait_for(now, DEADLINE)
        reader = Reader(cacher.of(PODS).watch(ALL_PODS, now), now)
        last = await world.put(pod("b"))
        await reader.until(last)
        assert [each.name for each in reader.events] == ["default/b"]
