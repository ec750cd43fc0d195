"""The deployment controller: rolls out changes of the pod template from old replica sets to the new one.

    its replica sets: the one of the current template, and older ones
        paused, or resized   --> all are scaled in proportion
        Recreate             --> the old ones are scaled to 0, then the new one is scaled up
        RollingUpdate        --> the new one is scaled up, the old ones are scaled down
    --> cleanup of the history, conditions and status

The decisions are pure; times are Unix time. A plan contains changed copies of the replica sets.

Revisions: the name of a replica set contains a hash of its template, which is also a label of the replica set and its pods. The
replica set of the current template has the highest revision. To roll back, set the deployment's template to the template of an
older replica set.

Guarantee of a rolling update: at most maxUnavailable of spec.replicas become unavailable, and at most maxSurge pods exist
beyond spec.replicas, even if the status of replica sets is outdated. Unlike in Kubernetes, terminating pods are
unavailable but count as existing, and nothing is scaled until every replica set has observed its current size.

    Progressing:  NewReplicaSetCreated, FoundNewReplicaSet, ReplicaSetUpdated --> NewReplicaSetAvailable   it is complete
                        |                                      '--progressDeadlineSeconds--> ProgressDeadlineExceeded (False)
                        '-- DeploymentPaused, DeploymentResumed (Unknown)

Source: https://kubernetes.io/docs/concepts/workloads/controllers/deployment/, and pkg/controller/deployment of Kubernetes.
"""

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pinnace.api import conditions
from pinnace.api.apps_v1_pb2 import Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet
from pinnace.api.core_v1_pb2 import Pod, PodTemplateSpec
from pinnace.api.integers import parse_natural
from pinnace.api.pods import ended
from pinnace.api.quantities import semantically_equal
from pinnace.api.resources import DEPLOYMENTS, PODS, REPLICA_SETS, store_key
from pinnace.api.rollouts import (
    DESIRED_ANNOTATION,
    HASH_LABEL,
    HISTORY_ANNOTATION,
    MAX_ANNOTATION,
    OWN_ANNOTATIONS,
    REVISION_ANNOTATION,
    revision,
    without_hash_label,
)
from pinnace.api.scalars import MAX_INT32, to_seconds, to_time
from pinnace.api.selectors import from_message
from pinnace.api.verbs_pb2 import DELETED
from pinnace.client.errors import AlreadyExists, ApiError, Conflict, NotFound, OutcomeUnknown
from pinnace.client.informer import Delta
from pinnace.client.workqueue import MAX_BACKOFF
from pinnace.controllers.ownership import ControllerRefManager, controller_key, new_controller_ref, owner_key
from pinnace.controllers.runtime import (
    ControllerContext,
    PartialSyncError,
    WatchedResource,
    get_controller_of,
    key_of_object,
    keys_of_controller,
    scaled_value,
)
from pinnace.controllers.writes import Expectations

Sizes = dict[str, int]
"""The new spec.replicas by name of the replica set."""


def resolve_rolling_update_bounds(deployment: Deployment) -> tuple[int, int]:
    """Return maxSurge, rounded up, and maxUnavailable, rounded down. At least one is not 0, unless spec.replicas is 0."""
    spec = deployment.spec
    if spec.strategy.type != "RollingUpdate":
        return 0, 0
    surge = scaled_value(spec.strategy.rollingUpdate.maxSurge, spec.replicas, up=True)
    unavailable = scaled_value(spec.strategy.rollingUpdate.maxUnavailable, spec.replicas, up=False)
    return surge, min(unavailable if surge or unavailable else 1, spec.replicas)


def max_pods(deployment: Deployment) -> int:
    """Return the maximum number of concurrent pods, limited to the range of int32."""
    return min(MAX_INT32, deployment.spec.replicas + resolve_rolling_update_bounds(deployment)[0])


def total_size(sets: Iterable[ReplicaSet]) -> int:
    return sum(replica_set.spec.replicas for replica_set in sets)


def available_replicas(each: ReplicaSet) -> int:
    return min(each.status.availableReplicas, each.spec.replicas)


def is_status_outdated(each: ReplicaSet) -> bool:
    """Return True if the replica set has not observed its current generation."""
    return each.status.observedGeneration < each.metadata.generation


def creatable_pods(deployment: Deployment, sets: Iterable[ReplicaSet]) -> int:
    """Return the number of pods that may be created in addition to the existing pods, or 0 while a replica set lags."""
    there = 0
    for replica_set in sets:
        if is_status_outdated(replica_set):
            return 0
        there += max(replica_set.spec.replicas, replica_set.status.replicas)
    return max(0, max_pods(deployment) - there)


def sort_oldest_first(sets: Iterable[ReplicaSet]) -> list[ReplicaSet]:
    return sorted(sets, key=lambda replica_set: (to_seconds(replica_set.metadata.creationTimestamp), replica_set.metadata.name))


def new_replica_set_size(deployment: Deployment, size: int, sets: Iterable[ReplicaSet]) -> int:
    """Return the size of the new replica set, which has `size` now. `sets` has the existing replica sets."""
    wanted = deployment.spec.replicas
    if deployment.spec.strategy.type != "RollingUpdate" or size > wanted:
        return wanted
    return size + min(creatable_pods(deployment, sets), wanted - size)


def plan_rollout_step(deployment: Deployment, new: ReplicaSet, old: Sequence[ReplicaSet]) -> Sizes:
    """Return the sizes to change now: the new replica set if it can be scaled, otherwise the old ones."""
    size = new_replica_set_size(deployment, new.spec.replicas, (new, *old))
    if size != new.spec.replicas:
        return {new.metadata.name: size}
    return _scale_down_old(deployment, new, old)


def _scale_down_old(deployment: Deployment, new: ReplicaSet, old: Sequence[ReplicaSet]) -> Sizes:
    """Scale down unavailable pods of old replica sets first, and then pods that available new pods replace."""
    if any(map(is_status_outdated, (new, *old))):
        return {}
    minimum = deployment.spec.replicas - resolve_rolling_update_bounds(deployment)[1]
    spare = total_size((new, *old)) - minimum - (new.spec.replicas - available_replicas(new))
    if spare <= 0:
        return {}
    sizes = {replica_set.metadata.name: replica_set.spec.replicas for replica_set in old}
    for replica_set in sort_oldest_first(old):
        sick = min(spare, replica_set.spec.replicas - available_replicas(replica_set))
        sizes[replica_set.metadata.name] -= sick
        spare -= sick
    spare = sum(map(available_replicas, (new, *old))) - minimum
    for replica_set in sort_oldest_first(old):
        well = max(0, min(spare, sizes[replica_set.metadata.name]))
        sizes[replica_set.metadata.name] -= well
        spare -= well
    return {
        replica_set.metadata.name: sizes[replica_set.metadata.name]
        for replica_set in old
        if sizes[replica_set.metadata.name] != replica_set.spec.replicas
    }


MAX_HISTORY = 2_000
"""Maximum length of HISTORY_ANNOTATION in characters. Source: maxRevHistoryLengthInChars in
https://github.com/kubernetes/kubernetes/blob/master/pkg/controller/deployment/sync.go"""
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Kubernetes' alphabet for generated names, which forms no words."""
_LENGTH = 10


def compute_template_hash(template: PodTemplateSpec, collisions: int) -> str:
    """Return the hash of the template. `collisions` is the number of earlier name collisions."""
    digest = hashlib.blake2b(template.SerializeToString(deterministic=True), digest_size=_LENGTH)
    if collisions:
        digest.update(str(collisions).encode())
    return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in digest.digest())


def split_replica_sets(deployment: Deployment, sets: Iterable[ReplicaSet]) -> tuple[ReplicaSet | None, list[ReplicaSet]]:
    """Return the replica set of the current template, the oldest if there are several, and all others."""
    ordered = sort_oldest_first(sets)
    wanted = without_hash_label(deployment.spec.template)
    new = next(
        (replica_set for replica_set in ordered if semantically_equal(without_hash_label(replica_set.spec.template), wanted)),
        None,
    )
    return new, [replica_set for replica_set in ordered if replica_set is not new]


def build_replica_set(deployment: Deployment, size: int, old: Sequence[ReplicaSet]) -> ReplicaSet:
    """Return the replica set to create for the current template."""
    spec, metadata = deployment.spec, deployment.metadata
    template = without_hash_label(spec.template)
    hash_ = compute_template_hash(template, deployment.status.collisionCount)
    new = ReplicaSet()
    new.metadata.name, new.metadata.namespace = f"{metadata.name}-{hash_}", metadata.namespace
    new.metadata.ownerReferences.append(new_controller_ref(DEPLOYMENTS, deployment))
    new.spec.template.CopyFrom(template)
    new.spec.template.metadata.labels[HASH_LABEL] = hash_
    new.metadata.labels.update(new.spec.template.metadata.labels)
    new.spec.selector.CopyFrom(spec.selector)
    new.spec.selector.matchLabels[HASH_LABEL] = hash_
    copy_deployment_metadata(new, deployment, old)
    set_replica_set_size(new, deployment, size)
    return new


def copy_deployment_metadata(new: ReplicaSet, deployment: Deployment, old: Sequence[ReplicaSet]) -> None:
    """Copy annotations and minReadySeconds from the deployment, and set the highest revision."""
    new.spec.minReadySeconds = deployment.spec.minReadySeconds
    annotations = new.metadata.annotations
    annotations.update({key: value for key, value in deployment.metadata.annotations.items() if key not in OWN_ANNOTATIONS})
    before = revision(annotations)
    wanted = 1 + max((revision(replica_set.metadata.annotations) for replica_set in old), default=0)
    if before < wanted:
        if before:
            annotations[HISTORY_ANNOTATION] = _append_revision(annotations.get(HISTORY_ANNOTATION, ""), before)
        annotations[REVISION_ANNOTATION] = str(wanted)


def _append_revision(earlier: str, latest: int) -> str:
    """Return the list of revisions without the oldest revisions beyond the maximum length."""
    history = f"{earlier},{latest}" if earlier else str(latest)
    return history if len(history) <= MAX_HISTORY else history[-MAX_HISTORY - 1 :].partition(",")[2]


def set_replica_set_size(replica_set: ReplicaSet, deployment: Deployment, size: int) -> None:
    """Set the size, and the annotations with the size of the deployment."""
    replica_set.spec.replicas = size
    annotations = replica_set.metadata.annotations
    annotations[DESIRED_ANNOTATION], annotations[MAX_ANNOTATION] = str(deployment.spec.replicas), str(max_pods(deployment))


def replica_sets_beyond_history(deployment: Deployment, old: Sequence[ReplicaSet]) -> list[ReplicaSet]:
    """Return the old replica sets beyond revisionHistoryLimit, the lowest revisions first, if they are known to have no
    pods."""
    there = [replica_set for replica_set in old if not replica_set.metadata.HasField("deletionTimestamp")]
    surplus = max(0, len(there) - deployment.spec.revisionHistoryLimit)
    lowest = sorted(there, key=lambda replica_set: revision(replica_set.metadata.annotations))[:surplus]
    return [
        replica_set
        for replica_set in lowest
        if not (replica_set.spec.replicas or replica_set.status.replicas or is_status_outdated(replica_set))
    ]


def read_size_annotation(replica_set: ReplicaSet, annotation: str) -> int | None:
    """Return the number in one of the size annotations, or None if it is missing or invalid."""
    return parse_natural(replica_set.metadata.annotations.get(annotation, ""))


def is_scaling_event(deployment: Deployment, sets: Sequence[ReplicaSet]) -> bool:
    """Return True if the deployment's size has changed since its replica sets were scaled."""
    sizes = [read_size_annotation(replica_set, DESIRED_ANNOTATION) for replica_set in sets if replica_set.spec.replicas]
    return any(size is not None and size != deployment.spec.replicas for size in sizes)


def scale_proportionally(deployment: Deployment, new: ReplicaSet | None, old: Sequence[ReplicaSet]) -> Sizes:
    """Return the proportional sizes of all replica sets with pods, including unchanged sizes to renew their annotations."""
    wanted = deployment.spec.replicas
    active = [replica_set for replica_set in (*old, *([new] if new is not None else [])) if replica_set.spec.replicas]
    if len(active) <= 1:
        latest = active[0] if active else new if new is not None else sort_oldest_first(old)[-1] if old else None
        return {latest.metadata.name: wanted} if latest is not None else {}
    if new is not None and _is_saturated(deployment, new):
        return {replica_set.metadata.name: 0 for replica_set in old if replica_set.spec.replicas}
    if deployment.spec.strategy.type != "RollingUpdate":
        return {replica_set.metadata.name: replica_set.spec.replicas for replica_set in active}
    return _proportional_sizes(deployment, active)


def _proportional_sizes(deployment: Deployment, active: Sequence[ReplicaSet]) -> Sizes:
    """Scale the replica sets in proportion. The largest takes the rounding difference.

    Of equal sizes, the newest is first when scaling up, and the oldest when scaling down.
    """
    room = max_pods(deployment) if deployment.spec.replicas else 0
    change = room - total_size(active)
    sign = -1 if change > 0 else 1
    ordered = sorted(
        active, key=lambda replica_set: (-replica_set.spec.replicas, sign * to_seconds(replica_set.metadata.creationTimestamp))
    )
    sizes, done = dict[str, int](), 0
    for replica_set in ordered:
        share = _proportional_change(deployment, replica_set, room)
        part = min(share, change - done) if change > 0 else min(0, max(share, change - done))
        sizes[replica_set.metadata.name] = replica_set.spec.replicas + part
        done += part
    largest = ordered[0].metadata.name
    sizes[largest] = max(0, sizes[largest] + change - done)
    return sizes


def _proportional_change(deployment: Deployment, each: ReplicaSet, room: int) -> int:
    """Return the change of the replica set's size in proportion to the deployment."""
    before = read_size_annotation(each, MAX_ANNOTATION) or deployment.status.replicas
    if not deployment.spec.replicas:
        return -each.spec.replicas
    return math.floor(each.spec.replicas * room / before + 0.5) - each.spec.replicas if before else 0


def _is_saturated(deployment: Deployment, new: ReplicaSet) -> bool:
    wanted = deployment.spec.replicas
    return new.spec.replicas == new.status.availableReplicas == read_size_annotation(new, DESIRED_ANNOTATION) == wanted


AVAILABLE, PROGRESSING, FAILURE = "Available", "Progressing", "ReplicaFailure"
COMPLETE, EXCEEDED, PAUSED = "NewReplicaSetAvailable", "ProgressDeadlineExceeded", "DeploymentPaused"


def find_condition(status: DeploymentStatus, type_: str) -> DeploymentCondition | None:
    return conditions.find_condition(status.conditions, type_)


def set_condition(
    status: DeploymentStatus, type_: str, value: str, reason: str, message: str, now: float, *, renew: bool = False
) -> None:
    """Set a condition. A condition with the same status and reason is unchanged, except that `renew` updates its time."""
    old = find_condition(status, type_)
    if old is not None and (old.status, old.reason) == (value, reason) and not renew:
        return
    said = conditions.set_condition(status.conditions, type_, value, reason, message, now)
    said.lastUpdateTime.CopyFrom(to_time(now))


def remove_condition(status: DeploymentStatus, type_: str) -> None:
    if (said := find_condition(status, type_)) is not None:
        status.conditions.remove(said)


def calculate_status(deployment: Deployment, new: ReplicaSet | None, old: Sequence[ReplicaSet], now: float) -> DeploymentStatus:
    """Return the current status with updated counts and the condition Available."""
    sets = (*old, *([new] if new is not None else []))
    status = DeploymentStatus()
    status.CopyFrom(deployment.status)
    status.observedGeneration = deployment.metadata.generation
    status.replicas = _sum_int32(replica_set.status.replicas for replica_set in sets)
    status.updatedReplicas = new.status.replicas if new is not None else 0
    status.readyReplicas = _sum_int32(replica_set.status.readyReplicas for replica_set in sets)
    status.availableReplicas = _sum_int32(replica_set.status.availableReplicas for replica_set in sets)
    status.unavailableReplicas = min(MAX_INT32, max(0, total_size(sets) - status.availableReplicas))
    status.terminatingReplicas = _sum_int32(replica_set.status.terminatingReplicas for replica_set in sets)
    if status.availableReplicas >= deployment.spec.replicas - resolve_rolling_update_bounds(deployment)[1]:
        text = "Deployment has minimum availability."
        set_condition(status, AVAILABLE, "True", "MinimumReplicasAvailable", text, now)
    else:
        text = "Deployment does not have minimum availability."
        set_condition(status, AVAILABLE, "False", "MinimumReplicasUnavailable", text, now)
    return status


def _sum_int32(numbers: Iterable[int]) -> int:
    """Return the sum, limited to the range of int32 because replica sets can report any counts."""
    return min(MAX_INT32, sum(numbers))


def has_progress_deadline(deployment: Deployment) -> bool:
    spec = deployment.spec
    return spec.HasField("progressDeadlineSeconds") and spec.progressDeadlineSeconds != MAX_INT32


def update_paused_condition(deployment: Deployment, status: DeploymentStatus, now: float) -> None:
    """Exclude the time during which the deployment is paused from its deadline. A missed deadline stays missed."""
    said = find_condition(status, PROGRESSING)
    reason = said.reason if said is not None else ""
    if not has_progress_deadline(deployment) or reason == EXCEEDED:
        return
    if deployment.spec.paused and reason != PAUSED:
        set_condition(status, PROGRESSING, "Unknown", PAUSED, "Deployment is paused", now)
    elif not deployment.spec.paused and reason == PAUSED:
        set_condition(status, PROGRESSING, "Unknown", "DeploymentResumed", "Deployment is resumed", now)


def is_deployment_complete(deployment: Deployment, status: DeploymentStatus) -> bool:
    wanted = deployment.spec.replicas
    return (
        status.updatedReplicas == status.replicas == status.availableReplicas == wanted
        and status.observedGeneration >= deployment.metadata.generation
    )


def update_rollout_conditions(
    deployment: Deployment, status: DeploymentStatus, new: ReplicaSet | None, old: Sequence[ReplicaSet], now: float
) -> None:
    """Update the conditions of the rollout by the changes of `status` since the deployment's own status.

    Of several failures, the failure of the new replica set is reported.
    """
    if not has_progress_deadline(deployment):
        remove_condition(status, PROGRESSING)
    else:
        _update_progress(deployment, status, new, now)
    sets = (*([new] if new is not None else []), *old)
    failure = conditions.find_condition((item for one in sets for item in one.status.conditions), FAILURE)
    if failure is not None:
        set_condition(status, FAILURE, failure.status, failure.reason, failure.message, now)
    else:
        remove_condition(status, FAILURE)


def _update_progress(deployment: Deployment, status: DeploymentStatus, new: ReplicaSet | None, now: float) -> None:
    said = find_condition(status, PROGRESSING)
    if status.replicas == status.updatedReplicas and said is not None and said.reason == COMPLETE:
        return
    name = f'ReplicaSet "{new.metadata.name}"' if new is not None else f'Deployment "{deployment.metadata.name}"'
    if is_deployment_complete(deployment, status):
        set_condition(status, PROGRESSING, "True", COMPLETE, f"{name} has successfully progressed.", now)
    elif _has_progressed(status, deployment.status):
        set_condition(status, PROGRESSING, "True", "ReplicaSetUpdated", f"{name} is progressing.", now, renew=True)
    elif (left := seconds_until_deadline(deployment, status, now)) is not None and left < 0:
        set_condition(status, PROGRESSING, "False", EXCEEDED, f"{name} has timed out progressing.", now)


def _has_progressed(new: DeploymentStatus, old: DeploymentStatus) -> bool:
    return (
        new.updatedReplicas > old.updatedReplicas
        or new.replicas - new.updatedReplicas < old.replicas - old.updatedReplicas
        or new.readyReplicas > old.readyReplicas
        or new.availableReplicas > old.availableReplicas
    )


def seconds_until_deadline(deployment: Deployment, status: DeploymentStatus, now: float) -> float | None:
    """Return the seconds until the progress deadline, or None if no progress is required or the failure is already reported."""
    said = find_condition(status, PROGRESSING)
    if said is None or said.reason in (COMPLETE, EXCEEDED, PAUSED) or not has_progress_deadline(deployment):
        return None
    if is_deployment_complete(deployment, status):
        return None
    return to_seconds(said.lastUpdateTime) + deployment.spec.progressDeadlineSeconds - now


@dataclass(slots=True)
class DeploymentPlan:
    status: DeploymentStatus
    create: ReplicaSet | None = None
    update: list[tuple[ReplicaSet, ReplicaSet]] = field(default_factory=list)
    """Pairs of the current and the changed replica set."""
    delete: list[ReplicaSet] = field(default_factory=list)
    revision: str = ""
    """The new revision of the deployment, or empty if it is unchanged."""


def plan_deployment_sync(deployment: Deployment, sets: Sequence[ReplicaSet], lingering: bool, now: float) -> DeploymentPlan:
    """Plan one sync. `sets` are the deployment's replica sets. `lingering` is True if pods of old templates exist.

    `now` is Unix time.
    """
    new, old = split_replica_sets(deployment, sets)
    if deployment.metadata.HasField("deletionTimestamp"):
        return DeploymentPlan(calculate_status(deployment, new, old, now))
    scaling_only = deployment.spec.paused or is_scaling_event(deployment, sets)
    create = None
    if new is None and not scaling_only and (deployment.spec.strategy.type != "Recreate" or _are_scaled_down(old, lingering)):
        create = new = build_replica_set(deployment, new_replica_set_size(deployment, 0, old), old)
    sizes = scale_proportionally(deployment, new, old) if scaling_only else _plan_sizes(deployment, new, old, lingering)
    changed = {
        replica_set.metadata.name: _updated_replica_set(replica_set, deployment, new, old, sizes) for replica_set in sets
    }
    made = DeploymentPlan(
        DeploymentStatus(), create, [(replica_set, changed[replica_set.metadata.name]) for replica_set in sets]
    )
    made.update = [(before, after) for before, after in made.update if before != after]
    if new is not None:
        new = changed.get(new.metadata.name, new)
        own = new.metadata.annotations.get(REVISION_ANNOTATION, "")
        made.revision = own if own != deployment.metadata.annotations.get(REVISION_ANNOTATION, "") else ""
    old = [changed[replica_set.metadata.name] for replica_set in old]
    made.status = _plan_status(deployment, new, old, create, scaling_only, now)
    if deployment.spec.paused or is_deployment_complete(deployment, made.status):
        made.delete = replica_sets_beyond_history(deployment, old)
    return made


def _plan_sizes(deployment: Deployment, new: ReplicaSet | None, old: Sequence[ReplicaSet], lingering: bool) -> Sizes:
    if deployment.spec.strategy.type == "RollingUpdate":
        return plan_rollout_step(deployment, new, old) if new is not None else {}
    if active := [replica_set for replica_set in old if replica_set.spec.replicas]:
        return {replica_set.metadata.name: 0 for replica_set in active}
    return {new.metadata.name: deployment.spec.replicas} if new is not None and _are_scaled_down(old, lingering) else {}


def _are_scaled_down(old: Sequence[ReplicaSet], lingering: bool) -> bool:
    return not lingering and not any(replica_set.spec.replicas or replica_set.status.replicas for replica_set in old)


def _updated_replica_set(
    each: ReplicaSet, deployment: Deployment, new: ReplicaSet | None, old: Sequence[ReplicaSet], sizes: Sizes
) -> ReplicaSet:
    changed = ReplicaSet()
    changed.CopyFrom(each)
    if each is new:
        copy_deployment_metadata(changed, deployment, old)
    if (size := sizes.get(each.metadata.name)) is not None:
        set_replica_set_size(changed, deployment, size)
    return changed


def _plan_status(
    deployment: Deployment,
    new: ReplicaSet | None,
    old: Sequence[ReplicaSet],
    create: ReplicaSet | None,
    scaling_only: bool,
    now: float,
) -> DeploymentStatus:
    said = calculate_status(deployment, new, old, now)
    update_paused_condition(deployment, said, now)
    if new is not None and has_progress_deadline(deployment):
        name = new.metadata.name
        if create is not None:
            text = f'Created new replica set "{name}"'
            set_condition(said, PROGRESSING, "True", "NewReplicaSetCreated", text, now)
        elif find_condition(said, PROGRESSING) is None:
            text = f'Found new replica set "{name}"'
            set_condition(said, PROGRESSING, "True", "FoundNewReplicaSet", text, now)
    if not scaling_only:
        update_rollout_conditions(deployment, said, new, old, now)
    return said


_LATER = 1.0
"""Seconds after a deadline at which the key is synced, because times in a status are whole seconds."""


class DeploymentController:
    name = "deployment"
    workers = 16
    max_backoff = MAX_BACKOFF

    def __init__(self, shared: ControllerContext) -> None:
        informers = shared.informers
        self._client = shared.client.of(DEPLOYMENTS)
        self._sets_client = shared.client.of(REPLICA_SETS)
        self._events = shared.events
        self._clock = shared.clock
        self._deployments = informers.store(DEPLOYMENTS)
        self._sets = informers.store(REPLICA_SETS)
        self._pods = informers.index(PODS, controller_key)
        self._expectations = Expectations(informers)
        self._claimer = ControllerRefManager(shared, DEPLOYMENTS, REPLICA_SETS, self._expectations)

    @property
    def watches(self) -> Sequence[WatchedResource[Any]]:
        return (
            WatchedResource(DEPLOYMENTS, key_of_object),
            WatchedResource(REPLICA_SETS, self._keys_of_replica_set),
            WatchedResource(PODS, self._keys_of_pod),
        )

    async def sync(self, key: str) -> float | None:
        await self._expectations.wait_until_met(key)
        deployment = self._deployments.get(key)
        if deployment is None:
            self._claimer.forget_owner(key)
            return None
        again: float | None = None
        try:
            sets = await self._claimer.claim_objects(key, deployment, from_message(deployment.spec.selector))
            now = self._clock.time()
            wanted = plan_deployment_sync(deployment, sets, self._has_old_pods(deployment, sets), now)
            left = seconds_until_deadline(deployment, wanted.status, now)
            again = max(0.0, left) + _LATER if left is not None else None
            await self._execute_plan(key, deployment, wanted)
        except NotFound:
            return None
        except ApiError as error:
            raise PartialSyncError(error, again) from error
        return again

    async def _execute_plan(self, key: str, deployment: Deployment, wanted: DeploymentPlan) -> None:
        if wanted.create is not None:
            await self._create_replica_set(key, deployment, wanted.create)
        try:
            latest = await self._write_changes(key, deployment, wanted)
        except (NotFound, Conflict):  # the objects have changed; the next sync reads them again
            raise
        except ApiError:
            await self._write_status(key, deployment, wanted.status)
            raise
        await self._write_status(key, latest, wanted.status)

    async def _create_replica_set(self, key: str, deployment: Deployment, new: ReplicaSet) -> None:
        name = new.metadata.name
        try:
            stored = await self._sets_client.create(new)
        except AlreadyExists:
            await self._resolve_name_collision(key, deployment, new)
            raise
        except OutcomeUnknown:
            await self._expectations.expect_lost_write(key, self._sets_client)
            raise
        except ApiError as error:
            if error.reason != "NamespaceTerminating":
                await self._report_failed_create(key, deployment, f'Failed to create new replica set "{name}": {error.message}')
            raise
        self._expectations.expect_version(key, REPLICA_SETS, stored.metadata.resourceVersion)
        self._record_scaling_event(deployment, name, 0, new.spec.replicas)

    async def _resolve_name_collision(self, key: str, deployment: Deployment, new: ReplicaSet) -> None:
        """Handle a name that is already in use: by this deployment, or by an object with another template.

        In the second case the collision count of the deployment changes the next name.
        """
        metadata = new.metadata
        replica_set = await self._sets_client.get(metadata.name, metadata.namespace)
        reference = get_controller_of(replica_set)
        owned = reference is not None and reference.uid == deployment.metadata.uid
        if owned and semantically_equal(without_hash_label(replica_set.spec.template), without_hash_label(new.spec.template)):
            self._expectations.expect_version(key, REPLICA_SETS, replica_set.metadata.resourceVersion)
            return
        status = DeploymentStatus()
        status.CopyFrom(deployment.status)
        status.collisionCount += 1
        await self._write_status(key, deployment, status)

    async def _report_failed_create(self, key: str, deployment: Deployment, why: str) -> None:
        self._events.event(deployment, "Warning", "ReplicaSetCreateError", why)
        if has_progress_deadline(deployment):
            status = DeploymentStatus()
            status.CopyFrom(deployment.status)
            set_condition(status, PROGRESSING, "False", "ReplicaSetCreateError", why, self._clock.time())
            await self._write_status(key, deployment, status)

    async def _write_changes(self, key: str, deployment: Deployment, wanted: DeploymentPlan) -> Deployment:
        """Write the planned changes. Return the stored deployment with its old status."""
        for before, after in wanted.update:
            stored = await self._sets_client.update(after)
            self._expectations.expect_version(key, REPLICA_SETS, stored.metadata.resourceVersion)
            self._record_scaling_event(deployment, after.metadata.name, before.spec.replicas, after.spec.replicas)
        for replica_set in wanted.delete:
            metadata = replica_set.metadata
            try:
                await self._sets_client.delete(
                    metadata.name, metadata.namespace, uid=metadata.uid, resource_version=metadata.resourceVersion
                )
            except NotFound:
                continue
        if wanted.revision:
            changed = Deployment()
            changed.CopyFrom(deployment)
            changed.metadata.annotations[REVISION_ANNOTATION] = wanted.revision
            deployment = await self._client.update(changed)
            self._expectations.expect_version(key, DEPLOYMENTS, deployment.metadata.resourceVersion)
        return deployment

    async def _write_status(self, key: str, deployment: Deployment, status: DeploymentStatus) -> None:
        if status != deployment.status:
            changed = Deployment(metadata=deployment.metadata, spec=deployment.spec, status=status)
            stored = await self._client.update_status(changed)
            self._expectations.expect_version(key, DEPLOYMENTS, stored.metadata.resourceVersion)

    def _record_scaling_event(self, deployment: Deployment, name: str, before: int, after: int) -> None:
        if before != after:
            direction = "up" if after > before else "down"
            text = f"Scaled {direction} replica set {name} from {before} to {after}"
            self._events.event(deployment, "Normal", "ScalingReplicaSet", text)

    def _has_old_pods(self, deployment: Deployment, sets: Iterable[ReplicaSet]) -> bool:
        """Return True if pods of old templates exist. Only Recreate waits for them."""
        if deployment.spec.strategy.type != "Recreate":
            return False
        _, old = split_replica_sets(deployment, sets)
        return any(not ended(pod) for replica_set in old for pod in self._pods.under(owner_key(replica_set)).values())

    def _keys_of_replica_set(self, delta: Delta[ReplicaSet]) -> Iterable[str]:
        """Return the deployment of the replica set, or the deployments that would adopt it."""
        yield from keys_of_controller(DEPLOYMENTS)(delta)
        metadata = delta.obj.metadata
        if delta.kind != DELETED and get_controller_of(delta.obj) is None:
            for deployment in self._deployments.values():
                selected = from_message(deployment.spec.selector).matches(metadata.labels)
                if deployment.metadata.namespace == metadata.namespace and selected:
                    yield store_key(deployment)

    def _keys_of_pod(self, delta: Delta[Pod]) -> Iterable[str]:
        """Return the deployment of a deleted or terminated pod, which can be the last pod that Recreate waits for."""
        if delta.kind != DELETED and not ended(delta.obj):
            return
        for key in keys_of_controller(REPLICA_SETS)(delta):
            if (replica_set := self._sets.get(key)) is not None:
                yield from keys_of_controller(DEPLOYMENTS)(Delta(delta.kind, replica_set, None))
