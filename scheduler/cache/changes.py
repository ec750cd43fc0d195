"""What happened in the cluster that may help a pod which had no place: the words in which plugins say what they wait for."""

from dataclasses import dataclass, field
from enum import Flag, auto

from pinnace import fit
from pinnace.api.core_v1_pb2 import Node
from pinnace.api.resources import Object
from scheduler.cache.pod_index import PodGroup


class Change(Flag):
    """Kinds of changes. One event may be of several."""

    NONE = 0
    NODE_ADDED = auto()
    NODE_ALLOCATABLE = auto()
    """Some node has more of some resource."""
    NODE_LABELS = auto()
    NODE_TAINTS = auto()
    """Taints, or spec.unschedulable."""
    NODE_ANNOTATIONS = auto()
    NODE_CONDITIONS = auto()
    """The status of some condition; when it was heard of last, and why it is so, is no event."""
    NODE_REMOVED = auto()
    POD_FREED = auto()
    """A pod left a node, or finished: its resources and ports are free."""
    VOLUMES_FREED = auto()
    """Beside POD_FREED: the pod had claims or disks."""
    POD_PLACED = auto()
    """A pod is bound to a node."""
    POD_LABELS = auto()
    """A pod on a node, or nominated to it, has other labels, or is being deleted."""
    RESERVATION_ENDED = auto()
    """What plugins had set aside for a pod in Reserve is given back."""
    OBJECT = auto()
    """An object of another resource, that some plugin `needs`, was added, changed or deleted."""


ANY = ~Change.NONE


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    change: Change
    node: str = ""
    """Where it happened; empty for an OBJECT."""
    pod: PodGroup | None = field(default=None, compare=False)
    """The pod that was freed, placed or relabelled. None: it is not known."""
    was: PodGroup | None = field(default=None, compare=False)
    """The pod before it was relabelled."""
    resource: str = ""
    """The OBJECT's, in the plural."""
    obj: Object | None = None
    """The OBJECT, as it is now, or was last."""


def between(old: Node, new: Node) -> Change:
    """What changed from one version of a node to the next, as far as it may help a pod."""
    change = Change.NONE
    if old.status != new.status:  # a message is compared in a tenth of the time that its parts take
        before, after = fit.allocatable(old), fit.allocatable(new)
        if any(amount > before.get(resource, 0) for resource, amount in after.items()):
            change |= Change.NODE_ALLOCATABLE
        if _conditions(old) != _conditions(new):
            change |= Change.NODE_CONDITIONS
    if old.metadata.labels != new.metadata.labels:
        change |= Change.NODE_LABELS
    if old.metadata.annotations != new.metadata.annotations:
        change |= Change.NODE_ANNOTATIONS
    if old.spec.unschedulable != new.spec.unschedulable or old.spec.taints != new.spec.taints:
        change |= Change.NODE_TAINTS
    return change


def _conditions(node: Node) -> dict[str, str]:
    return {condition.type: condition.status for condition in node.status.conditions}
