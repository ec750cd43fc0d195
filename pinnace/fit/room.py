"""The scalar form of the fit rules: one pod and one node. The scheduler's plugins have the table form.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from pinnace.api.core_v1_pb2 import Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec
from pinnace.api.pods import ended
from pinnace.api.quantity import amounts
from pinnace.api.scalars import integer
from pinnace.fit.requests import MAX_AMOUNT, PODS, HostPort, Requests, pod_requests

AFFINITY_REASON = "node(s) didn't match Pod's node affinity/selector"


def insists(spec: PodSpec) -> bool:
    """Does the pod ask for labels at all? Most do not."""
    return bool(spec.nodeSelector) or spec.affinity.nodeAffinity.HasField("requiredDuringSchedulingIgnoredDuringExecution")


def matches(spec: PodSpec, node: Node) -> bool:
    """The nodeSelector, and one term of the required node affinity."""
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in spec.nodeSelector.items()):
        return False
    affinity = spec.affinity.nodeAffinity
    if not affinity.HasField("requiredDuringSchedulingIgnoredDuringExecution"):
        return True
    return selects(affinity.requiredDuringSchedulingIgnoredDuringExecution, node)


def selects(selector: NodeSelector, node: Node) -> bool:
    """One of the terms matches."""
    return any(_term(term, node) for term in selector.nodeSelectorTerms)


def _term(term: NodeSelectorTerm, node: Node) -> bool:
    """All requirements hold; a term without any matches nothing."""
    if not (term.matchExpressions or term.matchFields):
        return False
    labels = node.metadata.labels
    fields = {"metadata.name": node.metadata.name}
    return all(_holds(each, labels.get(each.key)) for each in term.matchExpressions) and all(
        each.key in fields and each.operator in ("In", "NotIn") and _holds(each, fields[each.key]) for each in term.matchFields
    )


def _holds(requirement: NodeSelectorRequirement, value: str | None) -> bool:
    match requirement.operator:
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Gt" | "Lt":
            return _compared(requirement, value)
        case _:
            return False


def _compared(requirement: NodeSelectorRequirement, value: str | None) -> bool:
    """Gt and Lt are about whole numbers; what is none does not match."""
    bound = integer(requirement.values[0]) if len(requirement.values) == 1 else None
    number = integer(value or "")
    if number is None or bound is None:
        return False
    return number > bound if requirement.operator == "Gt" else number < bound


PORTS_REASON = "node(s) didn't have free ports for the requested pod ports"


def reason_of(resource: str) -> str:
    """A refusal for want of this resource, in the words of kube-scheduler."""
    return "Too many pods" if resource == PODS else f"Insufficient {resource}"


class Predicate(StrEnum):
    """What a pod fails beside resources, as the kubelet calls it."""

    NODE_PORTS = "NodePorts"
    NODE_AFFINITY = "NodeAffinity"
    TAINT_TOLERATION = "TaintToleration"


_REASONS = {
    Predicate.NODE_PORTS: PORTS_REASON,
    Predicate.NODE_AFFINITY: AFFINITY_REASON,
    Predicate.TAINT_TOLERATION: "node(s) had taints that the pod didn't tolerate",
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """One reason why a pod does not fit: for want of a `resource`, or, where that is empty, by a `predicate`."""

    resource: str = ""
    requested: int = 0
    used: int = 0
    capacity: int = 0
    predicate: Predicate = Predicate.NODE_PORTS

    @property
    def reason(self) -> str:
        """As kube-scheduler words it: "Insufficient cpu"."""
        return reason_of(self.resource) if self.resource else _REASONS[self.predicate]

    @property
    def admission_reason(self) -> str:
        """As the kubelet words it in status.reason: "OutOfcpu"."""
        return f"OutOf{self.resource}" if self.resource else self.predicate

    @property
    def admission_message(self) -> str:
        """As the kubelet words it in status.message."""
        if not self.resource:
            return f"Predicate {self.predicate} failed: {self.reason}"
        return (
            f"Node didn't have enough resource: {self.resource}, "
            f"requested: {self.requested}, used: {self.used}, capacity: {self.capacity}"
        )


class Room:
    """What one node has, and what its pods use. For those who ask often; `check` builds one for a single question."""

    def __init__(self, allocatable: Mapping[str, int]) -> None:
        self.allocatable = allocatable
        self._used = Counter[str]()
        self._ports = Counter[HostPort]()

    def add(self, requests: Requests) -> None:
        """Counts a pod, whether it fits or not."""
        for resource, amount in requests.amounts:
            self._used[resource] += amount
        for port in requests.ports:
            self._ports[port] += 1

    def remove(self, requests: Requests) -> None:
        """Takes back an `add` of equal requests."""
        for resource, amount in requests.amounts:
            self._used[resource] -= amount
        for port in requests.ports:
            self._ports[port] -= 1

    def refusals(self, requests: Requests) -> list[Refusal]:
        """Everything that is in the way of one more pod; empty: it fits."""
        found = []
        for resource, wanted in requests.amounts:
            capacity, used = self.allocatable.get(resource, 0), self._used[resource]
            if wanted > capacity - used:
                found.append(Refusal(resource, wanted, used, capacity))
        if requests.ports and self._taken(requests.ports):
            found.append(Refusal())
        return found

    def _taken(self, ports: Iterable[HostPort]) -> bool:
        taken = [port for port, pods in self._ports.items() if pods > 0]
        return any(wanted.conflicts(port) for wanted in ports for port in taken)


def allocatable(node: Node) -> dict[str, int]:
    """What the node's pods may use, by resource name."""
    return {name: min(amount, MAX_AMOUNT - 1) for name, amount in amounts(node.status.allocatable).items()}


def check(pod: Pod, node: Node, pods_on_node: Iterable[Pod]) -> list[Refusal]:
    """Everything that keeps `pod` off `node` beside the pods that are there; empty: it fits.

    `pods_on_node` may include pods that have ended and `pod` itself (by uid): they do not count.
    """
    room = Room(allocatable(node))
    for other in pods_on_node:
        if not ended(other) and other.metadata.uid != pod.metadata.uid:
            room.add(pod_requests(other))
    return room.refusals(pod_requests(pod))
