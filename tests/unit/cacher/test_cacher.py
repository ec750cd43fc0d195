"""The watch cache as a whole, over a storage in memory."""

import asyncio

import pytest

from pinnace.api.pods_pb2 import PodWatchResponse
from pinnace.api.resources import ELECTIONS_PREFIX, NODES, PODS, election_key
from pinnace.apiserver.cacher import cacher as module
from pinnace.apiserver.cacher import reflector as feed
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.cacher.store import CacheBehind, RevisionExpired, SelectionPredicate, ShuttingDown, SlowWatcher
from pinnace.apiserver.cacher.watcher import BATCH_DELAY, BURST
from pinnace.apiserver.storage.interface import ChangeBatch, Committed, KeyChange, StorageUnavailable, Write
from tests.builders import make_node
from tests.clock import FakeClock
from tests.storage.memory import MemoryStorage
from tests.unit.cacher.flaky import FlakyStorage
from tests.unit.cacher.world import CASES, Reader, TimeMachine, World, eventually, pod, pod_change, running

ALL_PODS = CASES[0].selection
ALL_NODES = SelectionPredicate.parse(NODES, "", "", "")
KEY = election_key("scheduler")


@pytest.fixture
def storage() -> FlakyStorage:
    return FlakyStorage()


@pytest.fixture
def world(storage: FlakyStorage) -> World:
    return World(storage)


async def elect(storage: FlakyStorage, value: bytes | None, expected: int = 0) -> int:
    outcome = await storage.transact([Write(KEY, value, expected)])
    assert isinstance(outcome, Committed)
    return outcome.revision


async def test_objects_can_be_had_by_key_and_by_selection(world: World) -> None:
    await world.put(pod("a", node="n1"), pod("b"))
    async with running(Cacher(world.storage)) as cacher:
        pods = cacher.cache_of(PODS)
        entry = pods.get(PODS.key("default", "a"))
        assert entry is not None
        assert (entry.obj.metadata.name, entry.obj.metadata.resourceVersion) == ("a", str(entry.mod_revision))
        assert pods.get(PODS.key("default", "zzz")) is None
        assert [item.obj.metadata.name for item in pods.select(SelectionPredicate.parse(PODS, "", "", "spec.nodeName=n1"))] == [
            "a"
        ]
        assert [item.obj.metadata.name for item in pods.select(ALL_PODS)] == ["a", "b"]


async def test_before_it_is_loaded_nothing_can_be_had(storage: FlakyStorage) -> None:
    cacher = Cacher(storage)
    assert (cacher.revision, cacher.ready) == (0, False)
    with pytest.raises(CacheBehind, match="not loaded"):
        cacher.cache_of(PODS).watch(ALL_PODS, None)
    with pytest.raises(CacheBehind, match="not loaded"):
        await cacher.wait_for(0, 0.01)


async def test_watch_begins_with_the_state_then_tells_what_happens(world: World) -> None:
    await world.put(pod("a"), pod("b"))
    async with running(Cacher(world.storage)) as cacher:
        reader = Reader(cacher.cache_of(PODS).watch(ALL_PODS, None))
        await reader.until(cacher.revision)
        assert reader.initial == [PODS.key("default", "a"), PODS.key("default", "b")]
        start = reader.revision
        await world.put(pod("a", node="n1"), pod("c"))
        last = await world.delete("b")
        await reader.until(last)
        assert reader.events == world.events(lambda pod: True, start, last)
        assert len(reader.events) == 3


async def test_watch_in_the_future_of_the_cache_is_refused_until_it_is_there(world: World) -> None:
    async with running(Cacher(world.storage)) as cacher:
        with pytest.raises(CacheBehind):
            cacher.cache_of(PODS).watch(ALL_PODS, cacher.revision + 1)
        waiting = asyncio.ensure_future(cacher.wait_for(cacher.revision + 1, 5))
        last = await world.put(pod("a"))
        await waiting
        cacher.cache_of(PODS).watch(ALL_PODS, last)


async def test_watch_from_before_the_ring_has_expired(world: World) -> None:
    await world.put(pod("a"))
    last = await world.put(pod("b"))
    await world.storage.compact(last)
    async with running(Cacher(world.storage)) as cacher:
        with pytest.raises(RevisionExpired) as caught:
            cacher.cache_of(PODS).watch(ALL_PODS, last - 1)
        assert caught.value.oldest == last
        cacher.cache_of(PODS).watch(ALL_PODS, last)


async def test_ring_that_is_full_forgets_only_its_own_resource(world: World) -> None:
    async with running(Cacher(world.storage, log_events=8)) as cacher:
        start = cacher.revision
        for name in "abcdefghij":
            last = await world.put(pod(name))
        await cacher.wait_for(last, 5)
        with pytest.raises(RevisionExpired):
            cacher.cache_of(PODS).watch(ALL_PODS, start)
        cacher.cache_of(NODES).watch(ALL_NODES, start)


async def test_fresh_reads_wait_for_the_store_and_no_longer_than_they_may(storage: FlakyStorage, world: World) -> None:
    async with running(Cacher(storage)) as cacher:
        last = await world.put(pod("a"))
        assert await cacher.wait_until_fresh(5) >= last
        assert cacher.revision >= last
        storage.silent = True
        await world.put(pod("b"))
        with pytest.raises(CacheBehind):
            await cacher.wait_until_fresh(0.02)
        storage.leave()
        with pytest.raises(StorageUnavailable):
            await cacher.wait_until_fresh(5)


async def test_store_that_does_not_answer_is_unavailable(storage: FlakyStorage) -> None:
    with pytest.raises(StorageUnavailable, match="in time"):
        await Cacher(storage).wait_until_fresh(0.01)


async def test_fresh_reads_revive_a_watch_that_lives_but_tells_nothing(
    storage: FlakyStorage, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = TimeMachine(monkeypatch)
    async with running(Cacher(storage)) as cacher:
        storage.silent = True
        await world.put(pod("a"))
        fresh = asyncio.ensure_future(cacher.wait_until_fresh(60))
        await machine.skip(0)
        await machine.skip(feed.STALL_LIMIT - 0.5)
        assert not fresh.done()
        storage.silent = False
        await machine.skip(1)
        await fresh
        assert cacher.cache_of(PODS).get(PODS.key("default", "a")) is not None


async def test_while_the_store_is_away_what_is_there_is_served(storage: FlakyStorage, world: World) -> None:
    await world.put(pod("a"))
    async with running(Cacher(storage)) as cacher:
        assert cacher.ready
        storage.leave()
        await eventually(lambda: not cacher.ready)
        reader = Reader(cacher.cache_of(PODS).watch(ALL_PODS, None))
        await reader.until(cacher.revision)
        assert reader.initial == [PODS.key("default", "a")]
        last = await world.put(pod("b"))
        storage.come_back()
        await reader.until(last)
        assert [event.name for event in reader.events] == ["default/b"]
        assert cacher.ready


async def test_when_history_is_lost_watches_expire_and_subscribers_hear_the_difference(
    storage: FlakyStorage, world: World
) -> None:
    term = await elect(storage, b"one")
    async with running(Cacher(storage)) as cacher:
        told = list[KeyChange]()
        cacher.subscribe(ELECTIONS_PREFIX, told.append)
        reader = Reader(cacher.cache_of(PODS).watch(ALL_PODS, cacher.revision), cacher.revision)
        storage.leave()
        await eventually(lambda: not cacher.ready)
        await world.put(pod("a"))
        await world.delete("a")
        await elect(storage, None, term)
        last = await world.put(pod("b"))
        await storage.compact(last)
        storage.come_back()
        with pytest.raises(RevisionExpired):
            await reader.read()
        assert (cacher.revision, cacher.raw_key(KEY)) == (last, None)
        assert [(change.key, change.value) for change in told] == [(KEY, None)]
        assert [entry.obj.metadata.name for entry in cacher.cache_of(PODS).select(ALL_PODS)] == ["b"]
        with pytest.raises(RevisionExpired):
            cacher.cache_of(PODS).watch(ALL_PODS, last - 1)


async def test_election_keys_are_served_unchanged(storage: FlakyStorage) -> None:
    async with running(Cacher(storage)) as cacher:
        told = list[tuple[KeyChange, bool]]()
        unsubscribe = cacher.subscribe(KEY, lambda change: told.append((change, cacher.revision >= change.mod_revision)))
        term = await elect(storage, b"one")
        await cacher.wait_for(term, 5)
        assert told == [(KeyChange(KEY, b"one", term, term), True)]
        result = cacher.raw_key(KEY)
        assert result is not None
        assert (result.value, result.create_revision) == (b"one", term)
        assert cacher.raw_keys(ELECTIONS_PREFIX) == [result]
        unsubscribe()
        await cacher.wait_for(await elect(storage, None, term), 5)
        assert len(told) == 1
        assert cacher.raw_keys(ELECTIONS_PREFIX) == []


async def test_election_change_sends_an_immediate_bookmark_on_request(storage: FlakyStorage, world: World) -> None:
    async with running(Cacher(storage, clock=FakeClock())) as cacher:
        await world.put(pod("a"))
        start = await cacher.wait_until_fresh(5)
        watches = [
            cacher.cache_of(PODS).watch(ALL_PODS, start, announced=True),
            cacher.cache_of(NODES).watch(ALL_NODES, start, announced=True),
        ]
        watches.append(
            cacher.cache_of(PODS).watch(SelectionPredicate.parse(PODS, "", "", "spec.nodeName=n1"), start, announced=True)
        )
        reading = [asyncio.ensure_future(anext(watch)) for watch in watches]
        term = await elect(storage, b"one")
        async with asyncio.timeout(5):
            responses = [PodWatchResponse.FromString(await item) for item in reading]
        assert responses == [PodWatchResponse(resourceVersion=str(term))] * 3
        watches.append(cacher.cache_of(PODS).watch(ALL_PODS, term))
        reading = [asyncio.ensure_future(anext(watch)) for watch in watches]
        renewed = await elect(storage, b"one again", term)
        deposed = await elect(storage, None, renewed)
        await cacher.wait_for(deposed, 5)
        await asyncio.sleep(0)
        assert not any(item.done() for item in reading), "nobody waits for a renewal, or for the end of a term"
        elected = await elect(storage, b"two")
        async with asyncio.timeout(5):
            responses = [PodWatchResponse.FromString(await item) for item in reading[:3]]
        assert responses == [PodWatchResponse(resourceVersion=str(elected))] * 3
        await asyncio.sleep(0)
        assert not reading[3].done(), "it has not asked"


async def test_idle_watch_receives_bookmarks_within_the_interval(storage: FlakyStorage, world: World) -> None:
    clock = FakeClock()
    async with running(Cacher(storage, clock=clock, bookmark_interval=4.0)) as cacher:
        await clock.advance(0)
        start = cacher.revision
        watch = cacher.cache_of(NODES).watch(ALL_NODES, start)
        for _ in range(3):
            reading = asyncio.ensure_future(anext(watch))
            await clock.advance(0)
            last = await world.put(pod(f"p{cacher.revision}"))
            await cacher.wait_for(last, 5)
            assert not reading.done(), "pods are not its business"
            await clock.advance(4.0)
            async with asyncio.timeout(5):
                assert PodWatchResponse.FromString(await reading) == PodWatchResponse(resourceVersion=str(last))


async def test_end_of_a_burst_comes_by_itself_a_moment_later(storage: FlakyStorage, world: World) -> None:
    clock = FakeClock()
    async with running(Cacher(storage, clock=clock)) as cacher:
        reader = Reader(cacher.cache_of(PODS).watch(ALL_PODS, cacher.revision), cacher.revision)
        await reader.until(await world.put(*(pod(f"p{number}") for number in range(BURST))))
        last = await world.put(pod("a"))
        reading = asyncio.ensure_future(reader.until(last))
        await cacher.wait_for(last, 5)
        await clock.advance(0.9 * BATCH_DELAY)
        assert not reading.done()
        await clock.advance(0.2 * BATCH_DELAY)
        async with asyncio.timeout(5):
            await reading


async def test_watches_of_one_resource_hear_nothing_of_another(storage: FlakyStorage, world: World) -> None:
    async with running(Cacher(storage)) as cacher:
        pods = Reader(cacher.cache_of(PODS).watch(ALL_PODS, cacher.revision), cacher.revision)
        node = make_node("n1").build()
        await storage.transact([Write(NODES.key("", "n1"), node.SerializeToString(), 0)])
        last = await world.put(pod("a"))
        await pods.until(last)
        assert [event.name for event in pods.events] == ["default/a"]
        assert cacher.cache_of(NODES).get(NODES.key("", "n1")) is not None


async def test_reader_that_stops_costs_the_others_nothing(
    storage: FlakyStorage, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pinnace.apiserver.cacher.watcher.SendBuffer.__init__.__defaults__", (50_000, 10_000))
    async with running(Cacher(storage)) as cacher:
        start = cacher.revision
        stuck = Reader(cacher.cache_of(PODS).watch(ALL_PODS, start), start)
        await stuck.until(first := await world.put(pod("first")))
        quick = Reader(cacher.cache_of(PODS).watch(ALL_PODS, start), start)
        for number in range(50):
            await quick.until(
                last := await world.put(pod(f"p{number}"), pod(f"q{number}"), *[pod(f"r{number}-{i}") for i in range(20)])
            )
        with pytest.raises(SlowWatcher) as caught:
            await stuck.until(last)
        assert stuck.revision == caught.value.resume >= first
        resumed = Reader(cacher.cache_of(PODS).watch(ALL_PODS, stuck.revision), stuck.revision)
        await resumed.until(last)
        assert stuck.events + resumed.events == quick.events == world.events(lambda pod: True, start, last)


async def test_draining_ends_watches_and_refuses_new_ones(storage: FlakyStorage, world: World) -> None:
    async with running(Cacher(storage)) as cacher:
        reader = Reader(cacher.cache_of(PODS).watch(ALL_PODS, cacher.revision), cacher.revision)
        last = await world.put(pod("a"))
        await reader.until(last)
        reading = asyncio.ensure_future(reader.read())
        await asyncio.sleep(0)
        await cacher.drain()
        with pytest.raises(ShuttingDown):
            await reading
        with pytest.raises(ShuttingDown):
            cacher.cache_of(PODS).watch(ALL_PODS, None)
        assert cacher.cache_of(PODS).get(PODS.key("default", "a")) is not None


async def test_long_backlog_is_applied_in_turns(storage: FlakyStorage, world: World) -> None:
    for number in range(30):
        last = await world.put(*[pod(f"p{number}-{i}") for i in range(100)])
    async with running(Cacher(storage)) as cacher:
        assert cacher.revision == last
        assert len(cacher.cache_of(PODS).select(ALL_PODS)) == 3000
        reader = Reader(cacher.cache_of(PODS).watch(ALL_PODS, 1), 1)
        await reader.until(last)
        assert len(reader.events) == 3000
        assert reader.responses >= 5


class Late(FakeClock):
    """Each look at it takes a moment."""

    def monotonic(self) -> float:
        self._now += 0.6 * module.TURN
        return super().monotonic()


async def test_long_batches_are_applied_in_turns_of_whole_revisions() -> None:
    """Between them it is as if nothing else had happened: readers are told what is applied, and how far that is."""
    cacher = Cacher(MemoryStorage(), clock=Late())
    cacher.install_state(4, [])
    reader = Reader(cacher.cache_of(PODS).watch(ALL_PODS, 4), 4)
    reading = asyncio.ensure_future(reader.read())
    await asyncio.sleep(0.01)
    names = {5: ("a", "b", "c", "d"), 6: ("e", "f"), 7: ("g",), 8: ("h", "i")}
    told = [pod_change(revision, pod(name)) for revision, created in names.items() for name in created]
    left: ChangeBatch | None = ChangeBatch(9, told)
    seen = []
    while left is not None:
        left = cacher.apply_changes(left)
        seen.append((cacher.revision, "".join(entry.obj.metadata.name for entry in cacher.cache_of(PODS).select(ALL_PODS))))
        await reading
        assert reader.revision == cacher.revision
        assert "".join(event.name.rpartition("/")[2] for event in reader.events) == seen[-1][1]
        reading = asyncio.ensure_future(reader.read())
        await asyncio.sleep(0.01)
    reading.cancel()
    assert seen == [(6, "abcdef"), (9, "abcdefghi")]


async def test_history_does_not_keep_what_was_parsed(world: World) -> None:
    await world.put(pod("a"))
    async with running(Cacher(world.storage)) as cacher:
        entry = cacher.cache_of(PODS).get(PODS.key("default", "a"))
        assert entry is not None
        assert entry.obj is entry.parse_uncached()
        await cacher.wait_for(await world.put(pod("a", node="n1")), 5)
        assert entry.parse_uncached() is not entry.parse_uncached()


def test_resources_that_it_was_not_made_for(storage: FlakyStorage) -> None:
    with pytest.raises(KeyError):
        Cacher(storage, [PODS]).cache_of(NODES)
