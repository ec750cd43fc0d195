"""The recorder aggregates events, bounds its queue, and survives unavailable servers."""

import asyncio
from typing import Any

import pytest
from prometheus_client import REGISTRY

from pinnace.api.core_v1_pb2 import Event
from pinnace.api.events_pb2 import CreateEventBatchRequest
from pinnace.api.names import OK, dns_subdomain
from pinnace.api.resources import EVENTS
from pinnace.api.status import Code, Refusal, encode
from pinnace.api.verbs_pb2 import BatchResponse
from pinnace.apiserver.registry.strategies import STRATEGIES
from pinnace.client import events
from pinnace.client.client import EventClient
from pinnace.client.events import MAX_MESSAGE, MAX_NAME, EventRecorder, event_name
from tests.builders import make_node, make_pod
from tests.clock import FakeClock
from tests.unit.client.conftest import Connect, Serve
from tests.unit.client.fakeserver import FakeServer, refuse

METHOD = "/pinnace.v1.Events/Record"
POD = make_pod("a").build()


class Sink:
    """Receives events. The first calls are refused with `refusals`."""

    def __init__(self, server: FakeServer, *refusals: Refusal, refuse_items: bool = False) -> None:
        self.received: list[Event] = []
        self.batches: list[int] = []
        self.arrived = asyncio.Event()
        self._refusals = list(refusals)
        self._refuse_items = refuse_items
        server.on(METHOD, CreateEventBatchRequest, self._record)

    async def _record(self, request: CreateEventBatchRequest, context: Any) -> BatchResponse:
        if self._refusals:
            await refuse(context, self._refusals.pop(0))
        self.received.extend(request.items)
        self.batches.append(len(request.items))
        self.arrived.set()
        response = BatchResponse()
        for item in request.items:
            if self._refuse_items:
                response.items.add(error=encode(Refusal(Code.NOT_FOUND, "NamespaceNotFound", "no such namespace")))
            else:
                response.items.add(name=item.metadata.name)
        return response


def dropped(reason: str) -> float:
    return REGISTRY.get_sample_value("pinnace_client_events_dropped_total", {"reason": reason}) or 0.0


@pytest.fixture
async def server(serve: Serve) -> FakeServer:
    return await serve()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def recorder(server: FakeServer, connect: Connect, clock: FakeClock) -> EventRecorder:
    return EventRecorder(EventClient(connect(server), EVENTS), "default-scheduler", "s1", clock=clock)


async def test_event_has_reason_message_and_involved_object(server: FakeServer, recorder: EventRecorder) -> None:
    sink = Sink(server)
    recorder.event(POD, "Normal", "Scheduled", "assigned to n1")
    await recorder.flush()
    (event,) = sink.received
    assert event.metadata.namespace == "default"
    assert event.metadata.name.startswith("a.")
    assert (event.type, event.reason, event.message, event.count) == ("Normal", "Scheduled", "assigned to n1", 1)
    involved = event.involvedObject
    assert (involved.kind, involved.namespace, involved.name, involved.uid) == ("Pod", "default", "a", POD.metadata.uid)
    assert (event.reportingComponent, event.reportingInstance) == ("default-scheduler", "s1")
    assert event.firstTimestamp.seconds == event.lastTimestamp.seconds == 1_000_000


async def test_component_of_a_process_reports_under_its_own_name(server: FakeServer, recorder: EventRecorder) -> None:
    sink = Sink(server)
    for name in ("job-controller", "node-controller"):
        recorder.for_component(name).event(POD, "Normal", "Seen", "it was seen")
    await recorder.flush()
    assert [item.reportingComponent for item in sink.received] == ["job-controller", "node-controller"]
    assert [item.source.component for item in sink.received] == ["job-controller", "node-controller"]
    assert len({item.metadata.name for item in sink.received}) == 2, "events of two components are not aggregated"


async def test_equal_events_are_counted(server: FakeServer, recorder: EventRecorder, clock: FakeClock) -> None:
    sink = Sink(server)
    for _ in range(3):
        recorder.event(POD, "Warning", "FailedScheduling", "0/5 nodes are available")
        await clock.advance(10)
    recorder.event(POD, "Warning", "FailedScheduling", "0/6 nodes are available")
    await recorder.flush()
    first, second = sink.received
    assert (first.count, first.firstTimestamp.seconds, first.lastTimestamp.seconds) == (3, 1_000_000, 1_000_020)
    assert (second.count, second.metadata.name != first.metadata.name) == (1, True)


async def test_similar_events_of_an_object_are_combined(server: FakeServer, recorder: EventRecorder, clock: FakeClock) -> None:
    """Otherwise a Job of 100,000 pods would store as many events for an hour."""
    sink = Sink(server)
    for number in range(1000):
        recorder.event(POD, "Normal", "SuccessfulCreate", f"Created pod: job-{number}")
    recorder.event(POD, "Normal", "SuccessfulCreate", "Created pod: job-0")
    recorder.event(POD, "Normal", "Completed", "Job completed")
    recorder.event(make_pod("b").build(), "Normal", "SuccessfulCreate", "Created pod: job-1000")
    await recorder.flush()
    *single, combined, _, _ = sink.received
    assert [(item.message, item.count) for item in single] == [
        ("Created pod: job-0", 2),
        *((f"Created pod: job-{number}", 1) for number in range(1, 9)),
    ]
    assert (combined.message, combined.count) == ("(combined from similar events): Created pod: job-999", 991)
    await clock.advance(1)
    recorder.event(POD, "Normal", "SuccessfulCreate", "Created pod: job-1001")
    await recorder.flush()
    assert sink.received[-1].metadata.name == combined.metadata.name, "later events are combined, too"
    assert sink.received[-1].message.endswith("job-1001")


async def test_combining_ends_after_a_pause(server: FakeServer, recorder: EventRecorder, clock: FakeClock) -> None:
    sink = Sink(server)
    for number in range(20):
        recorder.event(POD, "Normal", "ScalingReplicaSet", f"Scaled up to {number}")
    await clock.advance(events.SIMILAR_FOR + 1)
    recorder.event(POD, "Normal", "ScalingReplicaSet", "Scaled up to 20")
    await recorder.flush()
    assert sink.received[-1].message == "Scaled up to 20"


@pytest.mark.parametrize("letter", ["a", "ä"])
async def test_long_message_is_truncated_to_the_limit_of_the_api(
    server: FakeServer, recorder: EventRecorder, letter: str
) -> None:
    """The taints of 20 nodes already exceed the limit. An event that is refused would not explain the pending pod."""
    sink = Sink(server)
    size = len(letter.encode())
    for length in (MAX_MESSAGE // size, MAX_MESSAGE // size + 1):
        recorder.event(POD, "Warning", "FailedScheduling", letter * length)
    await recorder.flush()
    whole, cut = sink.received
    for event in sink.received:
        assert STRATEGIES[EVENTS.plural].validate(event) == []
    assert whole.message == letter * (MAX_MESSAGE // size)
    assert cut.message == letter * ((MAX_MESSAGE - 4) // size) + " ..."


async def test_node_events_are_in_the_default_namespace(server: FakeServer, recorder: EventRecorder) -> None:
    sink = Sink(server)
    recorder.event(make_node("n1").build(), "Normal", "NodeReady", "it is ready")
    await recorder.flush()
    assert (sink.received[0].metadata.namespace, sink.received[0].involvedObject.kind) == ("default", "Node")


async def test_many_events_are_split_into_requests(server: FakeServer, recorder: EventRecorder) -> None:
    sink = Sink(server)
    for number in range(events.FLUSH_SIZE + 1):
        recorder.event(make_pod(f"pod-{number}").build(), "Normal", "Scheduled", "assigned to n1")
    await recorder.flush()
    assert sink.batches == [events.FLUSH_SIZE, 1]


async def test_run_sends_events_periodically(server: FakeServer, recorder: EventRecorder) -> None:
    sink = Sink(server)
    running = asyncio.ensure_future(recorder.run())
    recorder.event(POD, "Normal", "Scheduled", "assigned to n1")
    async with asyncio.timeout(5.0):
        await sink.arrived.wait()
    running.cancel()


async def test_refused_batch_is_sent_again(server: FakeServer, recorder: EventRecorder) -> None:
    sink = Sink(server, Refusal(Code.UNAVAILABLE, "StorageUnavailable", "no etcd", retry_after=60.0))
    recorder.event(POD, "Normal", "Scheduled", "assigned to n1")
    await recorder.flush()
    assert sink.received == []
    recorder.event(POD, "Normal", "Scheduled", "assigned to n1")
    await recorder.flush()
    assert [event.count for event in sink.received] == [2]


async def test_batch_with_unknown_outcome_is_dropped(server: FakeServer, recorder: EventRecorder) -> None:
    before = dropped("OutcomeUnknown")
    sink = Sink(server, Refusal(Code.UNAVAILABLE, "OutcomeUnknown", "etcd did not answer"))
    recorder.event(POD, "Normal", "Scheduled", "assigned to n1")
    await recorder.flush()
    await recorder.flush()
    assert (sink.received, dropped("OutcomeUnknown") - before) == ([], 1)


async def test_refused_events_are_counted_as_dropped(server: FakeServer, recorder: EventRecorder) -> None:
    before = dropped("Refused")
    Sink(server, refuse_items=True)
    recorder.event(POD, "Normal", "Scheduled", "assigned to n1")
    await recorder.flush()
    assert dropped("Refused") - before == 1


async def test_pending_events_are_bounded(recorder: EventRecorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_PENDING", 3)
    before = dropped("Full")
    for number in range(5):
        recorder.event(POD, "Normal", "Pulled", f"image {number}")
    recorder.event(POD, "Normal", "Pulled", "image 0")
    assert dropped("Full") - before == 2


def test_event_names_are_deterministic_and_bounded() -> None:
    assert event_name("a", ["x", "y"]) == event_name("a", ["x", "y"])
    assert event_name("a", ["x", "y"]) != event_name("a", ["xy", ""])
    assert len(event_name("a" * 253, ["x"])) == 253


@pytest.mark.parametrize("cut", ["-", ".", "--"])
def test_truncated_event_name_is_a_valid_name(cut: str) -> None:
    name = "a" * (MAX_NAME - len(cut)) + cut + "b"
    assert dns_subdomain(event_name(name, ["x"])) == OK
