"""The pods of a fleet: takes them up as they are bound, moves each through its life, reports and removes them.

    informer -> handle() -> queue of uids -> step: admit or adopt, then advance until there is nothing to do
                                               |                         |
                                        status changed                 over          (both: kubelet.reports)

One record a pod, one queue for all, one loop that steps whatever is due: nothing here costs a task or a timer for each pod. The
handler only sorts what comes: a fleet that starts amid thousands of pods goes on beating while it takes them up.

Guarantees:
* A pod is admitted only while its node has room for it by `pinnace.fit`, beside all that the node runs already. Pods that an
  earlier process had accepted are counted before any new one is considered, and are never refused.
* None is refused for what its node was like before it was bound (kubelet.secondlook).
* A status is written against the resourceVersion that this process knows, so one that is outdated is refused. On a Conflict
  the pod is reported again on top of what the informer brings.
* Of two processes that accept a pod (twins: one has taken the nodes over from the other) the one whose report is stored first
  has accepted it, and likewise ended it; the other adopts it from there.
* Of a node that is frozen nothing is written, and nothing is heard; when it thaws, what is due is written, on top of what the
  API holds by then. The pods of one that has lost power run anew when it boots.
* A pod is deleted (grace 0, its uid as precondition) only when its final status has been acknowledged.
* A pod that trips a bug is looked at again, ever later, and the others go on (kubelet.trips).

Events are recorded for what goes wrong and for what is stopped: a Started event for each pod would cost a write for each pod.
"""

import asyncio
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from itertools import islice
from typing import Protocol

from kubelet import lifecycle, metrics
from kubelet.admission import Admission
from kubelet.declared import declares_usage
from kubelet.delayqueue import DelayQueue
from kubelet.faults import crashes, rebooted
from kubelet.lifecycle import Begin, Note, Phase, PodState, Remove, Start, Step, Stop
from kubelet.preemption import PREEMPTED, PREEMPTING
from kubelet.record import Record
from kubelet.reports import PodWriter, Reports
from kubelet.resize import adopted
from kubelet.runtime import ContainerView, Instant, Runtime, read
from kubelet.stats import Running
from kubelet.tracing import PodTraces
from kubelet.trips import Trips
from kubelet.virtualnodes import VirtualNodes
from kubelet.volumes import FakeVolumes, Volumes
from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.pods import EVICTED
from pinnace.api.verbs_pb2 import ADDED, DELETED
from pinnace.client.informer import Delta
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.supervise import unending
from pinnace.runtime.tracing import NO_TRACER, Tracer

STOP_AGAIN = 1.0
"""Seconds after which a container is asked again to stop that could not be asked."""
STEPS_PER_TURN = 256
"""Pods that are stepped before the event loop gets a turn: some milliseconds."""


class EventSink(Protocol):
    """What this needs of pinnace.client.events.Recorder."""

    def event(self, obj: Pod, type_: str, reason: str, message: str) -> None: ...


class Pods:
    """`handle` is the informer's handler; everything else happens in `run`."""

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
        """`volumes`: pretended ones, that are there at once, unless given. `nodes_known`: the revision up to which
        `set_node` has told."""
        self._nodes = nodes
        self._traces = PodTraces(clock, tracer)
        self._runtime = runtime
        self._events = events
        self._clock = clock
        self._records: dict[str, Record] = {}
        self._returning: dict[str, Pod] = {}  # accepted by an earlier process; to be adopted
        self._arriving: dict[str, Pod] = {}  # new; to be admitted
        self._queue = DelayQueue(clock)
        self._trips = Trips(self._event, self._queue, clock)
        self._admission = Admission(
            self._nodes,
            runtime,
            volumes or FakeVolumes(),
            nodes_known,
            self.staying,
            self._preempt,
            self._can_end,
            self._queue.add,
        )
        runtime.listen(self._queue.add)
        self._reports = Reports(writer, self._records, self._nodes.silences, self._forget, self._traces, clock)

    def __len__(self) -> int:
        return len(self._records) + len(self._returning) + len(self._arriving)

    @property
    def running(self) -> int:
        """Pods that run: counted when somebody asks, from another thread."""
        records = tuple(self._records.values())
        return sum(record.state is not None and record.state.phase is Phase.RUNNING for record in records)

    @property
    def unreported(self) -> int:
        """Pods whose status is on its way."""
        return self._reports.pending

    async def run(self) -> None:
        """Until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(unending("reports", self._reports.run))
                group.create_task(unending("steps of pods", self._step_all))
        finally:
            self._runtime.close()

    def set_node(self, node: Node) -> None:
        """Takes a node into the fleet, or learns what has changed of it."""
        name = node.metadata.name
        if self._nodes.set(node):
            self._thaw(name)
        for uid in self._admission.undecided(name):
            self._queue.add(uid)
        self._admission.retry_resizes(name)

    def drop_nodes(self, names: Collection[str]) -> None:
        """Stops playing these nodes, and forgets their pods: they are somebody else's, or nobody's."""
        self._nodes.drop(names)
        for uid, pod in self._all():
            if pod.spec.nodeName in names:
                self._forget(uid)

    def power_off(self, names: Collection[str]) -> None:
        """These nodes lose their power; `set_node` boots them."""
        self.drop_nodes(names)
        self._nodes.power_off(names)
        self._runtime.retain(names, ())

    def _thaw(self, name: str) -> None:
        for uid, record in self._records.items():
            if record.pod.spec.nodeName == name:
                self._reports.thawed(uid, record)

    def staying(self, node: str) -> list[Pod]:
        """The pods that use something of the node, and are to stay."""
        records = [self._records[uid] for uid in self._nodes.tenants(node)]
        return [each.pod for each in records if each.want.grace is None and not (each.state and each.state.ending)]

    def what_runs(self, uid: str) -> Running | None:
        """What of a pod runs; None: nothing, or its node is cut off."""
        record = self._records.get(uid)
        if record is None or self._nodes.silences(record.pod) or not (names := record.running):
            return None
        return Running(record.pod, names)

    def evict(self, uid: str, message: str, *, disrupts: bool) -> None:
        """`disrupts`: see lifecycle.Ending."""
        record = self._records[uid]
        if record.state is not None:
            record.state = lifecycle.evict(record.state, EVICTED, message, read(self._clock), disrupts=disrupts)
            self._event(record.pod, "Warning", EVICTED, message)
            self._queue.add(uid)

    def _can_end(self, uid: str) -> bool:
        """Not where a bug keeps the pod from being looked after."""
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
                self._trips.trip(delta.obj, error)

    def _hear(self, delta: Delta[Pod]) -> None:
        pod = delta.obj
        uid = pod.metadata.uid
        record = self._records.get(uid)
        if self._nodes.silences(pod):
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
        """These are all the pods of these nodes, and no others are played. The rest are gone, and forgotten first: new ones may
        have been bound into their room. Where there is no room for all the oldest come first, as in Kubernetes: a list goes by
        name."""
        uids = {pod.metadata.uid for pod in pods}
        for uid, pod in self._all():
            if uid not in uids and not self._nodes.silences(pod):
                self._forget(uid)
        self._runtime.retain(set(nodes) - self._nodes.frozen, uids)
        by_age = sorted(pods, key=lambda pod: pod.metadata.creationTimestamp.seconds)
        self.handle([Delta(ADDED, pod, None) for pod in by_age])
        self._nodes.settle(nodes)

    def _all(self) -> list[tuple[str, Pod]]:
        known = [(uid, record.pod) for uid, record in self._records.items()]
        return [*known, *self._returning.items(), *self._arriving.items()]

    def _refresh(self, uid: str, record: Record, pod: Pod) -> None:
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
        moved = pod.metadata.generation != generation and not pod.metadata.HasField("deletionTimestamp")
        if moved and record.state is not None:  # a deletion reports its steps anyway
            self._resize(uid, record, read(self._clock))
            self._reports.changed(uid, record)
        self._obey(uid, pod)

    def _obey(self, uid: str, pod: Pod) -> None:
        """What annotations say of a pod that is there. It lives without what they say, where that trips a bug."""
        if not pod.metadata.annotations:
            return
        try:
            if declares_usage(pod):
                self._nodes.consuming.add(pod.spec.nodeName)
            for container, attempt, code in crashes(pod):
                self._runtime.crash(uid, container, attempt, code, read(self._clock))
                self._queue.add(uid)
        except Exception as error:
            self._trips.trip(pod, error)

    def _forget(self, uid: str) -> None:
        self._queue.discard(uid)
        self._returning.pop(uid, None)
        self._arriving.pop(uid, None)
        self._trips.over(uid)
        self._traces.forget(uid)
        if (record := self._records.pop(uid, None)) is not None:
            self._admission.forget(record.pod)
            self._admission.vacate(record)  # first: what counts has a record, whatever comes of the rest
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
        """Before anything else is admitted: what these pods use is not to be given away."""
        while self._returning:
            now = read(self._clock)
            for uid in list(islice(self._returning, STEPS_PER_TURN)):
                self._arriving[uid] = self._returning.pop(uid)
                with suppress(Exception):  # it is in the queue, too: a bug is tripped there again, and told of
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
                self._admission.vacate(known)  # it is admitted anew; what an earlier process had accepted goes on being counted
            self._trips.trip(pod, error)
        else:
            self._trips.over(uid)

    def _take_up(self, uid: str, now: Instant) -> Record | None:
        """The record of a pod, made where there is none yet; one that an earlier process has accepted is adopted."""
        if (pod := self._arriving.get(uid)) is not None:
            self._records[uid] = Record.of(pod)
            del self._arriving[uid]
        record = self._records.get(uid)
        if record is not None and record.state is None and lifecycle.accepted(record.pod):
            self._adopt(uid, record, now)
        return record

    def _adopt(self, uid: str, record: Record, now: Instant) -> None:
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

    def _resize(self, uid: str, record: Record, now: Instant) -> None:
        """Gives a pod the resources that its spec asks for, if its node has room."""
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

    def _observe_resize(self, uid: str, record: Record) -> None:
        """Containers that are restarted for their new resources may have started."""
        before = record.resize
        if before is None or (after := before.observed(record.containers)) is before:
            return
        record.resize = after
        self._admission.recount(record)
        if after is None or not after.restarting:
            self._event(record.pod, "Normal", "ResizeCompleted", "Pod resize completed")
        self._reports.changed(uid, record)

    def _step(self, uid: str, record: Record, now: Instant) -> None:
        """Moves a pod as far as it goes at this moment."""
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

    def _admit(self, uid: str, record: Record, now: Instant) -> PodState | None:
        """None: it is to be looked at again first."""
        decided = self._admission.admit(record, now)
        if isinstance(decided, float):
            self._queue.add_at(uid, decided)
            return None
        if not decided.refused:
            self._obey(uid, record.pod)
        return decided

    def _carry_out(self, uid: str, record: Record, step: Step, now: Instant) -> bool:
        """False: the actions change nothing about the containers, so another step now would be the same."""
        touched = False
        for action in step.actions:
            match action:
                case Start(container, attempt):
                    self._runtime.start(uid, container, attempt, now)
                    touched = True
                case Stop(container, grace):
                    touched = self._stop(uid, record, container, grace, now) or touched
                case Begin(container, call):
                    self._runtime.call(uid, container, call, now)
                    touched = True
                case Note(type_, reason, message):
                    self._event(record.pod, type_, reason, message)
                case Remove():
                    record.over = True
        return touched

    def _stop(self, uid: str, record: Record, container: str, grace: float, now: Instant) -> bool:
        """False: the disk was full. It is asked again; that the pod ends, and since when, stands."""
        try:
            self._runtime.stop(uid, container, grace, now)
        except OSError as error:
            self._event(record.pod, "Warning", "FailedKillPod", f"error killing container {container}: {error}")
            self._queue.add_at(uid, now.monotonic + STOP_AGAIN)
            return False
        return True

    def _changed(self, uid: str, record: Record, state: PodState, containers: Sequence[ContainerView]) -> None:
        before = record.state
        self._reports.changed(uid, record)
        self._traces.changed(uid, state.phase)
        if state.phase.final and not (before and before.phase.final):
            self._admission.vacate(record)
            self._tell(record.pod, state, containers)

    def _tell(self, pod: Pod, state: PodState, containers: Sequence[ContainerView]) -> None:
        """Records how a pod ended, unless it went well or was asked to go."""
        if state.refused:
            metrics.REFUSED.labels(state.reason).inc()
            self._event(pod, "Warning", state.reason, state.message)
        elif state.phase is Phase.FAILED and state.ending is None:
            codes = ", ".join(f"{view.name} with code {view.exit.code}" for view in containers if view.exit)
            self._event(pod, "Warning", "Failed", f"Containers exited: {codes}")

    def _event(self, pod: Pod, type_: str, reason: str, message: str) -> None:
        if not self._nodes.silences(pod):
            self._events.event(pod, type_, reason, message)
