"""Report pods that name a scheduler that is not running, with one Warning event per pod.

    pending pods by schedulerName --no leader with this profile in two consecutive syncs--> a Warning event per pod

Schedulers publish their profiles in their election (Election.scheduler_names). While no scheduler is a leader, there are no
events. In Kubernetes such a pod stays pending without an event (kubernetes#116982).
"""

from collections.abc import Mapping, Sequence, Set
from typing import Any

from pinnace.api import wellknown
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.elections_pb2 import Election
from pinnace.api.pods import ended
from pinnace.api.records import deciding_election, no_profile
from pinnace.api.resources import NAMESPACES, PODS
from pinnace.api.verbs_pb2 import MODIFIED
from pinnace.client.informer import Delta
from pinnace.controllers.runtime import ControllerContext, WatchedResource

INTERVAL = 10.0
"""Seconds between syncs. A restarted scheduler becomes leader within this time."""
MOST = 500
"""Maximum number of events per sync. The other pods follow in the next syncs."""
_KEY = "pods"


def pending_scheduler_name(pod: Pod) -> str:
    """Return the index key of a pod: the scheduler that it waits for, or an empty string."""
    if pod.spec.nodeName or pod.spec.schedulingGates or ended(pod) or pod.metadata.HasField("deletionTimestamp"):
        return ""
    return pod.spec.schedulerName or wellknown.DEFAULT_SCHEDULER


def find_missing_schedulers(names: Set[str], elections: Sequence[Election]) -> Mapping[str, str]:
    """Return the schedulers that are not running, with a message for each."""
    if not any(election.scheduler_names for election in elections):
        return {}
    return {name: no_profile(name, elections) for name in names if deciding_election(name, elections) is None}


class SchedulerNameController:
    name = "scheduler-name"
    workers = 1
    max_backoff = INTERVAL

    def __init__(self, shared: ControllerContext) -> None:
        self._elections = shared.client.elections
        self._events = shared.events
        self._waiting = shared.informers.index(PODS, pending_scheduler_name)
        self._missed: Set[str] = frozenset()
        """Schedulers that were missing in the last sync."""
        self._told: set[str] = set()
        """UIDs of pending pods with an event."""

    @property
    def watches(self) -> Sequence[WatchedResource[Any]]:
        """The watched kinds. A namespace always exists, so its addition starts the first sync. Changes of pods start none."""
        return (WatchedResource(NAMESPACES, _key_on_add_or_delete),)

    async def sync(self, key: str) -> float | None:
        names = self._waiting.keys
        result = find_missing_schedulers(names, await self._elections.list()) if names else {}
        pods = {uid: (pod, why) for name, why in result.items() for uid, pod in self._waiting.under(name).items()}
        self._told &= pods.keys()
        due = [
            (pod, why)
            for uid, (pod, why) in pods.items()
            if uid not in self._told and pending_scheduler_name(pod) in self._missed
        ]
        for pod, why in due[:MOST]:
            self._events.event(pod, "Warning", "FailedScheduling", why)
            self._told.add(pod.metadata.uid)
        self._missed = result.keys()
        return INTERVAL


def _key_on_add_or_delete(delta: Delta[Any]) -> Sequence[str]:
    return () if delta.kind == MODIFIED else (_KEY,)
