import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.pods_pb2 import PodWatchResponse
from pinnace.api.resources import PODS
from pinnace.apiserver.cacher import event_history as past
from pinnace.apiserver.cacher.event_history import (
    EncodedResponse,
    EventHistory,
    HistoryFingerprints,
    initial_events,
    replay_events,
)
from pinnace.apiserver.cacher.store import (
    CacheEvent,
    CacheProgress,
    CacheSnapshot,
    CacheStore,
    RevisionExpired,
    SelectionPredicate,
)
from tests.unit.cacher.world import pod, pod_change

ALL_PODS = SelectionPredicate.parse(PODS, "", "", "")
WEB = SelectionPredicate.parse(PODS, "", "app=web", "")


def read(told: EncodedResponse) -> tuple[list[str], int]:
    """Names and resourceVersion of a response."""
    response = PodWatchResponse.FromString(told.response)
    assert int(response.resourceVersion or 0) == told.revision
    return [event.object.metadata.name for event in response.events], told.revision


def never() -> bool:
    return False


def always() -> bool:
    return True


class History:
    """A store with its ring, into which pods are put, one a revision."""

    def __init__(self, max_events: int = 10_000) -> None:
        self.store = CacheStore(PODS)
        self.ring: EventHistory[CacheEvent[Pod]] = EventHistory(max_events, 1 << 30)
        self.progress, self.marks = CacheProgress(), HistoryFingerprints()

    def snapshot(self) -> CacheSnapshot[Pod]:
        return CacheSnapshot(self.store.candidates(ALL_PODS))

    def put(self, *names: str, app: str = "") -> None:
        for name in names:
            revision = self.progress.revision + 1
            event = self.store.apply(pod_change(revision, pod(name, app=app)))
            assert event is not None
            self.ring.append(event)
            self.progress.advance(revision)

    def put_together(self, *names: str) -> None:
        """In one revision."""
        revision = self.progress.revision + 1
        for name in names:
            event = self.store.apply(pod_change(revision, pod(name)))
            assert event is not None
            self.ring.append(event)
        self.progress.advance(revision)

    def replay(self, since: int, selection: SelectionPredicate = ALL_PODS) -> list[tuple[list[str], int]]:
        return [
            read(told) for told in replay_events(selection, self.ring, since, self.progress, self.marks, never) if told.response
        ]


def test_initial_state_claims_its_revision_only_when_it_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "CHUNK_EVENTS", 2)
    history = History()
    history.put("a", "b", "c", "d", "e")
    told = [read(item) for item in initial_events(ALL_PODS, history.snapshot(), 5, history.marks, never)]
    assert told == [(["a", "b"], 0), (["c", "d"], 0), (["e"], 5)]


def test_empty_initial_state_is_a_bookmark() -> None:
    assert [read(item) for item in initial_events(ALL_PODS, CacheSnapshot([]), 5, HistoryFingerprints(), never)] == [([], 5)]


def test_chunks_are_bounded_by_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "CHUNK_BYTES", 1)
    history = History()
    history.put("a", "b")
    assert [read(item)[0] for item in initial_events(ALL_PODS, history.snapshot(), 2, history.marks, never)] == [
        ["a"],
        ["b"],
        [],
    ]
    assert history.replay(0) == [(["a"], 1), (["b"], 2)]


def test_replay_goes_up_to_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "CHUNK_EVENTS", 2)
    history = History()
    history.put("a", "b", "c")
    assert history.replay(0) == [(["a", "b"], 2), (["c"], 3)]
    assert history.replay(2) == [(["c"], 3)]
    assert history.replay(3) == []


def test_replay_without_a_match_still_tells_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "CHUNK_EVENTS", 2)
    history = History()
    history.put("a", "b", "c", app="db")
    assert history.replay(0, WEB) == [([], 3)]
    history.progress.advance(9)
    assert history.replay(0, WEB) == [([], 9)]


def test_replay_includes_events_during_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "CHUNK_EVENTS", 2)
    history = History()
    history.put("a", "b")
    steps = replay_events(ALL_PODS, history.ring, 0, history.progress, history.marks, never)
    assert read(next(steps)) == (["a", "b"], 2)
    history.put("c")
    assert [read(step) for step in steps] == [(["c"], 3)]


def test_step_ends_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is looked at after BURST requirements, and a step is never without an event."""
    monkeypatch.setattr(past, "BURST", 2)
    history = History()
    history.put("a", "b", "c", "d", "e")
    steps = [read(item) for item in replay_events(ALL_PODS, history.ring, 0, history.progress, history.marks, always)]
    assert steps == [(["a", "b"], 2), (["c", "d"], 4), (["e"], 5)]
    steps = [read(item) for item in initial_events(ALL_PODS, history.snapshot(), 5, history.marks, always)]
    assert steps == [(["a", "b"], 0), (["c", "d"], 0), (["e"], 5)]
    asked = SelectionPredicate.parse(PODS, "", "!x,!y,!z", "")
    steps = [read(item) for item in replay_events(asked, history.ring, 0, history.progress, history.marks, always)]
    assert [names for names, _ in steps] == [[name] for name in "abcde"]


def test_step_without_a_match_ends_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "BURST", 2)
    history = History()
    history.put("a", "b", "c", app="db")
    steps = list(replay_events(WEB, history.ring, 0, history.progress, history.marks, always))
    assert [step.response for step in steps[:-1]] == [b"", b""]
    assert read(steps[-1]) == ([], 3)


def test_partial_revision_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what happens meanwhile comes afterwards, also when the ring has moved on."""
    monkeypatch.setattr(past, "BURST", 2)
    history = History(max_events=6)
    history.put("a", "x")
    history.put_together("b", "c", "d", "e")
    steps = replay_events(ALL_PODS, history.ring, 0, history.progress, history.marks, always)
    assert read(next(steps)) == (["a", "x"], 2)
    assert next(steps).response == b""
    history.put("f")
    history.ring.clear(3)
    history.put("g")
    assert [read(step) for step in steps if step.response] == [(["b", "c", "d", "e"], 3), (["g"], 5)]


def test_reader_behind_the_event_log_gets_expired(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "CHUNK_EVENTS", 1)
    history = History(max_events=3)
    history.put("a", "b")
    steps = replay_events(ALL_PODS, history.ring, 0, history.progress, history.marks, never)
    assert read(next(steps)) == (["a"], 1)
    history.put("c", "d", "e")
    with pytest.raises(RevisionExpired) as caught:
        list(steps)
    assert caught.value.oldest == history.ring.floor > 1
