"""The taints that a node's conditions call for. Pure. Other taints are left alone.

NoSchedule taints follow at once. NoExecute ones, which send pods away, come when the zone's rate allows (zones.py), and go at
once. A node that has never reported Ready keeps the not-ready taint that it was created with.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/#taint-nodes-by-condition
"""

from controllers.nodelifecycle.conditions import ready
from pinnace.api import conditions
from pinnace.api.core_v1_pb2 import Node, Taint
from pinnace.api.times import to_time
from pinnace.api.wellknown import MEMORY_PRESSURE_TAINT, NOT_READY_TAINT, UNREACHABLE_TAINT, UNSCHEDULABLE_TAINT

_BY_CONDITION = {
    ("Ready", "False"): NOT_READY_TAINT,
    ("Ready", "Unknown"): UNREACHABLE_TAINT,
    ("MemoryPressure", "True"): MEMORY_PRESSURE_TAINT,
    ("DiskPressure", "True"): "node.kubernetes.io/disk-pressure",
    ("PIDPressure", "True"): "node.kubernetes.io/pid-pressure",
    ("NetworkUnavailable", "True"): "node.kubernetes.io/network-unavailable",
}
_NO_SCHEDULE = frozenset({*_BY_CONDITION.values(), UNSCHEDULABLE_TAINT})
_NO_EXECUTE = frozenset({NOT_READY_TAINT, UNREACHABLE_TAINT})
_EVICTING = {"False": NOT_READY_TAINT, "Unknown": UNREACHABLE_TAINT}


def evicts(node: Node) -> bool:
    """Has it a taint of ours that sends pods away?"""
    return any(taint.effect == "NoExecute" and taint.key in _NO_EXECUTE for taint in node.spec.taints)


def should_evict(node: Node) -> bool:
    return ready(node) in _EVICTING


def tainted(node: Node, evict: bool, now: float) -> Node | None:
    """The node with the taints that it should have; None: it has them. `evict`: with those that send pods away, if it is not
    Ready. `now` is Unix time."""
    wanted = {
        (key, "NoSchedule")
        for (type_, status), key in _BY_CONDITION.items()
        if (found := conditions.find(node.status.conditions, type_)) is not None and found.status == status
    }
    if node.spec.unschedulable:
        wanted.add((UNSCHEDULABLE_TAINT, "NoSchedule"))
    if not ready(node):
        wanted |= {(NOT_READY_TAINT, taint.effect) for taint in node.spec.taints if taint.key == NOT_READY_TAINT}
    if evict and should_evict(node):
        wanted.add((_EVICTING[ready(node)], "NoExecute"))
    has = {(taint.key, taint.effect) for taint in node.spec.taints if _is_ours(taint)}
    if has == wanted:
        return None
    changed = Node()
    changed.CopyFrom(node)
    kept = [taint for taint in node.spec.taints if not _is_ours(taint) or (taint.key, taint.effect) in wanted]
    del changed.spec.taints[:]
    changed.spec.taints.extend(kept)
    for key, effect in sorted(wanted - has):
        changed.spec.taints.add(key=key, effect=effect, timeAdded=to_time(now))
    return changed


def _is_ours(taint: Taint) -> bool:
    return taint.key in (_NO_EXECUTE if taint.effect == "NoExecute" else _NO_SCHEDULE if taint.effect == "NoSchedule" else ())
