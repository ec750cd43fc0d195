"""The scheduler's informers, and the event handlers that update the cache and the queue.

A pod is always in exactly one of three places: in the queue, in a scheduling or binding cycle (then it is assumed in the
cache), or bound in the cache. The handlers run on standbys too, so that a new leader starts with a current cache and queue.
"""

import asyncio
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.pods import ENDED, ended
from pinnace.api.resources import NODES, PODS, Resource, T
from pinnace.api.verbs_pb2 import ADDED, DELETED, MODIFIED
from pinnace.client.client import Client
from pinnace.client.informer import Delta, Index, Informer, first_problem
from pinnace.fit.requests import is_resizing
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.supervise import run_unending
from pinnace.runtime.tasks import TimeSlice
from pinnace.scheduler.attempts import remaining_delay
from pinnace.scheduler.cache.cache import Cache, Change, ClusterEvent
from pinnace.scheduler.cache.pod_index import PodGroup
from pinnace.scheduler.cache.pod_info import PodInfo, pod_start_time
from pinnace.scheduler.framework.profile import Preemption, Waiting
from pinnace.scheduler.queue import SchedulingQueue

NOT_ENDED = ",".join(f"status.phase!={phase}" for phase in ENDED)
"""Terminated pods use no resources. They leave the informer's selection, which the informer reports as a deletion."""


class Informers:
    """`needs` are the resources that plugins read. `writes` are the resources other than pods that leaders write."""

    def __init__(
        self,
        client: Client,
        needs: Sequence[Resource[Any]],
        writes: Sequence[Resource[Any]] = (),
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.pods: Informer[Pod] = Informer(client.pods, fields=NOT_ENDED, announced=True, clock=clock)
        self.nodes: Informer[Node] = Informer(client.nodes, announced=NODES in writes, clock=clock)
        self.others: Mapping[Resource[Any], Informer[Any]] = {
            resource: Informer(client.of(resource), announced=resource in writes, clock=clock)
            for resource in dict.fromkeys((*needs, *writes))
            if resource not in (PODS, NODES)
        }
        self.all: Mapping[Resource[Any], Informer[Any]] = {PODS: self.pods, NODES: self.nodes, **self.others}
        self._written = [self.all[resource] for resource in dict.fromkeys((PODS, *writes))]

    @property
    def synced(self) -> bool:
        return all(informer.revision for informer in self.all.values())

    @property
    def healthy(self) -> str | None:
        """The problem for /readyz, or None."""
        return first_problem(self.all.values())

    async def wait_synced(self, timeout: float) -> None:
        """Wait until all informers have synced. Raise TimeoutError. `timeout` applies to each informer."""
        for informer in self.all.values():
            await informer.wait_synced(timeout)

    async def wait_for(self, revision: int, timeout: float) -> None:
        """Wait until the informers have received all writes of leaders up to `revision`.

        Raise TimeoutError. `timeout` applies to each informer.
        """
        for informer in self._written:
            await informer.wait_for(revision, timeout)

    def objects(self, resource: Resource[T]) -> Mapping[str, T]:
        """Return the store of one informer. Raise KeyError if no plugin needs the resource."""
        if resource not in self.all:
            raise KeyError(f"no plugin needs {resource.plural}")
        return self.all[resource].store

    def index(self, resource: Resource[T], by: Callable[[T], str]) -> Index[T]:
        """Return an index over one informer's store. Raise KeyError if no plugin needs the resource."""
        index = Index(by, self.objects(resource).values())
        self.all[resource].add_handler(index.apply_deltas)
        return index

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self.all.values():
                group.create_task(run_unending("informer", informer.run))


class PluginHandle:
    """The pinnace.scheduler.framework.Handle of a running scheduler."""

    def __init__(
        self,
        informers: Informers,
        waiting: Waiting,
        activate: Callable[[str], None],
        preemption: Preemption,
        client: Client,
    ) -> None:
        self.objects = informers.objects
        self.index = informers.index
        self.waiting = waiting
        self.activate = activate
        self.preemption: Preemption | None = preemption
        self.client = client


class EventHandlers:
    """Handlers of the informers. `changed` is called after each batch to wake the scheduling loop. `run` must run as a task."""

    def __init__(
        self,
        cache: Cache,
        queue: SchedulingQueue,
        scheduler_names: Container[str],
        now: Callable[[], float],
        changed: Callable[[], None],
        wall: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`now` returns the monotonic time, and `wall` the Unix time."""
        self._cache = cache
        self._queue = queue
        self._scheduler_names = scheduler_names
        self._now = now
        self._changed = changed
        self._wall = wall
        self._nodes: dict[str, Change] = {}
        """Unprocessed changes of nodes, by name. The node that has waited longest is first."""
        self._recorded_events: dict[tuple[str, Change, PodGroup | None, PodGroup | None], ClusterEvent] = {}
        """Changes by the pods of the current batch: node, kind of change, and the group of the pod now and before."""
        self._work = asyncio.Event()
        queue.gates.on_due = self._work.set

    def on_nodes(self, deltas: Sequence[Delta[Node]]) -> None:
        """Update the cache immediately. `run` moves the affected pods later, because a batch can contain 500 nodes and
        a thousand different groups of pods may be pending."""
        for delta in deltas:
            name = delta.obj.metadata.name
            event = self._cache.remove_node(name) if delta.kind == DELETED else self._cache.set_node(delta.obj)
            if event is not None and event.change:
                self._nodes[name] = self._nodes.get(name, Change.NONE) | event.change
        self._work.set()

    async def run(self, clock: Clock) -> None:
        """Move pods that changed nodes may help and check gated pods, until cancelled. Heartbeats run between the steps."""
        while True:
            await self._work.wait()
            self._work.clear()
            turn = TimeSlice(clock)
            while self.move_pods_of_changed_node() | self.recheck_gated_pod():  # no short circuit: both run in each iteration
                await turn.end()

    def move_pods_of_changed_node(self) -> bool:
        """Move the pods that the changes of one node may help. Return False if no changes remain."""
        if not self._nodes:
            return False
        name = next(iter(self._nodes))
        self._queue.move_pods_on_event(ClusterEvent(self._nodes.pop(name), name), self._cache.nodes, self._now())
        self._changed()
        return True

    def recheck_gated_pod(self) -> bool:
        """Check one pod that a PreEnqueue plugin gates. Return False if no gated pod awaits an event that has happened."""
        asked = self._queue.recheck_gated_pod()
        if asked:
            self._changed()
        return asked

    def on_pods(self, deltas: Sequence[Delta[Pod]]) -> None:
        now = self._now()
        for delta in deltas:
            pod = delta.obj
            uid = pod.metadata.uid
            if delta.kind == ADDED and delta.old is not None and delta.old.metadata.uid != uid:
                self._remove_pod(delta.old.metadata.uid)  # a pod with the same name whose deletion was missed
            if delta.kind == DELETED or ended(pod):
                self._remove_pod(uid)
            else:
                self._handle_existing_pod(delta, uid, now)
        self._move_pods_on_events(now)
        self._changed()

    def on_objects(self, resource: str, deltas: Sequence[Delta[Any]]) -> None:
        """Handle objects of a resource that only plugins read."""
        now = self._now()
        self._cache.nodes.begin_generation()
        for delta in deltas:
            self._queue.move_pods_on_event(
                ClusterEvent(Change.OBJECT, resource=resource, obj=delta.obj), self._cache.nodes, now
            )
        self._changed()

    def _handle_existing_pod(self, delta: Delta[Pod], uid: str, now: float) -> None:
        """Handle a pod that exists and has not terminated."""
        pod = delta.obj
        if node := pod.spec.nodeName:
            assumed = self._cache.is_assumed(uid)
            if not self._cache.confirm_assumption(uid, node):
                self._record_event(self._cache.add_pod(self._queue.remove_pod(uid) or PodInfo(pod), node))
            elif assumed:
                self._record_event(self._cache.placement_event(uid))
        elif self._cache.node_of(uid) is None or pod.metadata.HasField("deletionTimestamp"):  # no bind can follow a deletion
            self._handle_pending_pod(delta, now)
        if self._cache.node_of(uid) is not None:
            if delta.kind == MODIFIED and _labels_changed(delta.old, pod):
                self._record_event(self._cache.update_labels(pod))
            if delta.kind == MODIFIED and _may_be_resized(delta.old, pod):
                self._record_event(self._cache.update_requests(PodInfo(pod)))
            if _has_started(delta):
                self._cache.set_start_time(uid, pod_start_time(pod))

    def _handle_pending_pod(self, delta: Delta[Pod], now: float) -> None:
        pod = delta.obj
        if pod.spec.schedulerName in self._scheduler_names:
            if pod.metadata.HasField("deletionTimestamp"):
                self._remove_pod(pod.metadata.uid)
            else:
                info, nominated = PodInfo(pod), pod.status.nominatedNodeName
                if nominated == (delta.old.status.nominatedNodeName if delta.old is not None else ""):
                    nominated = self._cache.nodes.nominated.node_of(info.uid)  # the leader sets it before it writes the status
                self._record_event(self._cache.nominate_pod(info, nominated))
                self._queue.add_pod(info, now, remaining_delay(pod, self._wall()))

    def _remove_pod(self, uid: str) -> None:
        self._queue.remove_pod(uid)
        self._record_event(self._cache.remove_pod(uid))

    def _record_event(self, event: ClusterEvent | None) -> None:
        if event is not None and event.change:
            self._recorded_events[event.node, event.change, event.pod, event.was] = event

    def _move_pods_on_events(self, now: float) -> None:
        """Report the noted changes. Equivalent pods that leave a node together, such as preemption victims, form one event."""
        noted, self._recorded_events = self._recorded_events, {}
        for event in noted.values():
            self._queue.move_pods_on_event(event, self._cache.nodes, now)


def _has_started(delta: Delta[Pod]) -> bool:
    return delta.obj.status.HasField("startTime") and (delta.old is None or not delta.old.status.HasField("startTime"))


def _may_be_resized(old: Pod | None, new: Pod) -> bool:
    """Return True if the spec has changed, or if the kubelet may have reported the state of a resize. At generation 1 the spec
    is the created one."""
    if new.metadata.generation <= 1:
        return False
    return old is None or old.metadata.generation != new.metadata.generation or is_resizing(new) or is_resizing(old)


def _labels_changed(old: Pod | None, new: Pod) -> bool:
    """Return True if the labels or the deletion timestamp changed, so that selectors may count the pod differently."""
    if old is None:
        return False
    before, after = old.metadata, new.metadata
    if before.HasField("deletionTimestamp") != after.HasField("deletionTimestamp"):
        return True
    return len(before.labels) != len(after.labels) or (len(after.labels) > 0 and dict(before.labels) != dict(after.labels))
