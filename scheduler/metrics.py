"""Metrics of the scheduler. A metric that kube-scheduler also has uses the same name."""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import REGISTRY, Collector

ATTEMPTS = Counter("scheduler_schedule_attempts", "Attempts to schedule a pod, by result.", ["profile", "result"])
DURATION = Histogram(
    "scheduler_scheduling_attempt_duration_seconds",
    "Seconds from the start of an attempt until a node is assumed or the pod is requeued, by result.",
    ["profile", "result"],
    buckets=[0.00002 * 2**step for step in range(18)],  # 20 microseconds to 2.6 seconds
)
SCHEDULED, UNSCHEDULABLE, ERROR = "scheduled", "unschedulable", "error"
TRIES = Histogram("scheduler_pod_scheduling_attempts", "Attempts until a pod is bound.", buckets=[1, 2, 4, 8, 16])
PREEMPTIONS = Counter("scheduler_preemption_attempts", "Attempts to preempt pods of lower priority.")
VICTIMS = Histogram("scheduler_preemption_victims", "Victims per preemption.", buckets=[1, 2, 4, 8, 16, 32, 64])
BINDINGS = Counter("scheduler_bindings", "Completed binds, by result.", ["result"])
BOUND, FAILED, FENCED = (BINDINGS.labels(result) for result in ("bound", "failed", "fenced"))


class AttemptMetrics:
    """The metrics of one profile and one result."""

    def __init__(self, profile: str, result: str) -> None:
        self._count = ATTEMPTS.labels(profile, result)
        self._duration = DURATION.labels(profile, result)

    def record_attempt(self, seconds: float) -> None:
        self._count.inc()
        self._duration.observe(seconds)


@cache
def attempt_metrics(profile: str, result: str) -> AttemptMetrics:
    """Return the cached metrics. The number of profiles is bounded by the configuration."""
    return AttemptMetrics(profile, result)


class QueueCollector(Collector):
    """A gauge with one label, computed during each scrape."""

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
    """The counts of a scheduler."""

    def count_pending(self) -> Mapping[str, int]: ...
    def count_refusals(self) -> Mapping[str, int]: ...
    def count_cached(self) -> Mapping[str, int]: ...


def register_collectors(scheduler: Callable[[], SchedulerCounts], registry: CollectorRegistry = REGISTRY) -> None:
    """Register the collectors, once per process. `scheduler` returns the current scheduler."""
    for census in (
        QueueCollector("scheduler_pending_pods", "Pending pods, by queue.", "queue", lambda: scheduler().count_pending()),
        QueueCollector(
            "scheduler_unschedulable_pods",
            "Unschedulable pods, by the plugin that refused them.",
            "plugin",
            lambda: scheduler().count_refusals(),
        ),
        QueueCollector(
            "scheduler_cache_size",
            "Cached nodes, pods on nodes, and assumed pods.",
            "type",
            lambda: scheduler().count_cached(),
        ),
    ):
        registry.register(census)
