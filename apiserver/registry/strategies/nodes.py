"""Nodes: taints, amounts, and what an update may not change. They register with their status; later the kubelet writes status,
everybody else metadata and spec."""

from collections.abc import Sequence

from apiserver.registry.strategy import StatusStrategy
from apiserver.registry.validation.addresses import validate_network
from apiserver.registry.validation.resources import validate_capacity
from apiserver.registry.validation.taints import validate_number, validate_taints
from apiserver.registry.validation.violations import duplicate, forbidden, invalid, too_many
from pinnace.api.core_v1_pb2 import Node, NodeSpec, NodeStatus
from pinnace.api.quantity import QuantityError, amounts, format_amount
from pinnace.api.status import Violation
from pinnace.api.wellknown import RESERVED_ANNOTATION

MAX_RESOURCES = 100
"""Kinds of resources of a node. A scheduler has a column of all nodes for each: 4,900 kinds of one node cost it 11 s of CPU on
1,000 nodes. Kubernetes has no such bound."""


class NodeStrategy(StatusStrategy[Node]):
    def prepare_create(self, obj: Node) -> None:
        """The status stays: nodes register with theirs."""
        _default_allocatable(obj)
        _record_reserved(obj)
        _default_networks(obj)

    def prepare_update(self, obj: Node, old: Node) -> None:
        super().prepare_update(obj, old)
        if _networks(obj.spec) != _networks(old.spec):
            _default_networks(obj)

    def prepare_status_update(self, obj: Node, old: Node) -> None:
        super().prepare_status_update(obj, old)
        _default_allocatable(obj)

    def check(self, obj: Node, out: list[Violation]) -> None:
        validate_taints(obj.spec.taints, "spec.taints", out)
        _validate_networks(obj.spec, out)

    def check_new(self, obj: Node, out: list[Violation]) -> None:
        self.check(obj, out)
        validate_number(obj.spec.taints, (), "spec.taints", out)
        _validate_status(obj.status, out)
        _validate_kinds(obj.status, NodeStatus(), out)

    def check_change(self, new: Node, old: Node, out: list[Violation]) -> None:
        validate_number(new.spec.taints, old.spec.taints, "spec.taints", out)
        for field in ("podCIDR", "podCIDRs", "providerID"):
            before = getattr(old.spec, field)
            if before and getattr(new.spec, field) != before:
                out.append(forbidden(f"spec.{field}", f'node updates may not change {field} except from "" to valid'))

    def check_status(self, obj: Node, out: list[Violation]) -> None:
        _validate_status(obj.status, out)

    def check_status_change(self, new: Node, old: Node, out: list[Violation]) -> None:
        _validate_kinds(new.status, old.status, out)


def _default_allocatable(node: Node) -> None:
    """All that there is may be used, unless the node says otherwise."""
    status = node.status
    if not status.allocatable and status.capacity:
        status.allocatable.MergeFrom(status.capacity)


def _record_reserved(node: Node) -> None:
    """A node that is created with less allocatable than capacity keeps the difference for good: its kubelet, which reconciles
    allocatable with capacity, cannot tell it from a status that somebody has overwritten."""
    if RESERVED_ANNOTATION in node.metadata.annotations:
        return
    status = node.status
    try:
        capacity, allocatable = amounts(status.capacity), amounts(status.allocatable)
    except QuantityError:
        return  # validation refuses it
    held = {name: total - allocatable.get(name, total) for name, total in sorted(capacity.items())}
    reserved = [f"{name}={format_amount(name, amount)}" for name, amount in held.items() if amount > 0]
    if reserved:
        node.metadata.annotations[RESERVED_ANNOTATION] = ",".join(reserved)


def _default_networks(node: Node) -> None:
    """podCIDR is the first of podCIDRs: who says one of them need not say the other, as in Kubernetes."""
    spec = node.spec
    if spec.podCIDR and not spec.podCIDRs:
        spec.podCIDRs.append(spec.podCIDR)
    elif spec.podCIDRs and not spec.podCIDR:
        spec.podCIDR = spec.podCIDRs[0]


def _networks(spec: NodeSpec) -> tuple[str, Sequence[str]]:
    """Of a node's pods: the first, and all of them."""
    return spec.podCIDR, list(spec.podCIDRs)


def _validate_networks(spec: NodeSpec, out: list[Violation]) -> None:
    """After defaults, so that all are among podCIDRs."""
    if spec.podCIDRs and spec.podCIDR != spec.podCIDRs[0]:
        out.append(invalid("spec.podCIDR", spec.podCIDR, "must be the same as spec.podCIDRs[0]"))
    seen, versions = set[str](), list[int]()
    for index, network in enumerate(spec.podCIDRs):
        versions.append(validate_network(network, f"spec.podCIDRs[{index}]", out))
        if network in seen:
            out.append(duplicate(f"spec.podCIDRs[{index}]", network))
        seen.add(network)
    if len(versions) > 1 and 0 not in versions and sorted(versions) != [4, 6]:
        out.append(invalid("spec.podCIDRs", spec.podCIDRs, "may specify no more than one CIDR for each IP family"))


def _validate_kinds(new: NodeStatus, old: NodeStatus, out: list[Violation]) -> None:
    """A node that has more resources, from a version without the bound, may keep them."""
    for field in ("capacity", "allocatable"):
        number, had = len(getattr(new, field)), len(getattr(old, field))
        if number > max(MAX_RESOURCES, had):
            out.append(too_many(f"status.{field}", number, MAX_RESOURCES))


def _validate_status(status: NodeStatus, out: list[Violation]) -> None:
    validate_capacity(status.capacity, "status.capacity", out)
    validate_capacity(status.allocatable, "status.allocatable", out)
    seen: set[tuple[str, str]] = set()
    for index, address in enumerate(status.addresses):
        pair = (address.type, address.address)
        if pair in seen:
            out.append(duplicate(f"status.addresses[{index}]", f"{address.type}: {address.address}"))
        seen.add(pair)
