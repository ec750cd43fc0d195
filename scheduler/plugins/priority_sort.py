"""PrioritySort: higher priority first, then whoever has waited longest."""

from scheduler.framework import PodInfo


class PrioritySort:
    name = "PrioritySort"

    def sort_key(self, pod: PodInfo, since: float) -> tuple[float, float]:
        return -pod.priority, since
