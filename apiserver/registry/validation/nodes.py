"""Nodes: taints, amounts, and what an update may not change."""

from collections.abc import Sequence

from apiserver.registry.validation.addresses import validate_network
from apiserver.registry.validation.metadata import validate_metadata, validate_metadata_update
from apiserver.registry.validation.resources import validate_capacity
from apiserver.registry.validation.taints import validate_taints
from apiserver.registry.validation.violations import duplicate, forbidden, invalid
from pinnace.api.core_v1_pb2 import Node, NodeSpec, NodeStatus
from pinnace.api.status import Violation


def validate_node(node: Node) -> list[Violation]:
    """Everything that is wrong with a new node."""
    out: list[Violation] = []
    validate_metadata(node.metadata, out, namespaced=False)
    _validate_taints(node.spec, out)
    _validate_networks(node.spec, out)
    _validate_status(node.status, out)
    return out


def validate_node_update(new: Node, old: Node) -> list[Violation]:
    """Everything that is wrong with the change of metadata or spec, and with what comes of it."""
    out: list[Violation] = []
    validate_metadata_update(new.metadata, old.metadata, out, namespaced=False)
    _validate_taints(new.spec, out)
    if networks(new.spec) != networks(old.spec):  # what is there already, and can never be changed, must not be in the way
        _validate_networks(new.spec, out)
    for field in ("podCIDR", "podCIDRs", "providerID"):
        before = getattr(old.spec, field)
        if before and getattr(new.spec, field) != before:
            out.append(forbidden(f"spec.{field}", f'node updates may not change {field} except from "" to valid'))
    return out


def validate_node_status(node: Node) -> list[Violation]:
    """Everything that is wrong with a new status."""
    out: list[Violation] = []
    _validate_status(node.status, out)
    return out


def networks(spec: NodeSpec) -> tuple[str, Sequence[str]]:
    """Of a node's pods: the first, and all of them."""
    return spec.podCIDR, list(spec.podCIDRs)


def _validate_taints(spec: NodeSpec, out: list[Violation]) -> None:
    if taints := spec.taints:
        validate_taints(taints, "spec.taints", out)


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


def _validate_status(status: NodeStatus, out: list[Violation]) -> None:
    validate_capacity(status.capacity, "status.capacity", out)
    validate_capacity(status.allocatable, "status.allocatable", out)
    seen: set[tuple[str, str]] = set()
    for index, address in enumerate(status.addresses):
        pair = (address.type, address.address)
        if pair in seen:
            out.append(duplicate(f"status.addresses[{index}]", f"{address.type}: {address.address}"))
        seen.add(pair)
