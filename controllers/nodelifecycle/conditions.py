"""What a node whose kubelet is silent says of itself: nothing that is known. Pure.

Reasons and messages are Kubernetes'. Unlike there, conditions that no kubelet has reported are not made up, but for Ready.
"""

from pinnace.api import conditions
from pinnace.api.core_v1_pb2 import Node

PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")
_OBSERVED = frozenset({"Ready", *PRESSURES})
"""What only the kubelet can tell."""


def ready(node: Node) -> str:
    """The status of its condition Ready; empty: it has none."""
    found = conditions.find(node.status.conditions, "Ready")
    return found.status if found is not None else ""


def left(node: Node, silent: float | None, grace: float, startup: float) -> float | None:
    """Seconds until the node counts as unreachable, 0 when it does; None: its kubelet is there. `silent`: for how long it has
    not been, in seconds. A node that has never been Ready or not gets the `startup` grace, others `grace`."""
    if silent is None:
        return None
    return max(0.0, (grace if ready(node) else startup) - silent)


def unreachable(node: Node, now: float) -> Node | None:
    """The node with nothing known of it; None: it says so already. `now` is Unix time."""
    known = [each.type for each in node.status.conditions if each.type in _OBSERVED and each.status != "Unknown"]
    if not known and ready(node):
        return None
    changed = Node()
    changed.CopyFrom(node)
    told = changed.status.conditions
    for type_ in known:
        conditions.say(told, type_, "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.", now)
    if not ready(node):
        conditions.say(told, "Ready", "Unknown", "NodeStatusNeverUpdated", "Kubelet never posted node status.", now)
    return changed
