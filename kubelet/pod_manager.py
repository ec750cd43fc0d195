"""The pods of a fleet: admits or adopts them, moves each through its life, reports and removes them.

    watch -> handle() -> queue of uids -> step: admit or adopt, then advance until there is nothing to do
                                            |                         |
                                     status changed                 over          (both: kubelet.status_manager)

There is one record per pod, one queue and one loop for all pods: no task and no timer per pod. The watch handler only sorts
events, so a fleet that starts with thousands of pods keeps sending heartbeats.

Guarantees:
* A pod is admitted only if its node has room for it by `pinnace.fit`, next to all that the node runs already. Pods that an
  earlier process had accepted are counted before any new pod is considered, and are never rejected.
* No pod is rejected because of an outdated view of its node (kubelet.admission).
* A status is written against the resourceVersion that this process knows; the server rejects it if that is outdated. After a
  Conflict the pod is reported again on top of the version that the watch brings.
* If two processes accept a pod (one has taken the nodes over from the other), the first stored report wins, for the acceptance
  and for the end; the other process adopts it.
* For a frozen node nothing is written and no event is handled. After it thaws, pending reports are written on top of the
  current objects. Pods of a node that lost power are restarted when it boots.
* A pod is deleted (grace 0, with its uid as precondition) only after its final status has been acknowledged.
* A pod whose step raises an unexpected exception is retried with back-off, with a log entry and an event; the others go on.

Events are recorded for problems and for stopped containers only: a Started event would cost one write per pod.

`PodWatch` selects with `spec.nodeName in (...)`, which the API server answers from an index, so an event reaches one fleet
only. A selector cannot change while its watch is open: when the fleet gains nodes, the watch is reopened for the whole set. It
starts with a list, and pods that the list lacks are forgotten. A fleet that loses nodes keeps its watch.
"""

import asyncio
import logging
import math
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from itertools import islice
from typing import Protocol

from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.pods import EVICTED
from pinnace.api.verbs_pb2 import ADDED, DELETED
from pinnace.client.client import PodClient
from pinnace.client.informer import Delta, Informer
from pinnace.kubelet import lifecycle, metrics
from pinnace.kubelet.admission import PREEMPTED, PREEMPTING, Admission
from pinnace.kubelet.eviction import declares_usage
from pinnace.kubelet.lifecycle import BeginCall, Phase, PodState, RecordEvent, RemovePod, Start, Step, Stop
from pinnace.kubelet.metrics import PodTraces
from pinnace.kubelet.node import VirtualNodes, crashes, rebooted
from pinnace.kubelet.pod_record import PodRecord
from pinnace.kubelet.runtime.fake import FakeVolumes, Volumes
from pinnace.kubelet.runtime.interface import ContainerView, Instant, Progress, Runtime, read
from pinnace.kubelet.runtime.simulated_machine import PodSnapshot
from pinnace.kubelet.stats import Running
from pinnace.kubelet.status import adopted
from pinnace.kubelet.status_manager import PodWriter, StatusManager
from pinnace.kubelet.workqueue import FIRST_PAUSE, LONGEST_PAUSE, DelayQueue
from pinnace.runtime.backoff import KeyedBackoff
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.supervise import describe, unending
from pinnace.runtime.tasks import race
from pinnace.runtime.tracing import NO_TRACER, Tracer

log = logging.getLogger(__name__)


class PanicIsolation:
    """`tell`: records an event (pod, type, reason, message). `queue`: of the uids of pods to sync."""

    def __init__(self, tell: Callable[[Pod, str, str, str], None], queue: DelayQueue, clock: Clock) -> None:
        self._tell = tell
        self._queue = queue
        self._clock = clock
        self._pauses = KeyedBackoff(FIRST_PAUSE, LONGEST_PAUSE)

    def failed(self, pod: Pod, error: Exception) -> None:
        """The sync of the pod, or the handling of its update, has raised an unexpected exception."""
        uid = pod.metadata.uid
        pause = self._pauses.next(uid)
        metrics.TRIPPED.inc()
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        log.error("unexpected error while syncing pod %s; retrying in %.3g s", name, pause, exc_info=error)
        self._tell(pod, "Warning", "FailedSync", f"Error syncing pod, it is tried again: {describe(error)}")
        self._queue.add_at(uid, self._clock.monotonic() + pause)

    def over(self, uid: str) -> None:
        """The pod has been synced without an exception, or is gone."""
        self._pauses.forget(uid)


STOP_AGAIN = 1.0
"""Seconds until the retry of a failed stop request."""
STEPS_PER_TURN = 256
"""Pods that are synced before other tasks of the event loop run: some milliseconds."""


class EventSink(Protocol):
    """The methods that this module needs of pinnace.client.events.EventRecorder."""

    def event(self, obj: Pod, type_: str, reason: str, message: str) -> None: ...


class PodManager:
    """`handle` is the informer's handler. All other work is done in `run`."""

    def __init__(
        self,
        nodes: VirtualNodes,
        writer: PodWriter,
        runtime: Runtime,
        events: EventSink,
        *,
        volumes: Volumes | None = None,
        nodes_known: Callable[[], int] = lambda: sys.maxsize,
        clock: Clock = SYSTEM_CLOCK,
        tracer: Tracer = NO_TRACER,
    ) -> None:
        """`volumes`: by default, volumes without delays. `nodes_known`: the revision up to which `set_node` was called."""
        self._nodes = nodes
        self._traces = PodTraces(clock, tracer)
        self._runtime = runtime
        self._events = events
        self._clock = clock
        self._records: dict[str, PodRecord] = {}
        self._returning: dict[str, Pod] = {}  # accepted by an earlier process and not adopted yet
        self._arriving: dict[str, Pod] = {}  # new and not admitted yet
        self._queue = DelayQueue(clock)
        self._isolation = PanicIsolation(self._event, self._queue, clock)
        self._volumes = volumes or FakeVolumes()
        self._volumes.listen(self._volumes_progress, self._event)
        self._admission = Admission(
            self._nodes,
            runtime,
            self._volumes,
            nodes_known,
            self.staying,
            self._preempt,
            self._can_end,
            self._queue.add,
            self._event,
        )
        runtime.listen(self._queue.add)
        self._reports = StatusManager(writer, self._records, self._nodes.is_silenced, self._forget, self._traces, clock)

    def __len__(self) -> int:
        return len(self._records) + len(self._returning) + len(self._arriving)

    @property
    def running(self) -> int:
        """The number of running pods. Computed on request, in another thread."""
        records = tuple(self._records.values())
        return sum(record.state is not None and record.state.phase is Phase.RUNNING for record in records)

    @property
    def unreported(self) -> int:
        """Pods with a status write in flight."""
        return self._reports.pending

    async def run(self) -> None:
        """Runs until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(unending("reports", self._reports.run))
                group.create_task(unending("steps of pods", self._step_all))
                group.create_task(unending("volumes", self._volumes.run))
        finally:
            self._runtime.close()

    def set_node(self, node: Node) -> None:
        """Adds or updates a node."""
        name = node.metadata.name
        if self._nodes.set(node):
            self._thaw(name)
        for uid in self._admission.undecided(name):
            self._queue.add(uid)
        self._admission.retry_resizes(name)

    def drop_nodes(self, names: Collection[str]) -> None:
        """Forgets these nodes and their pods. They belong to another fleet, or have been deleted."""
        self._nodes.drop(names)
        for uid, pod in self._all():
            if pod.spec.nodeName in names:
                self._forget(uid)

    def power_off(self, names: Collection[str]) -> None:
        """Powers off these nodes; `set_node` boots them."""
        self.drop_nodes(names)
        self._nodes.power_off(names)
        self._runtime.retain(names, ())

    def _thaw(self, name: str) -> None:
        for uid, record in self._records.items():
            if record.pod.spec.nodeName == name:
                self._reports.thawed(uid, record)

    def staying(self, node: str) -> list[Pod]:
        """The pods of the node that are counted and not terminating."""
        records = [self._records[uid] for uid in self._nodes.tenants(node)]
        return [each.pod for each in records if each.want.grace is None and not (each.state and each.state.ending)]

    def what_runs(self, uid: str) -> Running | None:
        """The running containers of a pod. None: there are none, or the node is frozen or off."""
        record = self._records.get(uid)
        if record is None or self._nodes.is_silenced(record.pod) or not (names := record.running):
            return None
        return Running(record.pod, names)

    def find_pod(self, uid: str) -> PodSnapshot | None:
        """The pod as it is now. None: it is unknown, or its node is frozen or off."""
        record = self._records.get(uid)
        if record is None or self._nodes.is_silenced(record.pod):
            return None
        return PodSnapshot(record.pod, self._runtime.observe(uid, read(self._clock)), record.addresses)

    def evict(self, uid: str, message: str, *, disrupts: bool) -> None:
        """`disrupts`: see lifecycle.Ending."""
        record = self._records[uid]
        if record.state is not None:
            record.state = lifecycle.evict(record.state, EVICTED, message, read(self._clock), disrupts=disrupts)
            self._event(record.pod, "Warning", EVICTED, message)
            self._queue.add(uid)

    def _can_end(self, uid: str) -> bool:
        """False if the sync of the pod raises exceptions."""
        return self._records[uid].state is not None

    def _preempt(self, uid: str) -> None:
        record = self._records[uid]
        if record.state is not None:
            grace = record.template.plan.grace
            record.state = lifecycle.evict(record.state, PREEMPTING, PREEMPTED, read(self._clock), grace=grace)
            self._event(record.pod, "Warning", PREEMPTING, PREEMPTED)
            self._queue.add(uid)

    def handle(self, deltas: Sequence[Delta[Pod]]) -> None:
        for delta in deltas:
            try:
                self._hear(delta)
            except Exception as error:
                self._isolation.failed(delta.obj, error)

    def _hear(self, delta: Delta[Pod]) -> None:
        pod = delta.obj
        uid = pod.metadata.uid
        record = self._records.get(uid)
        if self._nodes.is_silenced(pod):
            return
        if delta.kind == DELETED:
            self._forget(uid)
        elif record is not None:
            self._refresh(uid, record, pod)
        elif pod.spec.nodeName in self._nodes:
            self._arriving.pop(uid, None)
            if lifecycle.accepted(pod):
                self._returning[uid] = rebooted(pod, self._clock.time()) if self._nodes.has_booted(pod) else pod
            else:
                self._arriving[uid] = pod
                self._traces.arrived(pod)
            self._queue.add(uid)

    def relist(self, nodes: Collection[str], pods: Collection[Pod]) -> None:
        """Replaces the known pods by these pods of these nodes. Missing pods are forgotten first, so that their resources are
        free. New pods are admitted in the order of their creation, as in Kubernetes, because lists are sorted by name.
        """
        uids = {pod.metadata.uid for pod in pods}
        for uid, pod in self._all():
            if uid not in uids and not self._nodes.is_silenced(pod):
                self._forget(uid)
        self._runtime.retain(set(nodes) - self._nodes.frozen, uids)
        by_age = sorted(pods, key=lambda pod: pod.metadata.creationTimestamp.seconds)
        self.handle([Delta(ADDED, pod, None) for pod in by_age])
        self._nodes.settle(nodes)

    def _all(self) -> list[tuple[str, Pod]]:
        known = [(uid, record.pod) for uid, record in self._records.items()]
        return [*known, *self._returning.items(), *self._arriving.items()]

    def _refresh(self, uid: str, record: PodRecord, pod: Pod) -> None:
        before, generation = record.want, record.pod.metadata.generation
        if not record.refresh(pod):
            return
        if record.is_anothers:
            self._forget(uid)
            self._returning[uid] = pod
            self._queue.add(uid)
            return
        self._reports.heard(uid, record)
        if record.want is not before:
            self._queue.add(uid)
        if pod.spec.volumes:
            self._volumes.update(pod)
        moved = pod.metadata.generation != generation and not pod.metadata.HasField("deletionTimestamp")
        if moved and record.state is not None:  # the steps of a deletion are reported anyway
            if not record.state.phase.final:
                self._runtime.resize(record.granted)
            self._resize(uid, record, read(self._clock))
            self._reports.changed(uid, record)
        self._obey(uid, pod)

    def _volumes_progress(self, uid: str, progress: Progress) -> None:
        """Containers can start, or are held for other reasons."""
        record = self._records.get(uid)
        if record is None:
            return
        mounted_at = read(self._clock).monotonic if progress.mounted else math.inf
        record.want = record.want._replace(mounted_at=mounted_at, held=progress.held)
        if record.state is not None:
            self._reports.changed(uid, record)
        self._queue.add(uid)

    def _obey(self, uid: str, pod: Pod) -> None:
        """Applies the annotations of a running pod. If this raises an exception, the pod runs without them."""
        if not pod.metadata.annotations:
            return
        try:
            if declares_usage(pod):
                self._nodes.consuming.add(pod.spec.nodeName)
            for container, attempt, code in crashes(pod):
                self._runtime.crash(uid, container, attempt, code, read(self._clock))
                self._queue.add(uid)
        except Exception as error:
            self._isolation.failed(pod, error)

    def _forget(self, uid: str) -> None:
        self._queue.discard(uid)
        self._returning.pop(uid, None)
        self._arriving.pop(uid, None)
        self._isolation.over(uid)
        self._traces.forget(uid)
        if (record := self._records.pop(uid, None)) is not None:
            self._admission.forget(record.pod)
            self._admission.vacate(record)  # first, so that every counted pod has a record, even after an exception below
            self._runtime.remove(uid)

    async def _step_all(self) -> None:
        while True:
            due = await self._queue.take(STEPS_PER_TURN)
            await self._adopt_all()
            now = read(self._clock)
            for uid in due:
                self._look(uid, now)
            await asyncio.sleep(0)

    async def _adopt_all(self) -> None:
        """Adopts pods before any pod is admitted, so that their resources are counted."""
        while self._returning:
            now = read(self._clock)
            for uid in list(islice(self._returning, STEPS_PER_TURN)):
                self._arriving[uid] = self._returning.pop(uid)
                with suppress(Exception):  # the pod is also in the queue: the exception will be raised and reported there
                    self._take_up(uid, now)
            await asyncio.sleep(0)

    def _look(self, uid: str, now: Instant) -> None:
        try:
            if (record := self._take_up(uid, now)) is not None:
                self._step(uid, record, now)
        except Exception as error:
            known = self._records.get(uid)
            pod = known.pod if known is not None else self._arriving[uid]
            if known is not None and known.state is None and not lifecycle.accepted(pod):
                self._admission.vacate(known)  # an admitted pod is admitted again; an adopted pod remains counted
            self._isolation.failed(pod, error)
        else:
            self._isolation.over(uid)

    def _take_up(self, uid: str, now: Instant) -> PodRecord | None:
        """The record of a pod, created if missing. A pod that an earlier process accepted is adopted."""
        if (pod := self._arriving.get(uid)) is not None:
            self._records[uid] = PodRecord.of(pod)
            del self._arriving[uid]
        record = self._records.get(uid)
        if record is not None and record.state is None and lifecycle.accepted(record.pod):
            self._adopt(uid, record, now)
        return record

    def _adopt(self, uid: str, record: PodRecord, now: Instant) -> None:
        pod = record.pod
        state = lifecycle.adopt(pod, record.template.plan, now)
        if state.phase.final:
            self._runtime.end(uid)
        else:
            if (resize := adopted(pod)) is not None:
                record.set_resize(resize)
            self._admission.readmit(record)
            self._runtime.adopt(record.granted, now)
            self._obey(uid, pod)
            record.containers = self._runtime.observe(uid, now)
            self._admission.remount(record, now)
        record.state = state

    def _resize(self, uid: str, record: PodRecord, now: Instant) -> None:
        """Allocates the resources of the spec, if the node has room."""
        state, before = record.state, record.resize
        if before is None or state is None or state.phase.final or state.ending is not None:
            return
        containers = self._runtime.observe(uid, now)
        if not self._admission.resize(record, containers, now):
            return
        resize = record.resize
        if resize is not None and resize.reason:
            if (resize.reason, resize.message) != (before.reason, before.message):
                self._event(record.pod, "Warning", f"Resize{resize.reason}", f"Pod resize {resize.reason}: {resize.message}")
        else:
            self._runtime.resize(record.pod)
            if resize is None:
                self._event(record.pod, "Normal", "ResizeCompleted", "Pod resize completed")
            else:
                self._event(record.pod, "Normal", "ResizeStarted", "Pod resize started")
                views = {view.name: view for view in containers}
                record.state = lifecycle.restart(state, record.template.plan, views, resize.restarting.keys(), now)
        self._reports.changed(uid, record)
        self._queue.add(uid)

    def _observe_resize(self, uid: str, record: PodRecord) -> None:
        """Containers that were restarted for new resources may run now."""
        before = record.resize
        if before is None or (after := before.observed(record.containers)) is before:
            return
        record.resize = after
        self._admission.recount(record)
        if after is None or not after.restarting:
            self._event(record.pod, "Normal", "ResizeCompleted", "Pod resize completed")
        self._reports.changed(uid, record)

    def _step(self, uid: str, record: PodRecord, now: Instant) -> None:
        """Advances a pod until no action remains."""
        if record.resize is not None and (record.resize.reason or record.resize.unseen):
            self._resize(uid, record, now)
        before = record.state
        state = before or self._admit(uid, record, now)
        if state is None:
            return
        while True:
            containers = self._runtime.observe(uid, now)
            step = lifecycle.advance(record.want, state, containers, now)
            state = step.state
            if not self._carry_out(uid, record, step, now):
                break
        told = before is not None and (state is before or state.told == before.told)
        if not told or [view.past for view in containers] != [view.past for view in record.containers]:
            self._changed(uid, record, state, containers)
        record.state, record.containers = state, containers
        self._observe_resize(uid, record)
        if step.wake_at is not None:
            self._queue.add_at(uid, step.wake_at)
        self._reports.over(uid, record)

    def _admit(self, uid: str, record: PodRecord, now: Instant) -> PodState | None:
        """Executes one step. None: sync the pod again first."""
        decided = self._admission.admit(record, now)
        if isinstance(decided, float):
            self._queue.add_at(uid, decided)
            return None
        if not decided.refused:
            self._obey(uid, record.pod)
        return decided

    def _carry_out(self, uid: str, record: PodRecord, step: Step, now: Instant) -> bool:
        """False: the actions do not change containers, so another step would have the same result."""
        touched = False
        for action in step.actions:
            match action:
                case Start(container, attempt):
                    self._runtime.start(uid, container, attempt, now)
                    touched = True
                case Stop(container, grace):
                    touched = self._stop(uid, record, container, grace, now) or touched
                case BeginCall(container, call):
                    self._runtime.call(uid, container, call, now)
                    touched = True
                case RecordEvent(type_, reason, message):
                    self._event(record.pod, type_, reason, message)
                case RemovePod():
                    record.over = True
        return touched

    def _stop(self, uid: str, record: PodRecord, container: str, grace: float, now: Instant) -> bool:
        """False: the disk is full, and the stop must be requested again. The state of the ending pod is kept."""
        try:
            self._runtime.stop(uid, container, grace, now)
        except OSError as error:
            self._event(record.pod, "Warning", "FailedKillPod", f"error killing container {container}: {error}")
            self._queue.add_at(uid, now.monotonic + STOP_AGAIN)
            return False
        return True

    def _changed(self, uid: str, record: PodRecord, state: PodState, containers: Sequence[ContainerView]) -> None:
        before = record.state
        self._reports.changed(uid, record)
        self._traces.changed(uid, state.phase)
        if state.phase.final and not (before and before.phase.final):
            self._admission.vacate(record)
            self._tell(record.pod, state, containers)

    def _tell(self, pod: Pod, state: PodState, containers: Sequence[ContainerView]) -> None:
        """Records an event for a container that ended unexpectedly."""
        if state.refused:
            metrics.REFUSED.labels(state.reason).inc()
            self._event(pod, "Warning", state.reason, state.message)
        elif state.phase is Phase.FAILED and state.ending is None:
            codes = ", ".join(f"{view.name} with code {view.exit.code}" for view in containers if view.exit)
            self._event(pod, "Warning", "Failed", f"Containers exited: {codes}")

    def _event(self, pod: Pod, type_: str, reason: str, message: str) -> None:
        if not self._nodes.is_silenced(pod):
            self._events.event(pod, type_, reason, message)


GATHER = 0.05
"""Seconds to wait for more new nodes before the watch is reopened."""
SYNC_TIMEOUT = 30.0
"""Seconds without the initial state after which this is logged."""


class PodWatch:
    def __init__(self, client: PodClient, pods: PodManager, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._client = client
        self._pods = pods
        self._clock = clock
        self._nodes: frozenset[str] = frozenset()
        self._opened: frozenset[str] = frozenset()
        self._synced = False
        self._informer: Informer[Pod] | None = None
        self._grown = asyncio.Event()

    @property
    def healthy(self) -> str | None:
        """None, or the problem, for /readyz."""
        if not self._nodes:
            return None
        wrong = self._informer.healthy if self._informer is not None else None
        return wrong or (None if self._synced else "the pods of some nodes are not watched yet")

    def follow(self, nodes: Collection[str]) -> None:
        """Sets the nodes to watch. A node that was removed and added again is new."""
        self._nodes = frozenset(nodes)
        self._opened &= self._nodes
        if not self._nodes <= self._opened:
            self._grown.set()

    async def run(self) -> None:
        """Runs until cancelled."""
        await self._grown.wait()
        while True:
            self._grown.clear()
            self._opened, self._synced = self._nodes, False
            selector = f"spec.nodeName in ({','.join(sorted(self._opened))})"
            informer = self._informer = Informer(self._client, fields=selector, clock=self._clock)
            informer.add_handler(self._hear)
            await race(informer.run(), self._until_grown(informer))

    def _hear(self, deltas: Sequence[Delta[Pod]]) -> None:
        """Events before the initial state are already in the store."""
        if self._synced:
            self._pods.handle(deltas)

    async def _until_grown(self, informer: Informer[Pod]) -> None:
        while not self._synced:
            try:
                await informer.wait_synced(SYNC_TIMEOUT)
                self._synced = True
            except TimeoutError as error:
                log.warning("%s", error)
        self._pods.relist(self._opened, list(informer.store.values()))
        log.info("watching the pods of %d nodes: %d", len(self._opened), len(informer.store))
        await self._grown.wait()
        await self._clock.sleep(GATHER)
