"""Events add up, and expire."""

import asyncio
from collections.abc import Sequence

import pytest

from pinnace.api.core_v1_pb2 import Event, EventList
from pinnace.api.events_pb2 import CreateEventBatchRequest, CreateEventRequest, UpdateEventRequest
from pinnace.api.resources import EVENTS
from pinnace.api.status import decode
from pinnace.api.verbs_pb2 import BatchResponse, ListRequest, PatchRequest
from pinnace.apiserver.assembly import Assembly
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry.events import LEASE_REUSE, MAX_EVENT_COUNT, TTL, LeasedEventCommitter, merge_events
from pinnace.apiserver.storage.interface import OutOfSpace, Write
from tests.clock import FakeClock
from tests.storage.memory import MemoryStorage
from tests.unit.auth.matrix import OTHER, OTHER_NODE, OWN, OWN_NODE, PEOPLE, Caller, serving
from tests.unit.registry.test_creating import call

KEY = EVENTS.key("default", "a.1")


def test_counts_add_up() -> None:
    new = Event(count=2, message="new")
    merge_events(new, Event(count=3, message="old"))
    assert (new.count, new.message) == (5, "new")


def test_count_stays_where_it_can_grow_no_more() -> None:
    new = Event(count=MAX_EVENT_COUNT)
    merge_events(new, Event(count=MAX_EVENT_COUNT))
    assert new.count == MAX_EVENT_COUNT


async def test_every_event_expires_whichever_verb_wrote_it() -> None:
    storage = MemoryStorage()
    assembly = Assembly(storage)
    running = asyncio.ensure_future(assembly.run())
    await assembly.opening.bootstrapped.wait()
    event = Event(reason="Failed", message="no", type="Warning", count=1)
    event.metadata.namespace, event.metadata.name = "default", "a.1"
    event.involvedObject.kind, event.involvedObject.namespace, event.involvedObject.name = "Pod", "default", "a"
    changed = Event()
    changed.CopyFrom(event)
    changed.count = 9
    patch = PatchRequest(namespace="default", name="a.1", type=PatchRequest.MERGE, patch=b'{"message": "never"}')
    for verb, request in (
        ("Create", CreateEventRequest(object=event)),
        ("Update", UpdateEventRequest(object=changed)),
        ("Patch", patch),
        ("Record", CreateEventBatchRequest(items=[event])),
    ):
        await assembly.methods[f"/pinnace.v1.Events/{verb}"].call(request, Caller(PEOPLE["admin"]))
        stored = await storage.get(KEY)
        assert stored is not None and stored.lease, verb
        assert TTL <= await storage.renew_lease(stored.lease) <= TTL + LEASE_REUSE
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_event_without_a_name_is_not_recorded() -> None:
    """It was stored where no event is: a list showed it, and nobody could get or delete it."""
    async with serving() as assembly:
        events = [Event(reason=reason, type="Normal") for reason in ("One", "Two", "Named")]
        for event in events:
            event.metadata.generateName = "a-"
            event.involvedObject.kind, event.involvedObject.namespace, event.involvedObject.name = "Pod", "default", "a"
        events[-1].metadata.name = "a.1"
        request = CreateEventBatchRequest(items=events)
        recorded = BatchResponse.FromString(await call(assembly, "Events/Record", request))
        assert [item.name or decode(item.error).violations[0].field for item in recorded.items] == [
            "metadata.name",
            "metadata.name",
            "a.1",
        ]
        event_list = EventList.FromString(await call(assembly, "Events/List", ListRequest()))
        assert [item.metadata.name for item in event_list.items] == ["a.1"]


async def test_expired_event_is_recorded_again() -> None:
    """Whoever goes on with an event that he was told says its version; it may be gone by now."""
    event = Event(reason="Failed", type="Warning", count=3)
    event.metadata.name, event.metadata.resourceVersion = "a.1", "7"
    event.involvedObject.kind, event.involvedObject.namespace, event.involvedObject.name = "Pod", "default", "a"
    async with serving() as assembly:
        for count in (3, 6):
            await call(assembly, "Events/Record", CreateEventBatchRequest(items=[event]))
            event_list = EventList.FromString(await call(assembly, "Events/List", ListRequest()))
            assert [item.count for item in event_list.items] == [count]


async def test_dry_run_records_nothing() -> None:
    """It was recorded, whatever was said."""
    event = Event(reason="Failed", type="Warning")
    event.metadata.name = "a.1"
    event.involvedObject.kind, event.involvedObject.namespace, event.involvedObject.name = "Pod", "default", "a"
    async with serving() as assembly:
        request = CreateEventBatchRequest(items=[event, Event()])
        request.options.dryRun[:] = ["All"]
        told = BatchResponse.FromString(await call(assembly, "Events/Record", request))
        assert [item.HasField("error") for item in told.items] == [False, True]
        request.options.dryRun[:] = ["all"]
        with pytest.raises(Rejected, match="supported values"):
            await call(assembly, "Events/Record", request)
        assert not EventList.FromString(await call(assembly, "Events/List", ListRequest())).items


async def test_kubelet_cannot_record_about_others_or_change_their_events() -> None:
    """A record adds to the event that has its name, whatever that is about: a kubelet could reword the scheduler's events."""

    def event(name: str, kind: str, namespace: str, about: str, message: str) -> Event:
        made = Event(reason="Failed", message=message, type="Warning", count=1)
        made.metadata.name = name
        made.involvedObject.kind, made.involvedObject.namespace, made.involvedObject.name = kind, namespace, about
        return made

    async with serving() as assembly:
        theirs = event("theirs", "Node", "", OTHER_NODE, "from the controllers")
        await call(assembly, "Events/Record", CreateEventBatchRequest(items=[theirs]))
        items = [
            event("a", "Node", "", OWN_NODE, "own"),
            event("b", "Pod", OWN, "thing", "own"),
            event("c", "Node", "", OTHER_NODE, "lies"),
            event("d", "Pod", OTHER, "thing", "lies"),
            event("theirs", "Node", "", OWN_NODE, "lies"),
        ]
        method = assembly.methods["/pinnace.v1.Events/Record"]
        answer = BatchResponse.FromString(await method.call(CreateEventBatchRequest(items=items), Caller(PEOPLE["fleet"])))
        assert [item.HasField("error") for item in answer.items] == [False, False, True, True, True]
        assert "can only record events about its own nodes" in decode(answer.items[-1].error).message
        event_list = EventList.FromString(await call(assembly, "Events/List", ListRequest()))
        assert {item.message for item in event_list.items} == {"own", "from the controllers"}


class Written:
    """Takes writes, and remembers their leases."""

    def __init__(self) -> None:
        self.leases: list[int] = []

    async def commit_many(self, writes: Sequence[Write]) -> list[int]:
        self.leases += [write.lease for write in writes]
        return [1] * len(writes)


class Full(MemoryStorage):
    async def grant_lease(self, ttl: int) -> int:
        raise OutOfSpace("etcd is out of space")


async def test_events_of_a_minute_share_their_time() -> None:
    clock, written = FakeClock(), Written()
    expiring = LeasedEventCommitter(written, MemoryStorage(clock), clock)
    for wait in (0.0, LEASE_REUSE - 1.0, 2.0):
        await clock.advance(wait)
        await expiring.commit_many([Write(KEY, b"event", 0), Write(KEY, b"another", 0)])
    first, later = written.leases[0], written.leases[-1]
    assert first and later and first != later
    assert written.leases == [first] * 4 + [later] * 2


async def test_without_a_time_nothing_is_written_but_deletes_are() -> None:
    clock, written = FakeClock(), Written()
    expiring = LeasedEventCommitter(written, Full(clock), clock)
    (refused,) = await expiring.commit_many([Write(KEY, b"event", 0)])
    assert isinstance(refused, OutOfSpace) and not written.leases
    assert await expiring.commit_many([Write(KEY, None, 7)]) == [1]
