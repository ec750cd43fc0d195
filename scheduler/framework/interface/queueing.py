"""Before a cycle: which pods may be tried, in which order, and what may help those that found no place."""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from scheduler.cache.changes import Change, ClusterEvent
from scheduler.cache.pod_info import PodInfo
from scheduler.cache.table import NodeTable
from scheduler.framework.interface.plugin import Plugin


@runtime_checkable
class PreEnqueuePlugin(Plugin, Protocol):
    def pre_enqueue(self, pod: PodInfo) -> bool:
        """May the pod be considered at all? A pod that may not is asked about again when it changes, and after events of the
        kinds that the plugin names (`helped_by` of EnqueueHint; `helps` is not asked). Who names none is asked after all."""
        ...


@dataclass(frozen=True, slots=True)
class Gate:
    """A pod is held back."""

    plugin: str
    awaits: Change
    """The kinds of changes after one of which the plugin may let it go; NONE: only a change of the pod helps."""


@runtime_checkable
class QueueSortPlugin(Plugin, Protocol):
    def sort_key(self, pod: PodInfo, since: float) -> Any:
        """The least goes first. `since`: when the pod arrived, or failed last (monotonic seconds). Exactly one plugin sorts,
        the same in all profiles: they share the queue."""
        ...


@runtime_checkable
class EnqueueHint(Plugin, Protocol):
    """What can help a pod that this plugin refused, or holds back. A plugin without it is helped by anything."""

    @property
    def helped_by(self) -> Change: ...

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        """May the pod fit now, after an event of one of these kinds? Looks at the pod's spec only. When in doubt: True."""
        ...
