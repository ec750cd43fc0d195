"""What PostFilter plugins are given to make room with (scheduler.framework.handle.Preemption)."""

from collections.abc import Mapping, Sequence

from pinnace.api import conditions
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.wellknown import DISRUPTION_TARGET
from scheduler import metrics
from scheduler.cache.cache import Cache
from scheduler.cache.placed_pod import PlacedPod
from scheduler.cache.pod_info import PodInfo
from scheduler.framework.profiles import Profiles
from scheduler.framework.runtime import Framework
from scheduler.preemption.evictions import REASON, Evictions


class PreemptionHandle:
    def __init__(self, cache: Cache, evictions: Evictions, store: Mapping[str, Pod], seed: int) -> None:
        """`store`: the informer's."""
        self.cache = cache
        self.seed = seed
        self.profiles = Profiles({})
        """To be set when the plugins are made."""
        self._evictions = evictions
        self._store = store

    def filters(self, pod: PodInfo) -> Framework:
        return self.profiles.of(pod)

    def evict(self, plugin: str, preemptor: PodInfo, node: str, victims: Sequence[PlacedPod]) -> None:
        metrics.VICTIMS.observe(len(victims))
        self._evictions.submit(plugin, preemptor, node, victims)

    def is_leaving(self, pod: PlacedPod) -> bool:
        if self._evictions.pending(pod.uid):
            return True
        current = self._store.get(pod.key)
        return (
            current is not None
            and current.metadata.uid == pod.uid
            and current.metadata.HasField("deletionTimestamp")
            and (why := conditions.find(current.status.conditions, DISRUPTION_TARGET)) is not None
            and why.reason == REASON
        )
