"""The number of replicas that the usage of a resource asks for. All here is pure.

    pods, usage --> ready, unready, missing and ignored pods --> usage / target --> replicas

A pod that is not ready counts as idle, and only if the others ask for more replicas. A pod without usage counts as idle if the
others ask for more, and as fully used if they ask for fewer. So neither starting pods nor missing metrics turn a change around.

Amounts are thousandths: millicores of cpu, thousandths of a byte of memory.

Source: pkg/controller/podautoscaler/replica_calculator.go of Kubernetes 1.36.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING
from typing import NamedTuple

from pinnace.api import conditions
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.metrics_v1beta1_pb2 import PodMetrics
from pinnace.api.pods import ended
from pinnace.api.quantity import parse
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.api.scalars import to_seconds

MAX_REPLICAS = 2**31 - 1
_FULL = 100
"""In percent."""


class MetricError(Exception):
    """A metric cannot be computed."""


class Tolerances(NamedTuple):
    """The relative differences from the target that change nothing."""

    down: float
    up: float

    def contain(self, ratio: float) -> bool:
        return 1.0 - self.down <= ratio <= 1.0 + self.up


class PodUsage(NamedTuple):
    """The usage of a resource by a pod. Times are Unix time; `window` is in seconds."""

    value: int
    timestamp: float
    window: float


@dataclass(frozen=True, slots=True)
class StartupDelays:
    """How long the cpu usage of a pod that starts is ignored, in seconds."""

    cpu_initialization: float = 300.0
    """Time after the start in which the usage counts only if the pod is ready, and has been for a whole window."""
    initial_readiness: float = 30.0
    """Time after the start in which a pod that turns unready is one that has never been ready."""


class ReplicaProposal(NamedTuple):
    replicas: int
    average: int
    """The usage per pod."""
    utilization: int | None = None
    """Percentage of the requests; None for a target in absolute terms."""


def milli_value(quantity: Quantity) -> int:
    """Return the thousandths, rounded up. Raises QuantityError."""
    return int((parse(quantity.string) * 1000).to_integral_value(ROUND_CEILING))


def usage_by_pod(metrics: Iterable[PodMetrics], resource: str, container: str = "") -> dict[str, PodUsage]:
    """Return the usage by name of the pod. Pods whose usage is not complete are missing. `container`: of this container only.
    Raises MetricError."""
    result: dict[str, PodUsage] = {}
    for pod in metrics:
        parts = [part for part in pod.containers if not container or part.name == container]
        if container and not parts:
            place = f"{pod.metadata.namespace}/{pod.metadata.name}"
            raise MetricError(f"container {container} not present in metrics for pod {place}")
        if parts and all(resource in part.usage for part in parts):
            value = sum(milli_value(part.usage[resource]) for part in parts)
            window = pod.window.seconds + pod.window.nanos / 1e9
            result[pod.metadata.name] = PodUsage(value, to_seconds(pod.timestamp), window)
    return result


class PodGroups(NamedTuple):
    """The names of pods."""

    ready: set[str]
    unready: set[str]
    missing: set[str]
    """Running pods without usage."""
    ignored: set[str]
    """Pods that have ended or are being deleted."""


def group_pods(
    pods: Iterable[Pod], usage: Mapping[str, PodUsage], resource: str, delays: StartupDelays, now: float
) -> PodGroups:
    """`now`: Unix time."""
    groups = PodGroups(set(), set(), set(), set())
    for pod in pods:
        name = pod.metadata.name
        if pod.metadata.HasField("deletionTimestamp") or ended(pod):
            groups.ignored.add(name)
        elif pod.status.phase == "Pending":
            groups.unready.add(name)
        elif name not in usage:
            groups.missing.add(name)
        elif resource == "cpu" and _is_starting(pod, usage[name], delays, now):
            groups.unready.add(name)
        else:
            groups.ready.add(name)
    return groups


def _is_starting(pod: Pod, usage: PodUsage, delays: StartupDelays, now: float) -> bool:
    """Return whether the usage of cpu may be that of the start of the pod."""
    ready = conditions.find_condition(pod.status.conditions, "Ready")
    if ready is None or not pod.status.HasField("startTime"):
        return True
    started, changed = to_seconds(pod.status.startTime), to_seconds(ready.lastTransitionTime)
    if started + delays.cpu_initialization > now:
        return ready.status == "False" or usage.timestamp < changed + usage.window
    return ready.status == "False" and started + delays.initial_readiness > changed


def requests_by_pod(pods: Iterable[Pod], resource: str, container: str = "") -> dict[str, int]:
    """Return the requests by name of the pod. Raises MetricError if a container requests nothing."""
    return {pod.metadata.name: _pod_request(pod, resource, container) for pod in pods}


def _pod_request(pod: Pod, resource: str, container: str) -> int:
    spec = pod.spec
    if not container and resource in spec.resources.requests:
        return milli_value(spec.resources.requests[resource])
    sidecars = (item for item in spec.initContainers if item.restartPolicy == "Always")
    parts = [part for part in (*spec.containers, *sidecars) if not container or part.name == container]
    if container and not parts:
        raise MetricError(f"container {container} not found in Pod {pod.metadata.name}")
    if not container and spec.resources.requests and not any(resource in part.resources.requests for part in parts):
        raise MetricError(f"missing pod-level request for {resource} in Pod {pod.metadata.name}")
    total = 0
    for part in parts:
        if resource in part.resources.requests:
            total += milli_value(part.resources.requests[resource])
        elif not spec.resources.requests or container:
            raise MetricError(f"missing request for {resource} in container {part.name} of Pod {pod.metadata.name}")
    return total


class _Utilization(NamedTuple):
    """A target in percent of the requests."""

    target: int
    requests: Mapping[str, int]

    def usage_ratio(self, usage: Mapping[str, int]) -> tuple[float, int, int | None]:
        known = {name: value for name, value in usage.items() if name in self.requests}
        requested = sum(self.requests[name] for name in known)
        if not requested:
            raise MetricError("no metrics returned matched known pods")
        total = sum(known.values())
        utilization = total * _FULL // requested
        return utilization / self.target, total // len(known), utilization

    def assumed_usage(self, name: str) -> int:
        return self.requests[name] * max(_FULL, self.target) // _FULL


class _AverageValue(NamedTuple):
    """A target in absolute terms."""

    target: int

    def usage_ratio(self, usage: Mapping[str, int]) -> tuple[float, int, int | None]:
        average = sum(usage.values()) // len(usage)
        return average / self.target, average, None

    def assumed_usage(self, name: str) -> int:
        return self.target


def propose_for_utilization(
    current: int,
    target: int,
    usage: Mapping[str, PodUsage],
    groups: PodGroups,
    requests: Mapping[str, int],
    tolerances: Tolerances,
) -> ReplicaProposal:
    """Return the replicas for a target in percent of the requests. `current`: the present replicas. Raises MetricError."""
    return _propose_replicas(current, _Utilization(target, requests), usage, groups, tolerances)


def propose_for_average(
    current: int, target: int, usage: Mapping[str, PodUsage], groups: PodGroups, tolerances: Tolerances
) -> ReplicaProposal:
    """Return the replicas for a target per pod. Raises MetricError."""
    return _propose_replicas(current, _AverageValue(target), usage, groups, tolerances)


def _propose_replicas(
    current: int,
    goal: _Utilization | _AverageValue,
    usage: Mapping[str, PodUsage],
    groups: PodGroups,
    tolerances: Tolerances,
) -> ReplicaProposal:
    counted = {name: item.value for name, item in usage.items() if name not in groups.ignored and name not in groups.unready}
    if not counted:
        raise MetricError("did not receive metrics for targeted pods (pods might be unready)")
    ratio, average, utilization = goal.usage_ratio(counted)
    unchanged = ReplicaProposal(current, average, utilization)
    counts_unready = bool(groups.unready) and ratio > 1.0
    if not counts_unready and not groups.missing:
        if tolerances.contain(ratio):
            return unchanged
        return unchanged._replace(replicas=_ceil(ratio * len(groups.ready)))
    if ratio < 1.0:
        counted |= {name: goal.assumed_usage(name) for name in groups.missing}
    elif ratio > 1.0:
        counted |= dict.fromkeys(groups.missing, 0)
    if counts_unready:
        counted |= dict.fromkeys(groups.unready, 0)
    corrected = goal.usage_ratio(counted)[0]
    if tolerances.contain(corrected) or (ratio < 1.0 < corrected) or (corrected < 1.0 < ratio):
        return unchanged
    replicas = _ceil(corrected * len(counted))
    if (corrected < 1.0 and replicas > current) or (corrected > 1.0 and replicas < current):
        return unchanged
    return unchanged._replace(replicas=replicas)


def _ceil(replicas: float) -> int:
    return min(math.ceil(replicas), MAX_REPLICAS)
