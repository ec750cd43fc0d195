"""Report scheduling results: events, the condition PodScheduled with nominatedNodeName, and trace spans of pods.

Conditions are written in batches, and only if they change. If the scheduler stops before it writes a condition, the next
attempt writes it. After a conflict the write is repeated on the newer version, so that it never overwrites other writes
such as a bind.

Events carry the scheduler name of the pod. Each profile has its own event recorder.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, Protocol

from pinnace.api import conditions, fences
from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.pods import status_of
from pinnace.api.resources import SYSTEM_NAMESPACE
from pinnace.api.verbs_pb2 import BatchItem
from pinnace.api.wellknown import ELECTION_LEASES, SCHEDULER_ELECTION, TRACE_ANNOTATION
from pinnace.api.wire import split_into_batches
from pinnace.client.client import EventClient
from pinnace.client.errors import Conflict, Fenced, Unavailable
from pinnace.client.events import EventRecorder
from pinnace.client.resource import batch_errors
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.supervise import run_unending
from pinnace.runtime.tracing import NO_TRACER, SAMPLED, Tracer
from pinnace.scheduler.attempts import has_attempt_mark, record_attempt_end
from pinnace.scheduler.cache.pod_info import PodInfo
from pinnace.scheduler.queue import QueuedPod
from pinnace.scheduler.scheduling_cycle import Decision

log = logging.getLogger(__name__)

BATCH = 256
INTERVAL = 0.1
"""Seconds for which conditions are collected before a write."""


class EventSink(Protocol):
    """The method of pinnace.client.events.EventRecorder that is used here."""

    def event(self, obj: Pod | Node | Lease, type_: str, reason: str, message: str) -> None: ...


class StatusWriter(Protocol):
    """The method of pinnace.client.client.PodClient that is used here."""

    async def update_status_batch(self, objs: Sequence[Pod]) -> list[BatchItem]: ...


@dataclass(frozen=True, slots=True)
class _WantedCondition:
    uid: str
    reason: str
    message: str
    nominated: str


class _StatusChange(NamedTuple):
    key: str
    wanted: _WantedCondition
    pod: Pod


class StatusReporter:
    def __init__(
        self, recorder: EventSink, statuses: StatusWriter, pods: Mapping[str, Pod], *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        """`pods` is the store of the informer."""
        self._recorder = recorder
        self._statuses = statuses
        self._pods = pods
        self._clock = clock
        self._wanted: dict[str, _WantedCondition] = {}
        """Conditions to write, by pod key. A later condition replaces an earlier one."""
        self._has_pending = asyncio.Event()

    def report_scheduled(self, info: PodInfo, node: str) -> None:
        self._recorder.event(info.raw, "Normal", "Scheduled", f"Successfully assigned {info.key} to {node}")

    def report_failed(self, info: PodInfo, reason: str, message: str, nominated: str) -> None:
        """Report an attempt that failed. `reason` is the condition's reason: Unschedulable or SchedulerError.

        `nominated` is the node that is reserved for the pod, or empty.
        """
        self._recorder.event(info.raw, "Warning", "FailedScheduling", message)
        self._wanted[info.key] = _WantedCondition(info.uid, reason, message, nominated)
        self._has_pending.set()

    def report_fenced(self, scheduler: str, token: int, binds: int) -> None:
        """Report refused binds as an event on the Lease of the election, because no pod was changed. The event counts them."""
        lease = Lease()
        lease.metadata.namespace, lease.metadata.name = SYSTEM_NAMESPACE, ELECTION_LEASES[SCHEDULER_ELECTION]
        message = fences.refused_message(scheduler, token)
        for _ in range(binds):
            self._recorder.event(lease, "Warning", "Fenced", message)

    def discard_pending(self) -> None:
        """Drop all unwritten conditions when the term ends."""
        self._wanted.clear()

    async def run(self) -> None:
        """Write conditions until cancelled."""
        while True:
            await self._has_pending.wait()
            await self._clock.sleep(INTERVAL)
            self._has_pending.clear()
            left = len(self._wanted)
            while self._wanted and left > 0:
                batch = [(key, self._wanted.pop(key)) for key in list(islice(self._wanted, BATCH))]
                left -= len(batch)
                await self._write_conditions(batch)

    async def _write_conditions(self, wanted: Sequence[tuple[str, _WantedCondition]]) -> None:
        changes = [
            _StatusChange(key, each, pod) for key, each in wanted if (pod := self._status_with_condition(key, each)) is not None
        ]
        for portion in split_into_batches(changes, BATCH, size=lambda change: change.pod.ByteSize()):
            await self._send_statuses(portion)

    async def _send_statuses(self, changes: Sequence[_StatusChange]) -> None:
        answers = await batch_errors(self._statuses.update_status_batch, [pod for _, _, pod in changes])
        for (key, each, _), answer in zip(changes, answers, strict=True):
            if isinstance(answer, Conflict | Unavailable):
                self._wanted.setdefault(key, each)
                self._has_pending.set()
            elif answer is not None and not isinstance(answer, Fenced):
                log.warning("condition of pod %s: %s", key, answer)

    def _status_with_condition(self, key: str, wanted: _WantedCondition) -> Pod | None:
        """Return the pod's status with the wanted condition, or None if no write is needed."""
        pod = self._pods.get(key)
        if pod is None or pod.metadata.uid != wanted.uid or pod.spec.nodeName:
            return None
        old = conditions.find_condition(pod.status.conditions, "PodScheduled")
        told = old is not None and (old.status, old.reason, old.message) == ("False", wanted.reason, wanted.message)
        if told and pod.status.nominatedNodeName == wanted.nominated and not has_attempt_mark(pod):
            return None
        changed = status_of(pod)
        changed.status.nominatedNodeName = wanted.nominated
        said = changed.status.conditions
        scheduled = conditions.set_condition(said, "PodScheduled", "False", wanted.reason, wanted.message, self._clock.time())
        scheduled.observedGeneration = pod.metadata.generation
        if has_attempt_mark(pod):
            record_attempt_end(changed, self._clock.time())
        return changed


class Recorders:
    """The event recorders of all profiles. `instance` is the name of the replica."""

    def __init__(self, client: EventClient, profiles: Iterable[str], instance: str, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._recorders = {profile: EventRecorder(client, profile, instance, clock=clock) for profile in profiles}
        self._first = next(iter(self._recorders.values()))

    def event(self, obj: Pod | Node | Lease, type_: str, reason: str, message: str) -> None:
        """Record an event, as EventRecorder.event does. Objects other than pods of a profile use the first profile's
        recorder."""
        name = obj.spec.schedulerName if isinstance(obj, Pod) else ""
        self._recorders.get(name, self._first).event(obj, type_, reason, message)

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as group:
            for recorder in self._recorders.values():
                group.create_task(run_unending("event recorder", recorder.run))

    async def flush(self) -> None:
        for recorder in self._recorders.values():
            await recorder.flush()


class PodTraces:
    """Record trace spans of pods. A pod without a trace costs one annotation lookup."""

    def __init__(self, clock: Clock, tracer: Tracer = NO_TRACER) -> None:
        self._tracer = tracer
        self._clock = clock
        self._decision_times: dict[str, float] = {}
        """The time of the decision, by UID, for pods with a bind in progress."""

    def record_attempt(self, queued: QueuedPod, began: float, result: str, node: str = "") -> None:
        """Record the spans of an attempt that ends now."""
        if not self._tracer.is_exporting or not (parent := _parent_span(queued.info)):
            return
        now, attempt = self._clock.monotonic(), queued.attempts
        self._tracer.record("scheduler.queue", parent, queued.since, began, attempt=attempt)
        named = {"k8s.node.name": node} if node else {}
        self._tracer.record("scheduler.schedule", parent, began, now, attempt=attempt, result=result, **named)
        if node:
            self._decision_times[queued.info.uid] = now

    def record_bind(self, decision: Decision, result: str) -> None:
        """Record the span of a bind that ends now."""
        info = decision.queued.info
        if (began := self._decision_times.pop(info.uid, None)) is not None:
            attributes = {"result": result, "k8s.node.name": decision.node}
            self._tracer.record("scheduler.bind", _parent_span(info), began, self._clock.monotonic(), **attributes)

    def discard_open_spans(self) -> None:
        """Drop the open spans at the end of a term. The informer delivers the results of its decisions."""
        self._decision_times.clear()


def _parent_span(info: PodInfo) -> str:
    """Return the parent span from the pod's annotation, or "" if its trace is not sampled."""
    parent = info.raw.metadata.annotations.get(TRACE_ANNOTATION, "")
    return parent if parent.endswith(SAMPLED) else ""
