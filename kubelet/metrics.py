"""Metrics of the kubelet, and trace spans of pods."""

from dataclasses import dataclass

from prometheus_client import Counter, Gauge

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.wellknown import TRACE_ANNOTATION
from pinnace.kubelet.lifecycle import PodPhase
from pinnace.runtime.clock import Clock
from pinnace.runtime.tracing import NO_TRACER, SAMPLED, Tracer

NODES = Gauge("pinnace_kubelet_nodes", "Nodes that this fleet runs.")
PODS = Gauge("pinnace_kubelet_pods", "Pods that are bound to its nodes, including finished pods.")
RUNNING = Gauge("kubelet_running_pods", "Running pods of its nodes.")
UNREPORTED = Gauge("pinnace_kubelet_unreported_pods", "Pods with an unwritten status.")
REFUSED = Counter("kubelet_admission_rejections", "Pods that were rejected at admission, by reason.", ["reason"])
TRIPPED = Counter("pinnace_kubelet_pods_tripped", "Exceptions during the sync of a pod. Other pods are not affected.")
FAILED_WRITES = Counter("pinnace_kubelet_failed_writes", "Writes that the API server rejected, by gRPC code.", ["verb", "code"])


@dataclass(slots=True)
class _PodArrival:
    traceparent: str
    at: float
    """The time at which the pod was received, or, if it runs, the time at which it began to run."""
    attributes: dict[str, str]
    phase: PodPhase | None = None


class PodStartupTraces:
    """By uid. Without traces, each pod costs one lookup."""

    def __init__(self, clock: Clock, tracer: Tracer = NO_TRACER) -> None:
        self._tracer = tracer
        self._clock = clock
        self._open: dict[str, _PodArrival] = {}

    def trace_arrival(self, pod: Pod) -> None:
        """A pod that has not been accepted."""
        if not self._tracer.is_exporting:
            return
        metadata = pod.metadata
        traceparent = metadata.annotations.get(TRACE_ANNOTATION, "")
        if traceparent.endswith(SAMPLED):
            attributes = {
                "k8s.namespace.name": metadata.namespace,
                "k8s.pod.name": metadata.name,
                "k8s.pod.uid": metadata.uid,
                "k8s.node.name": pod.spec.nodeName,
            }
            self._open[metadata.uid] = _PodArrival(traceparent, self._clock.monotonic(), attributes)

    def trace_phase(self, uid: str, phase: PodPhase) -> None:
        """A new state will be reported."""
        arrival = self._open.get(uid)
        if arrival is not None and arrival.phase is None and phase is not PodPhase.PENDING:
            now = self._clock.monotonic()
            self._tracer.record("kubelet.sync", arrival.traceparent, arrival.at, now, phase=phase, **arrival.attributes)
            arrival.at, arrival.phase = now, phase

    def trace_report(self, uid: str) -> None:
        """The latest state is stored."""
        arrival = self._open.get(uid)
        if arrival is not None and arrival.phase is not None:
            self._tracer.record(
                "kubelet.status",
                arrival.traceparent,
                arrival.at,
                self._clock.monotonic(),
                phase=arrival.phase,
                **arrival.attributes,
            )
            del self._open[uid]

    def forget_pod(self, uid: str) -> None:
        self._open.pop(uid, None)
