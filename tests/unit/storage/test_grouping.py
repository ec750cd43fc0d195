from dataclasses import dataclass

import pytest

from pinnace.apiserver.storage.committer import MAX_GROUP, MAX_GROUP_BYTES, WriteQueue
from pinnace.apiserver.storage.interface import Guard, Write


@dataclass(frozen=True)
class Item:
    write: Write


def item(key: str, size: int = 0, *guards: Guard, lease: int = 0, value: bytes = b"") -> Item:
    return Item(Write(key, value or bytes(size), 0, guards, lease))


def queue_of(*items: Item) -> WriteQueue[Item]:
    queue: WriteQueue[Item] = WriteQueue()
    for each in items:
        queue.add(each)
    return queue


def test_waiting_writes_form_one_group_in_order() -> None:
    items = [item(key) for key in "cab"]
    assert queue_of(*items).next_group() == items


def test_empty_queue_has_no_group() -> None:
    assert queue_of().next_group() == []


def test_group_has_room_for_so_many_operations() -> None:
    queue = queue_of(*(item(f"{i}") for i in range(MAX_GROUP + 3)))
    assert [len(queue.next_group()), len(queue.next_group()), len(queue.next_group())] == [MAX_GROUP, 3, 0]


def test_guard_takes_room_once() -> None:
    guard = Guard("fence", 7)
    queue = queue_of(*(item(f"{i}", 0, guard) for i in range(MAX_GROUP)))
    assert len(queue.next_group()) == MAX_GROUP - 1


def test_group_has_room_for_so_many_bytes() -> None:
    half = MAX_GROUP_BYTES // 2
    queue = queue_of(item("a", half), item("b", half), item("c", 1), item("d", MAX_GROUP_BYTES), item("e", 1))
    groups = [[each.write.key for each in queue.next_group()] for _ in range(4)]
    assert groups == [["a", "b"], ["c"], ["d"], ["e"]]


def test_group_has_at_most_one_lease() -> None:
    queue = queue_of(item("a", lease=1), item("b"), item("c", lease=1), item("d", lease=2), item("e"))
    assert [each.write.key for each in queue.next_group()] == ["a", "b", "c"]
    assert [each.write.key for each in queue.next_group()] == ["d", "e"]


@pytest.mark.parametrize("keys", [("fence", "guarded"), ("guarded", "fence")])
def test_guard_and_a_write_of_its_key_do_not_share_a_group(keys: tuple[str, str]) -> None:
    items = {"fence": item("fence"), "guarded": item("a", 0, Guard("fence", 7))}
    queue = queue_of(*(items[key] for key in keys))
    assert [queue.next_group(), queue.next_group()] == [[items[keys[0]]], [items[keys[1]]]]


class TestOneKey:
    first, second, third, other = item("a", 1), item("a", 2), item("a", 3), item("b")

    def test_writes_of_a_key_go_one_at_a_time(self) -> None:
        queue = queue_of(self.first, self.second, self.third, self.other)
        assert queue.next_group() == [self.first, self.other]
        assert queue.next_group() == []
        queue.release_key(self.first)
        assert queue.next_group() == [self.second]
        queue.release_key(self.second)
        assert queue.next_group() == [self.third]

    @pytest.mark.parametrize("alone", [False, True])
    def test_returned_writes_go_before_all_others(self, alone: bool) -> None:
        """Or without them: one of them may be what the next transaction fails for."""
        queue = queue_of(self.first, self.other)
        handed_out = queue.next_group()
        queue.add(item("c"))
        queue.add(self.second)
        queue.put_back(handed_out, alone=alone)
        groups = [queue.next_group(), queue.next_group()]
        assert groups == ([[self.first, self.other], [item("c")]] if alone else [[self.first, self.other, item("c")], []])

    def test_key_that_was_released_is_free(self) -> None:
        queue = queue_of(self.first)
        queue.next_group()
        queue.release_key(self.first)
        queue.add(self.second)
        assert queue.next_group() == [self.second]

    def test_draining_takes_out_what_is_not_handed_out(self) -> None:
        queue = queue_of(self.first, self.second, self.third)
        queue.next_group()
        queue.add(self.other)
        assert set(queue.drain()) == {self.second, self.third, self.other}
        assert queue.next_group() == []
