import pytest

from apiserver.cacher import past
from apiserver.cacher.errors import Expired
from apiserver.cacher.event import Event
from apiserver.cacher.marks import Marks
from apiserver.cacher.outbox import Told
from apiserver.cacher.past import initial_state, replay
from apiserver.cacher.progress import Progress
from apiserver.cacher.ring import Ring
from apiserver.cacher.selection import Selection
from apiserver.cacher.store import Store
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.pods_pb2 import PodWatchResponse
from pinnace.api.resources import PODS
from tests.unit.cacher.world import pod, pod_change

ALL_PODS = Selection.parse(PODS, "", "", "")
WEB = Selection.parse(PODS, "", "app=web", "")


def read(told: Told) -> tuple[list[str], int]:
    """Names and resourceVersion of a response."""
    response = PodWatchResponse.FromString(told.response)
    assert int(response.resourceVersion or 0) == told.revision
    return [each.object.metadata.name for each in response.events], told.revision


class History:
    """A store with its ring, into which pods are put, one a revision."""

    def __init__(self, max_events: int = 10_000) -> None:
        self.store = Store(PODS)
        self.ring: Ring[Event[Pod]] = Ring(max_events, 1 << 30)
        self.progress, self.marks = Progress(), Marks()

    def put(self, *names: str, app: str = "") -> None:
        for name in names:
            revision = self.progress.revision + 1
            event = self.store.apply(pod_change(revision, pod(name, app=app)))
            assert event is not None
            self.ring.append(event)
            self.progress.advance(revision)

    def replay(self, since: int, selection: Selection = ALL_PODS) -> list[tuple[list[str], int]]:
        return [read(told) for told in replay(selection, self.ring, since, self.progress, self.marks) if told.response]


def test_the_initial_state_claims_its_revision_only_when_it_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "CHUNK_EVENTS", 2)
    history = History()
    history.put("a", "b", "c", "d", "e")
    told = [read(each) for each in initial_state(ALL_PODS, history.store.candidates(ALL_PODS), 5, history.marks)]
    assert told == [(["a", "b"], 0), (["c", "d"], 0), (["e"], 5)]


def test_an_empty_initial_state_is_a_bookmark() -> None:
    assert [read(each) for each in initial_state(ALL_PODS, [], 5, Marks())] == [([], 5)]


def test_chunks_are_bounded_by_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "CHUNK_BYTES", 1)
    history = History()
    history.put("a", "b")
    assert [read(each)[0] for each in initial_state(ALL_PODS, history.store.candidates(ALL_PODS), 2, history.marks)] == [
        ["a"],
        ["b"],
        [],
    ]
    assert history.replay(0) == [(["a"], 1), (["b"], 2)]


def test_a_replay_goes_up_to_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "CHUNK_EVENTS", 2)
    history = History()
    history.put("a", "b", "c")
    assert history.replay(0) == [(["a", "b"], 2), (["c"], 3)]
    assert history.replay(2) == [(["c"], 3)]
    assert history.replay(3) == []


def test_a_replay_without_a_match_still_tells_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "CHUNK_EVENTS", 2)
    history = History()
    history.put("a", "b", "c", app="db")
    assert history.replay(0, WEB) == [([], 3)]
    history.progress.advance(9)
    assert history.replay(0, WEB) == [([], 9)]


def test_what_happens_during_a_replay_is_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "CHUNK_EVENTS", 2)
    history = History()
    history.put("a", "b")
    steps = replay(ALL_PODS, history.ring, 0, history.progress, history.marks)
    assert read(next(steps)) == (["a", "b"], 2)
    history.put("c")
    assert [read(each) for each in steps] == [(["c"], 3)]


def test_a_reader_that_the_ring_has_left_behind_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "CHUNK_EVENTS", 1)
    history = History(max_events=3)
    history.put("a", "b")
    steps = replay(ALL_PODS, history.ring, 0, history.progress, history.marks)
    assert read(next(steps)) == (["a"], 1)
    history.put("c", "d", "e")
    with pytest.raises(Expired) as caught:
        list(steps)
    assert caught.value.oldest == history.ring.floor > 1
