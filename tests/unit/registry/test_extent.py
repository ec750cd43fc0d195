import pytest
from google.protobuf.message import Message

from pinnace.api.core_v1_pb2 import EnvVar, LimitRange, Pod
from pinnace.apiserver.registry import strategy
from pinnace.apiserver.registry.strategy import MAX_PARTS, USUAL_OBJECT_SIZE, has_too_many_items

PAD = "x" * USUAL_OBJECT_SIZE


def padded() -> Pod:
    """Large enough to be looked at; one part."""
    pod = Pod()
    pod.metadata.annotations["pad"] = PAD
    return pod


@pytest.mark.parametrize("more", [0, 1])
def test_items_of_lists_count(more: int) -> None:
    pod = padded()
    pod.metadata.finalizers.extend(["a"] * (MAX_PARTS - 1 + more))
    assert has_too_many_items(pod) == bool(more)


@pytest.mark.parametrize("more", [0, 1])
def test_nested_lists_are_counted(more: int) -> None:
    pod = padded()
    for _ in range(9):
        pod.spec.containers.add().args.extend(["a"] * 1000)
    pod.spec.containers.add().args.extend(["a"] * (MAX_PARTS - 1 - 9 - 9000 - 1 + more))
    assert has_too_many_items(pod) == bool(more)


@pytest.mark.parametrize("more", [0, 1])
def test_documents_count_by_their_keys(more: int) -> None:
    limits = LimitRange()
    limits.metadata.annotations["pad"] = PAD
    item = limits.spec.limits.add()
    for number in range(MAX_PARTS - 2 + more):
        item.max[f"k{number}"].string = "1"
    assert has_too_many_items(limits) == bool(more)


def test_size_alone_does_not_matter() -> None:
    pod = padded()
    pod.metadata.annotations["more"] = PAD * 50
    assert not has_too_many_items(pod)


@pytest.mark.parametrize("more", [0, 1])
def test_stored_oversized_fields_may_stay(more: int) -> None:
    old, new = padded(), padded()
    old.spec.containers.add().args.extend(["a"] * MAX_PARTS)
    new.spec.containers.add().args.extend(["a"] * (MAX_PARTS + more))
    new.metadata.labels["a"] = "b"
    new.status.conditions.add()
    assert has_too_many_items(new)
    assert has_too_many_items(new, old) == bool(more)


def test_size_check_stops_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = 0

    def left(message: Message, room: int) -> int:
        nonlocal looked_at
        looked_at += 1
        return original(message, room)

    original = strategy._remaining_item_room
    monkeypatch.setattr(strategy, "_remaining_item_room", left)
    new = padded()
    for _ in range(10):
        new.spec.containers.add().args.extend(["a"] * MAX_PARTS)
        new.spec.containers[-1].env.extend([EnvVar()] * MAX_PARTS)
    assert has_too_many_items(new, padded())
    assert looked_at < 100
