"""SchedulingGates: a pod with gates is not considered until the last one is removed."""

from scheduler.framework import Change, ClusterEvent, NodeTable, PodInfo


class SchedulingGates:
    name = "SchedulingGates"
    helped_by = Change.NONE

    def pre_enqueue(self, pod: PodInfo) -> bool:
        return not pod.raw.spec.schedulingGates

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        """Nothing does but a change of the pod."""
        return False
