"""A tracer that exports spans with OpenTelemetry. Requires the optional dependencies `pinnace[tracing]`."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from pinnace.runtime import logs
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.tracing import KEY, NO_TRACER

EXPORT_TIMEOUT = 2
"""The timeout of an export to the collector in seconds."""
_context = TraceContextTextMapPropagator()
_call: ContextVar[str] = ContextVar("traceparent", default="")
"""The traceparent of the call that the current task serves."""


class OtelTracer:
    is_exporting = True

    def __init__(self, provider: TracerProvider, clock: Clock = SYSTEM_CLOCK) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("pinnace")
        self._clock = clock

    @property
    def traceparent(self) -> str:
        return _call.get()

    @contextmanager
    def call(self, name: str, traceparent: str) -> Iterator[None]:
        parent = _context.extract({KEY: traceparent}, Context())
        attributes = {"rpc.system": "grpc", "rpc.method": name}
        # Errors are regular responses of the API and are not recorded in spans. The log contains them with the request ID.
        with self._tracer.start_as_current_span(
            name, parent, SpanKind.SERVER, attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            carrier: dict[str, str] = {}
            if span.is_recording():
                _context.inject(carrier)
            of_before = _call.set(carrier.get(KEY, ""))
            try:
                yield
            finally:
                _call.reset(of_before)
                span.set_attribute("request.id", logs.request_id.get())

    def span(self, name: str) -> AbstractContextManager[object]:
        if not trace.get_current_span().is_recording():
            return NO_TRACER.span(name)
        return self._tracer.start_as_current_span(name, record_exception=False, set_status_on_exception=False)

    def record(self, name: str, traceparent: str, began: float, ended: float, **attributes: str | int) -> None:
        unix = time.time_ns() - round(self._clock.monotonic() * 1e9)
        parent = _context.extract({KEY: traceparent}, Context())
        span = self._tracer.start_span(name, parent, attributes=attributes, start_time=unix + round(began * 1e9))
        span.end(unix + round(ended * 1e9))

    def close(self) -> None:
        self._provider.shutdown()


def exporting_provider(endpoint: str, component: str, name: str, per_million: int) -> TracerProvider:
    """Return a provider that exports OTLP over gRPC without TLS, and samples by the parent span, as Kubernetes' components
    do."""
    exporter = OTLPSpanExporter(endpoint=endpoint, insecure=True, timeout=EXPORT_TIMEOUT)
    return create_provider(BatchSpanProcessor(exporter), component, name, per_million)


def create_provider(processor: SpanProcessor, component: str, name: str, per_million: int) -> TracerProvider:
    resource = Resource.create({"service.namespace": "pinnace", "service.name": component, "service.instance.id": name})
    tracer_provider = TracerProvider(ParentBased(TraceIdRatioBased(per_million / 1_000_000)), resource, shutdown_on_exit=False)
    tracer_provider.add_span_processor(processor)
    return tracer_provider
