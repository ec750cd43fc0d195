"""When requests are read: what may consist of much in its seat only."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from pinnace.api.pods_pb2 import CreatePodBatchRequest
from pinnace.api.status import Code
from pinnace.api.verbs_pb2 import DeleteBatchRequest, DeleteRequest
from pinnace.api.wire import Envelope
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.flow.control import PriorityAndFairness
from pinnace.apiserver.flow.levels import MAX_BYTES_COST, SMALL, cost_of_batch, cost_of_bytes, count_encoded_items
from pinnace.apiserver.services.methods import MAX_BATCH
from tests.builders import make_pod
from tests.unit.auth.matrix import OWN, PEOPLE, Caller, serving


async def test_large_requests_are_parsed_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred creates of four megabytes of empty containers were 400 MB each as soon as they came, whoever sent them."""
    read: list[int] = []
    reads = Envelope.read

    def counted(self: Envelope[Any], data: bytes) -> Any:
        read.append(len(data))
        return reads(self, data)

    async with serving() as assembly:
        create = assembly.methods["/pinnace.v1.Pods/Create"]
        request: Any = create.parse(b"")
        for _ in range(300_000):
            request.object.spec.containers.add()
        data = request.SerializeToString()
        monkeypatch.setattr(Envelope, "read", counted)
        calls = [asyncio.ensure_future(create.call(create.parse(data), Caller(PEOPLE["nobody"]))) for _ in range(4)]
        assert read == []
        await asyncio.sleep(0)
        assert len(read) == 1
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
    codes = [outcome.refusal.code for outcome in outcomes if isinstance(outcome, Rejected)]
    assert codes == [Code.PERMISSION_DENIED] * 4


@pytest.mark.parametrize(("size", "width"), [(SMALL, 1), (1 << 20, 33), (4 << 20, MAX_BYTES_COST)])
def test_they_have_as_many_seats_as_they_have_bytes(size: int, width: int) -> None:
    assert cost_of_bytes(size) == width


@pytest.mark.parametrize("items", [0, 1, 300, MAX_BATCH])
def test_items_of_a_batch_are_counted_without_reading_them(items: int) -> None:
    request = CreatePodBatchRequest(items=[make_pod("p" * (index + 1)).build() for index in range(items)])
    request.options.dryRun.append("All")
    assert count_encoded_items(request.SerializeToString(), 1, MAX_BATCH) == items
    assert count_encoded_items(request.SerializeToString(), 1, 7) == min(items, 7)


@pytest.mark.parametrize("data", [b"\xff" * 100, b"\x0a\xff\xff\xff\xff\x7f", b"\x0a", b"\x08\x01\x0a\x00", b""])
def test_single_request_has_no_items(data: bytes) -> None:
    assert count_encoded_items(data, 1, MAX_BATCH) <= 1


class Counting(bytes):
    looks = 0

    def __getitem__(self, at: Any) -> Any:
        Counting.looks += 1
        return super().__getitem__(at)


@pytest.mark.parametrize("data", [b"\xff", b"\x12\x00", b"\x0a\x00"], ids=["one number", "other fields", "items"])
def test_items_of_a_hostile_batch_are_counted_in_bounded_time(data: bytes) -> None:
    """Nobody has had a seat for it yet."""
    Counting.looks = 0
    count_encoded_items(Counting(data * (1 << 20)), 1, MAX_BATCH)
    assert Counting.looks <= 4 * MAX_BATCH


async def test_large_batch_has_as_many_seats_as_it_has_items(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few bytes they are."""
    widths: list[int] = []
    enter = PriorityAndFairness.request_seat

    def seen(self: PriorityAndFairness, level: str, user: str, width: int, *rest: Any, **named: Any) -> Any:
        widths.append(width)
        return enter(self, level, user, width, *rest, **named)

    async with serving() as assembly:
        monkeypatch.setattr(PriorityAndFairness, "request_seat", seen)
        batch = assembly.methods["/pinnace.v1.Pods/DeleteBatch"]
        request = DeleteBatchRequest(items=[DeleteRequest(namespace=OWN, name=f"p{index}") for index in range(MAX_BATCH)])
        with suppress(Rejected):
            await batch.call(batch.parse(request.SerializeToString()), Caller(PEOPLE["nobody"]))
    assert widths == [cost_of_batch(MAX_BATCH)]


async def test_largest_of_one_user_are_at_work_one_after_the_other() -> None:
    flow = PriorityAndFairness()
    with (
        flow.request_seat("workload", "eve", MAX_BYTES_COST) as first,
        flow.request_seat("workload", "eve", MAX_BYTES_COST) as second,
    ):
        assert not first.waits
        assert second.waits


async def test_lazily_read_request_is_accepted_or_refused_as_an_eager_one() -> None:
    async with serving() as assembly:
        create, batch = (assembly.methods[f"/pinnace.v1.Pods/{name}"] for name in ("Create", "CreateBatch"))
        request: Any = create.parse(b"")
        request.object.CopyFrom(make_pod("large", namespace=OWN).req(cpu="1").new())
        request.object.metadata.annotations["filling"] = "x" * 2 * SMALL
        stored = await create.call(create.parse(request.SerializeToString()), Caller(PEOPLE["editor"]))
        assert b"large" in stored
        with pytest.raises(Rejected, match="is not a message of the method's type"):
            await create.call(create.parse(b"\x0f" * 2 * SMALL), Caller(PEOPLE["editor"]))
        many: Any = batch.parse(b"")
        for _ in range(MAX_BATCH + 1):
            many.items.add().metadata.name = "a"
        with pytest.raises(Rejected, match="items in one batch"):
            await batch.call(batch.parse(many.SerializeToString()), Caller(PEOPLE["nobody"]))
