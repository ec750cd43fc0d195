"""Traces that follow a pod across processes. Tracing is off unless a component has `--tracing-endpoint`.

    call of the API server (sampled?) --> decode, admit, commit
       '-- the pod's annotation pinnace.io/traceparent --> scheduler: queue, schedule, bind
                                                       '-> kubelet: sync, status

No call from the API server to the scheduler could carry the context of a create. So the API server writes it into the pod, as a
W3C traceparent, and components that process the pod use it as the parent of their spans. Sampling is decided once, where the
trace begins.

Sources: https://www.w3.org/TR/trace-context/#traceparent-header,
https://kubernetes.io/docs/concepts/cluster-administration/system-traces/
"""

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

KEY = "traceparent"
"""The key of a call's metadata that holds the parent span."""
SAMPLED = "-01"
"""The end of a traceparent whose trace is sampled."""

_SOUND = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def metadata(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """The metadata for calls of a program whose environment has a valid $TRACEPARENT.

    Source: https://opentelemetry.io/docs/specs/otel/context/env-carriers/
    """
    told = environment.get(KEY.upper(), "")
    return [(KEY, told)] if _SOUND.fullmatch(told) else []


class Tracer(Protocol):
    """Times are seconds of the monotonic clock."""

    @property
    def on(self) -> bool:
        """Whether spans are exported."""
        ...

    @property
    def traceparent(self) -> str:
        """The span of the call that the present task serves; "" if there is none, or its trace is not sampled."""
        ...

    def call(self, name: str, traceparent: str) -> AbstractContextManager[object]:
        """A server span of a call. Its parent is `traceparent`; without one, the call begins a trace if it is sampled."""
        ...

    def span(self, name: str) -> AbstractContextManager[object]:
        """A child of the present task's span, if that is sampled."""
        ...

    def record(self, name: str, traceparent: str, began: float, ended: float, **attributes: str | int) -> None:
        """Records a finished span as a child of a span of another process."""
        ...

    def close(self) -> None:
        """Exports the remaining spans. Blocks for a few seconds at most."""
        ...


class NoTracer:
    """Costs nothing."""

    on = False
    traceparent = ""

    def call(self, name: str, traceparent: str) -> AbstractContextManager[object]:
        return _NOTHING

    def span(self, name: str) -> AbstractContextManager[object]:
        return _NOTHING

    def record(self, name: str, traceparent: str, began: float, ended: float, **attributes: str | int) -> None:
        return

    def close(self) -> None:
        return


_NOTHING = nullcontext()
NO_TRACER = NoTracer()


def connect(endpoint: str | None, component: str, name: str, *, per_million: int = 0) -> Tracer:
    """A tracer that exports to the OTLP collector (gRPC) at `endpoint`; without one, NO_TRACER. `per_million`: how many of a
    million calls without a parent begin a trace. Raises ModuleNotFoundError if OpenTelemetry is not installed."""
    if endpoint is None:
        return NO_TRACER
    from pinnace.runtime.otel import OtelTracer, exporting  # an optional dependency, which takes 100 ms to import

    return OtelTracer(exporting(endpoint, component, name, per_million))
