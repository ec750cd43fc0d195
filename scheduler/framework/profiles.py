"""The profiles of one scheduler process, by scheduler name. They share the queue, so they sort it alike."""

from collections.abc import Mapping

from scheduler.cache.changes import Change, ClusterEvent
from scheduler.cache.pod_info import PodInfo
from scheduler.cache.table import NodeTable
from scheduler.framework.interface import Gate
from scheduler.framework.runtime import Framework


class Profiles:
    """Each pod is handled by the profile that its spec.schedulerName names; there must be one."""

    def __init__(self, frameworks: Mapping[str, Framework]) -> None:
        self._frameworks = frameworks

    def of(self, pod: PodInfo) -> Framework:
        return self._frameworks[pod.raw.spec.schedulerName]

    def gate(self, pod: PodInfo) -> Gate | None:
        return self.of(pod).gate(pod)

    def sort_key(self, pod: PodInfo, since: float) -> tuple[float, ...]:
        return self.of(pod).sort_key(pod, since)

    def awaited(self, refused_by: frozenset[str], pod: PodInfo) -> Change:
        return self.of(pod).awaited(refused_by, pod)

    def helps(self, plugin: str, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        return self.of(pod).helps(plugin, event, pod, nodes)
