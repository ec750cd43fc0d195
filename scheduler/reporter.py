"""Telling people what became of their pods: events; and the condition PodScheduled of pods that have no place, with the node
where room is being made for them.

The condition is written in batches, and only where it says something new. It may come late or, when this scheduler dies, not
at all; the next attempt writes it then. A write that finds the pod changed is made again from the newer version, so it never
undoes what somebody else wrote, such as a bind.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, Protocol

from pinnace.api import conditions
from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.pods import status_of
from pinnace.api.verbs_pb2 import BatchItem
from pinnace.api.wire import portions
from pinnace.client.errors import Conflict, Fenced, Unavailable
from pinnace.client.resource import errors_of
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from scheduler.attempts import is_marked, take_back
from scheduler.cache.pod_info import PodInfo

log = logging.getLogger(__name__)

BATCH = 256
INTERVAL = 0.1
"""Seconds for which conditions are collected before they are written."""


class Recorder(Protocol):
    """What is needed of pinnace.client.events.Recorder."""

    def event(self, obj: Pod | Node, type_: str, reason: str, message: str) -> None: ...


class Statuses(Protocol):
    """What is needed of pinnace.client.client.PodClient."""

    async def update_status_batch(self, objs: Sequence[Pod]) -> list[BatchItem]: ...


@dataclass(frozen=True, slots=True)
class _Wanted:
    uid: str
    reason: str
    message: str
    nominated: str


class _Change(NamedTuple):
    key: str
    wanted: _Wanted
    pod: Pod


class Reporter:
    def __init__(self, recorder: Recorder, statuses: Statuses, pods: Mapping[str, Pod], *, clock: Clock = SYSTEM_CLOCK) -> None:
        """`pods`: the informer's store."""
        self._recorder = recorder
        self._statuses = statuses
        self._pods = pods
        self._clock = clock
        self._wanted: dict[str, _Wanted] = {}
        """By pod; the latest wins."""
        self._some = asyncio.Event()

    def scheduled(self, info: PodInfo, node: str) -> None:
        self._recorder.event(info.raw, "Normal", "Scheduled", f"Successfully assigned {info.key} to {node}")

    def failed(self, info: PodInfo, reason: str, message: str, nominated: str) -> None:
        """`reason` is the condition's: Unschedulable, or SchedulerError. `nominated`: where room is kept for the pod; empty:
        nowhere."""
        self._recorder.event(info.raw, "Warning", "FailedScheduling", message)
        self._wanted[info.key] = _Wanted(info.uid, reason, message, nominated)
        self._some.set()

    def drop(self) -> None:
        """Forgets what is not written yet: somebody else leads."""
        self._wanted.clear()

    async def run(self) -> None:
        """Writes conditions until cancelled."""
        while True:
            await self._some.wait()
            await self._clock.sleep(INTERVAL)
            self._some.clear()
            left = len(self._wanted)
            while self._wanted and left > 0:
                batch = [(key, self._wanted.pop(key)) for key in list(islice(self._wanted, BATCH))]
                left -= len(batch)
                await self._write(batch)

    async def _write(self, wanted: Sequence[tuple[str, _Wanted]]) -> None:
        changes = [_Change(key, each, pod) for key, each in wanted if (pod := self._changed(key, each)) is not None]
        for portion in portions(changes, BATCH, size=lambda change: change.pod.ByteSize()):
            await self._send(portion)

    async def _send(self, changes: Sequence[_Change]) -> None:
        answers = await errors_of(self._statuses.update_status_batch, [pod for _, _, pod in changes])
        for (key, each, _), answer in zip(changes, answers, strict=True):
            if isinstance(answer, Conflict | Unavailable):
                self._wanted.setdefault(key, each)
                self._some.set()
            elif answer is not None and not isinstance(answer, Fenced):
                log.warning("condition of pod %s: %s", key, answer)

    def _changed(self, key: str, wanted: _Wanted) -> Pod | None:
        """The pod's status with the condition that is wanted; None when there is nothing to write."""
        pod = self._pods.get(key)
        if pod is None or pod.metadata.uid != wanted.uid or pod.spec.nodeName:
            return None
        old = conditions.find(pod.status.conditions, "PodScheduled")
        told = old is not None and (old.status, old.reason, old.message) == ("False", wanted.reason, wanted.message)
        if told and pod.status.nominatedNodeName == wanted.nominated and not is_marked(pod):
            return None
        changed = status_of(pod)
        changed.status.nominatedNodeName = wanted.nominated
        said = changed.status.conditions
        conditions.say(said, "PodScheduled", "False", wanted.reason, wanted.message, self._clock.time())
        if is_marked(pod):
            take_back(changed, self._clock.time())
        return changed
