"""The trace of a pod, from the create call through the scheduler to the kubelet."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.machines import MachineShape
from pinnace.api.wellknown import TRACE_ANNOTATION
from pinnace.apiserver.assembly import ServerSettings
from pinnace.apiserver.server import ApiServer
from pinnace.client.client import Client
from pinnace.client.connection import Connection
from pinnace.kubelet.fleet import Fleet
from pinnace.kubelet.registration import FleetMachine
from pinnace.kubelet.runtime.simulated_runtime import Behaviour, SimulatedRuntime
from pinnace.runtime import tracing
from pinnace.runtime.otel import OtelTracer, create_provider
from pinnace.scheduler.config import Configuration
from pinnace.scheduler.scheduler import Scheduler
from tests.builders import make_pod
from tests.storage.memory import MemoryStorage

PATIENCE = 20.0
TRACE = "0af7651916cd43dd8448eb211c80319c"
CAPACITY = {"cpu": "4", "memory": "8Gi", "pods": "10"}
FROM_HERE = tracing.trace_metadata({"TRACEPARENT": f"00-{TRACE}-b7ad6b7169203331-01"})


class Kept(SpanExporter):
    """A span collector. Spans come from the event loop's thread."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []
        self._more = asyncio.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.spans += spans
        self._more.set()
        return SpanExportResult.SUCCESS

    async def the(self, name: str) -> None:
        """Wait for a span of this name."""
        while name not in {span.name for span in self.spans}:
            self._more.clear()
            await self._more.wait()


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def tracer(kept: Kept) -> Callable[..., OtelTracer]:
    """Makes the tracer of a component. `per_million`: the sampled calls per million."""

    def make(component: str, per_million: int = 0) -> OtelTracer:
        return OtelTracer(create_provider(SimpleSpanProcessor(kept), component, f"{component}-0", per_million))

    return make


@asynccontextmanager
async def running(*parts: ApiServer | Scheduler | Fleet) -> AsyncIterator[None]:
    tasks = [asyncio.ensure_future(part.run()) for part in parts]
    try:
        async with asyncio.timeout(PATIENCE):
            yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def serving(tracer: OtelTracer) -> AsyncIterator[str]:
    server = ApiServer(MemoryStorage(), settings=ServerSettings(tracer=tracer))
    address = await server.start("127.0.0.1:0")
    async with running(server):
        yield address
        await server.stop()


@asynccontextmanager
async def connected(address: str, metadata: list[tuple[str, str]] | None = None) -> AsyncIterator[Client]:
    connection = Connection([address], metadata=metadata)
    try:
        yield Client(connection)
    finally:
        await connection.close()


async def test_pod_from_create_to_running_is_one_trace(kept: Kept, tracer: Callable[..., OtelTracer]) -> None:
    async with serving(tracer("apiserver")) as address, connected(address) as client, connected(address, FROM_HERE) as mine:
        scheduler = Scheduler(client, "scheduler-0", Configuration(), tracer=tracer("scheduler"))
        machine = FleetMachine(MachineShape(CAPACITY))
        fleet = Fleet("edge", ["edge-0"], machine, client, SimulatedRuntime(Behaviour()), tracer=tracer("kubelet"))
        async with running(scheduler, fleet):
            await client.pods.create(make_pod("other").req(cpu="1").new())
            created = await mine.pods.create(make_pod("a").req(cpu="1").new())
            await kept.the("kubelet.status")
    spans = {span.name: span for span in kept.spans}
    assert set(spans) == {
        "pinnace.v1.Pods/Create", "decode", "admit", "commit",
        "scheduler.queue", "scheduler.schedule", "scheduler.bind", "kubelet.sync", "kubelet.status",
    }  # fmt: skip
    assert {f"{span.context.trace_id:032x}" for span in spans.values()} == {TRACE}
    call = spans.pop("pinnace.v1.Pods/Create")
    assert call.parent is not None and f"{call.parent.span_id:016x}" == "b7ad6b7169203331"
    assert {span.parent and span.parent.span_id for span in spans.values()} == {call.context.span_id}
    assert created.metadata.annotations[TRACE_ANNOTATION] == f"00-{TRACE}-{call.context.span_id:016x}-01"
    story = [spans[name] for name in ("admit", "commit", "scheduler.schedule", "scheduler.bind", "kubelet.status")]
    assert [began(span) for span in story] == sorted(began(span) for span in story)
    assert all(began(span) <= (span.end_time or 0) for span in spans.values())
    decided = spans["scheduler.schedule"].attributes or {}
    assert (decided["result"], decided["k8s.node.name"]) == ("scheduled", "edge-0")
    assert (spans["kubelet.sync"].attributes or {})["k8s.pod.uid"] == created.metadata.uid
    assert {span.resource.attributes["service.name"] for span in spans.values()} == {"apiserver", "scheduler", "kubelet"}


def began(span: ReadableSpan) -> int:
    assert span.start_time is not None
    return span.start_time


@pytest.mark.parametrize(("per_million", "metadata", "is_kept"), [(0, [], False), (1_000_000, [], True), (0, FROM_HERE, True)])
async def test_trace_is_exported_if_sampled_here_or_by_the_caller(
    kept: Kept,
    tracer: Callable[..., OtelTracer],
    per_million: int,
    metadata: list[tuple[str, str]],
    is_kept: bool,
) -> None:
    copied = make_pod("a").req(cpu="1").new()
    copied.metadata.annotations[TRACE_ANNOTATION] = stale = f"00-{'1' * 32}-{'1' * 16}-01"
    async with serving(tracer("apiserver", per_million)) as address, connected(address, metadata) as client:
        created: Pod = await client.pods.create(copied)
    assert any(span.name == "pinnace.v1.Pods/Create" for span in kept.spans) == is_kept
    assert (TRACE_ANNOTATION in created.metadata.annotations) == is_kept
    assert created.metadata.annotations[TRACE_ANNOTATION] != stale


@pytest.mark.parametrize("told", ["", "1", f"00-{TRACE}-b7ad6b7169203331-01\nx-y: z", TRACE])
def test_invalid_traceparent_is_not_sent(told: str) -> None:
    assert tracing.trace_metadata({"TRACEPARENT": told}) == []
