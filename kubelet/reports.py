"""What the API is told of a fleet's pods: their status, and, once that is known there, that they can go.

changed --> a report, on top of the latest version --stored--> known; over? --> a removal --> gone
              '-- Conflict: again, once the informer has brought what it conflicts with; refused: again later --'

What somebody else has written over what is the kubelet's is said again, at once and then every PATIENCE seconds: two who write
over each other keep nobody busy. It is looked for only where another's version of the status comes.

Source: pkg/kubelet/status/status_manager.go of Kubernetes, needsReconcile.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from kubelet.batches import BatchWriter, refused
from kubelet.delayqueue import DelayQueue
from kubelet.record import Record
from kubelet.tracing import PodTraces
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.status import Code
from pinnace.api.verbs_pb2 import BatchItem, DeleteRequest
from pinnace.client.resource import delete_request
from pinnace.runtime.clock import Clock
from pinnace.runtime.supervise import unending

PATIENCE = 2.0
"""Seconds between two reports of a pod that only contradict."""
STEPS = 256
"""Pods that are looked at before the event loop gets a turn."""


class PodWriter(Protocol):
    """What this needs of pinnace.client.client.PodClient."""

    async def update_status_batch(self, objs: Sequence[Pod]) -> Sequence[BatchItem]: ...

    async def delete_batch(self, requests: Sequence[DeleteRequest]) -> Sequence[BatchItem]: ...


class Reports:
    """`records`: of all pods, by uid. `silenced(pod)`: nothing can be said of it now. `gone(uid)`: the API has no such pod."""

    def __init__(
        self,
        writer: PodWriter,
        records: Mapping[str, Record],
        silenced: Callable[[Pod], bool],
        gone: Callable[[str], None],
        traces: PodTraces,
        clock: Clock,
    ) -> None:
        self._records = records
        self._silenced = silenced
        self._gone = gone
        self._traces = traces
        self._reports = BatchWriter("pod status", self._report, writer.update_status_batch, self._reported, clock=clock)
        self._clock = clock
        self._later = DelayQueue(clock)
        self._removals = BatchWriter("pod removal", self._removal, writer.delete_batch, self._removed, clock=clock)

    @property
    def pending(self) -> int:
        """Pods whose status is on its way."""
        return self._reports.pending

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(unending("pod status", self._reports.run))
            group.create_task(unending("pod removal", self._removals.run))
            group.create_task(unending("contradictions", self._contradict_later))

    def changed(self, uid: str, record: Record) -> None:
        """There is something new to say."""
        record.changes += 1
        self._reports.mark(uid)

    def heard(self, uid: str, record: Record) -> None:
        """The informer has brought a newer version of the pod."""
        if record.waiting:
            record.waiting = False
            self._reports.mark(uid)
        self._contradict(uid, record)

    def _contradict(self, uid: str, record: Record) -> None:
        """Says it again, if somebody else says something else."""
        if not record.foreign:
            return
        now = self._clock.monotonic()
        if now < record.patient_until:
            self._later.add_at(uid, record.patient_until)
        elif record.is_contradicted():
            record.patient_until = now + PATIENCE
            self.changed(uid, record)

    async def _contradict_later(self) -> None:
        while True:
            for uid in await self._later.take(STEPS):
                if (record := self._records.get(uid)) is not None:
                    self._contradict(uid, record)
            await asyncio.sleep(0)

    def thawed(self, uid: str, record: Record) -> None:
        """Something can be said of the pod again."""
        if not record.reported:
            self._reports.mark(uid)
        self.over(uid, record)

    def over(self, uid: str, record: Record) -> None:
        """Removes the pod, if it is over and everything is reported."""
        if record.over and record.reported:
            self._removals.mark(uid)

    def _report(self, uid: str) -> Pod | None:
        record = self._records.get(uid)
        return record.report() if record is not None and not self._silenced(record.pod) else None

    def _reported(self, uid: str, item: BatchItem) -> bool:
        record = self._records.get(uid)
        if record is None:
            return False
        if not item.HasField("error"):
            record.acknowledge(item.resourceVersion)
            self._traces.reported(uid)
            self._contradict(uid, record)
            self.over(uid, record)
        elif item.error.code == Code.NOT_FOUND:
            self._gone(uid)
        elif item.error.code != Code.ABORTED:
            refused("UpdateStatus", record.pod, item)
            return True
        elif record.revision == record.sent_revision:
            record.waiting = True
        else:
            self._reports.mark(uid)
        return False

    def _removal(self, uid: str) -> DeleteRequest | None:
        record = self._records.get(uid)
        if record is None or self._silenced(record.pod):
            return None
        metadata = record.pod.metadata
        return delete_request(metadata.name, metadata.namespace, grace=0, uid=uid)

    def _removed(self, uid: str, item: BatchItem) -> bool:
        """When it is done, or the pod is gone already or replaced by a namesake, the informer says so."""
        record = self._records.get(uid)
        if record is None or not item.HasField("error") or item.error.code in (Code.NOT_FOUND, Code.ABORTED):
            return False
        refused("Delete", record.pod, item)
        return True
