"""Current usage of nodes and containers, for API servers: see NodeMetrics and PodMetrics in proto/.

    StatsRequest: nodes, uids --> running containers --> Meter --> StatsResponse

Nothing is measured without a request.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.kubelet_pb2 import StatsRequest, StatsResponse
from pinnace.api.metrics_v1beta1_pb2 import NodeMetrics, PodMetrics
from pinnace.api.quantity import format_amount
from pinnace.api.scalars import to_time
from pinnace.kubelet.eviction import container_usage
from pinnace.kubelet.node import VirtualNodes
from pinnace.runtime.clock import Clock
from pinnace.runtime.tasks import apply_in_slices

_MILLI = 1_000_000
"""Nanocores."""


class ResourceUsage(NamedTuple):
    """The usage of one or several containers."""

    cpu: int = 0
    """Nanocores."""
    memory: int = 0
    """Bytes."""
    window: float = 0.0
    """Seconds over which the CPU usage was measured; 0: it was not measured, but declared."""


class RunningPod(NamedTuple):
    pod: Pod
    containers: Sequence[str]
    """The running containers by name; at least one."""


class UsageMeter(Protocol):
    """Measures the containers of a runtime."""

    async def measure(self, running: Sequence[RunningPod]) -> Sequence[Mapping[str, ResourceUsage]]:
        """The usage of containers by name, for each pod. Containers that have terminated meanwhile are missing."""
        ...


class DeclaredUsageMeter:
    """Declared usage of simulated containers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def measure(self, running: Sequence[RunningPod]) -> Sequence[Mapping[str, ResourceUsage]]:
        return await apply_in_slices(_declared_usage, running, self._clock)


def _declared_usage(running: RunningPod) -> Mapping[str, ResourceUsage]:
    pod, names = running
    return {
        container.name: ResourceUsage(
            container_usage(pod, container, "cpu") * _MILLI, container_usage(pod, container, "memory")
        )
        for container in (*pod.spec.initContainers, *pod.spec.containers)
        if container.name in names
    }


class Stats:
    """`what_runs`: returns the running containers of a pod by uid, or None. `beside`: returns bytes of memory that are used on
    a node outside of its pods.
    """

    def __init__(
        self,
        nodes: VirtualNodes,
        what_runs: Callable[[str], RunningPod | None],
        beside: Callable[[str], int],
        meter: UsageMeter,
        clock: Clock,
    ) -> None:
        self._nodes = nodes
        self._what_runs = what_runs
        self._beside = beside
        self._meter = meter
        self._clock = clock

    async def answer_stats_request(self, request: StatsRequest) -> StatsResponse:
        of_nodes = {name: tuple(self._nodes.counted_pods(name)) for name in request.nodes if self._nodes.can_write_status(name)}
        wanted = dict.fromkeys(request.pods)
        uids = {*wanted, *(uid for tenants in of_nodes.values() for uid in tenants)}
        running = {uid: result for uid in uids if (result := self._what_runs(uid)) is not None}
        measured = dict(zip(running, await self._meter.measure(list(running.values())), strict=True))
        now, response = self._clock.time(), StatsResponse()
        for name, tenants in of_nodes.items():
            used = _sum_usages(item for uid in tenants if uid in measured for item in measured[uid].values())
            _fill_node_metrics(response.nodes.add(), name, used._replace(memory=used.memory + self._beside(name)), now)
        for uid in wanted:
            if containers := measured.get(uid):
                _fill_pod(response.pods.add(), uid, containers, now)
        return response


def _sum_usages(usages: Iterable[ResourceUsage]) -> ResourceUsage:
    """The longest window is used."""
    cpu, memory, window = 0, 0, 0.0
    for item in usages:
        cpu, memory, window = cpu + item.cpu, memory + item.memory, max(window, item.window)
    return ResourceUsage(cpu, memory, window)


def _fill_node_metrics(metrics: NodeMetrics, node: str, used: ResourceUsage, now: float) -> None:
    metrics.metadata.name = node
    _set_time(metrics, used.window, now)
    _write_amounts(metrics.usage, used)


def _fill_pod(metrics: PodMetrics, uid: str, containers: Mapping[str, ResourceUsage], now: float) -> None:
    metrics.metadata.uid = uid
    _set_time(metrics, max(container.window for container in containers.values()), now)
    for name, used in containers.items():
        _write_amounts(metrics.containers.add(name=name).usage, used)


def _set_time(metrics: NodeMetrics | PodMetrics, window: float, now: float) -> None:
    metrics.timestamp.CopyFrom(to_time(now))
    metrics.window.FromNanoseconds(round(window * 1e9))


def _write_amounts(quantities: Any, used: ResourceUsage) -> None:
    """Add the amounts to a map of Quantity by resource."""
    milli, rest = divmod(used.cpu, _MILLI)
    quantities["cpu"].string = f"{used.cpu}n" if rest else format_amount("cpu", milli)
    quantities["memory"].string = format_amount("memory", used.memory)
