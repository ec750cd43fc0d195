"""The pod garbage collector: removes pods that no kubelet will end.

    orphaned      bound to a node that has been gone for QUARANTINE seconds      failed, and removed
    out of service  being deleted, on a node that is not ready and tainted so    failed, and removed
    unscheduled   being deleted, and bound to no node                            failed, and removed
    finished      the oldest above THRESHOLD, evicted pods first                 removed

Pods that are being deleted on an unreachable node are kept: they may still run. Pods that wait only for their finalizers are
left alone.

Source: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-garbage-collection
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple

from controllers.nodelifecycle import ready
from controllers.pods import node_of
from controllers.runtime import Shared, Watch
from controllers.writes import in_batches, unless_refused
from pinnace.api import conditions
from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.pods import EVICTED, ended, status_of
from pinnace.api.resources import NAMESPACES, NODES, PODS
from pinnace.api.scalars import to_seconds
from pinnace.api.selectors import one_of
from pinnace.api.verbs_pb2 import MODIFIED
from pinnace.api.wellknown import DISRUPTION_TARGET
from pinnace.api.wire import portions
from pinnace.client.errors import ApiError, Conflict, Fenced, NotFound
from pinnace.client.informer import Delta
from pinnace.client.resource import delete_request

INTERVAL = 20.0
"""Seconds between two looks."""
QUARANTINE = 40.0
"""Seconds for which a node must have been gone: it may come back, or not be known here yet."""
ASKED = 100
"""Nodes that are asked for with one call."""
THRESHOLD = 12_500
"""Finished pods that are kept."""
OUT_OF_SERVICE_TAINT = "node.kubernetes.io/out-of-service"
_KEY = "pods"
_LEAVING = "leaving"


class PodRemoval(NamedTuple):
    """What has not ended fails first. `why`: for the condition of one that fails; empty: it needs none."""

    pod: Pod
    why: str = ""


def doomed(
    pods: Iterable[Pod], nodes: Mapping[str, Node], gone: Mapping[str, float], now: float, threshold: int = THRESHOLD
) -> list[PodRemoval]:
    """What is to be removed. `gone`: since when nodes have been missed, by name, and `now`, both in monotonic seconds."""
    found: list[PodRemoval] = []
    over: list[Pod] = []
    for pod in pods:
        if _only_held(pod):
            continue
        name, deleting = pod.spec.nodeName, pod.metadata.HasField("deletionTimestamp")
        node = nodes.get(name)
        if name and node is None:
            if now - gone.get(name, now) >= QUARANTINE:
                found.append(PodRemoval(pod, "PodGC: node no longer exists"))
        elif deleting and not name:
            found.append(PodRemoval(pod))
        elif deleting and node is not None and _out_of_service(node):
            found.append(PodRemoval(pod, "PodGC: node is out of service"))
        elif ended(pod) and not deleting:
            over.append(pod)
    over.sort(key=_turn)
    return found + [PodRemoval(pod) for pod in over[: max(0, len(over) - threshold)]]


def missed(bound: Set[str], nodes: Mapping[str, Node], before: Mapping[str, float], now: float) -> dict[str, float]:
    """Of the nodes that pods are bound to, those that are not there: since when, in monotonic seconds."""
    return {name: before.get(name, now) for name in bound - nodes.keys()}


def leaving(pod: Pod) -> str:
    """Whether it has ended, or is going to: few have, and only they need be looked at. For an index."""
    return _LEAVING if ended(pod) or pod.metadata.HasField("deletionTimestamp") else ""


def failed(pod: Pod, why: str, now: float) -> Pod:
    """As a pod is left behind that has not ended: by nothing that it did. Who waits for its end by a finalizer waits for this.
    `why`: see PodRemoval; `now` is Unix time."""
    changed = status_of(pod)
    if why:
        conditions.say(changed.status.conditions, DISRUPTION_TARGET, "True", "DeletionByPodGC", why, now)
    changed.status.phase = "Failed"
    return changed


def _only_held(pod: Pod) -> bool:
    """Would one more deletion change nothing?"""
    metadata = pod.metadata
    graceless = metadata.HasField("deletionGracePeriodSeconds") and not metadata.deletionGracePeriodSeconds
    return ended(pod) and graceless and bool(metadata.finalizers)


def _turn(pod: Pod) -> tuple[bool, float, str, str]:
    """Those that were evicted go first: a node under pressure leaves many, and others are somebody's results."""
    metadata, status = pod.metadata, pod.status
    evicted = status.phase == "Failed" and status.reason == EVICTED
    return not evicted, to_seconds(metadata.creationTimestamp), metadata.namespace, metadata.name


def _out_of_service(node: Node) -> bool:
    return ready(node) != "True" and any(taint.key == OUT_OF_SERVICE_TAINT for taint in node.spec.taints)


class PodGarbageCollector:
    name = "pod-garbage-collector"
    workers = 1
    max_backoff = INTERVAL

    def __init__(self, shared: Shared) -> None:
        self._pods_client, self._nodes_client = shared.client.pods, shared.client.nodes
        self._clock = shared.clock
        self._bound = shared.informers.index(PODS, node_of)
        self._leaving = shared.informers.index(PODS, leaving)
        self._nodes = shared.informers.store(NODES)
        self._missed: dict[str, float] = {}
        shared.informers.add_handler(NODES, self._found)

    @property
    def watches(self) -> Sequence[Watch[Any]]:
        """There is always a namespace: with the first one begins the first look."""
        return (Watch(NODES, _comes_or_goes), Watch(NAMESPACES, _comes_or_goes))

    async def sync(self, key: str) -> float | None:
        now = self._clock.monotonic()
        self._missed = missed(self._bound.keys, self._nodes, self._missed, now)
        pods = dict(self._leaving.under(_LEAVING))
        for name in self._missed:
            pods |= self._bound.under(name)
        gone, unasked = await self._gone(now)
        found = doomed(pods.values(), self._nodes, gone, now)
        untold = await self._tell(found)
        left = [each.pod for each in found if each.pod.metadata.uid not in untold]
        errors = [*unasked, *untold.values(), *await self._remove(left)]
        return unless_refused(INTERVAL, errors, but=(NotFound, Conflict))

    async def _gone(self, now: float) -> tuple[Mapping[str, float], Sequence[ApiError]]:
        """The nodes that have been missed for long, and since when; and why some could not be asked for. The API server is
        asked, as in Kubernetes: the watch of nodes may be broken while that of pods is not."""
        gone: dict[str, float] = {}
        errors: list[ApiError] = []
        for names in portions([name for name, since in self._missed.items() if now - since >= QUARANTINE], ASKED, len):
            try:
                there = (await self._nodes_client.list(fields=one_of("metadata.name", names))).items
            except Fenced:
                raise
            except ApiError as error:
                errors.append(error)
            else:
                gone |= {name: self._missed[name] for name in {*names} - {node.metadata.name for node in there}}
        return gone, errors

    async def _tell(self, found: Sequence[PodRemoval]) -> Mapping[str, ApiError]:
        """Says of each that has not ended that it has failed, and why it goes. Of whom it could not be said, by uid: those stay
        until the next look."""
        alive = [each for each in found if not ended(each.pod)]
        statuses = [failed(pod, why, self._clock.time()) for pod, why in alive]
        errors = await in_batches(self._pods_client.update_status_batch, statuses)
        return {pod.metadata.uid: error for (pod, _), error in zip(alive, errors, strict=True) if error is not None}

    async def _remove(self, pods: Iterable[Pod]) -> Sequence[ApiError | None]:
        requests = [delete_request(pod.metadata.name, pod.metadata.namespace, grace=0, uid=pod.metadata.uid) for pod in pods]
        return await in_batches(self._pods_client.delete_batch, requests)

    def _found(self, deltas: Sequence[Delta[Node]]) -> None:
        """A node that was there between two looks, or while another one led, has not been missed since the first of them."""
        for delta in deltas:
            self._missed.pop(delta.obj.metadata.name, None)


def _comes_or_goes(delta: Delta[Any]) -> Sequence[str]:
    return () if delta.kind == MODIFIED else (_KEY,)
