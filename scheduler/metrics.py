"""Metrics of the scheduler, with kube-scheduler's names where it has the same metric."""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import REGISTRY, Collector

ATTEMPTS = Counter("scheduler_schedule_attempts", "AttemptMetrics to schedule a pod, by result.", ["profile", "result"])
DURATION = Histogram(
    "scheduler_scheduling_attempt_duration_seconds",
    "Seconds that an attempt takes until a node is assumed, or the pod given back, by result.",
    ["profile", "result"],
    buckets=[0.00002 * 2**step for step in range(18)],  # 20 microseconds to 2.6 seconds
)


class AttemptMetrics:
    """Those of one profile with one result."""

    def __init__(self, profile: str, result: str) -> None:
        self._count = ATTEMPTS.labels(profile, result)
        self._duration = DURATION.labels(profile, result)

    def note(self, seconds: float) -> None:
        self._count.inc()
        self._duration.observe(seconds)


SCHEDULED, UNSCHEDULABLE, ERROR = "scheduled", "unschedulable", "error"


@cache
def attempts(profile: str, result: str) -> AttemptMetrics:
    """Profiles are as many as are configured."""
    return AttemptMetrics(profile, result)


TRIES = Histogram("scheduler_pod_scheduling_attempts", "AttemptMetrics until a pod is bound.", buckets=[1, 2, 4, 8, 16])
PREEMPTIONS = Counter("scheduler_preemption_attempts", "AttemptMetrics to make room for a pod by deleting others.")
VICTIMS = Histogram("scheduler_preemption_victims", "Pods deleted to make room for one pod.", buckets=[1, 2, 4, 8, 16, 32, 64])
BINDINGS = Counter("scheduler_bindings", "Ends of bindings, by result.", ["result"])
BOUND, FAILED, FENCED = (BINDINGS.labels(result) for result in ("bound", "failed", "fenced"))


class QueueCollector(Collector):
    """What is counted when somebody asks, and costs nothing otherwise: one gauge with one label."""

    def __init__(self, name: str, documentation: str, label: str, counts: Callable[[], Mapping[str, int]]) -> None:
        self._made = name, documentation, label
        self._counts = counts

    def collect(self) -> Iterable[Metric]:
        name, documentation, label = self._made
        family = GaugeMetricFamily(name, documentation, labels=[label])
        for value, count in self._counts().items():
            family.add_metric([value], count)
        yield family


class SchedulerCounts(Protocol):
    """A scheduler, as far as it is counted."""

    def pending(self) -> Mapping[str, int]: ...
    def refusing(self) -> Mapping[str, int]: ...
    def cached(self) -> Mapping[str, int]: ...


def register(scheduler: Callable[[], SchedulerCounts], registry: CollectorRegistry = REGISTRY) -> None:
    """To be called once in a process. `scheduler`: the one that there is when it is counted."""
    for census in (
        QueueCollector("scheduler_pending_pods", "Pods that wait, by queue.", "queue", lambda: scheduler().pending()),
        QueueCollector(
            "scheduler_unschedulable_pods",
            "Unschedulable pods, by plugin that refused them.",
            "plugin",
            lambda: scheduler().refusing(),
        ),
        QueueCollector(
            "scheduler_cache_size",
            "Nodes, pods on them, and pods of these that are assumed.",
            "type",
            lambda: scheduler().cached(),
        ),
    ):
        registry.register(census)
