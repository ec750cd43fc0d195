"""What a run records: every decision, samples over time or demand, and figures at the end.

A metric is a function from a `ClusterView` to a number. It is called for each sample: at each hour of a trace with times, or at
each percent of the demand of an inflated trace. One's own metric is a function in a file, `FILE.py:FUNCTION` in the study:

    def idle_nodes(cluster):
        return 100 * (cluster.free("pods") == cluster.allocatable("pods")).mean()

In the table of results, a metric counts with its mean over the samples, or with its last sample in an inflated trace.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

import numpy as np

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.wellknown import ZONE_LABEL
from pinnace.scheduler.framework import FloatArray, IntArray, NodeTable
from pinnace.scheduler.plugins.gpu_share import GPU_MILLI, INDEX_ANNOTATION
from pinnace.study.fragmentation import Fragmentation, typical_shapes
from pinnace.study.simulation import Simulation
from pinnace.study.trace import HOUR, Task, Trace

DECISIONS = ("time", "task", "result", "node", "devices", "attempts", "waited", "message")
"""The columns of the decisions. Times are in seconds. `result` is placed, unschedulable, ended or evicted."""


class ClusterView:
    """The state of the cluster, for metrics. Arrays have one element per node and must not be changed."""

    def __init__(self, simulation: Simulation, recorder: "Recorder") -> None:
        self._simulation = simulation
        self._recorder = recorder

    @property
    def now(self) -> float:
        """The virtual time in seconds."""
        return self._simulation.now

    @property
    def nodes(self) -> NodeTable:
        """The scheduler's table of nodes."""
        return self._simulation.cache.nodes

    def free(self, resource: str) -> IntArray:
        """Return the free amount of each node: millicores, bytes, or a count."""
        return self.nodes.free(resource)

    def allocatable(self, resource: str) -> IntArray:
        """Return the allocatable amount of each node."""
        return self.nodes.allocatable(resource)

    @property
    def devices(self) -> IntArray:
        """[node, device]: the free thousandths of each GPU."""
        table = self._simulation.devices
        table.update(self.nodes)
        return table.free

    @property
    def gpu_capacity(self) -> int:
        """The thousandths of all GPUs."""
        trace = self._simulation.trace
        return trace.capacity if trace.resource == GPU_MILLI else 0

    @property
    def pending(self) -> int:
        """The number of pods without a node."""
        return self._simulation.pending

    @property
    def running(self) -> Sequence[tuple[Task, str]]:
        """The tasks with a node, and its name."""
        return [(item.task, item.pod.spec.nodeName) for item in self._simulation.running.values()]

    @property
    def demand(self) -> float:
        """The requests of all tasks that have arrived and not ended, in percent of the capacity (GPUs, or CPU without GPUs)."""
        return 100 * self._recorder.demand / self._simulation.trace.capacity

    @property
    def allocated(self) -> float:
        """The requests of all tasks with a node, in percent of the capacity."""
        return 100 * self._recorder.allocated / self._simulation.trace.capacity

    @property
    def evictions(self) -> int:
        """The number of evictions so far."""
        return self._recorder.evictions

    def fragmentation_by_node(self) -> FloatArray:
        """Return the fragmentation of each node in thousandths of a GPU (pinnace.study.fragmentation)."""
        return self._recorder.fragmentation.amount(
            self.free("cpu"), self.devices, self._recorder.fragmentation.codes(self.nodes)
        )


Metric = Callable[[ClusterView], float]


def _share(used: float, total: float) -> float:
    return 100 * used / total if total else 0.0


def cpu(cluster: ClusterView) -> float:
    """The requested CPU in percent of all nodes."""
    return _share(float((cluster.allocatable("cpu") - cluster.free("cpu")).sum()), float(cluster.allocatable("cpu").sum()))


def used_nodes(cluster: ClusterView) -> float:
    """The nodes with pods, in percent."""
    return _share(int(np.count_nonzero(cluster.free("pods") < cluster.allocatable("pods"))), len(cluster.nodes))


def imbalance(cluster: ClusterView) -> float:
    """The standard deviation of the requested percentage of CPU over the nodes."""
    capacity = np.maximum(cluster.allocatable("cpu"), 1)
    return float((100 * (1 - cluster.free("cpu") / capacity)).std())


def fragmented_gpus(cluster: ClusterView) -> float:
    """The fragmented GPUs in percent of all GPUs. 0 without GPUs."""
    return _share(float(cluster.fragmentation_by_node().sum()), float(cluster.gpu_capacity))


def fragmentation_of_free(cluster: ClusterView) -> float:
    """The fragmented GPUs in percent of the free GPUs."""
    return _share(float(cluster.fragmentation_by_node().sum()), float(cluster.devices.sum()))


def zone_share(cluster: ClusterView) -> float:
    """The percentage of a service's replicas in its fullest zone, the mean over services with at least three replicas."""
    zones = cluster.nodes.label(ZONE_LABEL)
    if zones.uniform:
        return 0.0
    places: dict[str, list[str]] = {}
    for task, node in cluster.running:
        row = cluster.nodes.row(node)
        if task.group and row is not None:
            places.setdefault(task.group, []).append(zones.at(row) or "")
    shares = [max(Counter(found).values()) / len(found) for found in places.values() if len(found) >= 3]
    return 100 * fmean(shares) if shares else 0.0


METRICS: Mapping[str, Metric] = {
    "demand": lambda cluster: cluster.demand,
    "allocated": lambda cluster: cluster.allocated,
    "fragmentation": fragmented_gpus,
    "fragmentation of free": fragmentation_of_free,
    "cpu": cpu,
    "used nodes": used_nodes,
    "imbalance": imbalance,
    "zone share": zone_share,
    "pending": lambda cluster: float(cluster.pending),
    "evictions": lambda cluster: float(cluster.evictions),
}
"""The metrics of every study. All but `pending` and `evictions` are percentages."""


class Recorder:
    """Records one run. `decisions` has the columns DECISIONS, and `samples` one list per metric."""

    def __init__(self, trace: Trace, metrics: Mapping[str, Metric], *, inflated: bool, interval: float = HOUR) -> None:
        self.decisions: list[tuple[str | int, ...]] = []
        self.samples: list[list[float]] = []
        """At first the time in hours, then the metrics."""
        self.columns = ("hour", *METRICS, *metrics)
        self.demand = self.allocated = self.evictions = 0
        self.fragmentation = Fragmentation(typical_shapes(task.shape for task in trace.past or trace.tasks))
        self._metrics = [*METRICS.values(), *metrics.values()]
        self._trace = trace
        self._inflated = inflated
        self._interval = interval
        self._sampled = 0
        self._waits: dict[str, float] = {}
        """The seconds from the arrival to the bind, by task."""
        self._arrived = 0
        self._last_message: dict[str, str] = {}

    # --- simulation.Observer

    def on_time(self, cluster: Simulation, until: float) -> None:
        if self._inflated:
            percent = math.floor(100 * self.demand / self._trace.capacity)
            if percent > self._sampled:
                self._sampled = percent
                self._sample(cluster, cluster.now)
            return
        while (at := (self._sampled + 1) * self._interval) <= until:
            self._sampled += 1
            self._sample(cluster, at)

    def on_arrival(self, cluster: Simulation, task: Task) -> None:
        self._arrived += "~" not in task.name
        self.demand += self._trace.demand_of(task)

    def on_placed(self, cluster: Simulation, task: Task, pod: Pod, attempts: int) -> None:
        self.allocated += self._trace.demand_of(task)
        waited = self._waits[task.name] = cluster.now - task.arrival
        self._last_message.pop(task.name, None)
        devices = pod.metadata.annotations.get(INDEX_ANNOTATION, "")
        self._add_decision(cluster, task, "placed", pod.spec.nodeName, devices, attempts, f"{waited:.3f}", "")

    def on_attempt_failed(self, cluster: Simulation, task: Task, message: str, attempts: int) -> None:
        repeated = self._last_message.get(task.name) == message
        self._last_message[task.name] = message
        waited = f"{cluster.now - task.arrival:.3f}"
        self._add_decision(cluster, task, "unschedulable", "", "", attempts, waited, "" if repeated else message)

    def on_end(self, cluster: Simulation, task: Task) -> None:
        self._record_task_end(cluster, task, "ended")

    def on_eviction(self, cluster: Simulation, task: Task) -> None:
        self.evictions += 1
        self._record_task_end(cluster, task, "evicted")

    def finish(self, cluster: Simulation) -> dict[str, float]:
        """Take the last sample of an inflated trace. Return the figures of the run: the metrics, and those of the whole run."""
        if self._inflated or not self.samples:
            self._sample(cluster, cluster.now)
        values = np.array(self.samples)
        figures = values[-1] if self._inflated else values.mean(axis=0)
        result = dict(zip(self.columns[1:], map(float, figures[1:]), strict=True))
        waits = np.array(sorted(self._waits.values())) if self._waits else np.zeros(1)
        first = len([name for name in self._waits if "~" not in name])
        return result | {
            "evictions": float(self.evictions),
            "not placed": _share(self._arrived - first, self._arrived),
            "mean wait": float(waits.mean()),
            "99% wait": float(np.quantile(waits, 0.99)),
        }

    def _record_task_end(self, cluster: Simulation, task: Task, result: str) -> None:
        demand = self._trace.demand_of(task)
        self.demand -= demand
        self.allocated -= demand
        self._add_decision(cluster, task, result, "", "", 0, "", "")

    def _add_decision(self, cluster: Simulation, task: Task, *values: str | int) -> None:
        self.decisions.append((f"{cluster.now:.3f}", task.name, *values))

    def _sample(self, cluster: Simulation, at: float) -> None:
        view = ClusterView(cluster, self)
        self.samples.append([at / HOUR, *(float(metric(view)) for metric in self._metrics)])
