from dataclasses import dataclass
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pinnace.apiserver.cacher.event_history import EventHistory

LOTS = 1 << 30


@dataclass(frozen=True)
class Item:
    revision: int
    size: int = 1
    number: int = 0


def ring_of(*revisions: int, max_events: int = 100, max_bytes: int = LOTS) -> EventHistory[Item]:
    ring: EventHistory[Item] = EventHistory(max_events, max_bytes)
    for number, revision in enumerate(revisions):
        ring.append(Item(revision, 1, number))
    return ring


def revisions(items: list[Item] | tuple[Item, ...]) -> list[int]:
    return [item.revision for item in items]


def test_ring_returns_the_events_after_a_revision() -> None:
    ring = ring_of(3, 3, 5, 8)
    assert revisions([*ring.events_after(0, 100, LOTS)]) == [3, 3, 5, 8]
    assert revisions([*ring.events_after(3, 100, LOTS)]) == [5, 8]
    assert revisions([*ring.events_after(4, 100, LOTS)]) == [5, 8]
    assert revisions([*ring.events_after(8, 100, LOTS)]) == []


def test_revision_is_given_whole() -> None:
    ring = ring_of(3, 5, 5, 5, 8)
    assert revisions([*ring.events_after(0, 2, LOTS)]) == [3, 5, 5, 5]
    assert revisions([*ring.events_after(0, 100, 2)]) == [3, 5, 5, 5]
    assert revisions([*ring.events_after(0, 1, LOTS)]) == [3]


def test_single_event_may_exceed_the_limit() -> None:
    ring: EventHistory[Item] = EventHistory(10, LOTS)
    ring.append(Item(1, 1000))
    ring.append(Item(2, 1000))
    assert revisions([*ring.events_after(0, 10, 10)]) == [1]


def test_when_it_is_full_the_floor_rises_to_the_last_that_went() -> None:
    ring = ring_of(*range(1, 10), max_events=8)
    assert ring.floor == 2
    assert revisions([*ring.events_after(ring.floor, 100, LOTS)]) == [3, 4, 5, 6, 7, 8, 9]


def test_revision_that_went_in_part_cannot_be_resumed_before() -> None:
    ring = ring_of(1, 1, 1, 1, 1, 1, 1, 2, 2, max_events=8)
    assert ring.floor == 1
    assert revisions([*ring.events_after(1, 100, LOTS)]) == [2, 2]


def test_event_larger_than_the_ring_leaves_it_empty() -> None:
    ring: EventHistory[Item] = EventHistory(8, 100)
    ring.append(Item(7, 1000))
    assert (len(ring), ring.bytes, ring.floor) == (0, 0, 7)


def test_clear() -> None:
    ring = ring_of(1, 2, 3)
    ring.clear(9)
    assert (len(ring), ring.bytes, ring.floor) == (0, 0, 9)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 50)), max_size=80),
    st.integers(1, 20),
    st.integers(1, 200),
    st.integers(1, 9),
    st.integers(1, 99),
)
def test_event_log_is_bounded_and_complete_since_its_floor(
    steps: list[tuple[int, int]], max_events: int, max_bytes: int, chunk_events: int, chunk_bytes: int
) -> None:
    ring: EventHistory[Item] = EventHistory(max_events, max_bytes)
    history: list[Item] = []
    revision = 1
    for number, (step, size) in enumerate(steps):
        revision += step
        history.append(Item(revision, size, number))
        ring.append(history[-1])
        assert len(ring) <= max_events
        assert ring.bytes <= max_bytes
    for since in range(ring.floor, revision + 2):
        position, told = since, list[Item]()
        while chunk := ring.events_after(position, chunk_events, chunk_bytes):
            told += chunk
            position = chunk[-1].revision
        assert told == [item for item in history if item.revision > since]
    assert all(one <= other for one, other in pairwise(revisions(history)))
