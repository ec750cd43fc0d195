"""Repeats the decisions of a scheduler from its recording (`pinnace.scheduler.recording`), without a cluster.

    line of the recording         here
    objects                       the same deltas, to the same cache, queue, plugins and event handlers
    attempt of a pod              the pod is taken from the queue and scheduled; its node is compared with the recorded one
    forget                        the assumption ends, and the pod is queued again

The replay takes the order of attempts from the recording, so it does not check times of backoff. The decision itself, with
filters, scores, ties and preemption, is made again from the objects. PreBind, Bind and PostBind plugins are not called.
"""

import json
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.pods import ended
from pinnace.api.resources import NODES, PODS, Resource
from pinnace.api.verbs_pb2 import DELETED, WatchEventType
from pinnace.scheduler.cache.cache import Cache
from pinnace.scheduler.cache.pod_info import PlacedPod, PodInfo
from pinnace.scheduler.config import Configuration, build_frameworks, required_resources, written_resources
from pinnace.scheduler.framework.profile import WaitingPods
from pinnace.scheduler.framework.reuse import EquivalenceCache
from pinnace.scheduler.framework.runtime import BindingCycle, Profiles
from pinnace.scheduler.informers import EventHandlers
from pinnace.scheduler.node_selector import NodeSelector
from pinnace.scheduler.preemption import Evictions, PreemptionHandle
from pinnace.scheduler.queue import QueuedPod, SchedulingQueue
from pinnace.scheduler.scheduling_cycle import (
    AttemptFailed,
    Placed,
    move_pods_after_nomination,
    requeue_pod,
    schedule_one,
)
from pinnace.study.simulation import EvictionSink, ObjectStore, StudyHandle


class RecordingError(Exception):
    """A recording cannot be read. The message names the file and line."""


@dataclass(frozen=True, slots=True)
class ReplayedAttempt:
    """One attempt: the recorded node and the node of the replay. A node is empty if the pod was not placed."""

    scheduler: str
    pod: str
    """The name."""
    uid: str
    time: float
    """Unix seconds of the recorded attempt."""
    recorded: str
    replayed: str


def replay_recording(file: Path, configuration: Configuration) -> Iterator[ReplayedAttempt]:
    """Yield all attempts of a recording. `configuration` is that of the scheduler. Raise RecordingError."""
    replica: _Replica | None = None
    with file.open() as lines:
        for number, text in enumerate(lines, start=1):
            try:
                line = json.loads(text)
                if "start" in line:
                    replica = _Replica(line["start"], replace(configuration, seed=line["seed"]))
                elif replica is None:
                    raise ValueError("the first line must be a start")
                elif "attempt" in line:
                    yield replica.repeat_attempt(line["attempt"], line["node"], line["time"])
                elif "forget" in line:
                    replica.forget_assumption(line["forget"])
                else:
                    replica.deliver_objects(line["objects"], line["deltas"])
            except (ValueError, KeyError, TypeError) as error:  # also of base64, JSON and protobuf
                raise RecordingError(f"{file}:{number}: {type(error).__name__}: {error}") from error


class _Replica:
    """The state of one scheduler. Time does not advance, because the recording has the order of the attempts."""

    def __init__(self, name: str, configuration: Configuration) -> None:
        self._name = name
        self._objects = objects = ObjectStore()
        self._cache = cache = Cache()
        self._leaving: dict[str, None] = {}
        """The victims of preemption whose deletion has not been delivered, by UID."""
        waiting = WaitingPods(lambda: None)
        handle = StudyHandle(objects, waiting, lambda uid: None)
        evictions = cast("Evictions", EvictionSink(self._evict, self._leaving))
        preemption = PreemptionHandle(cache, evictions, objects.objects(PODS), configuration.seed)
        handle.preemption = preemption
        frameworks = build_frameworks(configuration, handle)
        preemption.profiles = profiles = Profiles(frameworks)
        self._queue = SchedulingQueue(profiles)
        equivalence = EquivalenceCache(cache.nodes)
        self._selectors = {
            profile: NodeSelector(cache, framework, configuration.seed, equivalence)
            for profile, framework in frameworks.items()
        }
        self._handlers = EventHandlers(cache, self._queue, frameworks, lambda: 0.0, lambda: None)
        objects.add_handler(PODS, self._handlers.on_pods)
        objects.add_handler(NODES, self._handlers.on_nodes)
        resources: list[Resource[Any]] = [PODS, NODES, *required_resources(configuration), *written_resources(configuration)]
        self._resources = {resource.plural: resource for resource in resources}
        self._cycles: dict[str, BindingCycle] = {}

    def deliver_objects(self, plural: str, deltas: Sequence[tuple[WatchEventType, str]]) -> None:
        resource = self._resources[plural]
        decoded = []
        for kind, text in deltas:
            obj = resource.message()
            obj.ParseFromString(b64decode(text, validate=True))
            decoded.append((kind, obj))
        delivered = self._objects.apply(resource, decoded)
        if resource not in (PODS, NODES):
            self._handlers.on_objects(plural, delivered)
        if resource is PODS:
            for kind, pod in decoded:
                if kind == DELETED or ended(pod) or pod.metadata.HasField("deletionTimestamp"):
                    self._leaving.pop(pod.metadata.uid, None)
        while self._handlers.move_pods_of_changed_node() | self._handlers.recheck_gated_pod():
            pass

    def repeat_attempt(self, uid: str, recorded: str, time: float) -> ReplayedAttempt:
        info = self._queue.remove_pod(uid)
        if info is None:
            raise ValueError(f"pod {uid} is not pending")
        before = self._cache.nodes.nominated.node_of(uid)
        outcome = schedule_one(info, self._selectors[info.raw.spec.schedulerName])
        move_pods_after_nomination(info, before, self._cache, self._queue, 0.0)
        node = ""
        if isinstance(outcome, Placed):
            node = outcome.node
            if outcome.cycle is not None:
                self._cycles[uid] = outcome.cycle
        else:
            requeue_pod(QueuedPod(info, 0.0), outcome, self._cache, self._queue, 0.0)
            if isinstance(outcome, AttemptFailed) and recorded:
                node = f"error: {outcome.error}"
        return ReplayedAttempt(self._name, info.name, uid, time, recorded, node)

    def forget_assumption(self, uid: str) -> None:
        self._cache.forget_pod(uid)
        if (cycle := self._cycles.pop(uid, None)) is not None:
            cycle.run_unreserve()
        pods: Mapping[str, Pod] = self._objects.objects(PODS)
        pod = next((pod for pod in pods.values() if pod.metadata.uid == uid), None)
        if pod is not None and not pod.spec.nodeName:
            self._queue.add_pod(PodInfo(pod), 0.0)

    def _evict(self, victims: Sequence[PlacedPod]) -> None:
        self._leaving.update((victim.uid, None) for victim in victims)
