"""The scalar form of the fit rules, for one pod and one node. The scheduler's plugins use the table form.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from pinnace.api.core_v1_pb2 import Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec
from pinnace.api.integers import parse_integer
from pinnace.api.pods import ended
from pinnace.api.quantity import amounts
from pinnace.fit.requests import MAX_AMOUNT, PODS, HostPort, Requests, pod_requests

AFFINITY_REASON = "node(s) didn't match Pod's node affinity/selector"
PORTS_REASON = "node(s) didn't have free ports for the requested pod ports"


def has_node_requirements(spec: PodSpec) -> bool:
    """Return True if the pod has a nodeSelector or required node affinity."""
    return bool(spec.nodeSelector) or spec.affinity.nodeAffinity.HasField("requiredDuringSchedulingIgnoredDuringExecution")


def matches_node(spec: PodSpec, node: Node) -> bool:
    """Return True if the node matches the nodeSelector and at least one term of the required node affinity."""
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in spec.nodeSelector.items()):
        return False
    affinity = spec.affinity.nodeAffinity
    if not affinity.HasField("requiredDuringSchedulingIgnoredDuringExecution"):
        return True
    return selector_matches(affinity.requiredDuringSchedulingIgnoredDuringExecution, node)


def selector_matches(selector: NodeSelector, node: Node) -> bool:
    """Return True if at least one term matches the node."""
    return any(_term_matches(term, node) for term in selector.nodeSelectorTerms)


def _term_matches(term: NodeSelectorTerm, node: Node) -> bool:
    """Return True if all requirements of the term hold. An empty term matches no node."""
    if not (term.matchExpressions or term.matchFields):
        return False
    labels = node.metadata.labels
    fields = {"metadata.name": node.metadata.name}
    return all(
        _requirement_matches(match_expression, labels.get(match_expression.key)) for match_expression in term.matchExpressions
    ) and all(
        match_field.key in fields
        and match_field.operator in ("In", "NotIn")
        and _requirement_matches(match_field, fields[match_field.key])
        for match_field in term.matchFields
    )


def _requirement_matches(requirement: NodeSelectorRequirement, value: str | None) -> bool:
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
            return _compare_integers(requirement, value)
        case _:
            return False


def _compare_integers(requirement: NodeSelectorRequirement, value: str | None) -> bool:
    """Evaluate Gt or Lt. Both compare integers. A value that is not an integer does not match."""
    bound = parse_integer(requirement.values[0]) if len(requirement.values) == 1 else None
    number = parse_integer(value or "")
    if number is None or bound is None:
        return False
    return number > bound if requirement.operator == "Gt" else number < bound


def insufficient_reason(resource: str) -> str:
    """Return kube-scheduler's message for a node with too little of the resource."""
    return "Too many pods" if resource == PODS else f"Insufficient {resource}"


class AdmissionPredicate(StrEnum):
    """Admission failures other than insufficient resources, with the kubelet's names."""

    NODE_PORTS = "NodePorts"
    NODE_AFFINITY = "NodeAffinity"
    TAINT_TOLERATION = "TaintToleration"


_REASONS = {
    AdmissionPredicate.NODE_PORTS: PORTS_REASON,
    AdmissionPredicate.NODE_AFFINITY: AFFINITY_REASON,
    AdmissionPredicate.TAINT_TOLERATION: "node(s) had taints that the pod didn't tolerate",
}


@dataclass(frozen=True, slots=True)
class FitRefusal:
    """One reason why a pod does not fit: an insufficient `resource`, or a failed `predicate` if `resource` is empty."""

    resource: str = ""
    requested: int = 0
    used: int = 0
    capacity: int = 0
    predicate: AdmissionPredicate = AdmissionPredicate.NODE_PORTS

    @property
    def reason(self) -> str:
        """The reason in kube-scheduler's words, for example "Insufficient cpu"."""
        return insufficient_reason(self.resource) if self.resource else _REASONS[self.predicate]

    @property
    def admission_reason(self) -> str:
        """The kubelet's status.reason, for example "OutOfcpu"."""
        return f"OutOf{self.resource}" if self.resource else self.predicate

    @property
    def admission_message(self) -> str:
        """The kubelet's status.message."""
        if not self.resource:
            return f"Predicate {self.predicate} failed: {self.reason}"
        return (
            f"Node didn't have enough resource: {self.resource}, "
            f"requested: {self.requested}, used: {self.used}, capacity: {self.capacity}"
        )


class NodeCapacity:
    """The capacity of one node and the use of its pods, updated incrementally."""

    def __init__(self, allocatable: Mapping[str, int]) -> None:
        self.allocatable = allocatable
        self._used = Counter[str]()
        self._ports = Counter[HostPort]()

    def add(self, requests: Requests) -> None:
        """Count a pod, even if it does not fit."""
        for resource, amount in requests.amounts:
            self._used[resource] += amount
        for port in requests.ports:
            self._ports[port] += 1

    def remove(self, requests: Requests) -> None:
        """Undo an `add` of equal requests."""
        for resource, amount in requests.amounts:
            self._used[resource] -= amount
        for port in requests.ports:
            self._ports[port] -= 1

    def refusals(self, requests: Requests) -> list[FitRefusal]:
        """Return all reasons why another pod does not fit. The list is empty if the pod fits."""
        result = []
        for resource, wanted in requests.amounts:
            capacity, used = self.allocatable.get(resource, 0), self._used[resource]
            if wanted > capacity - used:
                result.append(FitRefusal(resource, wanted, used, capacity))
        if requests.ports and self._is_any_taken(requests.ports):
            result.append(FitRefusal())
        return result

    def _is_any_taken(self, ports: Iterable[HostPort]) -> bool:
        taken = [port for port, pods in self._ports.items() if pods > 0]
        return any(wanted.conflicts(port) for wanted in ports for port in taken)


def allocatable_amounts(node: Node) -> dict[str, int]:
    """Return the allocatable amounts of the node, by resource name."""
    return {name: min(amount, MAX_AMOUNT - 1) for name, amount in amounts(node.status.allocatable).items()}


def check_fit(pod: Pod, node: Node, pods_on_node: Iterable[Pod]) -> list[FitRefusal]:
    """Return all reasons why `pod` does not fit the node beside `pods_on_node`. The list is empty if the pod fits.

    `pods_on_node` may include terminated pods and `pod` itself (compared by UID). They do not count.
    """
    room = NodeCapacity(allocatable_amounts(node))
    for other in pods_on_node:
        if not ended(other) and other.metadata.uid != pod.metadata.uid:
            room.add(pod_requests(other))
    return room.refusals(pod_requests(pod))
