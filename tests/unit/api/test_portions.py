"""Splitting of items into requests of limited size."""

from google.protobuf.wrappers_pb2 import BytesValue

from pinnace.api.wire import MAX_BYTES, split_into_batches

KIB = 1 << 10


def test_portions_keep_the_order_and_limit_the_count() -> None:
    assert list(split_into_batches(range(5), 2, size=lambda _: 1)) == [[0, 1], [2, 3], [4]]
    assert list(split_into_batches([], 2)) == []


def test_portions_limit_the_size_and_isolate_oversized_items() -> None:
    sizes = [1, 400 * KIB, 600 * KIB, 600 * KIB, 5 * MAX_BYTES, 1]
    assert list(split_into_batches(sizes, 100, size=lambda size: size)) == [sizes[:3], sizes[3:4], sizes[4:5], sizes[5:]]


def test_portions_use_the_size_of_messages() -> None:
    result = list(split_into_batches([BytesValue(value=bytes(100 * KIB)) for _ in range(30)], 100))
    assert [len(each) for each in result] == [10, 10, 10]
    assert all(sum(item.ByteSize() for item in each) <= MAX_BYTES for each in result)
