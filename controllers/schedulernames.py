"""Events for pods that name a scheduler that does not run: one Warning for each pod.

    pending pods by schedulerName --no election has a leader with this profile, at two syncs--> a Warning event each

Schedulers publish their profiles in their election (Election.scheduler_names). While no scheduler leads at all, there is no
event. In Kubernetes such a pod stays pending without an event (kubernetes#116982).
"""

from collections.abc import Mapping, Sequence, Set
from typing import Any

from controllers.runtime import Shared, Watch
from pinnace.api import wellknown
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.elections_pb2 import Election
from pinnace.api.pods import ended
from pinnace.api.records import decides, no_profile
from pinnace.api.resources import NAMESPACES, PODS
from pinnace.api.verbs_pb2 import MODIFIED
from pinnace.client.informer import Delta

INTERVAL = 10.0
"""Seconds between two looks. A scheduler that restarts leads again within this time."""
MOST = 500
"""Pods of one look that get an event: the others get theirs at the next ones."""
_KEY = "pods"


def waits_for(pod: Pod) -> str:
    """The scheduler that is to give the pod a node; empty: it needs none now. For an index."""
    if pod.spec.nodeName or pod.spec.schedulingGates or ended(pod) or pod.metadata.HasField("deletionTimestamp"):
        return ""
    return pod.spec.schedulerName or wellknown.DEFAULT_SCHEDULER


def missing(names: Set[str], elections: Sequence[Election]) -> Mapping[str, str]:
    """Of these schedulers, those that nothing runs, each with the sentence that says so."""
    if not any(election.scheduler_names for election in elections):
        return {}
    return {name: no_profile(name, elections) for name in names if decides(name, elections) is None}


class SchedulerNameController:
    name = "scheduler-name"
    workers = 1
    max_backoff = INTERVAL

    def __init__(self, shared: Shared) -> None:
        self._elections = shared.client.elections
        self._events = shared.events
        self._waiting = shared.informers.index(PODS, waits_for)
        self._missed: Set[str] = frozenset()
        """Schedulers that were missing at the last look."""
        self._told: set[str] = set()
        """Pods by uid, of those that still wait."""

    @property
    def watches(self) -> Sequence[Watch[Any]]:
        """There is always a namespace: with the first one begins the first look. Changes of pods begin none."""
        return (Watch(NAMESPACES, _comes_or_goes),)

    async def sync(self, key: str) -> float | None:
        names = self._waiting.keys
        found = missing(names, await self._elections.list()) if names else {}
        pods = {uid: (pod, why) for name, why in found.items() for uid, pod in self._waiting.under(name).items()}
        self._told &= pods.keys()
        due = [(pod, why) for uid, (pod, why) in pods.items() if uid not in self._told and waits_for(pod) in self._missed]
        for pod, why in due[:MOST]:
            self._events.event(pod, "Warning", "FailedScheduling", why)
            self._told.add(pod.metadata.uid)
        self._missed = found.keys()
        return INTERVAL


def _comes_or_goes(delta: Delta[Any]) -> Sequence[str]:
    return () if delta.kind == MODIFIED else (_KEY,)
