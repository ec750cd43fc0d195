"""The taint eviction controller: deletes pods that do not tolerate a NoExecute taint of their node.

    taint --not tolerated--> deleted            tolerated for N seconds --N seconds--> deleted
                                                        '--the taint is removed--> stays

As in Kubernetes, the time starts when the leader first sees the taint, and starts again with the next leader. It ends with the
taint, also on standbys, so that a replica that leads again does not confuse a new taint with an old one. Each taint of a
node has its own time, except not-ready and unreachable, which replace each other and share one. A pod whose deletion is
cancelled gets an event.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/#taint-based-evictions
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from pinnace.api.core_v1_pb2 import Node, Pod, Taint
from pinnace.api.pods import evicting_taints, tolerates
from pinnace.api.resources import NODES, PODS
from pinnace.api.verbs_pb2 import DELETED, Disruption
from pinnace.api.wellknown import NOT_READY_TAINT, UNREACHABLE_TAINT
from pinnace.client.errors import ApiError, Conflict, NotFound
from pinnace.client.informer import Delta
from pinnace.client.resource import delete_request
from pinnace.controllers.pods import is_pod_active, pod_node_name
from pinnace.controllers.runtime import ControllerContext, WatchedResource, key_of_object
from pinnace.controllers.writes import raise_first_error, send_in_batches

_WHY = Disruption(reason="DeletionByTaintManager", message="Taint manager: deleting due to NoExecute taint")
_AWAY = frozenset({NOT_READY_TAINT, UNREACHABLE_TAINT})


def toleration_seconds(pod: Pod, taint: Taint) -> float:
    """Return the seconds for which the pod tolerates the taint: 0 without a toleration, infinity without tolerationSeconds.

    The first matching toleration counts.
    """
    result = next(
        (toleration for toleration in pod.spec.tolerations if tolerates(toleration, taint.key, taint.value, taint.effect)), None
    )
    if result is None:
        return 0.0
    return max(0.0, float(result.tolerationSeconds)) if result.HasField("tolerationSeconds") else math.inf


def _taint_time_key(taint: Taint) -> str:
    """Return the key of the taint's time. not-ready and unreachable share one."""
    return UNREACHABLE_TAINT if taint.key in _AWAY else taint.key


class TaintEvictionController:
    name = "taint-eviction"
    workers = 16
    max_backoff = 60.0

    def __init__(self, shared: ControllerContext) -> None:
        self._client = shared.client.pods
        self._events = shared.events
        self._clock = shared.clock
        self._nodes = shared.informers.store(NODES)
        self._pods = shared.informers.index(PODS, pod_node_name)
        self._since: dict[str, dict[tuple[str, str], float]] = {}
        """By node, and by taint key and UID: the start of the pod's time, in monotonic seconds."""
        self._to_go: dict[str, set[str]] = {}
        """By node: UIDs of pods that will be deleted later."""
        shared.informers.add_handler(NODES, self._forget_pod)

    @property
    def watches(self) -> Sequence[WatchedResource[Any]]:
        return (WatchedResource(NODES, key_of_object), WatchedResource(PODS, _key_of_node))

    async def sync(self, key: str) -> float | None:
        node = self._nodes.get(key)
        taints = evicting_taints(node) if node is not None else []
        to_go = self._to_go.pop(key, set())
        if not taints:
            self._cancel_eviction(key, to_go)
            return None
        now = self._clock.monotonic()
        before, since = self._since.get(key, {}), dict[tuple[str, str], float]()
        self._since[key] = since
        doomed, waits = [], dict[str, float]()
        for uid, pod in self._pods.under(key).items():
            if not is_pod_active(pod):
                continue
            left = math.inf
            for taint in taints:
                if (stays := toleration_seconds(pod, taint)) < math.inf:
                    what = _taint_time_key(taint), uid
                    since[what] = before.get(what, now)
                    left = min(left, since[what] + stays - now)
            if left <= 0:
                doomed.append(pod)
            elif left < math.inf:
                waits[uid] = left
        self._cancel_eviction(key, to_go - waits.keys() - {pod.metadata.uid for pod in doomed})
        if waits:
            self._to_go[key] = set(waits)
        refused = await self._evict_pod(doomed)
        return raise_first_error(min(waits.values(), default=None), refused, but=(NotFound, Conflict))

    def _forget_pod(self, deltas: Sequence[Delta[Node]]) -> None:
        for delta in deltas:
            name = delta.obj.metadata.name
            there = set(map(_taint_time_key, evicting_taints(delta.obj))) if delta.kind != DELETED else set()
            left = {what: at for what, at in self._since.pop(name, {}).items() if what[0] in there}
            if left:
                self._since[name] = left
            if delta.kind == DELETED:
                self._to_go.pop(name, None)

    def _cancel_eviction(self, node: str, uids: Iterable[str]) -> None:
        """Record an event for each remaining pod whose deletion is cancelled."""
        pods = self._pods.under(node)
        for pod in filter(None, map(pods.get, uids)):
            if is_pod_active(pod):
                key = f"{pod.metadata.namespace}/{pod.metadata.name}"
                self._events.event(pod, "Normal", "TaintManagerEviction", f"Cancelling deletion of Pod {key}")

    async def _evict_pod(self, pods: Sequence[Pod]) -> Sequence[ApiError | None]:
        """Record an event for each pod and delete it. Return the result of each delete."""
        requests = []
        for pod in pods:
            name, namespace, uid = pod.metadata.name, pod.metadata.namespace, pod.metadata.uid
            requests.append(delete_request(name, namespace, uid=uid, disruption=_WHY))
            key = f"{namespace}/{name}"
            self._events.event(pod, "Normal", "TaintManagerEviction", f"Marking for deletion Pod {key}")
        return await send_in_batches(self._client.delete_batch, requests)


def _key_of_node(delta: Delta[Pod]) -> Sequence[str]:
    node = pod_node_name(delta.obj)
    return [node] if node else []
