"""Nodes in a table.

Source: Kubernetes, pkg/printers/internalversion/printers.go, printNode.
"""

from pinnace.api import conditions
from pinnace.api.core_v1_pb2 import Node
from pinnace.printers.ages import since
from pinnace.printers.columns import NONE, Columns

_ROLE_PREFIX = "node-role.kubernetes.io/"
_ROLE = "kubernetes.io/role"


def row(node: Node, now: float) -> tuple[str, ...]:
    info = node.status.nodeInfo
    return (
        node.metadata.name,
        status(node),
        ",".join(roles(node)) or NONE,
        since(node.metadata.creationTimestamp, now),
        info.kubeletVersion,
        address(node, "InternalIP"),
        info.osImage or "<unknown>",
        info.containerRuntimeVersion or "<unknown>",
    )


COLUMNS = Columns(
    headers=("NAME", "STATUS", "ROLES", "AGE", "VERSION"),
    wide=("INTERNAL-IP", "OS-IMAGE", "CONTAINER-RUNTIME"),
    row=row,
)


def status(node: Node) -> str:
    """ "Ready", "NotReady" or "Unknown", and whether it takes new pods."""
    ready = conditions.find(node.status.conditions, "Ready")
    word = "Unknown" if ready is None else "Ready" if ready.status == "True" else "NotReady"
    return f"{word},SchedulingDisabled" if node.spec.unschedulable else word


def roles(node: Node) -> list[str]:
    labels = node.metadata.labels
    named = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)}
    return sorted((named | {labels.get(_ROLE, "")}) - {""})


def address(node: Node, kind: str) -> str:
    return next((address.address for address in node.status.addresses if address.type == kind), NONE)
