"""Who is told what, and at which price."""

import asyncio
from collections.abc import Iterable
from itertools import product

import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.pods_pb2 import PodWatchResponse
from pinnace.api.resources import PODS
from pinnace.api.verbs_pb2 import WatchEventType
from pinnace.apiserver.cacher import watcher as module
from pinnace.apiserver.cacher.event_history import HistoryFingerprints
from pinnace.apiserver.cacher.store import CacheEntry, CacheEvent, SelectionPredicate, ShuttingDown, SlowWatcher
from pinnace.apiserver.cacher.watcher import BATCH_DELAY, BURST, CacheWatcher, SendBuffer, WatchDispatcher
from pinnace.apiserver.flow import send_budget as flow
from pinnace.apiserver.flow.send_budget import SendBudget, SendPool
from tests.clock import FakeClock
from tests.unit.cacher.world import CASES, Case, pod


def entry(obj: Pod | None, revision: int) -> CacheEntry[Pod] | None:
    if obj is None:
        return None
    return CacheEntry(Pod, PODS.key_of(obj), obj.SerializeToString(), 1, revision, obj.spec.nodeName, obj.status.phase)


def event(revision: int, old: Pod | None, new: Pod | None) -> CacheEvent[Pod]:
    return CacheEvent(revision, entry(old, revision - 1), entry(new, revision))


async def live(
    dispatcher: WatchDispatcher,
    fields: str = "",
    labels: str = "",
    *,
    announced: bool = False,
    budget: SendBudget | None = None,
    buffer: SendBuffer | None = None,
) -> CacheWatcher:
    selection = SelectionPredicate.parse(PODS, "", labels, fields)
    watcher = CacheWatcher(dispatcher, selection, 1, iter(()), announced=announced, budget=budget, buffer=buffer)
    dispatcher.add_watcher(watcher)
    step = asyncio.ensure_future(anext(watcher))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    step.cancel()
    await asyncio.wait((step,))
    return watcher


async def told(watcher: CacheWatcher) -> list[tuple[str, str]]:
    async with asyncio.timeout(5):
        response = PodWatchResponse.FromString(await anext(watcher))
    return [(WatchEventType.Name(item.type), item.object.metadata.name) for item in response.events]


STATES = [None, *(pod("a", app=app, node=node) for app in ("", "web") for node in ("", "n1", "n2")), pod("a", phase="Failed")]


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_event_type_depends_on_the_selector_of_the_watch(case: Case) -> None:
    dispatcher = WatchDispatcher(HistoryFingerprints(), FakeClock())
    watcher = CacheWatcher(dispatcher, case.selection, 1, iter(()), announced=True)
    dispatcher.start_watcher(watcher)
    for old, new in product(STATES, STATES):
        if old is None and new is None:
            continue
        dispatcher.add_event(event(9, old, new))
        dispatcher.flush(9)
        before, after = old is not None and case.predicate(old), new is not None and case.predicate(new)
        expected = {(True, True): "MODIFIED", (False, True): "ADDED", (True, False): "DELETED"}.get((before, after))
        dispatcher.send_election_bookmarks(10)
        assert await told(watcher) == ([(expected, "a")] if expected else [])


async def test_deleted_object_comes_as_it_was_last_at_the_revision_of_the_delete() -> None:
    dispatcher = WatchDispatcher(HistoryFingerprints(), FakeClock())
    watcher = await live(dispatcher)
    dispatcher.add_event(event(9, pod("a", app="web"), None))
    dispatcher.flush(9)
    (deleted,) = PodWatchResponse.FromString(await anext(watcher)).events
    assert deleted.object.metadata.labels["app"] == "web"
    assert deleted.object.metadata.resourceVersion == "9"


async def test_watchers_with_equal_selections_get_the_very_same_bytes() -> None:
    dispatcher = WatchDispatcher(HistoryFingerprints(), FakeClock())
    watchers = [await live(dispatcher, labels=text) for text in ("app=web,!x", "!x, app==web")]
    dispatcher.add_event(event(9, None, pod("a", app="web")))
    dispatcher.flush(9)
    one, other = [await anext(watcher) for watcher in watchers]
    assert one is other


async def test_event_is_encoded_once_for_all_selections(monkeypatch: pytest.MonkeyPatch) -> None:
    dispatcher = WatchDispatcher(HistoryFingerprints(), FakeClock())
    for fields in ("", "metadata.name=a", "spec.nodeName=n1"):
        await live(dispatcher, fields)
    encoded = []
    monkeypatch.setattr(CacheEvent, "encode", lambda self, kind, shows_owners: encoded.append(kind) or b"")
    dispatcher.add_event(event(9, pod("a", node="n1"), pod("a", node="n1")))
    assert encoded == [WatchEventType.MODIFIED]
    dispatcher.add_event(event(10, pod("b"), pod("b", node="n1")))
    assert encoded[1:] == [WatchEventType.MODIFIED, WatchEventType.ADDED]


async def test_event_without_watchers_is_not_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    dispatcher = WatchDispatcher(HistoryFingerprints(), FakeClock())
    await live(dispatcher, "metadata.name=other")
    monkeypatch.setattr(CacheEvent, "encode", lambda self, kind, shows_owners: pytest.fail("nobody wants it"))
    dispatcher.add_event(event(9, None, pod("a")))


async def test_watchers_by_node_are_not_asked_about_other_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    dispatcher = WatchDispatcher(HistoryFingerprints(), FakeClock())
    watchers = {name: await live(dispatcher, f"spec.nodeName={name}") for name in ("n1", "n2", "n3")}
    fleet = await live(dispatcher, "spec.nodeName in (n1,n2,n9)")
    asked = []
    matches = SelectionPredicate.matches
    monkeypatch.setattr(
        SelectionPredicate, "matches", lambda self, entry: asked.append(str(self.fields)) or matches(self, entry)
    )
    dispatcher.add_event(event(9, pod("a", node="n1"), pod("a", node="n2")))
    assert set(asked) == {"spec.nodeName=n1", "spec.nodeName=n2", "spec.nodeName in (n1,n2,n9)"}
    dispatcher.flush(9)
    assert await told(watchers["n1"]) == [("DELETED", "a")]
    assert await told(watchers["n2"]) == [("ADDED", "a")]
    assert await told(fleet) == [("MODIFIED", "a")], "once, although it is found by both nodes"


@pytest.mark.parametrize(("watchers", "kept"), [(1, False), (2, True)])
async def test_object_that_several_look_into_is_parsed_once(watchers: int, kept: bool) -> None:
    dispatcher = WatchDispatcher(HistoryFingerprints(), FakeClock())
    for labels in ("app=web", "app=db")[:watchers]:
        await live(dispatcher, labels=labels)
    one = event(9, None, pod("a"))
    assert one.new is not None
    dispatcher.add_event(one)
    assert (one.new.parse_uncached() is one.new.parse_uncached()) is kept


async def test_several_events_are_one_response() -> None:
    dispatcher = WatchDispatcher(HistoryFingerprints(), FakeClock())
    watcher = await live(dispatcher)
    dispatcher.add_event(event(9, None, pod("a")))
    dispatcher.add_event(event(9, None, pod("b")))
    dispatcher.flush(9)
    response = PodWatchResponse.FromString(await anext(watcher))
    assert [item.object.metadata.name for item in response.events] == ["a", "b"]
    assert response.resourceVersion == "9"


async def test_slow_watcher_ends_and_the_others_go_on() -> None:
    dispatcher = WatchDispatcher(HistoryFingerprints(), FakeClock())
    slow, quick = await live(dispatcher, buffer=SendBuffer(max_responses=2)), await live(dispatcher)
    for revision in range(5, 10):
        dispatcher.add_event(event(revision, None, pod("a")))
        dispatcher.flush(revision)
        assert await told(quick) == [("ADDED", "a")]
    assert list(vars(dispatcher)["_watchers"]) == [quick]
    with pytest.raises(SlowWatcher) as caught:
        await anext(slow)
    assert caught.value.resume == 1


async def test_each_flow_is_charged_once_for_what_its_watchers_share() -> None:
    dispatcher, room = WatchDispatcher(HistoryFingerprints(), FakeClock()), SendPool()
    eve, bob = SendBudget(room), SendBudget(room)
    watchers = [await live(dispatcher, labels=labels, budget=eve) for labels in ("", "", "!x")]
    watchers.append(await live(dispatcher, budget=bob))
    dispatcher.add_event(event(9, None, pod("a")))
    dispatcher.flush(9)
    assert bob.waiting > 0
    assert [eve.waiting, room.waiting] == [2 * bob.waiting, 3 * bob.waiting]
    for watcher in watchers[:2]:
        assert eve.waiting == 2 * bob.waiting
        await told(watcher)
    assert eve.waiting == bob.waiting
    watchers[2].close()
    watchers[3].end(ShuttingDown())
    assert (eve.waiting, list(eve.watches)) == (0, watchers[:2])
    assert bob.waiting, "it is still told"
    await told(watchers[3])
    assert room.waiting == 0


async def test_when_a_flow_has_no_room_its_largest_watcher_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever that watches, and whatever has just happened. The others do not notice."""
    monkeypatch.setattr(flow, "MAX_WAITING", 2500)
    monkeypatch.setattr(flow, "MINIMUM", 500)
    pods, others, room = (
        WatchDispatcher(HistoryFingerprints(), FakeClock()),
        WatchDispatcher(HistoryFingerprints(), FakeClock()),
        SendPool(),
    )
    eve = SendBudget(room)
    stuck, busy = await live(pods, labels="!a", budget=eve), await live(pods, labels="!b", budget=eve)
    elsewhere, bob = await live(others, budget=eve), await live(pods, budget=SendBudget(room))
    revision = 8
    while stuck in eve.watches:
        revision += 1
        pods.add_event(event(revision, None, pod("a")))
        pods.flush(revision)
        others.add_event(event(revision, None, pod("b")))
        others.flush(revision)
        assert [await told(item) for item in (busy, elsewhere, bob)] == [[("ADDED", name)] for name in ("a", "b", "a")]
        assert room.waiting <= 2500
    assert (list(eve.watches), eve.waiting) == ([busy, elsewhere], 0)
    with pytest.raises(SlowWatcher) as caught:
        await anext(stuck)
    assert caught.value.resume == 1


def happen(dispatcher: WatchDispatcher, names: Iterable[str], revision: int = 9, node: str = "") -> None:
    """Pods appear, all in one revision."""
    for name in names:
        dispatcher.add_event(event(revision, None, pod(name, node=node)))
    dispatcher.flush(revision)


def burst(dispatcher: WatchDispatcher, node: str = "") -> None:
    happen(dispatcher, (f"b{number}" for number in range(BURST)), 8, node)


async def test_after_a_burst_the_rest_comes_in_one_response_when_it_is_over() -> None:
    dispatcher = WatchDispatcher(HistoryFingerprints(), clock := FakeClock())
    watcher = await live(dispatcher)
    burst(dispatcher)
    assert len(await told(watcher)) == BURST
    for number, name in enumerate("abc"):
        happen(dispatcher, [name], 9 + number)
        assert dispatcher.has_pending_events
        assert not watcher.buffered_bytes
    await clock.advance(BATCH_DELAY)
    dispatcher.flush_all()
    assert not dispatcher.has_pending_events
    assert await told(watcher) == [("ADDED", name) for name in "abc"]
    assert watcher.delivered == 11


async def test_bursts_that_go_on_come_once_in_a_while_and_then_everything_at_once_again() -> None:
    dispatcher = WatchDispatcher(HistoryFingerprints(), clock := FakeClock())
    watcher = await live(dispatcher)
    burst(dispatcher)
    for _ in range(3):
        burst(dispatcher)
        assert dispatcher.has_pending_events
        await clock.advance(BATCH_DELAY)
        dispatcher.flush_all()
    assert len(await told(watcher)) == 4 * BURST
    happen(dispatcher, "a")
    assert dispatcher.has_pending_events
    await clock.advance(2 * BATCH_DELAY)
    happen(dispatcher, "b", 10)
    assert not dispatcher.has_pending_events
    assert await told(watcher) == [("ADDED", "a"), ("ADDED", "b")]


async def test_watch_with_few_events_does_not_wait_for_others() -> None:
    dispatcher = WatchDispatcher(HistoryFingerprints(), FakeClock())
    busy, calm = await live(dispatcher, "spec.nodeName=n1"), await live(dispatcher, "spec.nodeName=n2")
    burst(dispatcher, node="n1")
    happen(dispatcher, "a", node="n1")
    happen(dispatcher, "b", 10, node="n2")
    assert await told(calm) == [("ADDED", "b")]
    assert len(await told(busy)) == BURST
    assert not busy.buffered_bytes


async def test_buffered_events_are_not_sent_to_watches_that_start_after_them() -> None:
    """He has read it in the past already."""
    dispatcher = WatchDispatcher(HistoryFingerprints(), FakeClock())
    old = await live(dispatcher)
    burst(dispatcher)
    await told(old)
    happen(dispatcher, "a", 9)
    new = await live(dispatcher)
    happen(dispatcher, "b", 10)
    dispatcher.flush_all()
    assert await told(old) == [("ADDED", "a"), ("ADDED", "b")]
    assert await told(new) == [("ADDED", "b")]


async def test_watch_joining_a_full_group_receives_later_events() -> None:
    dispatcher = WatchDispatcher(HistoryFingerprints(), FakeClock())
    stuck = await live(dispatcher, buffer=SendBuffer(max_responses=1))
    burst(dispatcher)
    happen(dispatcher, "a", 9)
    new = await live(dispatcher)
    assert stuck.ended and not new.ended
    happen(dispatcher, "b", 10)
    assert await told(new) == [("ADDED", "b")]


async def test_watch_ended_during_registration_receives_no_events(monkeypatch: pytest.MonkeyPatch) -> None:
    dispatcher = WatchDispatcher(HistoryFingerprints(), FakeClock())
    await live(dispatcher)
    burst(dispatcher)
    happen(dispatcher, "a", 9)
    new = CacheWatcher(dispatcher, SelectionPredicate.parse(PODS, "", "", ""), 9, iter(()))
    monkeypatch.setattr(dispatcher, "flush_all", lambda: new.end(ShuttingDown()))
    dispatcher.start_watcher(new)
    groups = vars(dispatcher)["_groups"].values()
    assert not any(new in sharing for group in groups for sharing in group.watchers.values())


@pytest.mark.parametrize("way", ["send_bookmarks", "send_election_bookmarks"])
async def test_bookmark_follows_all_earlier_events(way: str) -> None:
    dispatcher = WatchDispatcher(HistoryFingerprints(), FakeClock())
    watcher = await live(dispatcher, announced=True)
    burst(dispatcher)
    await told(watcher)
    dispatcher.send_bookmarks(8)
    happen(dispatcher, "a", 9)
    getattr(dispatcher, way)(10)
    assert await told(watcher) == [("ADDED", "a")]


async def test_buffered_events_are_sent_before_the_end() -> None:
    dispatcher = WatchDispatcher(HistoryFingerprints(), FakeClock())
    watcher = await live(dispatcher)
    burst(dispatcher)
    await told(watcher)
    happen(dispatcher, "a", 9)
    dispatcher.end_watches(ShuttingDown)
    assert await told(watcher) == [("ADDED", "a")]
    with pytest.raises(ShuttingDown):
        await anext(watcher)


async def test_much_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A response is to stay of a size that every peer takes."""
    monkeypatch.setattr(module, "MERGE_BYTES", 500)
    dispatcher = WatchDispatcher(HistoryFingerprints(), FakeClock())
    watcher = await live(dispatcher)
    burst(dispatcher)
    await told(watcher)
    waited = 0
    while not watcher.buffered_bytes and waited < 50:
        waited += 1
        happen(dispatcher, "a", 9 + waited)
    assert 1 < waited < 50
    assert len(await told(watcher)) == waited


async def test_bookmarks_are_sent_to_watchers_without_events_for_an_interval() -> None:
    dispatcher = WatchDispatcher(HistoryFingerprints(), FakeClock())
    watcher = await live(dispatcher)
    dispatcher.send_bookmarks(5)
    dispatcher.send_bookmarks(6)
    assert PodWatchResponse.FromString(await anext(watcher)) == PodWatchResponse(resourceVersion="6")
    dispatcher.send_bookmarks(7)
    dispatcher.add_event(event(8, None, pod("a")))
    dispatcher.flush(8)
    dispatcher.send_bookmarks(8)
    assert await told(watcher) == [("ADDED", "a")]


async def test_elections_are_announced_to_watchers_that_request_it() -> None:
    dispatcher = WatchDispatcher(HistoryFingerprints(), FakeClock())
    leader, other = await live(dispatcher, announced=True), await live(dispatcher)
    dispatcher.send_election_bookmarks(9)
    assert await told(leader) == []
    dispatcher.add_event(event(10, None, pod("a")))
    dispatcher.flush(10)
    assert await told(leader) == await told(other) == [("ADDED", "a")]
    assert leader.delivered == other.delivered == 10


async def test_all_end_each_with_an_error_of_its_own() -> None:
    dispatcher = WatchDispatcher(HistoryFingerprints(), FakeClock())
    watchers = [await live(dispatcher, fields) for fields in ("", "", "spec.nodeName=n1")]
    dispatcher.end_watches(ShuttingDown)
    errors = []
    for watcher in watchers:
        with pytest.raises(ShuttingDown) as caught:
            await anext(watcher)
        errors.append(caught.value)
    assert len(set(map(id, errors))) == 3
    assert not vars(dispatcher)["_watchers"]


def contents(dispatcher: WatchDispatcher) -> dict[str, int]:
    return {
        name: value if isinstance(value, int) else len(value)
        for name, value in vars(dispatcher).items()
        if not isinstance(value, FakeClock | HistoryFingerprints)
    }


async def test_watchers_that_left_leave_nothing_behind() -> None:
    dispatcher = WatchDispatcher(HistoryFingerprints(), FakeClock())
    texts = ("", "metadata.name=a", "spec.nodeName=n1", "spec.nodeName in (n1,n2)")
    empty = contents(dispatcher)
    watchers = [await live(dispatcher, fields, labels) for fields in texts for labels in ("", "app")]
    assert contents(dispatcher) != empty
    for watcher in watchers:
        watcher.close()
        watcher.close()
    assert contents(dispatcher) == empty
    dispatcher.add_event(event(9, None, pod("a", node="n1")))
    dispatcher.flush(9)
