"""Traces that follow a pod across processes. Tracing is disabled unless a component has `--tracing-endpoint`.

    call of the API server (sampled?) --> decode, admit, commit
       '-- the pod's annotation pinnace.io/traceparent --> scheduler: queue, schedule, bind
                                                       '-> kubelet: sync, status

The API server does not call the scheduler, so the trace context cannot be sent with a call. The API server stores it in the pod
as a W3C traceparent instead. Components that process the pod use it as the parent of their spans. The sampling decision is made
once, at the start of the trace.

Sources: https://www.w3.org/TR/trace-context/#traceparent-header,
https://kubernetes.io/docs/concepts/cluster-administration/system-traces/
"""

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

KEY = "traceparent"
"""The metadata key of the parent span."""
SAMPLED = "-01"
"""The suffix of a sampled traceparent."""

_SOUND = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_NOTHING = nullcontext()


def trace_metadata(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the call metadata of a program whose environment contains a valid $TRACEPARENT.

    Source: https://opentelemetry.io/docs/specs/otel/context/env-carriers/
    """
    told = environment.get(KEY.upper(), "")
    return [(KEY, told)] if _SOUND.fullmatch(told) else []


class Tracer(Protocol):
    """Creates and exports spans. Times are seconds of the monotonic clock."""

    @property
    def is_exporting(self) -> bool:
        """Whether spans are exported."""
        ...

    @property
    def traceparent(self) -> str:
        """The span of the call that the current task serves, or "" if there is no call or its trace is not sampled."""
        ...

    def call(self, name: str, traceparent: str) -> AbstractContextManager[object]:
        """Start the server span of a call. Its parent is `traceparent`. Without a parent, a sampled call starts a trace."""
        ...

    def span(self, name: str) -> AbstractContextManager[object]:
        """Start a child span of the current task's span, if that span is sampled."""
        ...

    def record(self, name: str, traceparent: str, began: float, ended: float, **attributes: str | int) -> None:
        """Record a finished span as a child of a span of another process."""
        ...

    def close(self) -> None:
        """Export the remaining spans. Blocks for at most a few seconds."""
        ...


class NoTracer:
    """A tracer without spans."""

    is_exporting = False
    traceparent = ""

    def call(self, name: str, traceparent: str) -> AbstractContextManager[object]:
        return _NOTHING

    def span(self, name: str) -> AbstractContextManager[object]:
        return _NOTHING

    def record(self, name: str, traceparent: str, began: float, ended: float, **attributes: str | int) -> None:
        return

    def close(self) -> None:
        return


NO_TRACER = NoTracer()


def connect_tracer(endpoint: str | None, component: str, name: str, *, per_million: int = 0) -> Tracer:
    """Return a tracer that exports to the OTLP collector (gRPC) at `endpoint`, or NO_TRACER if `endpoint` is None.
    `per_million`: the number of calls per million without a parent that start a trace. Raises ModuleNotFoundError if
    OpenTelemetry is missing."""
    if endpoint is None:
        return NO_TRACER
    from pinnace.runtime.otel import OtelTracer, exporting_provider  # an optional dependency whose import takes 100 ms

    return OtelTracer(exporting_provider(endpoint, component, name, per_million))
