"""What a pod asks of its node.

Amounts are integers: millicores of cpu, bytes, or a count. They are capped at MAX_AMOUNT, so that the sums of a node's pods
stay far inside 64 bits; an amount that large fits no node, because a node's amounts are capped below it.

Source: https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/#resource-sharing-within-containers
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from pinnace.api.core_v1_pb2 import Container, Pod, PodSpec, ResourceRequirements
from pinnace.api.quantity import amount, amounts
from pinnace.api.resource_v1_pb2 import Quantity

MAX_AMOUNT = 1 << 50
ANY_IP = "0.0.0.0"
PODS = "pods"
_FIRST = (PODS, "cpu", "memory", "ephemeral-storage")

MAX_SPECS = 16384
"""Specs that are remembered..."""
MAX_SPEC = 4096
"""...of so many bytes at most, which makes 64 MiB of them."""
RESIZE_PENDING, RESIZE_IN_PROGRESS = RESIZE_CONDITIONS = ("PodResizePending", "PodResizeInProgress")
"""Conditions of a pod whose kubelet has not acted on all of its resources."""
DEFERRED, INFEASIBLE = "Deferred", "Infeasible"
"""Reasons of PodResizePending: the node has no room now, or is too small."""
DEFAULT_CPU = 100
"""Millicores that scores assume for a container that requests no cpu."""
DEFAULT_MEMORY = 200 << 20
"""Bytes that scores assume for a container that requests no memory."""


@dataclass(frozen=True, slots=True, order=True)
class HostPort:
    """A port of the node itself."""

    ip: str
    protocol: str
    port: int

    def conflicts(self, other: "HostPort") -> bool:
        return (
            self.port == other.port
            and self.protocol == other.protocol
            and (self.ip == other.ip or ANY_IP in (self.ip, other.ip))
        )


@dataclass(frozen=True, slots=True)
class Requests:
    """`amounts`: (resource, amount > 0), in the order in which refusals are told; "pods" is always the first."""

    amounts: tuple[tuple[str, int], ...]
    ports: tuple[HostPort, ...] = ()
    scored: tuple[int, int] = (DEFAULT_CPU, DEFAULT_MEMORY)
    """(cpu, memory) as scores count the pod: something for a container that says nothing, so that pods without requests are
    spread too; a request of 0 is nothing."""


def pod_requests(pod: Pod) -> Requests:
    """Of `counted_spec`. Cached by the spec's bytes: pods of one template cost one computation."""
    counted = counted_spec(pod)
    spec = counted.SerializeToString()
    return _of_bytes(spec) if len(spec) <= MAX_SPEC else spec_requests(counted)


def is_resizing(pod: Pod) -> bool:
    """Whether the kubelet may have allocated other resources than the spec asks for: it has not seen the latest spec, or it
    reports a resize as pending or in progress."""
    status = pod.status
    seen = status.observedGeneration
    if not seen:
        return False
    return seen != pod.metadata.generation or any(each.type in RESIZE_CONDITIONS for each in status.conditions)


def counted_spec(pod: Pod) -> PodSpec:
    """The spec whose resources count. While the pod is resized it is a copy: each amount of a container is the largest of the
    desired, the allocated and the actual one. The desired amount does not count while the kubelet reports it as infeasible.

    Source: PodRequests of k8s.io/component-helpers/resource with UseStatusResources.
    """
    if not is_resizing(pod):
        return pod.spec
    generation = pod.metadata.generation
    infeasible = any(
        each.type == RESIZE_PENDING and each.reason == INFEASIBLE and each.observedGeneration in (0, generation)
        for each in pod.status.conditions
    )
    spec = PodSpec()
    spec.CopyFrom(pod.spec)
    statuses = {each.name: each for each in (*pod.status.initContainerStatuses, *pod.status.containerStatuses)}
    for container in resizable(spec):
        status = statuses.get(container.name)
        if status is None or not status.HasField("resources"):
            continue
        desired = ResourceRequirements() if infeasible else container.resources
        allocated = ResourceRequirements(requests=status.allocatedResources)
        container.resources.CopyFrom(largest(largest(desired, allocated), status.resources))
    return spec


def resizable(spec: PodSpec) -> list[Container]:
    """The containers and the sidecars."""
    return [*(each for each in spec.initContainers if each.restartPolicy == "Always"), *spec.containers]


def largest(one: ResourceRequirements, other: ResourceRequirements) -> ResourceRequirements:
    """The larger amount of each request and each limit."""
    found = ResourceRequirements()
    found.CopyFrom(one)
    for kept, more in ((found.requests, other.requests), (found.limits, other.limits)):
        for name, quantity in more.items():
            if name not in kept or amount(name, quantity.string) > amount(name, kept[name].string):
                kept[name].string = quantity.string
    return found


@lru_cache(maxsize=MAX_SPECS)
def _of_bytes(spec: bytes) -> Requests:
    return spec_requests(PodSpec.FromString(spec))


def spec_requests(spec: PodSpec) -> Requests:
    real = _asked(spec, {})
    scored = _asked(spec, {"cpu": DEFAULT_CPU, "memory": DEFAULT_MEMORY})
    names = sorted(real, key=lambda name: (_FIRST.index(name) if name in _FIRST else len(_FIRST), name))
    return Requests(
        amounts=((PODS, 1), *((name, _cap(real[name])) for name in names if real[name] > 0 and name != PODS)),
        ports=tuple(sorted(set(_host_ports(spec)))),
        scored=(_cap(scored["cpu"]), _cap(scored["memory"])),
    )


def _asked(spec: PodSpec, missing: Mapping[str, int]) -> Counter[str]:
    """The pod's amounts. `missing` stands in for what a container does not request."""
    total = combine(spec, lambda container: _container(container, missing))
    for name, requested in pod_level(spec.resources.requests).items():
        total[name] = requested
    total.update(amounts(spec.overhead))
    return total


def spec_limits(spec: PodSpec) -> Counter[str]:
    """The pod's limits, as far as its containers have any; with its overhead."""
    total = combine(spec, lambda container: amounts(container.resources.limits))
    for name, limit in pod_level(spec.resources.limits).items():
        total[name] = limit
    total.update({name: amount for name, amount in amounts(spec.overhead).items() if total[name]})
    return total


def pod_level(quantities: Mapping[str, Quantity]) -> dict[str, int]:
    """The amounts of spec.resources, which count instead of the sums over the containers.

    Source: https://kubernetes.io/docs/tasks/configure-pod-container/assign-pod-level-resources/
    """
    return {name: amount(name, each.string) for name, each in quantities.items() if is_pod_level(name)}


def is_pod_level(resource: str) -> bool:
    """Whether spec.resources may name the resource."""
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")


def combine(spec: PodSpec, of: Callable[[Container], Mapping[str, int]]) -> Counter[str]:
    """The amounts of a pod, from those of its containers; without its overhead."""
    running = Counter[str]()  # containers and sidecars, once all of them run
    for container in spec.containers:
        running.update(of(container))
    sidecars, largest = Counter[str](), Counter[str]()
    for container in spec.initContainers:
        own = Counter(of(container))
        if container.restartPolicy == "Always":
            sidecars.update(own)
            own = sidecars
        else:
            own = own + sidecars
        largest |= own
    running.update(sidecars)
    return running | largest


def _container(container: Container, missing: Mapping[str, int]) -> Counter[str]:
    resources = container.resources
    stated = {**resources.limits, **resources.requests}
    return Counter({**missing, **{name: amount(name, quantity.string) for name, quantity in stated.items()}})


def _host_ports(spec: PodSpec) -> Iterable[HostPort]:
    """Of the containers and the sidecars; init containers are gone before they could be in anybody's way."""
    sidecars = [container for container in spec.initContainers if container.restartPolicy == "Always"]
    for container in (*spec.containers, *sidecars):
        for port in container.ports:
            number = port.hostPort or (port.containerPort if spec.hostNetwork else 0)
            if number:
                yield HostPort(port.hostIP or ANY_IP, port.protocol or "TCP", number)


def _cap(value: int) -> int:
    return min(value, MAX_AMOUNT)
