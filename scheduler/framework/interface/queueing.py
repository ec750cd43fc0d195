"""Before a cycle: which pods may be tried, in which order, and what may help those that found no place."""

from typing import Any, Protocol, runtime_checkable

from scheduler.cache.changes import Change, ClusterEvent
from scheduler.cache.pod_info import PodInfo
from scheduler.cache.table import NodeTable
from scheduler.framework.interface.plugin import Plugin


@runtime_checkable
class PreEnqueuePlugin(Plugin, Protocol):
    def pre_enqueue(self, pod: PodInfo) -> bool:
        """May the pod be considered at all? Asked again when the pod changes."""
        ...


@runtime_checkable
class QueueSortPlugin(Plugin, Protocol):
    def sort_key(self, pod: PodInfo, since: float) -> Any:
        """The least goes first. `since`: when the pod arrived, or failed last (monotonic seconds). Exactly one plugin sorts,
        the same in all profiles: they share the queue."""
        ...


@runtime_checkable
class EnqueueHint(Plugin, Protocol):
    """What can help a pod that this plugin refused. A plugin without it is helped by anything."""

    @property
    def helped_by(self) -> Change: ...

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        """May the pod fit now, after an event of one of these kinds? Looks at the pod's spec only. When in doubt: True."""
        ...
