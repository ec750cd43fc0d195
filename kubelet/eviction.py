"""Node-pressure eviction: declared usage, which pod a node evicts, and which pods it does not admit.

Annotations of the pod declare the usage. Without a valid annotation, a container uses what it requests:

    pinnace.io/cpu-usage[.CONTAINER], pinnace.io/memory-usage[.CONTAINER], pinnace.io/ephemeral-storage-usage[.CONTAINER]
    kwok.x-k8s.io/usage-cpu, kwok.x-k8s.io/usage-memory: KWOK's names, which apply to each container without one of the others

A node is short of memory (or disk) when its pods use more than its allocatable, which excludes the eviction threshold. The
annotation `pinnace.io/pressure: memory=AMOUNT,disk,pid` of the node declares what other processes use; without an amount, the
node is short until the annotation is removed.

The eviction order is Kubernetes': pods that use more than they request first, then by priority, then by the excess; for lack of
process ids by priority alone. Critical pods are never evicted.
`EvictionManager` checks a node when it changes, and every MONITORING_INTERVAL seconds: it updates the pressure conditions, and
evicts at most one pod per node and check while the pressure lasts. It checks only nodes that are declared to be short of
something, or that have a pod that declares its usage: on all others pods use what they request, and the node admits no more
than it has. All else here is pure.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from pinnace.api.core_v1_pb2 import Container, Node, Pod
from pinnace.api.pods import qos_class, tolerates
from pinnace.api.quantity import QuantityError, amount, format_amount
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.api.wellknown import MEMORY_PRESSURE_TAINT, PRESSURE_ANNOTATION
from pinnace.fit.requests import pod_requests, spec_limits
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock

MONITORING_INTERVAL = 2.0
"""Seconds between checks, and therefore between evictions of one node. Kubernetes' kubelet uses 10."""
PRESSURE_TRANSITION_PERIOD = 30.0
"""Seconds after pressure for which the condition is kept. Otherwise, evicted pods could return immediately and cause pressure
again. Kubernetes' eviction-pressure-transition-period is 5 minutes.
"""
_USAGE = "-usage"
_PREFIX = "pinnace.io/"
_KWOK_PREFIX = "kwok.x-k8s.io/usage-"
CRITICAL = 2_000_000_000
"""The lowest priority of critical pods."""
THRESHOLD = 100 << 20
"""Minimum bytes of available memory: Kubernetes' memory.available<100Mi. Also used for disk."""


def declares_usage(pod: Pod) -> bool:
    """Whether an annotation declares the usage of any resource. Its value is not validated."""
    return any(
        (key.startswith(_PREFIX) and key.removeprefix(_PREFIX).partition(".")[0].endswith(_USAGE))
        or key.startswith(_KWOK_PREFIX)
        for key in pod.metadata.annotations
    )


def long_running_containers(pod: Pod) -> Sequence[Container]:
    """Sidecars and main containers. Other init containers run only for a short time."""
    sidecars = [init_container for init_container in pod.spec.initContainers if init_container.restartPolicy == "Always"]
    return [*sidecars, *pod.spec.containers]


def container_usage(pod: Pod, container: Container, resource: str) -> int:
    """The usage of the container: millicores of cpu, bytes of other resources."""
    used = declared_usage(pod, container, resource)
    return resource_amount(container.resources.requests, resource) if used is None else used


def declared_usage(pod: Pod, container: Container, resource: str) -> int | None:
    """The declared usage of the container. None: there is no valid annotation."""
    annotations = pod.metadata.annotations
    common = f"{_PREFIX}{resource}{_USAGE}"
    names = (f"{common}.{container.name}", common, f"{_KWOK_PREFIX}{resource}")
    text = next((annotations[name] for name in names if name in annotations), "")
    try:
        used = amount(resource, text) if text else -1
    except QuantityError:
        return None
    return used if used >= 0 else None


def resource_amount(amounts: Mapping[str, Quantity], resource: str) -> int:
    """The amount in a resource list; 0 if missing."""
    return amount(resource, amounts[resource].string) if resource in amounts else 0


class PressureKind(StrEnum):
    """In the order of eviction. The values are those of the annotation."""

    MEMORY = "memory"
    DISK = "disk"
    PID = "pid"


RESOURCES = {PressureKind.MEMORY: "memory", PressureKind.DISK: "ephemeral-storage", PressureKind.PID: "pids"}
CONDITIONS = {PressureKind.MEMORY: "MemoryPressure", PressureKind.DISK: "DiskPressure", PressureKind.PID: "PIDPressure"}


class PodConsumption(NamedTuple):
    """The usage and the request of a pod, for one resource."""

    uid: str
    priority: int
    used: int
    requested: int


def declared_shortages(node: Node) -> dict[PressureKind, int | None]:
    """The declared shortages of the node, with the amount that other processes use. None: no amount is given, and
    the node is short until the annotation is removed. Invalid entries are ignored.
    """
    numbers: dict[PressureKind, int | None] = {}
    for word in node.metadata.annotations.get(PRESSURE_ANNOTATION, "").split(","):
        name, equals, text = word.partition("=")
        kind = next((kind for kind in PressureKind if kind == name), None)
        if kind is not None:
            try:
                numbers[kind] = amount(RESOURCES[kind], text) if equals else None
            except QuantityError:
                continue
    return numbers


def pod_usage(pod: Pod, kind: PressureKind) -> int:
    """The usage of the pod, without init containers that have exited."""
    return sum(container_usage(pod, container, RESOURCES[kind]) for container in long_running_containers(pod))


def build_consumer(pod: Pod, kind: PressureKind) -> PodConsumption:
    """The request of the pod. The requests of init containers that have exited are still reserved. More expensive than
    `pod_usage`,
    because requests are looked up by the bytes of the spec.
    """
    requested = dict(pod_requests(pod).amounts).get(RESOURCES[kind], 0)
    return PodConsumption(pod.metadata.uid, pod.spec.priority, pod_usage(pod, kind), requested)


def available_bytes(uses: Iterable[int], capacity: int, others: int) -> int:
    """Available bytes. The node is under pressure if they are less than THRESHOLD. `uses`: the usage of each pod; `capacity`:
    the allocatable amount.
    """
    return max(0, capacity + THRESHOLD - others - sum(uses))


def select_pod_to_evict(kind: PressureKind, consumers: Iterable[PodConsumption]) -> str | None:
    """The uid of the pod to evict next. None: no pod can be evicted."""
    candidates = [item for item in consumers if item.priority < CRITICAL]
    if kind is PressureKind.PID:
        return min(candidates, key=lambda candidate: (candidate.priority, candidate.uid)).uid if candidates else None
    return min(candidates, key=_eviction_rank).uid if candidates else None


def _eviction_rank(each: PodConsumption) -> tuple[bool, int, int, str]:
    return each.used <= each.requested, each.priority, each.requested - each.used, each.uid


def eviction_message(pod: Pod, kind: PressureKind, left: int | None) -> str:
    """Kubernetes' message. `left`: available bytes, or None if unknown."""
    resource = RESOURCES[kind]
    words = [f"The node was low on resource: {resource}."]
    if left is not None:
        threshold = format_amount(resource, THRESHOLD)
        words.append(f"Threshold quantity: {threshold}, available: {format_amount(resource, left)}.")
    if kind is not PressureKind.PID:
        for container in long_running_containers(pod):
            uses, requested = container_usage(pod, container, resource), resource_amount(container.resources.requests, resource)
            if uses > requested:
                request = format_amount(resource, requested)
                words.append(
                    f"Container {container.name} was using {format_amount(resource, uses)}, request is {request}, "
                    f"has larger consumption of {resource}."
                )
    return " ".join(words)


def exceeded_storage_limit(pod: Pod) -> str:
    """The reason to evict a pod that exceeds a limit of local storage, or an empty string. The limit of the pod is the sum of
    the limits of its containers; the usage of containers without a limit is counted. Containers without declared usage count as
    0, because their request can exceed the limits of the others.
    """
    resource, total_used = RESOURCES[PressureKind.DISK], 0
    if pod.spec.priority >= CRITICAL:
        return ""
    for container in long_running_containers(pod):
        uses, limit = declared_usage(pod, container, resource) or 0, resource_amount(container.resources.limits, resource)
        if limit and uses > limit:
            return f'Container {container.name} exceeded its local ephemeral storage limit "{format_amount(resource, limit)}".'
        total_used += uses
    total = spec_limits(pod.spec)[resource] if total_used else 0
    if total and total_used > total:
        return f"Pod ephemeral local storage usage exceeds the total limit of containers {format_amount(resource, total)}."
    return ""


def pressure_rejection(pod: Pod, pressures: Sequence[PressureKind]) -> str:
    """The reason to reject the pod under these pressures, or an empty string. Under memory pressure alone, pods that request
    memory or tolerate memory pressure are admitted. Critical pods are always admitted.
    """
    if not pressures or pod.spec.priority >= CRITICAL:
        return ""
    if list(pressures) == [PressureKind.MEMORY] and (qos_class(pod.spec) != "BestEffort" or _tolerates_memory_pressure(pod)):
        return ""
    return f"The node had condition: [{' '.join(CONDITIONS[kind] for kind in pressures)}]."


def _tolerates_memory_pressure(pod: Pod) -> bool:
    return any(tolerates(toleration, MEMORY_PRESSURE_TAINT, "", "NoSchedule") for toleration in pod.spec.tolerations)


class PodEvictor(Protocol):
    """The methods that this module needs of pinnace.kubelet.pod_manager."""

    def active_pods(self, node: str) -> Sequence[Pod]:
        """The pods of the node that are counted and not terminating."""
        ...

    def evict_pod(self, uid: str, message: str, *, disrupts: bool) -> None:
        """`disrupts`: the node causes the eviction, and not the pod."""
        ...


class NodesUnderPressure(Protocol):
    """The methods that this module needs of pinnace.kubelet.node.VirtualNodes."""

    @property
    def nodes_with_declared_usage(self) -> Collection[str]:
        """The nodes with a pod that declares its usage."""
        ...

    def allocatable(self, name: str, /) -> Mapping[str, int]:
        """The allocatable resources of the node, by name."""
        ...

    def set_pressures(self, name: str, pressures: Sequence[PressureKind]) -> None:
        """Set the pressures of the node, which admission checks."""
        ...


class EvictionManager:
    """`on_change(nodes)`: the pressures of these nodes have changed."""

    def __init__(
        self,
        nodes: NodesUnderPressure,
        evictor: PodEvictor,
        *,
        on_change: Callable[[Collection[str]], None],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._nodes = nodes
        self._evictor = evictor
        self._on_change = on_change
        self._clock = clock
        self._shortages: dict[str, dict[PressureKind, int | None]] = {}
        self._pressure_until: dict[str, dict[PressureKind, float]] = {}  # monotonic

    def node_pressures(self, node: str) -> Sequence[PressureKind]:
        until_by_kind = self._pressure_until.get(node, {})
        return [kind for kind in PressureKind if kind in until_by_kind]

    def memory_outside_pods(self, node: str) -> int:
        """Bytes of memory that are used outside of the node's pods."""
        return self._shortages.get(node, {}).get(PressureKind.MEMORY) or 0

    def update_node(self, node: Node) -> None:
        """A node was added or has changed."""
        name, shortages = node.metadata.name, declared_shortages(node)
        if shortages == self._shortages.get(name, {}):
            return
        self._shortages[name] = shortages
        if not shortages:
            del self._shortages[name]
        self._pressure_until.pop(name, None)  # the annotation has changed
        self._update_pressure(name, evict=False)

    def forget_nodes(self, nodes: Collection[str]) -> None:
        for name in nodes:
            self._shortages.pop(name, None)
            self._pressure_until.pop(name, None)

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self._clock.sleep(MONITORING_INTERVAL)
            concerned = {*self._shortages, *self._pressure_until, *self._nodes.nodes_with_declared_usage}
            changed = [name for name in sorted(concerned) if self._update_pressure(name, evict=True)]
            if changed:
                self._on_change(changed)

    def _update_pressure(self, name: str, *, evict: bool) -> bool:
        """Update the pressure. Return whether it has changed."""
        before, now = self.node_pressures(name), self._clock.monotonic()
        until_by_kind = {kind: until for kind, until in self._pressure_until.get(name, {}).items() if until > now}
        pods = self._evictor.active_pods(name)
        evicted_uid: str | None = None
        for pod in pods if evict else ():
            if message := exceeded_storage_limit(pod):
                self._evictor.evict_pod(pod.metadata.uid, message, disrupts=False)
                evicted_uid = pod.metadata.uid
        for kind in PressureKind:
            short, available = self._check_pressure(name, kind, pods)
            if short:
                until_by_kind[kind] = now + PRESSURE_TRANSITION_PERIOD
                if evict and evicted_uid is None:
                    evicted_uid = self._evict_pod(kind, pods, available)
        self._pressure_until[name] = until_by_kind
        if not until_by_kind:
            del self._pressure_until[name]
        self._nodes.set_pressures(name, self.node_pressures(name))
        return self.node_pressures(name) != before

    def _check_pressure(self, name: str, kind: PressureKind, pods: Sequence[Pod]) -> tuple[bool, int | None]:
        """Whether there is pressure, and the available bytes if they are known."""
        shortages, capacity = self._shortages.get(name, {}), self._nodes.allocatable(name).get(RESOURCES[kind])
        if kind in shortages and shortages[kind] is None:
            return True, None
        if capacity is None:
            return kind in shortages, None
        available = available_bytes((pod_usage(pod, kind) for pod in pods), capacity, shortages.get(kind) or 0)
        return available < THRESHOLD, available

    def _evict_pod(self, kind: PressureKind, pods: Sequence[Pod], available: int | None) -> str | None:
        uid = select_pod_to_evict(kind, (build_consumer(pod, kind) for pod in pods))
        for pod in pods:
            if pod.metadata.uid == uid:
                self._evictor.evict_pod(pod.metadata.uid, eviction_message(pod, kind, available), disrupts=True)
        return uid
