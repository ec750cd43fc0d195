"""The status manager: writes pod statuses in batches, and deletes pods whose final status is stored.

    changed --> report, on top of the latest version --stored--> acknowledged; over? --> delete --> gone
                 '-- Conflict: again after the next watch event; rejected: again with back-off --'

If another writer overwrites fields that the kubelet owns, the kubelet writes them again at once, and then at most every
OVERWRITE_INTERVAL seconds, so two conflicting writers do not keep each other busy.

`BatchWriter` guarantees:
* A message is built when it is sent: of several changes of one key only the latest is sent.
* A key is in at most one call at a time, so its writes reach the server in order.
* Nothing is lost. The keys of a failed call are sent again after a backoff, without limit. So is a key that was rejected by
  itself, after a backoff of its own, as Kubernetes' kubelet does: a webhook may be unavailable, or change its answer.
* Memory is bounded by the number of keys.

A free sender takes all pending keys, up to the batch size. There is no timer: under load batches fill up, and without load no
key waits.
Source: pkg/kubelet/status/status_manager.go of Kubernetes, needsReconcile
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from google.protobuf.message import Message

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.status import Code
from pinnace.api.verbs_pb2 import BatchItem, DeleteRequest
from pinnace.api.wire import MAX_BYTES
from pinnace.client.errors import ApiError, from_status
from pinnace.client.resource import delete_request
from pinnace.client.workqueue import DelayingQueue, RejectedQueue
from pinnace.kubelet import metrics
from pinnace.kubelet.metrics import PodStartupTraces
from pinnace.kubelet.pod_record import PodRecord
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.supervise import run_unending, supervise

log = logging.getLogger(__name__)

M = TypeVar("M", bound=Message)

TRANSIENT = frozenset({Code.UNAVAILABLE, Code.RESOURCE_EXHAUSTED})
"""Codes of a single item that also delay the other items, because the server has a problem."""
OVERWRITE_INTERVAL = 2.0
"""Seconds between two corrections of an overwritten status."""
STEPS = 256
"""Pods that are compared before other tasks of the event loop run."""


class BatchWriter(Generic[M]):
    """`build` returns the message of a key, or None if there is nothing to report; `send` makes the call. `settle` receives the
    outcome of a key and can mark it again. It returns True for a rejected key, which is retried after a pause. Both run on the
    event loop and must not raise.
    """

    def __init__(
        self,
        name: str,
        build: Callable[[str], M | None],
        send: Callable[[Sequence[M]], Awaitable[Sequence[BatchItem]]],
        settle: Callable[[str, BatchItem], bool],
        *,
        size: int = 200,
        senders: int = 2,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._name = name
        self._build = build
        self._send = send
        self._handle_result = settle
        self._size = size
        self._senders = senders
        self._clock = clock
        self._dirty: OrderedDict[str, None] = OrderedDict()
        self._in_flight: set[str] = set()
        self._marked_in_flight: set[str] = set()  # marked during the call
        self._rejected = RejectedQueue(clock)
        self._work = asyncio.Event()

    def mark_pending(self, key: str) -> None:
        if key in self._in_flight:
            self._marked_in_flight.add(key)
            return
        self._dirty[key] = None
        self._work.set()
        self._rejected.cancel_retry(key)

    @property
    def pending_count(self) -> int:
        """Pending keys."""
        return len(self._dirty) + len(self._in_flight) + self._rejected.num_waiting

    async def run(self) -> None:
        """Send until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._senders):
                attempt = supervise(self._name, self._send_batches, retry_on=(ApiError,), clock=self._clock)
                group.create_task(attempt)
            group.create_task(run_unending(self._name, self._retry_rejected_keys))

    async def _retry_rejected_keys(self) -> None:
        while True:
            for key in await self._rejected.get_batch(self._size):
                self.mark_pending(key)

    async def _send_batches(self) -> None:
        while True:
            if not self._dirty:
                self._work.clear()
                await self._work.wait()
                continue
            await self._send_batch(self._take_batch())

    def _take_batch(self) -> dict[str, M]:
        batch: dict[str, M] = {}
        room = MAX_BYTES  # the last item may exceed the limit: servers accept larger messages
        while self._dirty and len(batch) < self._size and room > 0:
            key, _ = self._dirty.popitem(last=False)
            message = self._build(key)
            if message is None:
                self._rejected.forget(key)
                continue
            batch[key] = message
            room -= message.ByteSize()
        self._in_flight.update(batch)
        return batch

    async def _send_batch(self, batch: dict[str, M]) -> None:
        """Raises the first error that requires a retry."""
        items: Sequence[BatchItem] = ()
        try:
            if batch:
                items = await self._send(list(batch.values()))
        finally:
            self._in_flight.difference_update(batch)
            for key in list(batch)[len(items) :]:  # the call failed or was cancelled
                self._marked_in_flight.add(key)
            trouble = [self._handle_item(key, item) for key, item in zip(batch, items, strict=False)]
            for key in [key for key in batch if key in self._marked_in_flight]:
                self._marked_in_flight.discard(key)
                self.mark_pending(key)
        for error in trouble:
            if error is not None:
                raise error

    def _handle_item(self, key: str, item: BatchItem) -> Exception | None:
        if item.HasField("error") and item.error.code in TRANSIENT:
            self._marked_in_flight.add(key)
            return from_status(item.error)
        if self._handle_result(key, item):
            self._rejected.add_rate_limited(key, from_status(item.error))
        else:
            self._rejected.forget(key)
        return None


def report_rejected_write(verb: str, pod: Pod, item: BatchItem) -> None:
    """The cause can be an unavailable or rejecting webhook, a missing permission, or a bug in either process."""
    error = from_status(item.error)
    metrics.FAILED_WRITES.labels(verb, error.code.name).inc()
    log.error("%s of pod %s/%s was rejected, retrying: %s", verb, pod.metadata.namespace, pod.metadata.name, error)


class PodWriter(Protocol):
    """The methods that this module needs of pinnace.client.client.PodClient."""

    async def update_status_batch(self, objs: Sequence[Pod]) -> Sequence[BatchItem]: ...

    async def delete_batch(self, requests: Sequence[DeleteRequest]) -> Sequence[BatchItem]: ...


class StatusManager:
    """`records`: of all pods, by uid. `silenced(pod)`: whether nothing can be written about it now. `gone(uid)`: the API server
    has no such pod.
    """

    def __init__(
        self,
        writer: PodWriter,
        records: Mapping[str, PodRecord],
        silenced: Callable[[Pod], bool],
        gone: Callable[[str], None],
        traces: PodStartupTraces,
        clock: Clock,
    ) -> None:
        self._records = records
        self._silenced = silenced
        self._forget_pod = gone
        self._traces = traces
        self._reports = BatchWriter(
            "pod status", self._build_report, writer.update_status_batch, self._handle_report_result, clock=clock
        )
        self._clock = clock
        self._delayed_corrections = DelayingQueue(clock)
        self._removals = BatchWriter(
            "pod removal", self._build_delete_request, writer.delete_batch, self._handle_delete_result, clock=clock
        )

    @property
    def pending_count(self) -> int:
        """Pods with a status write in flight."""
        return self._reports.pending_count

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(run_unending("pod status", self._reports.run))
            group.create_task(run_unending("pod removal", self._removals.run))
            group.create_task(run_unending("contradictions", self._correct_delayed_statuses))

    def mark_changed(self, uid: str, record: PodRecord) -> None:
        """The status has changed."""
        record.changes += 1
        self._reports.mark_pending(uid)

    def handle_update(self, uid: str, record: PodRecord) -> None:
        """The informer has received a newer version of the pod."""
        if record.waiting:
            record.waiting = False
            self._reports.mark_pending(uid)
        self._correct_overwritten_status(uid, record)

    def _correct_overwritten_status(self, uid: str, record: PodRecord) -> None:
        """Report the status again if another client has overwritten it."""
        if not record.foreign:
            return
        now = self._clock.monotonic()
        if now < record.patient_until:
            self._delayed_corrections.add_at(uid, record.patient_until)
        elif record.is_contradicted():
            record.patient_until = now + OVERWRITE_INTERVAL
            self.mark_changed(uid, record)

    async def _correct_delayed_statuses(self) -> None:
        while True:
            for uid in await self._delayed_corrections.get_batch(STEPS):
                if (record := self._records.get(uid)) is not None:
                    self._correct_overwritten_status(uid, record)
            await asyncio.sleep(0)

    def resume_pod(self, uid: str, record: PodRecord) -> None:
        """The pod's node can be written again."""
        if not record.is_reported:
            self._reports.mark_pending(uid)
        self.delete_if_finished(uid, record)

    def delete_if_finished(self, uid: str, record: PodRecord) -> None:
        """Delete the pod if it has finished and everything is reported."""
        if record.over and record.is_reported:
            self._removals.mark_pending(uid)

    def _build_report(self, uid: str) -> Pod | None:
        record = self._records.get(uid)
        return record.next_report() if record is not None and not self._silenced(record.pod) else None

    def _handle_report_result(self, uid: str, item: BatchItem) -> bool:
        record = self._records.get(uid)
        if record is None:
            return False
        if not item.HasField("error"):
            record.acknowledge_report(item.resourceVersion)
            self._traces.trace_report(uid)
            self._correct_overwritten_status(uid, record)
            self.delete_if_finished(uid, record)
        elif item.error.code == Code.NOT_FOUND:
            self._forget_pod(uid)
        elif item.error.code != Code.ABORTED:
            report_rejected_write("UpdateStatus", record.pod, item)
            return True
        elif record.revision == record.sent_revision:
            record.waiting = True
        else:
            self._reports.mark_pending(uid)
        return False

    def _build_delete_request(self, uid: str) -> DeleteRequest | None:
        record = self._records.get(uid)
        if record is None or self._silenced(record.pod):
            return None
        metadata = record.pod.metadata
        return delete_request(metadata.name, metadata.namespace, grace=0, uid=uid)

    def _handle_delete_result(self, uid: str, item: BatchItem) -> bool:
        """The informer receives the result: a deletion, or another pod of the same name."""
        record = self._records.get(uid)
        if record is None or not item.HasField("error") or item.error.code in (Code.NOT_FOUND, Code.ABORTED):
            return False
        report_rejected_write("Delete", record.pod, item)
        return True
