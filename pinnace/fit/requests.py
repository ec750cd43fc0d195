"""Resource requests and limits of pods.

Amounts are integers: millicores of CPU, bytes, or a count. They are capped at MAX_AMOUNT, which keeps the sum over a node's
pods well within 64 bits. A capped amount fits no node, because the amounts of nodes are capped one lower.

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
"""Maximum number of cached specs."""
MAX_SPEC = 4096
"""Maximum size of a cached spec, in bytes. The cache holds at most 64 MiB of specs."""
RESIZE_PENDING, RESIZE_IN_PROGRESS = RESIZE_CONDITIONS = ("PodResizePending", "PodResizeInProgress")
"""Condition types of a pod with a resize that the kubelet has not completed."""
DEFERRED, INFEASIBLE = "Deferred", "Infeasible"
"""Reasons of PodResizePending: the node has too little free capacity at present, or too little capacity in total."""
DEFAULT_CPU = 100
"""Millicores that scoring assumes for a container without a CPU request."""
DEFAULT_MEMORY = 200 << 20
"""Bytes that scoring assumes for a container without a memory request."""
_SCORED = {"cpu": "cpu for scoring", "memory": "memory for scoring"}
"""Names under which the amounts for scoring are counted in the same pass. No resource name contains a space."""


@dataclass(frozen=True, slots=True, order=True)
class HostPort:
    """A port on the node's own network."""

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
    """The amounts and host ports that a pod requests.

    `amounts` holds (resource, amount > 0) in the order of the reasons in error messages. "pods" is always first.
    """

    amounts: tuple[tuple[str, int], ...]
    ports: tuple[HostPort, ...] = ()
    scored: tuple[int, int] = (DEFAULT_CPU, DEFAULT_MEMORY)
    """(CPU, memory) for scoring. A container without a request counts with the defaults, so that pods without requests are also
    spread over the nodes. A request of 0 counts as 0."""


def pod_requests(pod: Pod, serialized: bytes | None = None) -> Requests:
    """Return the requests of the pod's `counted_spec`. Results are cached by the serialized spec. `serialized`: the pod's spec,
    if it is known."""
    counted = counted_spec(pod)
    spec = serialized if serialized is not None and counted is pod.spec else counted.SerializeToString()
    return _requests_of_bytes(spec) if len(spec) <= MAX_SPEC else spec_requests(counted)


def container_requests(spec: PodSpec) -> Requests:
    """Return the requests of a spec as if spec.resources were empty.

    NodeResourcesFit scores the pod by them. It filters by the pod-level requests, and pods on nodes count with theirs: in
    Kubernetes 1.36, NodeResourcesFit does not pass the feature PodLevelResources on to its scorer.
    """
    containers = PodSpec()
    containers.CopyFrom(spec)
    containers.ClearField("resources")
    return spec_requests(containers)


def is_resizing(pod: Pod) -> bool:
    """Return True while the kubelet may have allocated resources that differ from the spec.

    This is the case if the kubelet has not observed the latest generation, or reports a pending or running resize.
    """
    status = pod.status
    seen = status.observedGeneration
    if not seen:
        return False
    return seen != pod.metadata.generation or any(condition.type in RESIZE_CONDITIONS for condition in status.conditions)


def counted_spec(pod: Pod) -> PodSpec:
    """Return the spec with the resources that count for scheduling.

    During a resize it is a copy of the spec in which each amount of a container is the largest of the desired, allocated and
    actual amounts. The desired amount does not count while the kubelet reports the resize as infeasible.

    Source: PodRequests of k8s.io/component-helpers/resource with UseStatusResources.
    """
    if not is_resizing(pod):
        return pod.spec
    generation = pod.metadata.generation
    infeasible = any(
        condition.type == RESIZE_PENDING and condition.reason == INFEASIBLE and condition.observedGeneration in (0, generation)
        for condition in pod.status.conditions
    )
    spec = PodSpec()
    spec.CopyFrom(pod.spec)
    statuses = {
        container_status.name: container_status
        for container_status in (*pod.status.initContainerStatuses, *pod.status.containerStatuses)
    }
    for container in resizable_containers(spec):
        status = statuses.get(container.name)
        if status is None or not status.HasField("resources"):
            continue
        desired = ResourceRequirements() if infeasible else container.resources
        allocated = ResourceRequirements(requests=status.allocatedResources)
        container.resources.CopyFrom(max_requirements(max_requirements(desired, allocated), status.resources))
    return spec


def resizable_containers(spec: PodSpec) -> list[Container]:
    """Return the containers and sidecars, which support a resize."""
    return [
        *(init_container for init_container in spec.initContainers if init_container.restartPolicy == "Always"),
        *spec.containers,
    ]


def max_requirements(one: ResourceRequirements, other: ResourceRequirements) -> ResourceRequirements:
    """Return the larger amount of each request and each limit."""
    resource_requirements = ResourceRequirements()
    resource_requirements.CopyFrom(one)
    for kept, more in ((resource_requirements.requests, other.requests), (resource_requirements.limits, other.limits)):
        for name, quantity in more.items():
            if name not in kept or amount(name, quantity.string) > amount(name, kept[name].string):
                kept[name].string = quantity.string
    return resource_requirements


@lru_cache(maxsize=MAX_SPECS)
def _requests_of_bytes(spec: bytes) -> Requests:
    return spec_requests(PodSpec.FromString(spec))


def spec_requests(spec: PodSpec) -> Requests:
    total = combine_containers(spec, _container_amounts)
    for name, requested in _with_scored(pod_level_amounts(spec.resources.requests)).items():
        total[name] = requested
    _add_amounts(total, _with_scored(amounts(spec.overhead)))
    scored = (_cap_amount(total.pop(_SCORED["cpu"], 0)), _cap_amount(total.pop(_SCORED["memory"], 0)))
    names = sorted(total, key=lambda name: (_FIRST.index(name) if name in _FIRST else len(_FIRST), name))
    return Requests(
        amounts=((PODS, 1), *((name, _cap_amount(total[name])) for name in names if total[name] > 0 and name != PODS)),
        ports=tuple(sorted(set(_host_ports(spec)))),
        scored=scored,
    )


def spec_limits(spec: PodSpec) -> Counter[str]:
    """Return the limits of the pod. Overhead is added to the resources that have a limit."""
    total = combine_containers(spec, lambda container: amounts(container.resources.limits))
    for name, limit in pod_level_amounts(spec.resources.limits).items():
        total[name] = limit
    total.update({name: amount for name, amount in amounts(spec.overhead).items() if total[name]})
    return total


def pod_level_amounts(quantities: Mapping[str, Quantity]) -> dict[str, int]:
    """Return the amounts of spec.resources, which replace the sums over the containers.

    Source: https://kubernetes.io/docs/tasks/configure-pod-container/assign-pod-level-resources/
    """
    return {name: amount(name, each.string) for name, each in quantities.items() if is_pod_level(name)}


def is_pod_level(resource: str) -> bool:
    """Return True if spec.resources may contain the resource."""
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")


def combine_containers(spec: PodSpec, of: Callable[[Container], Mapping[str, int]]) -> Counter[str]:
    """Combine the amounts of the containers into the amounts of the pod, without overhead. Amounts of 0 are left out.

    An init container runs beside the sidecars before it. The cost is linear in the number of amounts, because a pod can have
    thousands of init containers and thousands of resources.
    """
    running = Counter[str]()  # the total of containers and sidecars after the init containers complete
    for container in spec.containers:
        _add_amounts(running, of(container))
    sidecars, largest = Counter[str](), Counter[str]()
    for container in spec.initContainers:
        if container.restartPolicy == "Always":
            _add_amounts(sidecars, of(container))
            continue
        for name, own in of(container).items():
            largest[name] = max(largest.get(name, 0), own + sidecars.get(name, 0))
    _add_amounts(running, sidecars)
    return running | largest


def _add_amounts(total: Counter[str], more: Mapping[str, int]) -> None:
    for name, added in more.items():
        total[name] = total.get(name, 0) + added


def _container_amounts(container: Container) -> dict[str, int]:
    """Return the amounts that a container requests or, without a request, its limits; and those that count for scoring."""
    resources = container.resources
    numbers = {name: amount(name, quantity.string) for name, quantity in resources.limits.items()}
    for name, quantity in resources.requests.items():
        numbers[name] = amount(name, quantity.string)
    numbers[_SCORED["cpu"]] = numbers.get("cpu", DEFAULT_CPU)
    numbers[_SCORED["memory"]] = numbers.get("memory", DEFAULT_MEMORY)
    return numbers


def _with_scored(found: dict[str, int]) -> dict[str, int]:
    """Return the amounts, and those of CPU and memory also under their names for scoring."""
    return found | {scored: found[name] for name, scored in _SCORED.items() if name in found}


def _host_ports(spec: PodSpec) -> Iterable[HostPort]:
    """Yield the host ports of containers and sidecars. Init containers are skipped because they exit before the
    containers start."""
    sidecars = [container for container in spec.initContainers if container.restartPolicy == "Always"]
    for container in (*spec.containers, *sidecars):
        for port in container.ports:
            number = port.hostPort or (port.containerPort if spec.hostNetwork else 0)
            if number:
                yield HostPort(port.hostIP or ANY_IP, port.protocol or "TCP", number)


def _cap_amount(value: int) -> int:
    return min(value, MAX_AMOUNT)
