"""SchedulingGates: a pod with gates is not considered until the last one is removed."""

from scheduler.framework import PodInfo


class SchedulingGates:
    name = "SchedulingGates"

    def pre_enqueue(self, pod: PodInfo) -> bool:
        return not pod.raw.spec.schedulingGates
