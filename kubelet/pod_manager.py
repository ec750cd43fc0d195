"""The pods of a fleet: admits or adopts them, moves each through its life, reports and removes them.

    watch -> handle() -> queue of uids -> step: admit or adopt, then advance until there is nothing to do
                                            |                         |
                                     status changed                 over          (both: kubelet.status_manager)

There is one record per pod, one queue and one loop for all pods: no task and no timer per pod. The watch handler only sorts
events, so a fleet that starts with thousands of pods keeps sending heartbeats.

Guarantees:
* A pod is admitted only if its node has room for it by `pinnace.fit`, next to all that the node runs already. Pods that an
  earlier process had accepted are counted before any new pod is considered, and are never rejected.
* No pod is rejected because of an outdated view of its node (kubelet.pod_admission).
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
from pinnace.client.workqueue import REJECTED_BASE_BACKOFF, REJECTED_MAX_BACKOFF, DelayingQueue
from pinnace.kubelet import lifecycle, metrics
from pinnace.kubelet.eviction import declares_usage
from pinnace.kubelet.lifecycle import (
    PodPhase,
    PodState,
    PodStep,
    RecordEvent,
    RemovePod,
    StartCall,
    StartContainer,
    StopContainer,
)
from pinnace.kubelet.metrics import PodStartupTraces
from pinnace.kubelet.node import VirtualNodes, pod_after_reboot, requested_crashes
from pinnace.kubelet.pod_admission import PREEMPTED, PREEMPTING, PodAdmission
from pinnace.kubelet.pod_record import PodRecord
from pinnace.kubelet.runtime.interface import ContainerView, Moment, Runtime, VolumeProgress, read_clocks
from pinnace.kubelet.runtime.simulated_machine import PodSnapshot
from pinnace.kubelet.runtime.simulated_runtime import PodVolumeManager, SimulatedVolumes
from pinnace.kubelet.stats import RunningPod
from pinnace.kubelet.status import adopt_resize
from pinnace.kubelet.status_manager import PodWriter, StatusManager
from pinnace.runtime.backoff import KeyedBackoff
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.supervise import describe_error, run_unending
from pinnace.runtime.tasks import run_until_first
from pinnace.runtime.tracing import NO_TRACER, Tracer

log = logging.getLogger(__name__)
STOP_RETRY_DELAY = 1.0
"""Seconds until the retry of a failed stop request."""
STEPS_PER_TURN = 256
"""Pods that are synced before other tasks of the event loop run: some milliseconds."""
GATHER = 0.05
"""Seconds to wait for more new nodes before the watch is reopened."""
SYNC_TIMEOUT = 30.0
"""Seconds without the initial state after which this is logged."""


class PanicIsolation:
    """`record_event`: records an event (pod, type, reason, message). `queue`: of the uids of pods to sync."""

    def __init__(self, record_event: Callable[[Pod, str, str, str], None], queue: DelayingQueue, clock: Clock) -> None:
        self._record_event = record_event
        self._queue = queue
        self._clock = clock
        self._backoffs = KeyedBackoff(REJECTED_BASE_BACKOFF, REJECTED_MAX_BACKOFF)

    def retry_pod(self, pod: Pod, error: Exception) -> None:
        """Sync the pod again after a backoff, because its sync or the handling of its update raised an exception."""
        uid = pod.metadata.uid
        pause = self._backoffs.next_delay(uid)
        metrics.TRIPPED.inc()
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        log.error("unexpected error while syncing pod %s; retrying in %.3g s", name, pause, exc_info=error)
        self._record_event(pod, "Warning", "FailedSync", f"Error syncing pod, it is tried again: {describe_error(error)}")
        self._queue.add_at(uid, self._clock.monotonic() + pause)

    def reset_backoff(self, uid: str) -> None:
        """Reset the backoff of a pod that was synced without an exception, or is gone."""
        self._backoffs.forget(uid)


class PodEventSink(Protocol):
    """The methods that this module needs of pinnace.client.events.EventRecorder."""

    def event(self, obj: Pod, type_: str, reason: str, message: str) -> None: ...


class PodManager:
    """`handle_deltas` is the informer's handler. All other work is done in `run`."""

    def __init__(
        self,
        nodes: VirtualNodes,
        writer: PodWriter,
        runtime: Runtime,
        events: PodEventSink,
        *,
        volumes: PodVolumeManager | None = None,
        nodes_known: Callable[[], int] = lambda: sys.maxsize,
        clock: Clock = SYSTEM_CLOCK,
        tracer: Tracer = NO_TRACER,
    ) -> None:
        """`volumes`: by default, volumes without delays. `nodes_known`: the revision up to which `set_node` was called."""
        self._nodes = nodes
        self._traces = PodStartupTraces(clock, tracer)
        self._runtime = runtime
        self._events = events
        self._clock = clock
        self._records: dict[str, PodRecord] = {}
        self._pods_to_adopt: dict[str, Pod] = {}  # accepted by an earlier process
        self._pods_to_admit: dict[str, Pod] = {}  # new
        self._queue = DelayingQueue(clock)
        self._panic_isolation = PanicIsolation(self._record_event, self._queue, clock)
        self._volumes = volumes or SimulatedVolumes()
        self._volumes.set_listener(self._handle_volume_progress, self._record_event)
        self._admission = PodAdmission(
            self._nodes,
            runtime,
            self._volumes,
            nodes_known,
            self.active_pods,
            self._preempt_pod,
            self._can_terminate,
            self._queue.add,
            self._record_event,
        )
        runtime.set_listener(self._queue.add)
        self._status_manager = StatusManager(
            writer, self._records, self._nodes.is_on_frozen_node, self._forget_pod, self._traces, clock
        )

    def __len__(self) -> int:
        return len(self._records) + len(self._pods_to_adopt) + len(self._pods_to_admit)

    @property
    def running_pod_count(self) -> int:
        """The number of running pods. Computed on request, in another thread."""
        records = tuple(self._records.values())
        return sum(record.state is not None and record.state.phase is PodPhase.RUNNING for record in records)

    @property
    def unreported_pod_count(self) -> int:
        """Pods with a status write in flight."""
        return self._status_manager.pending_count

    async def run(self) -> None:
        """Run until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(run_unending("reports", self._status_manager.run))
                group.create_task(run_unending("steps of pods", self._sync_due_pods))
                group.create_task(run_unending("volumes", self._volumes.run))
        finally:
            self._runtime.close()

    def set_node(self, node: Node) -> None:
        """Add or update a node."""
        name = node.metadata.name
        if self._nodes.set_node(node):
            self._thaw_node(name)
        for uid in self._admission.pods_to_recheck(name):
            self._queue.add(uid)
        self._admission.retry_resizes(name)

    def drop_nodes(self, names: Collection[str]) -> None:
        """Forget these nodes and their pods. They belong to another fleet, or have been deleted."""
        self._nodes.drop_nodes(names)
        for uid, pod in self._all_pods():
            if pod.spec.nodeName in names:
                self._forget_pod(uid)

    def power_off(self, names: Collection[str]) -> None:
        """Powers off these nodes; `set_node` boots them."""
        self.drop_nodes(names)
        self._nodes.power_off(names)
        self._runtime.retain_pods(names, ())

    def _thaw_node(self, name: str) -> None:
        for uid, record in self._records.items():
            if record.pod.spec.nodeName == name:
                self._status_manager.resume_pod(uid, record)

    def active_pods(self, node: str) -> list[Pod]:
        """The pods of the node that are counted and not terminating."""
        records = [self._records[uid] for uid in self._nodes.counted_pods(node)]
        return [record.pod for record in records if record.want.grace is None and not (record.state and record.state.ending)]

    def running_pod(self, uid: str) -> RunningPod | None:
        """The running containers of a pod. None: there are none, or the node is frozen or off."""
        record = self._records.get(uid)
        if record is None or self._nodes.is_on_frozen_node(record.pod) or not (names := record.running_containers):
            return None
        return RunningPod(record.pod, names)

    def find_pod(self, uid: str) -> PodSnapshot | None:
        """The pod as it is now. None: it is unknown, or its node is frozen or off."""
        record = self._records.get(uid)
        if record is None or self._nodes.is_on_frozen_node(record.pod):
            return None
        return PodSnapshot(record.pod, self._runtime.observe_containers(uid, read_clocks(self._clock)), record.addresses)

    def evict_pod(self, uid: str, message: str, *, disrupts: bool) -> None:
        """`disrupts`: see lifecycle.Ending."""
        record = self._records[uid]
        if record.state is not None:
            record.state = lifecycle.evict_pod_state(
                record.state, EVICTED, message, read_clocks(self._clock), disrupts=disrupts
            )
            self._record_event(record.pod, "Warning", EVICTED, message)
            self._queue.add(uid)

    def _can_terminate(self, uid: str) -> bool:
        """False if the sync of the pod raises exceptions."""
        return self._records[uid].state is not None

    def _preempt_pod(self, uid: str) -> None:
        record = self._records[uid]
        if record.state is not None:
            grace = record.template.plan.grace
            record.state = lifecycle.evict_pod_state(record.state, PREEMPTING, PREEMPTED, read_clocks(self._clock), grace=grace)
            self._record_event(record.pod, "Warning", PREEMPTING, PREEMPTED)
            self._queue.add(uid)

    def handle_deltas(self, deltas: Sequence[Delta[Pod]]) -> None:
        for delta in deltas:
            try:
                self._handle_update(delta)
            except Exception as error:
                self._panic_isolation.retry_pod(delta.obj, error)

    def _handle_update(self, delta: Delta[Pod]) -> None:
        pod = delta.obj
        uid = pod.metadata.uid
        record = self._records.get(uid)
        if self._nodes.is_on_frozen_node(pod):
            return
        if delta.kind == DELETED:
            self._forget_pod(uid)
        elif record is not None:
            self._refresh_record(uid, record, pod)
        elif pod.spec.nodeName in self._nodes:
            self._pods_to_admit.pop(uid, None)
            if lifecycle.was_accepted(pod):
                self._pods_to_adopt[uid] = pod_after_reboot(pod, self._clock.time()) if self._nodes.has_booted(pod) else pod
            else:
                self._pods_to_admit[uid] = pod
                self._traces.trace_arrival(pod)
            self._queue.add(uid)

    def replace_pods(self, nodes: Collection[str], pods: Collection[Pod]) -> None:
        """Replace the known pods by these pods of these nodes. Missing pods are forgotten first, so that their resources are
        free. New pods are admitted in the order of their creation, as in Kubernetes, because lists are sorted by name.
        """
        uids = {pod.metadata.uid for pod in pods}
        for uid, pod in self._all_pods():
            if uid not in uids and not self._nodes.is_on_frozen_node(pod):
                self._forget_pod(uid)
        self._runtime.retain_pods(set(nodes) - self._nodes.frozen, uids)
        by_age = sorted(pods, key=lambda pod: pod.metadata.creationTimestamp.seconds)
        self.handle_deltas([Delta(ADDED, pod, None) for pod in by_age])
        self._nodes.mark_pods_set(nodes)

    def _all_pods(self) -> list[tuple[str, Pod]]:
        known = [(uid, record.pod) for uid, record in self._records.items()]
        return [*known, *self._pods_to_adopt.items(), *self._pods_to_admit.items()]

    def _refresh_record(self, uid: str, record: PodRecord, pod: Pod) -> None:
        before, generation = record.want, record.pod.metadata.generation
        if not record.apply_pod_version(pod):
            return
        if record.is_run_by_other_process:
            self._forget_pod(uid)
            self._pods_to_adopt[uid] = pod
            self._queue.add(uid)
            return
        self._status_manager.handle_update(uid, record)
        if record.want is not before:
            self._queue.add(uid)
        if pod.spec.volumes:
            self._volumes.update(pod)
        moved = pod.metadata.generation != generation and not pod.metadata.HasField("deletionTimestamp")
        if moved and record.state is not None:  # the steps of a deletion are reported anyway
            if not record.state.phase.final:
                self._runtime.resize_pod(record.pod_as_allocated)
            self._resize_pod(uid, record, read_clocks(self._clock))
            self._status_manager.mark_changed(uid, record)
        self._apply_annotations(uid, pod)

    def _handle_volume_progress(self, uid: str, progress: VolumeProgress) -> None:
        """Containers can start, or are held for other reasons."""
        record = self._records.get(uid)
        if record is None:
            return
        mounted_at = read_clocks(self._clock).monotonic if progress.mounted else math.inf
        record.want = record.want._replace(mounted_at=mounted_at, held=progress.held)
        if record.state is not None:
            self._status_manager.mark_changed(uid, record)
        self._queue.add(uid)

    def _apply_annotations(self, uid: str, pod: Pod) -> None:
        """Apply the annotations of a running pod. If this raises an exception, the pod runs without them."""
        if not pod.metadata.annotations:
            return
        try:
            if declares_usage(pod):
                self._nodes.nodes_with_declared_usage.add(pod.spec.nodeName)
            for container, attempt, code in requested_crashes(pod):
                self._runtime.crash_container(uid, container, attempt, code, read_clocks(self._clock))
                self._queue.add(uid)
        except Exception as error:
            self._panic_isolation.retry_pod(pod, error)

    def _forget_pod(self, uid: str) -> None:
        self._queue.discard(uid)
        self._pods_to_adopt.pop(uid, None)
        self._pods_to_admit.pop(uid, None)
        self._panic_isolation.reset_backoff(uid)
        self._traces.forget_pod(uid)
        if (record := self._records.pop(uid, None)) is not None:
            self._admission.forget_pod(record.pod)
            self._admission.release_resources(
                record
            )  # first, so that every counted pod has a record, even after an exception below
            self._runtime.remove(uid)

    async def _sync_due_pods(self) -> None:
        while True:
            due = await self._queue.get_batch(STEPS_PER_TURN)
            await self._adopt_accepted_pods()
            now = read_clocks(self._clock)
            for uid in due:
                self._sync_pod(uid, now)
            await asyncio.sleep(0)

    async def _adopt_accepted_pods(self) -> None:
        """Adopt pods before any pod is admitted, so that their resources are counted."""
        while self._pods_to_adopt:
            now = read_clocks(self._clock)
            for uid in list(islice(self._pods_to_adopt, STEPS_PER_TURN)):
                self._pods_to_admit[uid] = self._pods_to_adopt.pop(uid)
                with suppress(Exception):  # the pod is also in the queue: the exception will be raised and reported there
                    self._ensure_record(uid, now)
            await asyncio.sleep(0)

    def _sync_pod(self, uid: str, now: Moment) -> None:
        try:
            if (record := self._ensure_record(uid, now)) is not None:
                self._advance_pod(uid, record, now)
        except Exception as error:
            known = self._records.get(uid)
            pod = known.pod if known is not None else self._pods_to_admit[uid]
            if known is not None and known.state is None and not lifecycle.was_accepted(pod):
                self._admission.release_resources(known)  # an admitted pod is admitted again; an adopted pod remains counted
            self._panic_isolation.retry_pod(pod, error)
        else:
            self._panic_isolation.reset_backoff(uid)

    def _ensure_record(self, uid: str, now: Moment) -> PodRecord | None:
        """The record of a pod, created if missing. A pod that an earlier process accepted is adopted."""
        if (pod := self._pods_to_admit.get(uid)) is not None:
            self._records[uid] = PodRecord.from_pod(pod)
            del self._pods_to_admit[uid]
        record = self._records.get(uid)
        if record is not None and record.state is None and lifecycle.was_accepted(record.pod):
            self._adopt_pod(uid, record, now)
        return record

    def _adopt_pod(self, uid: str, record: PodRecord, now: Moment) -> None:
        pod = record.pod
        state = lifecycle.adopt_pod_state(pod, record.template.plan, now)
        if state.phase.final:
            self._runtime.kill_leftovers(uid)
        else:
            if (resize := adopt_resize(pod)) is not None:
                record.set_resize(resize)
            self._admission.readmit_pod(record)
            self._runtime.adopt_pod(record.pod_as_allocated, now)
            self._apply_annotations(uid, pod)
            record.containers = self._runtime.observe_containers(uid, now)
            self._admission.adopt_volumes(record, now)
        record.state = state

    def _resize_pod(self, uid: str, record: PodRecord, now: Moment) -> None:
        """Allocate the resources of the spec, if the node has room."""
        state, before = record.state, record.resize
        if before is None or state is None or state.phase.final or state.ending is not None:
            return
        containers = self._runtime.observe_containers(uid, now)
        if not self._admission.resize_pod(record, containers, now):
            return
        resize = record.resize
        if resize is not None and resize.reason:
            if (resize.reason, resize.message) != (before.reason, before.message):
                self._record_event(
                    record.pod, "Warning", f"Resize{resize.reason}", f"Pod resize {resize.reason}: {resize.message}"
                )
        else:
            self._runtime.resize_pod(record.pod)
            if resize is None:
                self._record_event(record.pod, "Normal", "ResizeCompleted", "Pod resize completed")
            else:
                self._record_event(record.pod, "Normal", "ResizeStarted", "Pod resize started")
                views = {view.name: view for view in containers}
                record.state = lifecycle.restart_for_resize(state, record.template.plan, views, resize.restarting.keys(), now)
        self._status_manager.mark_changed(uid, record)
        self._queue.add(uid)

    def _observe_resize(self, uid: str, record: PodRecord) -> None:
        """Containers that were restarted for new resources may run now."""
        before = record.resize
        if before is None or (after := before.after_observation(record.containers)) is before:
            return
        record.resize = after
        self._admission.recount_resources(record)
        if after is None or not after.restarting:
            self._record_event(record.pod, "Normal", "ResizeCompleted", "Pod resize completed")
        self._status_manager.mark_changed(uid, record)

    def _advance_pod(self, uid: str, record: PodRecord, now: Moment) -> None:
        """Advance a pod until no action remains."""
        if record.resize is not None and (record.resize.reason or record.resize.unseen):
            self._resize_pod(uid, record, now)
        before = record.state
        state = before or self._admit_pod(uid, record, now)
        if state is None:
            return
        while True:
            containers = self._runtime.observe_containers(uid, now)
            step = lifecycle.advance_pod(record.want, state, containers, now)
            state = step.state
            if not self._execute_actions(uid, record, step, now):
                break
        told = before is not None and (state is before or state.reported_fields == before.reported_fields)
        if not told or [view.observed_state for view in containers] != [view.observed_state for view in record.containers]:
            self._report_change(uid, record, state, containers)
        record.state, record.containers = state, containers
        self._observe_resize(uid, record)
        if step.wake_at is not None:
            self._queue.add_at(uid, step.wake_at)
        self._status_manager.delete_if_finished(uid, record)

    def _admit_pod(self, uid: str, record: PodRecord, now: Moment) -> PodState | None:
        """Execute one step. None: sync the pod again first."""
        decided = self._admission.admit_pod(record, now)
        if isinstance(decided, float):
            self._queue.add_at(uid, decided)
            return None
        if not decided.refused:
            self._apply_annotations(uid, record.pod)
        return decided

    def _execute_actions(self, uid: str, record: PodRecord, step: PodStep, now: Moment) -> bool:
        """False: the actions do not change containers, so another step would have the same result."""
        touched = False
        for action in step.actions:
            match action:
                case StartContainer(container, attempt):
                    self._runtime.start(uid, container, attempt, now)
                    touched = True
                case StopContainer(container, grace):
                    touched = self._stop_container(uid, record, container, grace, now) or touched
                case StartCall(container, call):
                    self._runtime.call(uid, container, call, now)
                    touched = True
                case RecordEvent(type_, reason, message):
                    self._record_event(record.pod, type_, reason, message)
                case RemovePod():
                    record.over = True
        return touched

    def _stop_container(self, uid: str, record: PodRecord, container: str, grace: float, now: Moment) -> bool:
        """False: the disk is full, and the stop must be requested again. The state of the ending pod is kept."""
        try:
            self._runtime.stop(uid, container, grace, now)
        except OSError as error:
            self._record_event(record.pod, "Warning", "FailedKillPod", f"error killing container {container}: {error}")
            self._queue.add_at(uid, now.monotonic + STOP_RETRY_DELAY)
            return False
        return True

    def _report_change(self, uid: str, record: PodRecord, state: PodState, containers: Sequence[ContainerView]) -> None:
        before = record.state
        self._status_manager.mark_changed(uid, record)
        self._traces.trace_phase(uid, state.phase)
        if state.phase.final and not (before and before.phase.final):
            self._admission.release_resources(record)
            self._record_end_event(record.pod, state, containers)

    def _record_end_event(self, pod: Pod, state: PodState, containers: Sequence[ContainerView]) -> None:
        """Record an event for a container that ended unexpectedly."""
        if state.refused:
            metrics.REFUSED.labels(state.reason).inc()
            self._record_event(pod, "Warning", state.reason, state.message)
        elif state.phase is PodPhase.FAILED and state.ending is None:
            codes = ", ".join(f"{view.name} with code {view.exit.code}" for view in containers if view.exit)
            self._record_event(pod, "Warning", "Failed", f"Containers exited: {codes}")

    def _record_event(self, pod: Pod, type_: str, reason: str, message: str) -> None:
        if not self._nodes.is_on_frozen_node(pod):
            self._events.event(pod, type_, reason, message)


class PodWatch:
    def __init__(self, client: PodClient, pods: PodManager, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._client = client
        self._pods = pods
        self._clock = clock
        self._nodes: frozenset[str] = frozenset()
        self._watched_nodes: frozenset[str] = frozenset()
        self._synced = False
        self._informer: Informer[Pod] | None = None
        self._nodes_added = asyncio.Event()

    @property
    def healthy(self) -> str | None:
        """None, or the problem, for /readyz."""
        if not self._nodes:
            return None
        wrong = self._informer.healthy if self._informer is not None else None
        return wrong or (None if self._synced else "the pods of some nodes are not watched yet")

    def watch_nodes(self, nodes: Collection[str]) -> None:
        """Set the nodes to watch. A node that was removed and added again is new."""
        self._nodes = frozenset(nodes)
        self._watched_nodes &= self._nodes
        if not self._nodes <= self._watched_nodes:
            self._nodes_added.set()

    async def run(self) -> None:
        """Run until cancelled."""
        await self._nodes_added.wait()
        while True:
            self._nodes_added.clear()
            self._watched_nodes, self._synced = self._nodes, False
            selector = f"spec.nodeName in ({','.join(sorted(self._watched_nodes))})"
            informer = self._informer = Informer(self._client, fields=selector, clock=self._clock)
            informer.add_handler(self._handle_updates)
            await run_until_first(informer.run(), self._relist_until_nodes_added(informer))

    def _handle_updates(self, deltas: Sequence[Delta[Pod]]) -> None:
        """Events before the initial state are already in the store."""
        if self._synced:
            self._pods.handle_deltas(deltas)

    async def _relist_until_nodes_added(self, informer: Informer[Pod]) -> None:
        while not self._synced:
            try:
                await informer.wait_synced(SYNC_TIMEOUT)
                self._synced = True
            except TimeoutError as error:
                log.warning("%s", error)
        self._pods.replace_pods(self._watched_nodes, list(informer.store.values()))
        log.info("watching the pods of %d nodes: %d", len(self._watched_nodes), len(informer.store))
        await self._nodes_added.wait()
        await self._clock.sleep(GATHER)
