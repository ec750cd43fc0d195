"""One run of a study: the scheduler's cache, queue, plugins and preemption in virtual time, without a cluster.

    arrivals, ends, evictions --deltas--> EventHandlers --> Cache, SchedulingQueue
          ^                                                     |
          |                                        pop_pod --> schedule_one --> placed: bound at once, a delta
          '--- the end of the task, by its duration ---------------'       '--> not placed: requeue_pod

The decisions, the queue with its backoff, the events that requeue pods, and the search for victims are those of the scheduler
(`pinnace.scheduler`). This module replaces what surrounds them: time, the API server, the binder and the kubelets.

* A decision and a bind take no time. A task runs from its bind for its duration.
* A victim of preemption ends after `grace` seconds. It arrives again as a new pod, and runs for its whole duration.
* Events at the same time are delivered before the next decision, ends first.
* Extenders are not asked. PreBind and Bind plugins have no API client.

Equal arguments give equal decisions.
"""

import asyncio
import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Protocol, cast

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.pods_pb2 import Fence
from pinnace.api.records import QueuePlace
from pinnace.api.resources import NODES, PODS, Resource, T
from pinnace.api.scalars import to_time
from pinnace.api.verbs_pb2 import ADDED, DELETED, MODIFIED, WatchEventType
from pinnace.api.wellknown import DEFAULT_GRACE_SECONDS, DISRUPTION_TARGET
from pinnace.client.client import Client
from pinnace.client.informer import Delta, Index
from pinnace.scheduler.cache.cache import Cache, Change, ClusterEvent
from pinnace.scheduler.cache.pod_info import PlacedPod, PodInfo
from pinnace.scheduler.config import Configuration, build_frameworks
from pinnace.scheduler.framework.profile import WaitingPods
from pinnace.scheduler.framework.results import PluginRejection
from pinnace.scheduler.framework.reuse import EquivalenceCache
from pinnace.scheduler.framework.runtime import BindingCycle, Framework, Profiles
from pinnace.scheduler.informers import EventHandlers
from pinnace.scheduler.node_selector import NodeSelector
from pinnace.scheduler.plugins.gpu_share import device_table
from pinnace.scheduler.preemption import REASON, Evictions, PreemptionHandle
from pinnace.scheduler.queue import QueuedPod, SchedulingQueue
from pinnace.scheduler.scheduling_cycle import (
    AttemptFailed,
    Placed,
    move_pods_after_nomination,
    requeue_pod,
    schedule_one,
)
from pinnace.study.trace import Task, Trace


class Observer(Protocol):
    """Receives what happens, in the order of time. `cluster` shows the state after it."""

    def on_arrival(self, cluster: "Simulation", task: Task) -> None: ...
    def on_placed(self, cluster: "Simulation", task: Task, pod: Pod, attempts: int) -> None: ...
    def on_attempt_failed(self, cluster: "Simulation", task: Task, message: str, attempts: int) -> None: ...
    def on_end(self, cluster: "Simulation", task: Task) -> None: ...
    def on_eviction(self, cluster: "Simulation", task: Task) -> None: ...
    def on_time(self, cluster: "Simulation", until: float) -> None:
        """Handle the passing of time. Nothing changes between `cluster.now` and `until`."""
        ...


class ObjectStore:
    """The objects of the cluster, with the handlers of their changes in the order of registration."""

    def __init__(self) -> None:
        self._stores: dict[Resource[Any], dict[str, Any]] = {}
        self._handlers: dict[Resource[Any], list[Callable[[Sequence[Delta[Any]]], None]]] = {}

    def objects(self, resource: Resource[T]) -> dict[str, T]:
        return self._stores.setdefault(resource, {})

    def index(self, resource: Resource[T], by: Callable[[T], str]) -> Index[T]:
        index = Index(by, self.objects(resource).values())
        self.add_handler(resource, index.apply_deltas)
        return index

    def add_handler(self, resource: Resource[T], handler: Callable[[Sequence[Delta[T]]], None]) -> None:
        self._handlers.setdefault(resource, []).append(handler)

    def put(self, resource: Resource[Any], objs: Iterable[Any]) -> None:
        store, deltas = self.objects(resource), []
        for obj in objs:
            key = _key(obj)
            old = store.get(key)
            deltas.append(Delta(ADDED if old is None else MODIFIED, obj, old))
            store[key] = obj
        self._deliver(resource, deltas)

    def remove(self, resource: Resource[Any], objs: Iterable[Any]) -> None:
        store = self.objects(resource)
        self._deliver(resource, [Delta(DELETED, old, old) for obj in objs if (old := store.pop(_key(obj), None)) is not None])

    def apply(self, resource: Resource[T], changes: Iterable[tuple[WatchEventType, T]]) -> list[Delta[T]]:
        """Deliver changes of these kinds together. Return them with the versions before."""
        store, deltas = self.objects(resource), []
        for kind, obj in changes:
            key = _key(obj)
            deltas.append(Delta(kind, obj, store.pop(key, None)))
            if kind != DELETED:
                store[key] = obj
        self._deliver(resource, deltas)
        return deltas

    def _deliver(self, resource: Resource[Any], deltas: Sequence[Delta[Any]]) -> None:
        if deltas:
            for handler in self._handlers.get(resource, ()):
                handler(deltas)


def _key(obj: Any) -> str:
    metadata = obj.metadata
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name


class EvictionSink:
    """The part of `Evictions` that PreemptionHandle uses."""

    def __init__(self, evict: Callable[[Sequence[PlacedPod]], None], pending: Mapping[str, object]) -> None:
        self._evict = evict
        self._pending = pending

    def evict_victims(self, plugin: str, preemptor: PodInfo, node: str, victims: Sequence[PlacedPod]) -> None:
        self._evict(victims)

    def is_pending(self, uid: str) -> bool:
        return uid in self._pending


class StudyHandle:
    """The framework's Handle in a study. There is no API client."""

    def __init__(self, objects: ObjectStore, waiting: WaitingPods, activate: Callable[[str], None]) -> None:
        self.objects: Any = objects.objects
        self.index: Any = objects.index
        self.waiting = waiting
        self.activate = activate
        self.preemption: PreemptionHandle | None = None

    @property
    def client(self) -> Client:
        raise RuntimeError("a study has no API client")


@dataclass(slots=True)
class _Running:
    task: Task
    pod: Pod
    started: float


SETTLING = 600.0
"""Seconds after the last event in which pods in backoff are retried."""
_END, _EVICTED, _ARRIVAL = range(3)
"""Kinds of events, in the order in which they are delivered at the same time."""


class Simulation:
    """A cluster with one profile of the scheduler. `now` is the virtual time in seconds."""

    def __init__(
        self,
        configuration: Configuration,
        trace: Trace,
        observer: Observer,
        *,
        seed: int = 0,
        grace: float = float(DEFAULT_GRACE_SECONDS),
    ) -> None:
        """`configuration` has one profile. Raise ConfigurationError if it is invalid."""
        self.now = 0.0
        self.trace = trace
        self.cache = Cache()
        self.running: dict[str, _Running] = {}
        """The tasks with a node, by UID."""
        self._observer = observer
        self._grace = grace
        self._objects = objects = ObjectStore()
        self._tasks: dict[str, Task] = {}
        """The tasks that have arrived and not ended, by UID."""
        self._leaving: dict[str, None] = {}
        """The victims that still exist."""
        self._deletions: list[Pod] = []
        """New versions of victims, delivered after the decision."""
        self._events: list[tuple[float, int, int, Task]] = []
        self._last_event = 0.0
        self._sequence = count()
        self._waiting = WaitingPods(lambda: None)
        self._permits: dict[str, tuple[QueuedPod, str, BindingCycle]] = {}
        handle = StudyHandle(objects, self._waiting, self._activate)
        evictions = cast("Evictions", EvictionSink(self._evict, self._leaving))
        handle.preemption = preemption = PreemptionHandle(self.cache, evictions, objects.objects(PODS), seed)
        frameworks = build_frameworks(replace(configuration, seed=seed), handle)
        (self._profile, self.framework) = next(iter(frameworks.items()))
        preemption.profiles = profiles = Profiles(frameworks)
        self.devices = device_table(handle)
        self.queue = SchedulingQueue(
            profiles, initial_backoff=configuration.initial_backoff, max_backoff=configuration.max_backoff
        )
        self.selector = NodeSelector(self.cache, self.framework, seed, EquivalenceCache(self.cache.nodes))
        self._handlers = EventHandlers(self.cache, self.queue, frameworks, lambda: self.now, lambda: None, lambda: self.now)
        objects.add_handler(PODS, self._handlers.on_pods)
        objects.add_handler(NODES, self._handlers.on_nodes)
        for plugin in plugins_of(self.framework):
            if (learn := getattr(plugin, "learn", None)) is not None:
                learn(trace.past or trace.tasks)
        objects.put(NODES, [machine.node() for machine in trace.machines])
        self._runner: asyncio.Runner | None = None

    @property
    def pending(self) -> int:
        """The number of pods without a node."""
        return len(self.queue) + len(self._permits)

    def task_of(self, uid: str) -> Task:
        """Return the task of a pod that exists."""
        return self._tasks[uid]

    def run(self, until: float = math.inf) -> None:
        """Play the trace up to a time: all arrivals, all ends, and all decisions that follow. Raise PluginError."""
        for _ in self.attempts(until):
            pass

    def attempts(self, until: float = math.inf) -> Iterator[QueuedPod]:
        """Play the trace up to a time, and yield each pod before the attempt to place it. Raise PluginError."""
        for task in self.trace.tasks:
            self._schedule_event(task.arrival, _ARRIVAL, task)
        while (due := self._next_time()) is not None and due <= until:
            self._observer.on_time(self, due)
            self.now = max(self.now, due)
            self._deliver_events()
            self._handle_nodes_and_gates()
            self._settle_permits()
            while (queued := self.queue.pop_pod(self.now)) is not None:
                yield queued
                self._attempt(queued)
                self._handle_nodes_and_gates()
                self._settle_permits()
        if self._runner is not None:
            self._runner.close()

    def _next_time(self) -> float | None:
        """Return the time of the next event. The queue alone does not prolong a run: without events, no pod gets a node."""
        times = [self._events[0][0]] if self._events else []
        if self._permits and (due := self._waiting.next_due()) is not None:
            times.append(due)
        if (times or self._has_backoff()) and (due := self.queue.next_due()) is not None:
            times.append(due)
        return min(times, default=None)

    def _has_backoff(self) -> bool:
        """Return True if a pod in backoff may fit after the last event. After SETTLING seconds, the run ends in any case."""
        return self.now <= self._last_event + SETTLING and bool(self.queue.count_by_place()[QueuePlace.BACKOFF.value])

    def _schedule_event(self, at: float, kind: int, task: Task) -> None:
        heapq.heappush(self._events, (at, kind, next(self._sequence), task))

    def _deliver_events(self) -> None:
        while self._events and self._events[0][0] <= self.now:
            self._last_event, kind, _, task = heapq.heappop(self._events)
            if kind == _ARRIVAL:
                self._tasks[task.name] = task
                self._objects.put(PODS, [task.pod(self._profile)])
                self._observer.on_arrival(self, task)
            elif task.name in self._tasks and (kind == _EVICTED or task.name not in self._leaving):
                self._end(task, evicted=kind == _EVICTED)

    def _end(self, task: Task, *, evicted: bool) -> None:
        self._leaving.pop(task.name, None)
        del self._tasks[task.name]
        running = self.running.pop(task.name, None)
        pod = running.pod if running is not None else self._objects.objects(PODS)[_key(task.pod(self._profile))]
        self._objects.remove(PODS, [pod])
        if evicted:
            self._observer.on_eviction(self, task)
            name, _, number = task.name.partition("~")
            again = replace(task, name=f"{name}~{int(number or 0) + 1}", arrival=self.now)
            self._schedule_event(self.now, _ARRIVAL, again)
        else:
            self._observer.on_end(self, task)

    def _handle_nodes_and_gates(self) -> None:
        while self._handlers.move_pods_of_changed_node() | self._handlers.recheck_gated_pod():
            pass

    def _attempt(self, queued: QueuedPod) -> None:
        info = queued.info
        nominated = self.cache.nodes.nominated.node_of(info.uid)
        outcome = schedule_one(info, self.selector)
        move_pods_after_nomination(info, nominated, self.cache, self.queue, self.now)
        if isinstance(outcome, Placed):
            self._bind_or_wait(queued, outcome)
            return
        requeue_pod(queued, outcome, self.cache, self.queue, self.now)
        if isinstance(outcome, AttemptFailed):
            raise outcome.error
        deletions, self._deletions = self._deletions, []
        self._objects.put(PODS, deletions)
        self._observer.on_attempt_failed(self, self._tasks[info.uid], outcome.message, queued.attempts)

    def _bind_or_wait(self, queued: QueuedPod, placed: Placed) -> None:
        cycle = placed.cycle
        if cycle is not None and cycle.waits:
            self._permits[queued.info.uid] = queued, placed.node, cycle
            self._waiting.add_pod(queued.info, placed.node, cycle.waits, self.now)
        else:
            self._bind(queued, placed.node, cycle)

    def _settle_permits(self) -> None:
        while settled := self._waiting.take_settled(self.now):
            for waiting, refused in settled:
                queued, node, cycle = self._permits.pop(waiting.pod.uid)
                if refused is None:
                    self._bind(queued, node, cycle)
                else:
                    self._undo(queued, cycle, refused)

    def _bind(self, queued: QueuedPod, node: str, cycle: BindingCycle | None) -> None:
        if cycle is not None and not cycle.needs_no_plugins and (refused := self._run_bind_plugins(cycle)) is not None:
            self._undo(queued, cycle, refused)
            return
        pod, task = Pod(), self._tasks[queued.info.uid]
        pod.CopyFrom(queued.info.raw)
        pod.spec.nodeName = node
        pod.status.startTime.CopyFrom(to_time(self.now))
        if cycle is not None:
            pod.metadata.annotations.update(cycle.annotations)
        self.running[task.name] = _Running(task, pod, self.now)
        self._objects.put(PODS, [pod])
        if cycle is not None:
            cycle.run_post_bind()
        if math.isfinite(task.duration):
            self._schedule_event(self.now + task.duration, _END, task)
        self._observer.on_placed(self, task, pod, queued.attempts)

    def _run_bind_plugins(self, cycle: BindingCycle) -> PluginRejection | None:
        if self._runner is None:
            self._runner = asyncio.Runner()

        async def run() -> PluginRejection | None:
            refused = await cycle.run_pre_bind()
            if refused is None and cycle.binds:
                answer = await cycle.run_bind(Fence())
                return answer if isinstance(answer, PluginRejection) else None
            return refused

        return self._runner.run(run())

    def _undo(self, queued: QueuedPod, cycle: BindingCycle, refused: PluginRejection) -> None:
        """Undo an assumption, as the scheduler does after a rejection in the binding cycle."""
        event = self.cache.forget_pod(queued.info.uid)
        cycle.run_unreserve()
        if event is not None:
            self.queue.move_pods_on_event(event, self.cache.nodes, self.now)
        if cycle.reserved:
            released = ClusterEvent(Change.RESERVATION_ENDED, cycle.node)
            self.queue.move_pods_on_event(released, self.cache.nodes, self.now)
        self.queue.add_unschedulable(queued, frozenset([refused.plugin]), self.now, missed=True)
        self._observer.on_attempt_failed(self, self._tasks[queued.info.uid], refused.message, queued.attempts)

    def _evict(self, victims: Sequence[PlacedPod]) -> None:
        """Begin the deletion of victims. A pod that waits in Permit is rejected."""
        for victim in victims:
            if (waiting := self._waiting.get(victim.uid)) is not None:
                waiting.reject("", "preempted")
            elif victim.uid not in self._leaving:
                task, running = self._tasks[victim.uid], self.running[victim.uid]
                self._leaving[victim.uid] = None
                pod = Pod()
                pod.CopyFrom(running.pod)
                pod.metadata.deletionTimestamp.CopyFrom(to_time(self.now + self._grace))
                pod.status.conditions.add(type=DISRUPTION_TARGET, status="True", reason=REASON)
                running.pod = pod
                self._deletions.append(pod)
                self._schedule_event(self.now + self._grace, _EVICTED, task)

    def _activate(self, uid: str) -> None:
        self.queue.activate_pod(uid, self.now)


def plugins_of(framework: Framework) -> list[Any]:
    """Return the plugins of a profile, each once."""
    return list({id(item.plugin): item.plugin for enabled in framework.profile.values() for item in enabled}.values())
