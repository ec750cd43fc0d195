"""The deployment controller."""

from collections.abc import Iterable, Sequence
from typing import Any

from controllers.claiming import Claimer
from controllers.controller import Shared, Unfinished, Watch, controller_of, its_controller, itself
from controllers.deployments.plan import Plan, plan
from controllers.deployments.revisions import split
from controllers.deployments.status import PROGRESSING, deadline, has_deadline, say
from controllers.expectations import Expectations
from controllers.ownership import keeper, kept_by
from controllers.workqueue import MAX_BACKOFF
from pinnace.api.apps_v1_pb2 import Deployment, DeploymentStatus, ReplicaSet
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.podstatus import ended
from pinnace.api.quantities import equal
from pinnace.api.resources import DEPLOYMENTS, PODS, REPLICA_SETS, store_key
from pinnace.api.rollouts import REVISION_ANNOTATION, bare
from pinnace.api.selectors import from_message
from pinnace.api.verbs_pb2 import DELETED
from pinnace.client.errors import AlreadyExists, ApiError, Conflict, NotFound, OutcomeUnknown
from pinnace.client.informer import Delta

_LATER = 1.0
"""Seconds after a deadline at which it is looked for: times in a status are whole seconds."""


class DeploymentController:
    name = "deployment"
    workers = 16
    max_backoff = MAX_BACKOFF

    def __init__(self, shared: Shared) -> None:
        informers = shared.informers
        self._client = shared.client.of(DEPLOYMENTS)
        self._sets_client = shared.client.of(REPLICA_SETS)
        self._events = shared.events
        self._clock = shared.clock
        self._deployments = informers.store(DEPLOYMENTS)
        self._sets = informers.store(REPLICA_SETS)
        self._pods = informers.index(PODS, keeper)
        self._expectations = Expectations(informers)
        self._claimer = Claimer(shared, DEPLOYMENTS, REPLICA_SETS, self._expectations)

    @property
    def watches(self) -> Sequence[Watch[Any]]:
        return (Watch(DEPLOYMENTS, itself), Watch(REPLICA_SETS, self._of_set), Watch(PODS, self._of_pod))

    async def sync(self, key: str) -> float | None:
        await self._expectations.met(key)
        deployment = self._deployments.get(key)
        if deployment is None:
            self._claimer.forget(key)
            return None
        again: float | None = None
        try:
            sets = await self._claimer.claim(key, deployment, from_message(deployment.spec.selector))
            now = self._clock.time()
            wanted = plan(deployment, sets, self._lingering(deployment, sets), now)
            left = deadline(deployment, wanted.status, now)
            again = max(0.0, left) + _LATER if left is not None else None
            await self._carry_out(key, deployment, wanted)
        except NotFound:
            return None
        except ApiError as error:
            raise Unfinished(error, again) from error
        return again

    async def _carry_out(self, key: str, deployment: Deployment, wanted: Plan) -> None:
        if wanted.create is not None:
            await self._create(key, deployment, wanted.create)
        try:
            latest = await self._change(key, deployment, wanted)
        except (NotFound, Conflict):  # the next look is at something else
            raise
        except ApiError:
            await self._tell(key, deployment, wanted.status)
            raise
        await self._tell(key, latest, wanted.status)

    async def _create(self, key: str, deployment: Deployment, new: ReplicaSet) -> None:
        name = new.metadata.name
        try:
            stored = await self._sets_client.create(new)
        except AlreadyExists:
            await self._collide(key, deployment, new)
            raise
        except OutcomeUnknown:
            await self._expectations.lost(key, self._sets_client)
            raise
        except ApiError as error:
            if error.reason != "NamespaceTerminating":
                await self._cannot_create(key, deployment, f'Failed to create new replica set "{name}": {error.message}')
            raise
        self._expectations.wrote(key, REPLICA_SETS, stored.metadata.resourceVersion)
        self._tell_scaled(deployment, name, 0, new.spec.replicas)

    async def _collide(self, key: str, deployment: Deployment, new: ReplicaSet) -> None:
        """The name is taken: by ourselves, or by somebody with another template. The next one is named otherwise."""
        metadata = new.metadata
        found = await self._sets_client.get(metadata.name, metadata.namespace)
        reference = controller_of(found)
        owned = reference is not None and reference.uid == deployment.metadata.uid
        if owned and equal(bare(found.spec.template), bare(new.spec.template)):
            self._expectations.wrote(key, REPLICA_SETS, found.metadata.resourceVersion)
            return
        status = DeploymentStatus()
        status.CopyFrom(deployment.status)
        status.collisionCount += 1
        await self._tell(key, deployment, status)

    async def _cannot_create(self, key: str, deployment: Deployment, why: str) -> None:
        self._events.event(deployment, "Warning", "ReplicaSetCreateError", why)
        if has_deadline(deployment):
            status = DeploymentStatus()
            status.CopyFrom(deployment.status)
            say(status, PROGRESSING, "False", "ReplicaSetCreateError", why, self._clock.time())
            await self._tell(key, deployment, status)

    async def _change(self, key: str, deployment: Deployment, wanted: Plan) -> Deployment:
        """As it is stored afterwards, but for its status."""
        for before, after in wanted.update:
            stored = await self._sets_client.update(after)
            self._expectations.wrote(key, REPLICA_SETS, stored.metadata.resourceVersion)
            self._tell_scaled(deployment, after.metadata.name, before.spec.replicas, after.spec.replicas)
        for each in wanted.delete:
            metadata = each.metadata
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
            self._expectations.wrote(key, DEPLOYMENTS, deployment.metadata.resourceVersion)
        return deployment

    async def _tell(self, key: str, deployment: Deployment, status: DeploymentStatus) -> None:
        if status != deployment.status:
            changed = Deployment(metadata=deployment.metadata, spec=deployment.spec, status=status)
            stored = await self._client.update_status(changed)
            self._expectations.wrote(key, DEPLOYMENTS, stored.metadata.resourceVersion)

    def _tell_scaled(self, deployment: Deployment, name: str, before: int, after: int) -> None:
        if before != after:
            direction = "up" if after > before else "down"
            text = f"Scaled {direction} replica set {name} from {before} to {after}"
            self._events.event(deployment, "Normal", "ScalingReplicaSet", text)

    def _lingering(self, deployment: Deployment, sets: Iterable[ReplicaSet]) -> bool:
        """Do pods of old templates run, or end? Nobody but Recreate waits for them."""
        if deployment.spec.strategy.type != "Recreate":
            return False
        _, old = split(deployment, sets)
        return any(not ended(pod) for each in old for pod in self._pods.under(kept_by(each)).values())

    def _of_set(self, delta: Delta[ReplicaSet]) -> Iterable[str]:
        """Its deployment, or those that would adopt it."""
        yield from its_controller(DEPLOYMENTS)(delta)
        metadata = delta.obj.metadata
        if delta.kind != DELETED and controller_of(delta.obj) is None:
            for each in self._deployments.values():
                selected = from_message(each.spec.selector).matches(metadata.labels)
                if each.metadata.namespace == metadata.namespace and selected:
                    yield store_key(each)

    def _of_pod(self, delta: Delta[Pod]) -> Iterable[str]:
        """One that has gone or ended may be the last that a Recreate waits for."""
        if delta.kind != DELETED and not ended(delta.obj):
            return
        for key in its_controller(REPLICA_SETS)(delta):
            if (replica_set := self._sets.get(key)) is not None:
                yield from its_controller(DEPLOYMENTS)(Delta(delta.kind, replica_set, None))
