"""Properties of pods that controllers count. Pure; times are Unix time.

`PodPropertiesCache` computes them once per version of a pod, because objects in an informer's store are immutable.

Source: pkg/controller/controller_utils.go and pkg/api/v1/pod/util.go of Kubernetes.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pinnace.api import conditions
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.integers import parse_int32
from pinnace.api.pods import ended
from pinnace.api.resources import Object
from pinnace.api.scalars import to_seconds
from pinnace.api.verbs_pb2 import DELETED
from pinnace.api.wellknown import COST_ANNOTATION
from pinnace.client.informer import Delta


def is_pod_active(pod: Pod) -> bool:
    """Return True if the pod has not terminated and is not being deleted."""
    return not ended(pod) and not pod.metadata.HasField("deletionTimestamp")


def is_pod_terminating(pod: Pod) -> bool:
    """Return True if the pod is being deleted and has not terminated."""
    return not ended(pod) and pod.metadata.HasField("deletionTimestamp")


def is_pod_ready(pod: Pod) -> bool:
    return conditions.is_condition_true(pod.status.conditions, "Ready")


def pod_ready_since(pod: Pod) -> float | None:
    """Return the time since which the pod is ready, or None if it is not ready or the time is not reported."""
    condition = conditions.find_condition(pod.status.conditions, "Ready")
    if condition is None or condition.status != "True" or not condition.HasField("lastTransitionTime"):
        return None
    return to_seconds(condition.lastTransitionTime)


def max_restart_count(pod: Pod) -> int:
    """Return the highest restart count of a container, including sidecars."""
    statuses = (*pod.status.containerStatuses, *pod.status.initContainerStatuses)
    return max((status.restartCount for status in statuses), default=0)


def pod_node_name(pod: Pod) -> str:
    """Return the node of the pod, or an empty string."""
    return pod.spec.nodeName


def object_namespace(obj: Object) -> str:
    return obj.metadata.namespace


class PodProperties(NamedTuple):
    """Properties of one version of a pod. Times are Unix time. `pod_ready_since` is None if it is not reported."""

    pod: Pod
    active: bool
    terminating: bool
    deleting: bool
    ready: bool
    ready_since: float | None
    node: str
    phase: str
    labels: frozenset[tuple[str, str]]
    created: float
    restarts: int
    cost: int


def pod_available_in(pod: PodProperties, patience: int, now: float) -> float | None:
    """Return the seconds until the pod is available, 0 if it is, or None if it is not ready. `patience`: minReadySeconds."""
    if not pod.ready:
        return None
    if not patience:
        return 0.0
    return None if pod.ready_since is None else max(0.0, pod.ready_since + patience - now)


def compute_pod_properties(pod: Pod) -> PodProperties:
    return PodProperties(
        pod=pod,
        active=is_pod_active(pod),
        terminating=is_pod_terminating(pod),
        deleting=pod.metadata.HasField("deletionTimestamp"),
        ready=is_pod_ready(pod),
        ready_since=pod_ready_since(pod),
        node=pod_node_name(pod),
        phase=pod.status.phase,
        labels=frozenset(pod.metadata.labels.items()),
        created=to_seconds(pod.metadata.creationTimestamp),
        restarts=max_restart_count(pod),
        cost=pod_deletion_cost(pod),
    )


def pod_deletion_cost(pod: Pod) -> int:
    """Return the pod-deletion-cost, or 0 if it is missing or not a 32-bit integer."""
    return parse_int32(pod.metadata.annotations.get(COST_ANNOTATION, "")) or 0


class PodPropertiesCache:
    """Caches the facts of pods until they are deleted."""

    def __init__(self) -> None:
        self._known: dict[str, PodProperties] = {}

    def properties_of(self, pods: Iterable[Pod]) -> Iterator[PodProperties]:
        for pod in pods:
            uid = pod.metadata.uid
            known = self._known.get(uid)
            if known is None or known.pod is not pod:
                known = self._known[uid] = compute_pod_properties(pod)
            yield known

    def apply_deltas(self, deltas: Sequence[Delta[Pod]]) -> None:
        """Drop deleted pods. A handler of the informer."""
        for delta in deltas:
            if delta.kind == DELETED:
                self._known.pop(delta.obj.metadata.uid, None)


def claim_keys_of_pod(pod: Pod) -> Iterator[str]:
    """Yield the store keys of the claims of a pod."""
    metadata = pod.metadata
    for volume in pod.spec.volumes:
        if volume.volumeSource.HasField("persistentVolumeClaim"):
            yield f"{metadata.namespace}/{volume.volumeSource.persistentVolumeClaim.claimName}"
        elif volume.volumeSource.HasField("ephemeral"):
            yield f"{metadata.namespace}/{metadata.name}-{volume.name}"


class ClaimUsers:
    """The pods of each claim. Pods without claims cost nothing but a look at their volumes."""

    def __init__(self) -> None:
        self._pods: dict[str, dict[str, Pod]] = {}

    def apply_deltas(self, deltas: Sequence[Delta[Pod]]) -> None:
        """Apply changes of pods. A handler of the informer."""
        for delta in deltas:
            if delta.old is not None:
                self._remove_pod(delta.old)
            if delta.kind == DELETED:
                self._remove_pod(delta.obj)
            else:
                self._add_pod(delta.obj)

    def is_used(self, key: str) -> bool:
        """Return True if a pod with a node uses the claim."""
        return any(pod.spec.nodeName for pod in self._pods.get(key, {}).values())

    def first_unscheduled(self, key: str) -> str:
        """Return the name of a pod without a node that uses the claim, or ""."""
        names = (pod.metadata.name for pod in self._pods.get(key, {}).values() if not pod.spec.nodeName)
        return min(names, default="")

    def _add_pod(self, pod: Pod) -> None:
        for key in claim_keys_of_pod(pod):
            self._pods.setdefault(key, {})[pod.metadata.uid] = pod

    def _remove_pod(self, pod: Pod) -> None:
        for key in claim_keys_of_pod(pod):
            users = self._pods.get(key, {})
            users.pop(pod.metadata.uid, None)
            if not users:
                self._pods.pop(key, None)
