"""Writes that are collected and sent in batches: what the fleet reports, and what it deletes.

    mark(key) --> dirty --taken, as many as a call takes--> in flight --answered--> settled
                    ^                                           |
                    +--- the call failed, or marked again ------+
                    +--- the key alone was refused: later ------+

Guarantees:
* What is sent is read when it is sent: of several changes of one key only the latest goes out.
* A key is in at most one call at a time, so its writes reach the server in order.
* Nothing is lost: keys of a call that failed as a whole, whatever the error, are sent again, after a backoff, for as long as it
  takes. So is a key that was refused by itself, after a backoff of its own: a webhook that was away comes back, and one that
  said no may be asked again, as Kubernetes' kubelet does.
* Memory is bounded by the number of keys: each is dirty once.

There is no timer but for what was refused: a sender that is free takes what there is. Under load batches fill up by themselves,
and without load nothing waits.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from google.protobuf.message import Message

from kubelet import metrics
from kubelet.refused import Refused
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.status import Code
from pinnace.api.verbs_pb2 import BatchItem
from pinnace.api.wire import MAX_BYTES
from pinnace.client.errors import ApiError, from_status
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.supervise import supervise, unending

log = logging.getLogger(__name__)

M = TypeVar("M", bound=Message)

TRANSIENT = frozenset({Code.UNAVAILABLE, Code.RESOURCE_EXHAUSTED})
"""Codes of a single item after which it is sent again, and the others wait with it: the server has trouble."""


class BatchWriter(Generic[M]):
    """`build` makes the message of a key, None when there is nothing to say any more; `send` makes the call; `settle` is told
    the outcome of a key, and may mark it again; True: it was refused, and is to be sent again after a pause. Both run on the
    event loop and must not raise."""

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
        self._settle = settle
        self._size = size
        self._senders = senders
        self._clock = clock
        self._dirty: OrderedDict[str, None] = OrderedDict()
        self._flying: set[str] = set()
        self._again: set[str] = set()  # marked while in flight
        self._refused = Refused(clock)
        self._work = asyncio.Event()

    def mark(self, key: str) -> None:
        if key in self._flying:
            self._again.add(key)
            return
        self._dirty[key] = None
        self._work.set()
        self._refused.tried(key)

    @property
    def pending(self) -> int:
        """Keys that are not settled."""
        return len(self._dirty) + len(self._flying) + self._refused.waiting

    async def run(self) -> None:
        """Sends until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._senders):
                attempt = supervise(self._name, self._loop, retry_on=(ApiError,), clock=self._clock)
                group.create_task(attempt)
            group.create_task(unending(self._name, self._repeat))

    async def _repeat(self) -> None:
        while True:
            for key in await self._refused.take(self._size):
                self.mark(key)

    async def _loop(self) -> None:
        while True:
            if not self._dirty:
                self._work.clear()
                await self._work.wait()
                continue
            await self._write(self._take())

    def _take(self) -> dict[str, M]:
        batch: dict[str, M] = {}
        room = MAX_BYTES  # the last one may exceed it: a server takes more
        while self._dirty and len(batch) < self._size and room > 0:
            key, _ = self._dirty.popitem(last=False)
            message = self._build(key)
            if message is None:
                self._refused.settle(key)
                continue
            batch[key] = message
            room -= message.ByteSize()
        self._flying.update(batch)
        return batch

    async def _write(self, batch: dict[str, M]) -> None:
        """Raises the first error after which something is to be sent again."""
        items: Sequence[BatchItem] = ()
        try:
            if batch:
                items = await self._send(list(batch.values()))
        finally:
            self._flying.difference_update(batch)
            for key in list(batch)[len(items) :]:  # the call failed, or was cancelled
                self._again.add(key)
            trouble = [self._land(key, item) for key, item in zip(batch, items, strict=False)]
            for key in [key for key in batch if key in self._again]:
                self._again.discard(key)
                self.mark(key)
        for error in trouble:
            if error is not None:
                raise error

    def _land(self, key: str, item: BatchItem) -> Exception | None:
        if item.HasField("error") and item.error.code in TRANSIENT:
            self._again.add(key)
            return from_status(item.error)
        if self._settle(key, item):
            self._refused.add(key, from_status(item.error))
        else:
            self._refused.settle(key)
        return None


def refused(verb: str, pod: Pod, item: BatchItem) -> None:
    """A webhook that is away or says no, a missing permission, or a bug here or there."""
    error = from_status(item.error)
    metrics.FAILED_WRITES.labels(verb, error.code.name).inc()
    log.error("%s of pod %s/%s was refused, and is tried again: %s", verb, pod.metadata.namespace, pod.metadata.name, error)
