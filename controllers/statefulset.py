"""The stateful set controller: pods with stable names, from SET-0 on, each with its claims. The decisions are pure; times are
Unix time.

    the revision of the template --> claims and pods, by ordinal --> status --> old revisions are deleted

    OrderedReady, one step per sync: each pod is created when all before it are available, and deleted (highest ordinal
    first) when all that remain are available. Parallel: all at once.

    then the update:  pods of other revisions are deleted, highest ordinal first, down to the partition; a deleted pod is
                      created again in the new revision
        OnDelete             no pod is deleted
        maxUnavailable unset one pod at a time; an unavailable pod of an old revision is replaced
        maxUnavailable set   as many as may be unavailable; with Parallel, first those that are unavailable

Guarantees: no two pods of an ordinal exist, because their names are equal; the claims of a pod exist before the pod; a claim
that is to be deleted with its pod names the pod as its owner before the pod is deleted. All of them hold if the controller is
stopped between any two writes, because a sync depends on stored objects only.

Kubernetes 1.36 drops maxUnavailable unless the feature gate MaxUnavailableStatefulSet is set.

Source: pkg/controller/statefulset of Kubernetes 1.36.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pinnace.api.apps_v1_pb2 import ControllerRevision, StatefulSet, StatefulSetStatus
from pinnace.api.core_v1_pb2 import PersistentVolumeClaim, Pod
from pinnace.api.resources import (
    CONTROLLER_REVISIONS,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    RESOURCE_QUOTAS,
    STATEFUL_SETS,
    store_key,
)
from pinnace.api.selectors import LabelSelector, from_message
from pinnace.api.verbs_pb2 import DELETED
from pinnace.client.errors import AlreadyExists, ApiError, Conflict, NotFound, OutcomeUnknown, conflict_error
from pinnace.client.informer import Delta
from pinnace.client.workqueue import MAX_BACKOFF
from pinnace.controllers.ownership import ControllerRefManager
from pinnace.controllers.podcontrol import BURST, MAX_EVENTS, PodControl, PodEventMessages, keys_lacking_quota
from pinnace.controllers.pods import PodProperties, object_namespace, pod_available_in
from pinnace.controllers.revisions import (
    HASH_LABEL,
    RevisionControl,
    decode_template,
    revisions_beyond_history,
    sort_revisions,
)
from pinnace.controllers.runtime import (
    ControllerContext,
    PartialSyncError,
    WatchedResource,
    get_controller_of,
    key_of_object,
    keys_of_controller,
    scaled_value,
)
from pinnace.controllers.statefulpods import (
    build_stateful_pod,
    claim_names,
    claims_of_pod,
    first_ordinal,
    has_identity,
    identified_copy,
    is_claim_stale,
    is_member,
    ordinal_of,
    owned_claim_copy,
    parse_pod_name,
    pod_name,
    pod_revision,
    set_names_of_claim,
)
from pinnace.controllers.writes import Expectations

CONCURRENT_CLAIMS = 32
"""Maximum number of claims that are written at a time."""
STALE_CLAIM_DELAY = 1.0
"""Seconds until the next attempt if a claim is not deleted yet. Its deletion causes a sync as well."""
MESSAGES = PodEventMessages(
    created="create Pod {pod} in StatefulSet {owner} successful",
    create_failed="create Pod {pod} in StatefulSet {owner} failed error: {error}",
    deleted="delete Pod {pod} in StatefulSet {owner} successful",
    delete_failed="delete Pod {pod} in StatefulSet {owner} failed error: {error}",
)
FindClaim = Callable[[str], PersistentVolumeClaim | None]
"""Returns the claim of this name in the namespace of the set."""


@dataclass(slots=True)
class StatefulSetPlan:
    """What to write, in this order. `wait` is the delay until a pod becomes available, in seconds.

    The deletions of `remove` and `replace` follow only if everything before succeeds.
    """

    restart: list[Pod] = field(default_factory=list)
    """Finished pods to delete. They are created again."""
    claims: list[PersistentVolumeClaim] = field(default_factory=list)
    """Claims of pending pods to create."""
    create: list[int] = field(default_factory=list)
    """The ordinals of pods to create."""
    identify: list[Pod] = field(default_factory=list)
    """Changed pods: their labels or volumes are not those of their ordinal."""
    own: list[PersistentVolumeClaim] = field(default_factory=list)
    """Changed claims: their owners are not those of the retention policy."""
    remove: list[Pod] = field(default_factory=list)
    """Pods beyond the replicas to delete."""
    replace: list[Pod] = field(default_factory=list)
    """Pods of old revisions to delete."""
    wait: float | None = None
    stopped: bool = False
    """Whether OrderedReady waits for a pod."""


def is_running_and_ready(pod: PodProperties) -> bool:
    return pod.phase == "Running" and pod.ready


class StatefulSetPlanner:
    """Plans one sync. `pods` are the pods of the set by ordinal. `now` is Unix time."""

    def __init__(
        self, stateful_set: StatefulSet, pods: Mapping[int, PodProperties], update_revision: str, claim: FindClaim, now: float
    ) -> None:
        self._set = stateful_set
        self._pods = pods
        self._revision = update_revision
        self._claim = claim
        self._now = now
        self._ordered = stateful_set.spec.podManagementPolicy != "Parallel"
        self._plan = StatefulSetPlan()
        first = first_ordinal(stateful_set)
        self._ordinals = range(first, first + stateful_set.spec.replicas)
        self._condemned = sorted((ordinal for ordinal in pods if ordinal not in self._ordinals), reverse=True)

    def plan(self) -> StatefulSetPlan:
        plan = self._plan
        waits = [wait for pod in self._pods.values() if (wait := self._available_in(pod))]
        plan.wait = min(waits, default=None)
        if self._set.metadata.HasField("deletionTimestamp"):
            return plan
        for ordinal in self._ordinals:
            if self._plan_replica(ordinal):
                plan.stopped = True
                return plan
        for ordinal in self._condemned:
            self._plan_claim_owners(self._pods[ordinal].pod)
        for ordinal in self._condemned:
            if self._plan_removal(self._pods[ordinal]):
                plan.stopped = True
                return plan
        if self._set.spec.updateStrategy.type == "RollingUpdate" and not plan.restart:
            self._plan_update()
        return plan

    def _available_in(self, pod: PodProperties) -> float | None:
        return pod_available_in(pod, self._set.spec.minReadySeconds, self._now)

    def _is_available(self, pod: PodProperties) -> bool:
        return self._available_in(pod) == 0

    def _is_unavailable(self, pod: PodProperties | None) -> bool:
        return pod is None or pod.deleting or not is_running_and_ready(pod) or not self._is_available(pod)

    def _plan_replica(self, ordinal: int) -> bool:
        """Plan the creation or correction of a pod. Return whether the pods after it have to wait."""
        pod = self._pods.get(ordinal)
        if pod is None:
            return self._plan_creation(ordinal)
        if pod.phase in ("Failed", "Succeeded"):
            if not pod.deleting and len(self._plan.restart) < BURST:
                self._plan.restart.append(pod.pod)
            return self._ordered
        if pod.phase == "Pending":
            missing = {name for name in claim_names(self._set, ordinal) if self._claim(name) is None}
            if missing:
                claims = claims_of_pod(self._set, ordinal)
                self._plan.claims.extend(claim for claim in claims if claim.metadata.name in missing)
        if self._ordered and (pod.deleting or not is_running_and_ready(pod) or not self._is_available(pod)):
            return True
        if not has_identity(self._set, pod.pod):
            self._plan.identify.append(identified_copy(self._set, pod.pod))
        self._plan_claim_owners(pod.pod)
        return False

    def _plan_creation(self, ordinal: int) -> bool:
        named = Pod()
        named.metadata.name = pod_name(self._set, ordinal)
        claims = map(self._claim, claim_names(self._set, ordinal))
        if any(is_claim_stale(claim, named) for claim in claims if claim is not None):
            self._plan.wait = min(STALE_CLAIM_DELAY, self._plan.wait or STALE_CLAIM_DELAY)
        elif len(self._plan.create) < BURST:
            self._plan.create.append(ordinal)
        return self._ordered

    def _plan_claim_owners(self, pod: Pod) -> None:
        """Plan the change of the owners of the claims of a pod."""
        for claim in map(self._claim, claim_names(self._set, ordinal_of(pod))):
            if claim is not None and (changed := owned_claim_copy(claim, self._set, pod)) is not None:
                self._plan.own.append(changed)

    def _plan_removal(self, pod: PodProperties) -> bool:
        """Plan the deletion of a pod beyond the replicas. Return whether the pods before it have to wait."""
        if pod.deleting:
            return self._ordered
        if self._ordered and self._is_unavailable(pod) and pod is not self._first_unavailable():
            return True
        if len(self._plan.remove) < BURST:
            self._plan.remove.append(pod.pod)
        return self._ordered

    def _first_unavailable(self) -> PodProperties | None:
        ordered = (*self._ordinals, *reversed(self._condemned))
        return next((self._pods.get(ordinal) for ordinal in ordered if self._is_unavailable(self._pods.get(ordinal))), None)

    def _plan_update(self) -> None:
        rolling = self._set.spec.updateStrategy.rollingUpdate
        targets = [self._pods.get(ordinal) for ordinal in reversed(self._ordinals[rolling.partition :])]
        if not rolling.HasField("maxUnavailable"):
            for pod in targets:
                if pod is not None and self._has_old_revision(pod):
                    self._plan.replace.append(pod.pod)
                    return
                if self._is_unavailable(pod):
                    return
            return
        most = max(1, scaled_value(rolling.maxUnavailable, self._set.spec.replicas, up=False))
        room = most - sum(self._is_unavailable(self._pods.get(ordinal)) for ordinal in self._ordinals)
        outdated = [pod for pod in targets if pod is not None and self._has_old_revision(pod)]
        if self._ordered:
            replace = outdated[: max(0, room)]
        else:
            broken = [pod for pod in outdated if self._is_unavailable(pod)]
            replace = broken + [pod for pod in outdated if pod not in broken][: max(0, room)]
        self._plan.replace.extend(pod.pod for pod in replace[:BURST])

    def _has_old_revision(self, pod: PodProperties) -> bool:
        return pod_revision(pod.pod) != self._revision and not pod.deleting


def calculate_status(
    stateful_set: StatefulSet,
    pods: Iterable[PodProperties],
    current: str,
    update: str,
    collisions: int,
    replaced: int,
    now: float,
) -> StatefulSetStatus:
    """Return the status. `current` and `update` are names of revisions; `replaced` is the number of pods that this sync deletes
    for an update. A complete rolling update makes the update revision the current one."""
    status = StatefulSetStatus(
        observedGeneration=stateful_set.metadata.generation,
        currentRevision=current,
        updateRevision=update,
        collisionCount=collisions,
    )
    spec = stateful_set.spec
    for pod in pods:
        status.replicas += 1
        if is_running_and_ready(pod):
            status.readyReplicas += 1
            status.availableReplicas += pod_available_in(pod, spec.minReadySeconds, now) == 0
        if not pod.deleting:
            revision = pod_revision(pod.pod)
            status.currentReplicas += revision == current
            status.updatedReplicas += revision == update
    status.currentReplicas = max(0, status.currentReplicas - replaced)
    complete = status.updatedReplicas == status.readyReplicas == status.replicas == spec.replicas
    if spec.updateStrategy.type == "RollingUpdate" and complete:
        status.currentReplicas, status.currentRevision = status.updatedReplicas, status.updateRevision
    return status


def stateful_set_selector(stateful_set: StatefulSet) -> LabelSelector:
    return from_message(stateful_set.spec.selector)


class StatefulSetController:
    name = "statefulset"
    workers = 8
    max_backoff = MAX_BACKOFF

    def __init__(self, shared: ControllerContext) -> None:
        informers = shared.informers
        self._client = shared.client.of(STATEFUL_SETS)
        self._pods_client = shared.client.pods
        self._claims_client = shared.client.of(PERSISTENT_VOLUME_CLAIMS)
        self._events = shared.events
        self._clock = shared.clock
        self._sets = informers.store(STATEFUL_SETS)
        self._neighbours = informers.index(STATEFUL_SETS, object_namespace)
        self._selecting = informers.selecting(STATEFUL_SETS, stateful_set_selector)
        self._claims = informers.store(PERSISTENT_VOLUME_CLAIMS)
        self._facts = informers.pod_properties
        self._expectations = Expectations(informers)
        self._claimer = ControllerRefManager(shared, STATEFUL_SETS, PODS, self._expectations, is_member=is_member)
        self._revision_claimer = ControllerRefManager(shared, STATEFUL_SETS, CONTROLLER_REVISIONS, self._expectations)
        self._revisions = RevisionControl(shared, STATEFUL_SETS, self._expectations, HASH_LABEL)
        self._control = PodControl(shared, self._expectations, MESSAGES)

    @property
    def watches(self) -> Sequence[WatchedResource[Any]]:
        refused = keys_lacking_quota(
            self._neighbours, lambda stateful_set: stateful_set.status.replicas < stateful_set.spec.replicas
        )
        return (
            WatchedResource(STATEFUL_SETS, key_of_object),
            WatchedResource(PODS, self._keys_of_pod),
            WatchedResource(PERSISTENT_VOLUME_CLAIMS, self._keys_of_claim),
            WatchedResource(RESOURCE_QUOTAS, refused),
        )

    async def sync(self, key: str) -> float | None:
        await self._expectations.wait_until_met(key)
        stateful_set = self._sets.get(key)
        if stateful_set is None:
            for forgetful in (self._claimer, self._revision_claimer, self._control):
                forgetful.forget_owner(key)
            return None
        selector, status = stateful_set_selector(stateful_set), stateful_set.status
        revisions = sort_revisions(await self._revision_claimer.claim_objects(key, stateful_set, selector))
        own = await self._claimer.claim_objects(key, stateful_set, selector)
        template = stateful_set.spec.template
        collisions = status.collisionCount
        if stateful_set.metadata.HasField("deletionTimestamp"):
            names = status.currentRevision, status.updateRevision
            update = current = None
        else:
            update, collisions = await self._revisions.ensure(key, stateful_set, template, revisions, collisions)
            current = next((item for item in revisions if item.metadata.name == status.currentRevision), update)
            names = current.metadata.name, update.metadata.name
        now = self._clock.time()
        pods = {ordinal_of(pod.pod): pod for pod in self._facts.properties_of(own)}
        plan = StatefulSetPlanner(stateful_set, pods, names[1], self._find_claim(stateful_set), now).plan()
        try:
            error = await self._execute_plan(key, stateful_set, plan, current, update)
            replaced = 0 if error is not None else len(plan.replace)
            await self._write_status(
                key, stateful_set, calculate_status(stateful_set, pods.values(), *names, collisions, replaced, now)
            )
            if update is not None:
                live = (*names, *(pod_revision(pod.pod) for pod in pods.values()))
                limit = stateful_set.spec.revisionHistoryLimit
                await self._revisions.delete(key, revisions_beyond_history(revisions, live, limit))
        except ApiError as failure:
            raise PartialSyncError(failure, plan.wait) from failure
        if error is not None:
            raise PartialSyncError(error, plan.wait)
        return plan.wait

    def _find_claim(self, stateful_set: StatefulSet) -> FindClaim:
        namespace = stateful_set.metadata.namespace
        return lambda name: self._claims.get(f"{namespace}/{name}")

    async def _execute_plan(
        self,
        key: str,
        stateful_set: StatefulSet,
        plan: StatefulSetPlan,
        current: ControllerRevision | None,
        update: ControllerRevision | None,
    ) -> ApiError | None:
        """Execute the plan until the first error, and return it."""
        error = await self._control.delete(key, stateful_set, plan.restart)
        error = error or await self._create_claims(key, stateful_set, plan.claims)
        if error is None and plan.create and current is not None and update is not None:
            error = await self._create_pods(key, stateful_set, plan.create, current, update)
        for pod in plan.identify if error is None else ():
            error = error or await self._update_pod(key, stateful_set, pod)
        for start in range(0, len(plan.own) if error is None else 0, CONCURRENT_CLAIMS):
            changed = plan.own[start : start + CONCURRENT_CLAIMS]
            errors = await asyncio.gather(*(self._update_claim(key, claim) for claim in changed))
            error = error or next(filter(None, errors), None)
        if error is None:
            error = await self._control.delete(key, stateful_set, [*plan.remove, *plan.replace])
        return error

    async def _create_pods(
        self,
        key: str,
        stateful_set: StatefulSet,
        ordinals: Sequence[int],
        current: ControllerRevision,
        update: ControllerRevision,
    ) -> ApiError | None:
        """Create the claims, and then the pods. A pod whose claims cannot be created is not created."""
        claims = [claim for ordinal in ordinals for claim in claims_of_pod(stateful_set, ordinal)]
        missing = [claim for claim in claims if self._claims.get(store_key(claim)) is None]
        for claim in claims:
            stored = self._claims.get(store_key(claim))
            if stored is not None and stored.metadata.HasField("deletionTimestamp"):
                return self._report_failed_create(stateful_set, claim, f"pvc {claim.metadata.name} is being deleted")
        if (error := await self._create_claims(key, stateful_set, missing)) is not None:
            return error
        before = decode_template(current) if current.metadata.name != update.metadata.name else None
        rolling = stateful_set.spec.updateStrategy.rollingUpdate
        pods = []
        for ordinal in ordinals:
            if before is not None and ordinal < first_ordinal(stateful_set) + rolling.partition:
                pods.append(build_stateful_pod(stateful_set, before, current.metadata.name, ordinal))
            else:
                template = stateful_set.spec.template
                pods.append(build_stateful_pod(stateful_set, template, update.metadata.name, ordinal))
        return await self._control.create(key, stateful_set, pods)

    def _report_failed_create(self, stateful_set: StatefulSet, claim: PersistentVolumeClaim, why: str) -> ApiError:
        pod = f"{stateful_set.metadata.name}-{parse_pod_name(claim.metadata.name)[1]}"
        message = MESSAGES.create_failed.format(pod=pod, owner=stateful_set.metadata.name, error=why)
        self._events.event(stateful_set, "Warning", "FailedCreate", message)
        return conflict_error(why)

    async def _create_claims(
        self, key: str, stateful_set: StatefulSet, claims: Sequence[PersistentVolumeClaim]
    ) -> ApiError | None:
        for start in range(0, len(claims), CONCURRENT_CLAIMS):
            batch = claims[start : start + CONCURRENT_CLAIMS]
            errors = await asyncio.gather(*(self._create_claim(key, claim) for claim in batch))
            for number, (claim, error) in enumerate(zip(batch, errors, strict=True)):
                name = claim.metadata.name
                pod = f"{stateful_set.metadata.name}-{parse_pod_name(name)[1]}"
                if error is not None:
                    said = f"create Claim {name} for Pod {pod} in StatefulSet {stateful_set.metadata.name} failed error: "
                    self._events.event(stateful_set, "Warning", "FailedCreate", said + error.message)
                    self._report_failed_create(stateful_set, claim, f"failed to create PVC {name}: {error.message}")
                    return error
                if number < MAX_EVENTS:
                    said = f"create Claim {name} Pod {pod} in StatefulSet {stateful_set.metadata.name} success"
                    self._events.event(stateful_set, "Normal", "SuccessfulCreate", said)
        return None

    async def _create_claim(self, key: str, claim: PersistentVolumeClaim) -> ApiError | None:
        try:
            stored = await self._claims_client.create(claim)
        except AlreadyExists:
            return None
        except OutcomeUnknown as error:
            await self._expectations.expect_lost_write(key, self._claims_client)
            return error
        except ApiError as error:
            return error
        self._expectations.expect_version(key, PERSISTENT_VOLUME_CLAIMS, stored.metadata.resourceVersion)
        return None

    async def _update_claim(self, key: str, claim: PersistentVolumeClaim) -> ApiError | None:
        try:
            stored = await self._claims_client.update(claim)
        except NotFound:
            return None
        except ApiError as error:
            return error
        self._expectations.expect_version(key, PERSISTENT_VOLUME_CLAIMS, stored.metadata.resourceVersion)
        return None

    async def _update_pod(self, key: str, stateful_set: StatefulSet, pod: Pod) -> ApiError | None:
        said = f"update Pod {pod.metadata.name} in StatefulSet {stateful_set.metadata.name}"
        try:
            stored = await self._pods_client.update(pod)
        except NotFound:
            return None
        except ApiError as error:
            if not isinstance(error, Conflict):
                self._events.event(stateful_set, "Warning", "FailedUpdate", f"{said} failed error: {error.message}")
            return error
        self._events.event(stateful_set, "Normal", "SuccessfulUpdate", f"{said} successful")
        self._expectations.expect_version(key, PODS, stored.metadata.resourceVersion)
        return None

    async def _write_status(self, key: str, stateful_set: StatefulSet, status: StatefulSetStatus) -> None:
        if status == stateful_set.status:
            return
        changed = StatefulSet(metadata=stateful_set.metadata, spec=stateful_set.spec, status=status)
        try:
            stored = await self._client.update_status(changed)
        except NotFound:
            return
        self._expectations.expect_version(key, STATEFUL_SETS, stored.metadata.resourceVersion)

    def _keys_of_pod(self, delta: Delta[Pod]) -> Iterable[str]:
        """Return the set of the pod, or the sets that would adopt it."""
        yield from keys_of_controller(STATEFUL_SETS)(delta)
        metadata = delta.obj.metadata
        if delta.kind != DELETED and get_controller_of(delta.obj) is None:
            for stateful_set in self._selecting.objects_selecting(metadata.namespace, metadata.labels):
                if is_member(stateful_set.metadata, delta.obj):
                    yield store_key(stateful_set)

    def _keys_of_claim(self, delta: Delta[PersistentVolumeClaim]) -> Iterable[str]:
        """Return the sets that may have waited for the deletion of the claim."""
        if delta.kind == DELETED:
            namespace = delta.obj.metadata.namespace
            for name in set_names_of_claim(delta.obj.metadata.name):
                if (key := f"{namespace}/{name}") in self._sets:
                    yield key
