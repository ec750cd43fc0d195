"""Which states of the commit markers may follow which."""

import pytest

from pinnace.apiserver.cacher.event_history import CommitMarkers
from pinnace.apiserver.storage.interface import KeyChange, KeyValue

NOW = 20


def marker(key: str, at: int, value: bytes = b"1") -> KeyValue:
    return KeyValue(key, value, 1, at, 1)


@pytest.fixture
def markers() -> CommitMarkers:
    """Three, and one that was swept away."""
    known = CommitMarkers()
    known.reset([marker("a", 3), marker("b", 5), marker("gone", 2)])
    known.apply(KeyChange("c", b"1", 7, 7))
    known.apply(KeyChange("b", b"1", 1, 9))
    known.apply(KeyChange("gone", None, 0, 10))
    return known


@pytest.mark.parametrize(
    "later",
    [
        [marker("a", 3), marker("b", 9), marker("c", 7)],
        [marker("a", 21), marker("b", 9), marker("c", 7), marker("new", 22)],
        [marker("b", 9)],
        [marker("b", 9), marker("c", 21)],
        [],
    ],
    ids=["nothing happened", "moved, and new", "the older ones swept", "swept, and moved", "all swept"],
)
def test_marker_may_become_a_later_one(markers: CommitMarkers, later: list[KeyValue]) -> None:
    assert markers.is_same_history(later, NOW)


@pytest.mark.parametrize(
    "later",
    [
        [marker("a", 3), marker("b", 5), marker("c", 7)],
        [marker("a", 3, b"2"), marker("b", 9), marker("c", 7)],
        [marker("gone", 2), marker("b", 21)],
        [marker("other", 20)],
        [marker("a", 3), marker("c", 7)],
    ],
    ids=["not moved yet", "another value", "not swept yet", "never seen", "a newer one missing beside an older one"],
)
def test_marker_of_another_history(markers: CommitMarkers, later: list[KeyValue]) -> None:
    assert not markers.is_same_history(later, NOW)
