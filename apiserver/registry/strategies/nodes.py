"""Nodes: register with their status; later the kubelet writes status, everybody else metadata and spec."""

from apiserver.registry.strategy import StatusStrategy, carry_over
from apiserver.registry.validation.nodes import networks, validate_node, validate_node_status, validate_node_update
from pinnace.api.core_v1_pb2 import Node
from pinnace.api.status import Violation


class NodeStrategy(StatusStrategy[Node]):
    def prepare_create(self, obj: Node) -> None:
        _default_allocatable(obj)
        _default_networks(obj)

    def validate(self, obj: Node) -> list[Violation]:
        return validate_node(obj)

    def prepare_update(self, obj: Node, old: Node) -> None:
        if networks(obj.spec) != networks(old.spec):
            _default_networks(obj)
        carry_over(obj, old, "status")

    def validate_update(self, obj: Node, old: Node) -> list[Violation]:
        return validate_node_update(obj, old)

    def prepare_status_update(self, obj: Node, old: Node) -> None:
        carry_over(obj, old, "metadata", "spec")
        _default_allocatable(obj)

    def validate_status_update(self, obj: Node, old: Node) -> list[Violation]:
        return validate_node_status(obj)


def _default_allocatable(node: Node) -> None:
    """All that there is may be used, unless the node says otherwise."""
    status = node.status
    if not status.allocatable and status.capacity:
        status.allocatable.MergeFrom(status.capacity)


def _default_networks(node: Node) -> None:
    """podCIDR is the first of podCIDRs: who says one of them need not say the other, as in Kubernetes."""
    spec = node.spec
    if spec.podCIDR and not spec.podCIDRs:
        spec.podCIDRs.append(spec.podCIDR)
    elif spec.podCIDRs and not spec.podCIDR:
        spec.podCIDR = spec.podCIDRs[0]
