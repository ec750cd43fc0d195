"""Traces that follow a pod across processes: off, unless a component is told where a collector is (`--tracing-endpoint`).

    call of the API server (sampled?) --> decode, admit, commit
       '-- the pod's annotation pinnace.io/traceparent --> scheduler: queue, schedule, bind
                                                       '-> kubelet: sync, status

Between the create and the scheduler there is no call that could carry the context: so the API server writes it into the pod, as
W3C's traceparent, and who works on the pod later takes it as the parent of what he records. Whether a trace is kept is decided
once, where it begins.

Sources: https://www.w3.org/TR/trace-context/#traceparent-header,
https://kubernetes.io/docs/concepts/cluster-administration/system-traces/
"""

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

KEY = "traceparent"
"""Of a call's metadata: the span that it is a part of."""
SAMPLED = "-01"
"""How a traceparent ends of which somebody keeps the trace."""

_SOUND = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def metadata(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """What a program sends with its calls when $TRACEPARENT says what it is a part of.

    Source: https://opentelemetry.io/docs/specs/otel/context/env-carriers/
    """
    told = environment.get(KEY.upper(), "")
    return [(KEY, told)] if _SOUND.fullmatch(told) else []


class Tracer(Protocol):
    """Times are seconds of the monotonic clock."""

    @property
    def on(self) -> bool:
        """Does anybody keep what is told here?"""
        ...

    @property
    def traceparent(self) -> str:
        """The call on whose behalf the present task runs; "" when there is none, or its trace is not kept."""
        ...

    def call(self, name: str, traceparent: str) -> AbstractContextManager[object]:
        """A span of a call that somebody made, who may have said what it is a part of. It begins a trace otherwise, or does
        not: that is sampled."""
        ...

    def span(self, name: str) -> AbstractContextManager[object]:
        """A part of the span that the present task is in, if that is kept."""
        ...

    def record(self, name: str, traceparent: str, began: float, ended: float, **attributes: str | int) -> None:
        """What has been, as a part of a span elsewhere."""
        ...

    def close(self) -> None:
        """Sends what is left. Blocks, for some seconds at most."""
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
    """A tracer that sends to the OTLP collector (gRPC) at `endpoint`; None: NO_TRACER. `per_million`: how many calls of a
    million begin a trace, of those that are part of none. Raises ModuleNotFoundError where OpenTelemetry is not installed."""
    if endpoint is None:
        return NO_TRACER
    from pinnace.runtime.otel import OtelTracer, exporting  # an optional dependency, which takes 100 ms to import

    return OtelTracer(exporting(endpoint, component, name, per_million))
