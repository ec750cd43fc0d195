"""Removes victims concurrently with later scheduling cycles, and the handle through which PostFilter plugins request it."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pinnace.api import conditions
from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.verbs_pb2 import BatchItem, DeleteRequest, Disruption
from pinnace.api.wellknown import DISRUPTION_TARGET
from pinnace.client.errors import (
    Conflict,
    Exhausted,
    Fenced,
    Internal,
    NotFound,
    Unauthenticated,
    Unavailable,
)
from pinnace.client.resource import delete_request, errors_of
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from scheduler import metrics
from scheduler.cache.cache import Cache
from scheduler.cache.placed_pod import PlacedPod
from scheduler.cache.pod_info import PodInfo
from scheduler.framework.results import Refused
from scheduler.framework.runtime import Framework, Profiles

log = logging.getLogger(__name__)

BATCH = 1_000
"""Of one call: as many as the API takes."""
DEADLINE = 30.0
"""Seconds for which a deletion is tried."""
AGAIN = 0.2
"""Seconds between two tries."""
REASON = "PreemptionByScheduler"
"""Of the victim's condition."""
TRANSIENT = Unavailable | Internal | Unauthenticated | Exhausted
"""They say nothing of the victim: a webhook is away, a certificate has ended, etcd is full."""


class Pods(Protocol):
    """What is needed of pinnace.client.client.PodClient."""

    async def delete_batch(self, requests: Sequence[DeleteRequest]) -> list[BatchItem]: ...


class Binding(Protocol):
    """What is needed of scheduler.binding.Binder."""

    def call_off(self, uid: str, refused: Refused) -> bool: ...
    def is_called_off(self, uid: str) -> bool: ...


class Recorder(Protocol):
    def event(self, obj: Pod | Node, type_: str, reason: str, message: str) -> None: ...


@dataclass(frozen=True, slots=True, eq=False)
class _Eviction:
    pod: Pod
    """As it was when it was chosen."""
    told: str
    """The event's message."""
    preemptors: set[str]
    """The uids of those that it is to make room for."""
    scheduler: str
    """The preemptor's."""
    until: float


class Evictions:
    def __init__(
        self,
        pods: Pods,
        binding: Binding,
        store: Mapping[str, Pod],
        recorder: Recorder,
        activate: Callable[[str], None],
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`store`: the informer's. `activate`: called with the uid of a preemptor whose victim stays."""
        self._pods = pods
        self._binding = binding
        self._store = store
        self._recorder = recorder
        self._activate = activate
        self._clock = clock
        self._pending: dict[str, _Eviction] = {}
        """By uid."""
        self._some = asyncio.Event()

    def submit(self, plugin: str, preemptor: PodInfo, node: str, victims: Sequence[PlacedPod]) -> None:
        """Those that are being deleted anyway are left out. `plugin`: who chose them."""
        told = f"Preempted by pod {preemptor.key} on node {node}"
        until = self._clock.monotonic() + DEADLINE
        for victim in victims:
            pod, pending = self._current(victim.key, victim.uid), self._pending.get(victim.uid)
            if self._binding.call_off(victim.uid, Refused(plugin, "preempted")):
                if pod is not None:
                    self._recorder.event(pod, "Normal", "Preempted", told)
            elif pending is not None:
                pending.preemptors.add(preemptor.uid)
            elif pod is not None and victim.group.living:
                self._pending[victim.uid] = _Eviction(pod, told, {preemptor.uid}, preemptor.raw.spec.schedulerName, until)
                self._some.set()

    def pending(self, uid: str) -> bool:
        """Is the pod still to be deleted, or called off and still there?"""
        return uid in self._pending or self._binding.is_called_off(uid)

    def drop(self) -> None:
        """Deletes nothing more: somebody else leads."""
        self._pending.clear()

    async def run(self) -> None:
        """Deletes until cancelled."""
        while True:
            while not self._pending:
                self._some.clear()
                await self._some.wait()
            batch = list(self._pending.values())[:BATCH]
            left = await self._evict(batch)
            for each in batch:
                uid = each.pod.metadata.uid
                if each not in left and self._pending.get(uid) is each:  # not one that was dropped, and submitted again
                    del self._pending[uid]
            if left:
                await self._clock.sleep(AGAIN)

    async def _evict(self, batch: Sequence[_Eviction]) -> list[_Eviction]:
        """Those that must be tried again."""
        answers = await errors_of(self._pods.delete_batch, [_deletion(each) for each in batch])
        left = []
        for each, answer in zip(batch, answers, strict=True):
            if answer is None:
                self._recorder.event(each.pod, "Normal", "Preempted", each.told)
            elif isinstance(answer, TRANSIENT) and self._clock.monotonic() < each.until:
                left.append(each)
            elif not isinstance(answer, NotFound | Conflict | Fenced):
                log.warning("preemption of pod %s/%s: %s", each.pod.metadata.namespace, each.pod.metadata.name, answer)
                for preemptor in sorted(each.preemptors):
                    self._activate(preemptor)
        return left

    def _current(self, key: str, uid: str) -> Pod | None:
        pod = self._store.get(key)
        return pod if pod is not None and pod.metadata.uid == uid else None


def _deletion(eviction: _Eviction) -> DeleteRequest:
    metadata = eviction.pod.metadata
    why = Disruption(reason=REASON, message=f"{eviction.scheduler}: preempting to accommodate a higher priority pod")
    return delete_request(metadata.name, metadata.namespace, uid=metadata.uid, disruption=why)


class PreemptionHandle:
    def __init__(self, cache: Cache, evictions: Evictions, store: Mapping[str, Pod], seed: int) -> None:
        """`store`: the informer's."""
        self.cache = cache
        self.seed = seed
        self.profiles = Profiles({})
        """To be set when the plugins are made."""
        self._evictions = evictions
        self._store = store

    def filters(self, pod: PodInfo) -> Framework:
        return self.profiles.of(pod)

    def evict(self, plugin: str, preemptor: PodInfo, node: str, victims: Sequence[PlacedPod]) -> None:
        metrics.VICTIMS.observe(len(victims))
        self._evictions.submit(plugin, preemptor, node, victims)

    def is_leaving(self, pod: PlacedPod) -> bool:
        if self._evictions.pending(pod.uid):
            return True
        current = self._store.get(pod.key)
        return (
            current is not None
            and current.metadata.uid == pod.uid
            and current.metadata.HasField("deletionTimestamp")
            and (why := conditions.find(current.status.conditions, DISRUPTION_TARGET)) is not None
            and why.reason == REASON
        )
