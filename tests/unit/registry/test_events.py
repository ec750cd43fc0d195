from apiserver.registry.events import MAX_COUNT, merge
from pinnace.api.core_v1_pb2 import Event


def test_counts_add_up() -> None:
    new = Event(count=2, message="new")
    merge(new, Event(count=3, message="old"))
    assert (new.count, new.message) == (5, "new")


def test_a_count_stays_where_it_can_grow_no_more() -> None:
    new = Event(count=MAX_COUNT)
    merge(new, Event(count=MAX_COUNT))
    assert new.count == MAX_COUNT
