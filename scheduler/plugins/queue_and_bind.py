"""SchedulingGates, PrioritySort and DefaultBinder: the default plugins of the queue and of binding.

The scheduling queue and the binder contain most of the logic, so these classes are small.
"""

from typing import Literal

from pinnace.scheduler.framework import Change, ClusterEvent, NodeTable, PodInfo


class SchedulingGates:
    name = "SchedulingGates"
    helped_by = Change.NONE

    def pre_enqueue(self, pod: PodInfo) -> bool:
        return not pod.raw.spec.schedulingGates

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        """Return False, because only a change of the pod removes its gates."""
        return False


class PrioritySort:
    name = "PrioritySort"

    def sort_key(self, pod: PodInfo, since: float) -> tuple[float, float]:
        return -pod.priority, since


class DefaultBinder:
    name = "DefaultBinder"
    in_batches: Literal[True] = True
