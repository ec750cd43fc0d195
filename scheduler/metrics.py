"""Metrics of the scheduler, named as kube-scheduler's where it has the same."""

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import Counter, Gauge, Histogram, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import REGISTRY, Collector

ATTEMPTS = Counter("scheduler_schedule_attempts", "Attempts to schedule a pod, by result.", ["result"])
SCHEDULED, UNSCHEDULABLE, ERROR = (ATTEMPTS.labels(result) for result in ("scheduled", "unschedulable", "error"))
DECIDING = Counter("scheduler_scheduling_seconds", "Seconds spent in deciding: divided by attempts, the cost of one.")
VICTIMS = Histogram("scheduler_preemption_victims", "Pods deleted to make room for one pod.", buckets=[1, 2, 4, 8, 16, 32, 64])
BINDINGS = Counter("scheduler_bindings", "Ends of bindings, by result.", ["result"])
BOUND, FAILED, FENCED = (BINDINGS.labels(result) for result in ("bound", "failed", "fenced"))
LEADING = Gauge("scheduler_leading", "1 while this replica leads and schedules.")


class PendingPods(Collector):
    """scheduler_pending_pods, counted when it is asked for."""

    def __init__(self, counts: Callable[[], Mapping[str, int]]) -> None:
        self._counts = counts

    def register(self) -> None:
        REGISTRY.register(self)

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily("scheduler_pending_pods", "Pods that wait, by queue.", labels=["queue"])
        for queue, pods in self._counts().items():
            family.add_metric([queue], pods)
        yield family
