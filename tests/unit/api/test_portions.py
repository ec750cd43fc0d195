"""Requests that a server takes."""

from google.protobuf.wrappers_pb2 import BytesValue

from pinnace.api.wire import MAX_BYTES, portions

KIB = 1 << 10


def test_items_keep_their_order_and_are_few_enough_together() -> None:
    assert list(portions(range(5), 2, size=lambda _: 1)) == [[0, 1], [2, 3], [4]]
    assert list(portions([], 2)) == []


def test_large_ones_are_small_enough_together_and_who_is_too_large_goes_alone() -> None:
    sizes = [1, 400 * KIB, 600 * KIB, 600 * KIB, 5 * MAX_BYTES, 1]
    assert list(portions(sizes, 100, size=lambda size: size)) == [sizes[:3], sizes[3:4], sizes[4:5], sizes[5:]]


def test_messages_know_their_size() -> None:
    found = list(portions([BytesValue(value=bytes(100 * KIB)) for _ in range(30)], 100))
    assert [len(each) for each in found] == [10, 10, 10]
    assert all(sum(item.ByteSize() for item in each) <= MAX_BYTES for each in found)
