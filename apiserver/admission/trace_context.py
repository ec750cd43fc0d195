"""TraceContext: a pod says which trace it is a part of, if the call that creates it is one that is kept.

It is here only where traces are. What a client has put there is dropped: it came with a copy of another pod, whose trace it is.
Who wants a pod in a trace of his own says so with the call (`traceparent` in its metadata).
"""

from apiserver.registry.admission import Request
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import PODS
from pinnace.api.wellknown import TRACE_ANNOTATION
from pinnace.runtime.tracing import Tracer


class TraceContext:
    resources = (PODS,)

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def admit(self, request: Request, obj: Pod) -> None:
        annotations = obj.metadata.annotations
        if traceparent := self._tracer.traceparent:
            annotations[TRACE_ANNOTATION] = traceparent
        else:
            annotations.pop(TRACE_ANNOTATION, None)
