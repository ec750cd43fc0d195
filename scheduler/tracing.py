"""What the scheduler tells of pods whose traces are kept: how long each waited, was tried, and was being bound."""

from pinnace.api.wellknown import TRACE_ANNOTATION
from pinnace.runtime.clock import Clock
from pinnace.runtime.tracing import NO_TRACER, SAMPLED, Tracer
from scheduler.cache.pod_info import PodInfo
from scheduler.decision import Decision
from scheduler.queue import QueuedPod


class PodTraces:
    """Costs one look at a field for each pod where there are no traces."""

    def __init__(self, clock: Clock, tracer: Tracer = NO_TRACER) -> None:
        self._tracer = tracer
        self._clock = clock
        self._decided: dict[str, float] = {}
        """When, by uid, of pods whose bind is on its way."""

    def tried(self, queued: QueuedPod, began: float, result: str, node: str = "") -> None:
        """An attempt has ended: just now."""
        if not self._tracer.on or not (parent := _kept(queued.info)):
            return
        now, attempt = self._clock.monotonic(), queued.attempts
        self._tracer.record("scheduler.queue", parent, queued.since, began, attempt=attempt)
        named = {"k8s.node.name": node} if node else {}
        self._tracer.record("scheduler.schedule", parent, began, now, attempt=attempt, result=result, **named)
        if node:
            self._decided[queued.info.uid] = now

    def settled(self, decision: Decision, result: str) -> None:
        """A bind has ended: just now."""
        info = decision.queued.info
        if (began := self._decided.pop(info.uid, None)) is not None:
            attributes = {"result": result, "k8s.node.name": decision.node}
            self._tracer.record("scheduler.bind", _kept(info), began, self._clock.monotonic(), **attributes)

    def forget(self) -> None:
        """A term has ended: what comes of its decisions, the informer tells."""
        self._decided.clear()


def _kept(info: PodInfo) -> str:
    """The span that the pod was created in; "" when nobody keeps its trace."""
    parent = info.raw.metadata.annotations.get(TRACE_ANNOTATION, "")
    return parent if parent.endswith(SAMPLED) else ""
