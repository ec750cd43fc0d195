"""The replica set controller: maintains spec.replicas pods. The decisions are pure; times are Unix time.

    claim its pods --> the number to create, or the pods to delete --> status

Source: https://kubernetes.io/docs/concepts/workloads/controllers/replicaset/
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pinnace.api import conditions
from pinnace.api.apps_v1_pb2 import ReplicaSet, ReplicaSetStatus
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import PODS, REPLICA_SETS, RESOURCE_QUOTAS, store_key
from pinnace.api.selectors import LabelSelector, from_message
from pinnace.api.verbs_pb2 import DELETED
from pinnace.client.errors import ApiError, NotFound
from pinnace.client.informer import Delta
from pinnace.client.workqueue import MAX_BACKOFF
from pinnace.controllers.ownership import ControllerRefManager, controller_key, owner_key
from pinnace.controllers.podcontrol import BURST, PodControl, build_pod_from_template, keys_lacking_quota, select_pods_to_delete
from pinnace.controllers.pods import PodProperties, is_pod_active, object_namespace, pod_available_in
from pinnace.controllers.runtime import (
    ControllerContext,
    PartialSyncError,
    WatchedResource,
    get_controller_of,
    key_of_object,
    keys_of_controller,
)
from pinnace.controllers.writes import Expectations
from pinnace.runtime.backoff import exponential_delay

AT_ONCE = 2
"""Number of immediate replacements per replica if its pods fail."""
BACKOFF, BACKOFF_MAX = 1.0, 300.0
"""Minimum and maximum seconds before further replacements. The delay doubles with each round."""
MEMORY = 600.0
"""Seconds for which a failed pod counts."""
SKEW = 60.0
"""Tolerated clock skew, in seconds. Pods with a later creation time are ignored, because their age is unknown."""


@dataclass(frozen=True, slots=True)
class ReplicaSetPlan:
    """The pods to create, or the pods to delete. `wait` is the delay until a creation is due, in seconds."""

    create: int = 0
    delete: Sequence[Pod] = field(default_factory=tuple)
    wait: float | None = None


def plan_replica_set_sync(
    replica_set: ReplicaSet, pods: Sequence[PodProperties], related: Iterable[PodProperties], now: float
) -> ReplicaSetPlan:
    """Plan one sync. `pods` are the replica set's own pods. `related` is as in victims. `now` is Unix time.

    Failed pods are replaced and left to the pod garbage collector. If pods fail repeatedly, they are replaced with
    increasing delays. Kubernetes does not wait: if a kubelet rejects the pods that the scheduler assigns, it creates
    thousands of pods (https://github.com/kubernetes/kubernetes/issues/108152).
    """
    if replica_set.metadata.HasField("deletionTimestamp"):
        return ReplicaSetPlan()
    there = [pod for pod in pods if pod.active]
    lacking = replica_set.spec.replicas - len(there)
    if lacking < 0:
        return ReplicaSetPlan(delete=select_pods_to_delete(there, min(-lacking, BURST), related, now))
    wait = seconds_until_creation(replica_set.spec.replicas, pods, now) if lacking else 0.0
    return ReplicaSetPlan(wait=wait) if wait else ReplicaSetPlan(create=min(lacking, BURST))


def seconds_until_creation(replicas: int, pods: Iterable[PodProperties], now: float) -> float:
    """Return the seconds until failed pods may be replaced."""
    recent = [pod.created for pod in pods if pod.phase == "Failed" and now - MEMORY < pod.created <= now + SKEW]
    rounds = len(recent) // replicas - AT_ONCE
    if rounds < 0:
        return 0.0
    return max(0.0, max(recent) + exponential_delay(BACKOFF, BACKOFF_MAX, rounds) - now)


FAILURE = "ReplicaFailure"


@dataclass(frozen=True, slots=True)
class ReplicaFailure:
    """The condition ReplicaFailure. `reason` is FailedCreate or FailedDelete."""

    reason: str
    message: str


def seconds_until_available(replica_set: ReplicaSet, pods: Sequence[PodProperties], now: float) -> float | None:
    """Return the seconds until the next pod becomes available if its state does not change, or None."""
    patience = replica_set.spec.minReadySeconds
    return min((wait for pod in pods if pod.active and (wait := pod_available_in(pod, patience, now))), default=None)


def calculate_status(
    replica_set: ReplicaSet, pods: Sequence[PodProperties], trouble: ReplicaFailure | None, now: float
) -> ReplicaSetStatus:
    labels, patience = frozenset(replica_set.spec.template.metadata.labels.items()), replica_set.spec.minReadySeconds
    status = ReplicaSetStatus(observedGeneration=replica_set.metadata.generation)
    status.terminatingReplicas = sum(pod.terminating for pod in pods)
    there = [pod for pod in pods if pod.active]
    status.replicas = len(there)
    status.availableReplicas = sum(pod_available_in(item, patience, now) == 0 for item in there)
    status.fullyLabeledReplicas = sum(labels <= item.labels for item in there)
    status.readyReplicas = sum(item.ready for item in there)
    status.conditions.extend(replica_set.status.conditions)
    _set_failure_condition(status, trouble, now)
    return status


def _set_failure_condition(status: ReplicaSetStatus, trouble: ReplicaFailure | None, now: float) -> None:
    """Set the condition. A condition with the same reason is not changed.

    The message contains a generated pod name. To write a new message would change the replica set and cause an immediate
    sync, in an endless loop without backoff.
    """
    said = conditions.find_condition(status.conditions, FAILURE)
    if trouble is None:
        if said is not None:
            status.conditions.remove(said)
    elif said is None or (said.status, said.reason) != ("True", trouble.reason):
        conditions.set_condition(status.conditions, FAILURE, "True", trouble.reason, trouble.message, now)


def replica_set_selector(replica_set: ReplicaSet) -> LabelSelector:
    return from_message(replica_set.spec.selector)


class ReplicaSetController:
    name = "replicaset"
    workers = 16
    max_backoff = MAX_BACKOFF

    def __init__(self, shared: ControllerContext) -> None:
        informers = shared.informers
        self._client = shared.client.of(REPLICA_SETS)
        self._clock = shared.clock
        self._sets = informers.store(REPLICA_SETS)
        self._siblings = informers.index(REPLICA_SETS, controller_key)
        self._neighbours = informers.index(REPLICA_SETS, object_namespace)
        self._selecting = informers.selecting(REPLICA_SETS, replica_set_selector)
        self._pods = informers.index(PODS, controller_key)
        self._facts = shared.informers.pod_properties
        self._expectations = Expectations(informers)
        self._claimer = ControllerRefManager(shared, REPLICA_SETS, PODS, self._expectations, moves=is_pod_active)
        self._control = PodControl(shared, self._expectations)

    @property
    def watches(self) -> Sequence[WatchedResource[Any]]:
        refused = keys_lacking_quota(
            self._neighbours, lambda replica_set: replica_set.status.replicas < replica_set.spec.replicas
        )
        return (
            WatchedResource(REPLICA_SETS, key_of_object),
            WatchedResource(PODS, self._keys_of_pod),
            WatchedResource(RESOURCE_QUOTAS, refused),
        )

    async def sync(self, key: str) -> float | None:
        await self._expectations.wait_until_met(key)
        replica_set = self._sets.get(key)
        if replica_set is None:
            self._claimer.forget_owner(key)
            self._control.forget_owner(key)
            return None
        own = await self._claimer.claim_objects(key, replica_set, from_message(replica_set.spec.selector))
        pods = list(self._facts.properties_of(own))
        now = self._clock.time()
        wanted = plan_replica_set_sync(replica_set, pods, self._related_replica_sets(replica_set), now)
        again = min(
            (item for item in (seconds_until_available(replica_set, pods, now), wanted.wait) if item is not None), default=None
        )
        try:
            await self._execute_plan(key, replica_set, pods, wanted, now)
        except ApiError as error:
            raise PartialSyncError(error, again) from error
        return again

    async def _execute_plan(
        self, key: str, replica_set: ReplicaSet, pods: Sequence[PodProperties], wanted: ReplicaSetPlan, now: float
    ) -> None:
        if wanted.create:
            pod = build_pod_from_template(replica_set.spec.template, REPLICA_SETS, replica_set)
            error = await self._control.create(key, replica_set, [pod] * wanted.create)
        else:
            error = await self._control.delete(key, replica_set, wanted.delete)
        failed = (
            ReplicaFailure("FailedCreate" if wanted.create else "FailedDelete", error.message) if error is not None else None
        )
        await self._write_status(key, replica_set, calculate_status(replica_set, pods, failed, now))
        if error is not None:
            raise error

    async def _write_status(self, key: str, replica_set: ReplicaSet, status: ReplicaSetStatus) -> None:
        """Write the status for the pods in the cache. Pods that were just created or deleted are counted in the next sync."""
        if status == replica_set.status:
            return
        changed = ReplicaSet(metadata=replica_set.metadata, spec=replica_set.spec, status=status)
        try:
            stored = await self._client.update_status(changed)
        except NotFound:
            return
        self._expectations.expect_version(key, REPLICA_SETS, stored.metadata.resourceVersion)

    def _related_replica_sets(self, replica_set: ReplicaSet) -> Iterable[PodProperties]:
        """Yield the pods of all replica sets of the deployment."""
        deployment = controller_key(replica_set)
        family = self._siblings.under(deployment).values() if deployment else (replica_set,)
        for item in family:
            yield from self._facts.properties_of(self._pods.under(owner_key(item)).values())

    def _keys_of_pod(self, delta: Delta[Pod]) -> Iterable[str]:
        """Return the replica set of the pod, or the replica sets that would adopt it."""
        yield from keys_of_controller(REPLICA_SETS)(delta)
        metadata = delta.obj.metadata
        if delta.kind != DELETED and get_controller_of(delta.obj) is None:
            for replica_set in self._selecting.objects_selecting(metadata.namespace, metadata.labels):
                yield store_key(replica_set)
