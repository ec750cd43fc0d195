"""The pod garbage collector: removes pods that no kubelet will terminate.

    orphaned         on a node that has been missing for QUARANTINE seconds         failed, and removed
    out of service   being deleted, on a not-ready node with this taint             failed, and removed
    unscheduled      being deleted, and without a node                              failed, and removed
    terminated       the oldest beyond THRESHOLD, evicted pods first                removed

Pods that are being deleted on an unreachable node are kept, because they may still run. Pods that only wait for their
finalizers are not changed.

Source: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-garbage-collection
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple

from pinnace.api import conditions
from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.pods import EVICTED, ended, status_of
from pinnace.api.resources import NAMESPACES, NODES, PODS
from pinnace.api.scalars import to_seconds
from pinnace.api.selectors import one_of
from pinnace.api.verbs_pb2 import MODIFIED
from pinnace.api.wellknown import DISRUPTION_TARGET
from pinnace.api.wire import split_into_batches
from pinnace.client.errors import ApiError, Conflict, Fenced, NotFound
from pinnace.client.informer import Delta
from pinnace.client.resource import delete_request
from pinnace.controllers.nodelifecycle import ready_status
from pinnace.controllers.pods import pod_node_name
from pinnace.controllers.runtime import ControllerContext, WatchedResource
from pinnace.controllers.writes import raise_first_error, send_in_batches

INTERVAL = 20.0
"""Seconds between syncs."""
QUARANTINE = 40.0
"""Seconds for which a node must be missing. It may return, or may not have reached the informer yet."""
MAX_NODES_PER_LIST = 100
"""Maximum number of nodes per list request."""
THRESHOLD = 12_500
"""Number of terminated pods that are kept."""
OUT_OF_SERVICE_TAINT = "node.kubernetes.io/out-of-service"
_KEY = "pods"
_LEAVING = "leaving"


class PodRemoval(NamedTuple):
    """A pod to remove. Pods that have not terminated are first marked as failed.

    `why` is the message of the condition, or empty for no condition.
    """

    pod: Pod
    why: str = ""


def select_pods_to_remove(
    pods: Iterable[Pod], nodes: Mapping[str, Node], gone: Mapping[str, float], now: float, threshold: int = THRESHOLD
) -> list[PodRemoval]:
    """Return the pods to remove. `gone` has the time since which nodes are missing. It and `now` are monotonic seconds."""
    pod_removals: list[PodRemoval] = []
    over: list[Pod] = []
    for pod in pods:
        if _only_finalizers_remain(pod):
            continue
        name, deleting = pod.spec.nodeName, pod.metadata.HasField("deletionTimestamp")
        node = nodes.get(name)
        if name and node is None:
            if now - gone.get(name, now) >= QUARANTINE:
                pod_removals.append(PodRemoval(pod, "PodGC: node no longer exists"))
        elif deleting and not name:
            pod_removals.append(PodRemoval(pod))
        elif deleting and node is not None and _out_of_service(node):
            pod_removals.append(PodRemoval(pod, "PodGC: node is out of service"))
        elif ended(pod) and not deleting:
            over.append(pod)
    over.sort(key=_removal_order)
    return pod_removals + [PodRemoval(pod) for pod in over[: max(0, len(over) - threshold)]]


def find_missing_nodes(bound: Set[str], nodes: Mapping[str, Node], before: Mapping[str, float], now: float) -> dict[str, float]:
    """Return the missing nodes to which pods are bound, and since when they are missing, in monotonic seconds."""
    return {name: before.get(name, now) for name in bound - nodes.keys()}


def leaving_key(pod: Pod) -> str:
    """Return an index key for pods that have terminated or are being deleted. Only these few pods are checked."""
    return _LEAVING if ended(pod) or pod.metadata.HasField("deletionTimestamp") else ""


def failed_status(pod: Pod, why: str, now: float) -> Pod:
    """Return the status of a pod that is marked as failed without having terminated, which controllers with a finalizer
    wait for.

    `why` is as in PodRemoval. `now` is Unix time.
    """
    changed = status_of(pod)
    if why:
        target = conditions.set_condition(changed.status.conditions, DISRUPTION_TARGET, "True", "DeletionByPodGC", why, now)
        target.observedGeneration = pod.metadata.generation
    changed.status.phase = "Failed"
    return changed


def _only_finalizers_remain(pod: Pod) -> bool:
    """Return True if another deletion has no effect, because only finalizers remain."""
    metadata = pod.metadata
    graceless = metadata.HasField("deletionGracePeriodSeconds") and not metadata.deletionGracePeriodSeconds
    return ended(pod) and graceless and bool(metadata.finalizers)


def _removal_order(pod: Pod) -> tuple[bool, float, str, str]:
    """Return the sort key. Evicted pods are first, because node pressure leaves many, while other pods may hold results."""
    metadata, status = pod.metadata, pod.status
    evicted = status.phase == "Failed" and status.reason == EVICTED
    return not evicted, to_seconds(metadata.creationTimestamp), metadata.namespace, metadata.name


def _out_of_service(node: Node) -> bool:
    return ready_status(node) != "True" and any(taint.key == OUT_OF_SERVICE_TAINT for taint in node.spec.taints)


class PodGarbageCollector:
    name = "pod-garbage-collector"
    workers = 1
    max_backoff = INTERVAL

    def __init__(self, shared: ControllerContext) -> None:
        self._pods_client, self._nodes_client = shared.client.pods, shared.client.nodes
        self._clock = shared.clock
        self._pods_by_node = shared.informers.index(PODS, pod_node_name)
        self._leaving = shared.informers.index(PODS, leaving_key)
        self._nodes = shared.informers.store(NODES)
        self._missing_nodes: dict[str, float] = {}
        shared.informers.add_handler(NODES, self._handle_node_deltas)

    @property
    def watches(self) -> Sequence[WatchedResource[Any]]:
        """The watched kinds. A namespace always exists, so its addition starts the first sync."""
        return (WatchedResource(NODES, _key_on_add_or_delete), WatchedResource(NAMESPACES, _key_on_add_or_delete))

    async def sync(self, key: str) -> float | None:
        now = self._clock.monotonic()
        self._missing_nodes = find_missing_nodes(self._pods_by_node.keys, self._nodes, self._missing_nodes, now)
        pods = dict(self._leaving.under(_LEAVING))
        for name in self._missing_nodes:
            pods |= self._pods_by_node.under(name)
        gone, unasked = await self._confirm_missing_nodes(now)
        result = select_pods_to_remove(pods.values(), self._nodes, gone, now)
        untold = await self._mark_pods_failed(result)
        left = [item.pod for item in result if item.pod.metadata.uid not in untold]
        errors = [*unasked, *untold.values(), *await self._delete_pods(left)]
        return raise_first_error(INTERVAL, errors, but=(NotFound, Conflict))

    async def _confirm_missing_nodes(self, now: float) -> tuple[Mapping[str, float], Sequence[ApiError]]:
        """Return the nodes that are confirmed as missing, with the time, and the errors of the requests.

        The API server is queried, as in Kubernetes, because the watch of nodes may be broken while the watch of pods is not.
        """
        gone: dict[str, float] = {}
        errors: list[ApiError] = []
        for names in split_into_batches(
            [name for name, since in self._missing_nodes.items() if now - since >= QUARANTINE], MAX_NODES_PER_LIST, len
        ):
            try:
                there = (await self._nodes_client.list(fields=one_of("metadata.name", names))).items
            except Fenced:
                raise
            except ApiError as error:
                errors.append(error)
            else:
                gone |= {name: self._missing_nodes[name] for name in {*names} - {node.metadata.name for node in there}}
        return gone, errors

    async def _mark_pods_failed(self, found: Sequence[PodRemoval]) -> Mapping[str, ApiError]:
        """Mark the pods that have not terminated as failed. Return the errors by UID; these pods are kept until the next
        sync."""
        alive = [item for item in found if not ended(item.pod)]
        statuses = [failed_status(pod, why, self._clock.time()) for pod, why in alive]
        errors = await send_in_batches(self._pods_client.update_status_batch, statuses)
        return {pod.metadata.uid: error for (pod, _), error in zip(alive, errors, strict=True) if error is not None}

    async def _delete_pods(self, pods: Iterable[Pod]) -> Sequence[ApiError | None]:
        requests = [delete_request(pod.metadata.name, pod.metadata.namespace, grace=0, uid=pod.metadata.uid) for pod in pods]
        return await send_in_batches(self._pods_client.delete_batch, requests)

    def _handle_node_deltas(self, deltas: Sequence[Delta[Node]]) -> None:
        """Reset the time of nodes that exist again between syncs or during the term of another leader."""
        for delta in deltas:
            self._missing_nodes.pop(delta.obj.metadata.name, None)


def _key_on_add_or_delete(delta: Delta[Any]) -> Sequence[str]:
    return () if delta.kind == MODIFIED else (_KEY,)
