"""What a reader that does not read keeps in memory."""

from collections.abc import Iterator
from weakref import ref

import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import PODS
from pinnace.apiserver.cacher import event_history as past
from pinnace.apiserver.cacher import store as snapshots
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.cacher.store import MAX_AGE, CacheEntry, CacheSnapshots, RevisionExpired, SelectionPredicate
from pinnace.apiserver.storage.interface import KeyValue
from tests.clock import FakeClock
from tests.storage.memory import MemoryStorage
from tests.unit.cacher.world import Reader, changes, pod, pod_change

ALL = SelectionPredicate.parse(PODS, "", "", "")
NAMES = [f"p{number}" for number in range(4)]
RING = 8


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "CHUNK_EVENTS", 1)


@pytest.fixture(name="clock")
def clock_fixture() -> FakeClock:
    return FakeClock()


@pytest.fixture(name="cacher")
def cacher_fixture(clock: FakeClock) -> Cacher:
    cacher = Cacher(MemoryStorage(), clock=clock, log_events=RING)
    cacher.install_state(5, [KeyValue(PODS.key("default", name), pod(name).SerializeToString(), 5, 5, 1) for name in NAMES])
    return cacher


@pytest.fixture(name="lists")
def lists_fixture(monkeypatch: pytest.MonkeyPatch) -> list[ref[snapshots.CacheSnapshot[Pod]]]:
    """All snapshots that are taken."""
    lists: list[ref[snapshots.CacheSnapshot[Pod]]] = []

    class Seen(snapshots.CacheSnapshot[Pod]):
        def __init__(self, entries: list[CacheEntry[Pod]]) -> None:
            super().__init__(entries)
            lists.append(ref(self))

    monkeypatch.setattr(snapshots, "CacheSnapshot", Seen)
    return lists


def churn(cacher: Cacher, revisions: Iterator[int], times: int) -> None:
    for _ in range(times):
        cacher.apply_changes(changes(pod_change(next(revisions), pod("p0"), created=5)))


async def test_snapshot_is_dropped_with_its_history(cacher: Cacher) -> None:
    """Old versions of all objects were kept until it went: 466 MB after ten such watches."""
    reader, revisions = Reader(cacher.cache_of(PODS).watch(ALL, None)), iter(range(6, 99))
    await reader.read()
    snapshot = cacher.cache_of(PODS)._snapshots.take_snapshot((cacher.cache_of(PODS).version, ALL.prefix, None), 5, list)
    churn(cacher, revisions, RING)
    assert len(snapshot.entries) == len(NAMES)
    churn(cacher, revisions, 1)
    assert snapshot.entries == []
    with pytest.raises(RevisionExpired):
        await reader.read()


async def test_list_of_current_history_is_complete(cacher: Cacher) -> None:
    reader, revisions = Reader(cacher.cache_of(PODS).watch(ALL, None)), iter(range(6, 99))
    await reader.read()
    churn(cacher, revisions, RING)
    await reader.until(5 + RING)
    assert len(reader.initial) == len(NAMES)
    assert [event.revision for event in reader.events] == list(range(6, 6 + RING))


async def test_list_stalled_for_minutes_expires(cacher: Cacher, clock: FakeClock) -> None:
    reader = Reader(cacher.cache_of(PODS).watch(ALL, None))
    await reader.read()
    await clock.advance(MAX_AGE - 1)
    cacher.cache_of(PODS).send_bookmarks()
    await reader.read()
    await clock.advance(1)
    cacher.cache_of(PODS).send_bookmarks()
    with pytest.raises(RevisionExpired):
        await reader.read()


async def test_concurrent_lists_share_a_snapshot(cacher: Cacher, lists: list[ref[snapshots.CacheSnapshot[Pod]]]) -> None:
    cache = cacher.cache_of(PODS)
    web, by_node = SelectionPredicate.parse(PODS, "", "app=web", ""), SelectionPredicate.parse(PODS, "", "", "spec.nodeName=")
    readers = [Reader(cache.watch(item, None)) for item in (ALL, web, ALL, by_node)]
    assert len(lists) == 2
    churn(cacher, iter([6]), 1)
    readers.append(Reader(cache.watch(ALL, None)))
    assert len(lists) == 3
    for reader in readers:
        await reader.until(6)
    assert [len(reader.initial) for reader in readers] == [4, 0, 4, 4, 4]
    assert [list_() for list_ in lists] == [None] * 3


def test_oldest_goes_first_though_it_is_shared_again() -> None:
    kept: CacheSnapshots[Pod] = CacheSnapshots(FakeClock())
    one, two = kept.take_snapshot("a", 5, list), kept.take_snapshot("b", 6, list)
    assert kept.take_snapshot("a", 7, list) is one
    kept.discard_entries(7)
    one.require_unreleased()
    with pytest.raises(RevisionExpired):
        two.require_unreleased()
