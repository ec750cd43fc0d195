"""Batches that say several things about one object."""

from typing import Any

from pinnace.api.core_v1_pb2 import Event, Pod
from pinnace.api.events_pb2 import CreateEventBatchRequest
from pinnace.api.verbs_pb2 import BatchResponse, GetRequest
from pinnace.apiserver.assembly import Assembly
from tests.builders import make_pod
from tests.unit.auth.matrix import OWN, PEOPLE, Caller, serving

MANY = 100


async def call(assembly: Assembly, method: str, request: Any) -> bytes:
    return await assembly.methods[f"/pinnace.v1.{method}"].call(request, Caller(PEOPLE["admin"]))


def again(message: str) -> Event:
    event = Event(reason="Failed", message=message, type="Warning", count=1)
    event.metadata.namespace, event.metadata.name = OWN, "a.1"
    event.involvedObject.kind, event.involvedObject.namespace, event.involvedObject.name = "Pod", OWN, "a"
    return event


async def test_all_of_them_happen_one_after_another() -> None:
    async with serving() as assembly:
        request = CreateEventBatchRequest(items=[again(f"for the {number}. time") for number in range(MANY)])
        items = BatchResponse.FromString(await call(assembly, "Events/Record", request)).items
        assert [item.error.message for item in items if item.HasField("error")] == []
        assert len({item.resourceVersion for item in items}) == MANY
        stored = await call(assembly, "Events/Get", GetRequest(namespace=OWN, name="a.1"))
        assert Event.FromString(stored).count == MANY


async def test_repeated_event_is_one_write() -> None:
    async with serving() as assembly:
        request = CreateEventBatchRequest(items=[again("twice"), *[again("often")] * MANY, again("twice")])
        items = BatchResponse.FromString(await call(assembly, "Events/Record", request)).items
        assert len(items) == MANY + 2 and not any(item.HasField("error") for item in items)
        assert len({item.resourceVersion for item in items}) == 2
        stored = await call(assembly, "Events/Get", GetRequest(namespace=OWN, name="a.1"))
        assert Event.FromString(stored).count == MANY + 2


async def test_first_of_concurrent_creates_wins_and_the_others_conflict() -> None:
    async with serving() as assembly:
        request: Any = assembly.methods["/pinnace.v1.Pods/CreateBatch"].parse(b"")
        request.items.extend([make_pod(name, namespace=OWN).req(cpu="1").new() for name in ("a", "b", "a", "c", "a")])
        items = BatchResponse.FromString(await call(assembly, "Pods/CreateBatch", request)).items
        assert [item.HasField("error") for item in items] == [False, False, True, False, True]
        assert [item.name for item in items if item.name] == ["a", "b", "c"]
        stored = await call(assembly, "Pods/Get", GetRequest(namespace=OWN, name="a"))
        assert Pod.FromString(stored).metadata.uid == items[0].uid


async def test_oversized_item_is_refused_alone() -> None:
    async with serving() as assembly:
        request: Any = assembly.methods["/pinnace.v1.Pods/CreateBatch"].parse(b"")
        request.items.extend([make_pod(name, namespace=OWN).req(cpu="1").new() for name in ("a", "b")])
        for _ in range(20_000):
            request.items[0].spec.containers.add()
        items = BatchResponse.FromString(await call(assembly, "Pods/CreateBatch", request)).items
        assert "too many items in lists and maps: at most 10,000" in items[0].error.message
        assert not items[1].HasField("error")
