"""The replica set controller."""

from collections.abc import Iterable, Sequence
from typing import Any

from controllers.claiming import Claimer
from controllers.controller import Shared, Unfinished, Watch, controller_of, its_controller, itself
from controllers.expectations import Expectations
from controllers.ownership import keeper, kept_by
from controllers.places import namespace_of
from controllers.podcontrol import PodControl, pod_from
from controllers.podfacts import Facts
from controllers.podstates import active
from controllers.quotas import those_that_lack
from controllers.replicasets.scaling import Plan, plan
from controllers.replicasets.status import Trouble, available_in, status_of
from controllers.workqueue import MAX_BACKOFF
from pinnace.api.apps_v1_pb2 import ReplicaSet, ReplicaSetStatus
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import PODS, REPLICA_SETS, RESOURCE_QUOTAS, store_key
from pinnace.api.selectors import LabelSelector, from_message
from pinnace.api.verbs_pb2 import DELETED
from pinnace.client.errors import ApiError, NotFound
from pinnace.client.informer import Delta


def selector_of(replica_set: ReplicaSet) -> LabelSelector:
    return from_message(replica_set.spec.selector)


class ReplicaSetController:
    name = "replicaset"
    workers = 16
    max_backoff = MAX_BACKOFF

    def __init__(self, shared: Shared) -> None:
        informers = shared.informers
        self._client = shared.client.of(REPLICA_SETS)
        self._clock = shared.clock
        self._sets = informers.store(REPLICA_SETS)
        self._siblings = informers.index(REPLICA_SETS, keeper)
        self._neighbours = informers.index(REPLICA_SETS, namespace_of)
        self._selecting = informers.selecting(REPLICA_SETS, selector_of)
        self._pods = informers.index(PODS, keeper)
        self._facts = shared.informers.facts
        self._expectations = Expectations(informers)
        self._claimer = Claimer(shared, REPLICA_SETS, PODS, self._expectations, moves=active)
        self._control = PodControl(shared, self._expectations)

    @property
    def watches(self) -> Sequence[Watch[Any]]:
        refused = those_that_lack(self._neighbours, lambda each: each.status.replicas < each.spec.replicas)
        return (Watch(REPLICA_SETS, itself), Watch(PODS, self._of_pod), Watch(RESOURCE_QUOTAS, refused))

    async def sync(self, key: str) -> float | None:
        await self._expectations.met(key)
        replica_set = self._sets.get(key)
        if replica_set is None:
            self._claimer.forget(key)
            self._control.forget(key)
            return None
        own = await self._claimer.claim(key, replica_set, from_message(replica_set.spec.selector))
        pods = list(self._facts.of(own))
        now = self._clock.time()
        wanted = plan(replica_set, pods, self._related(replica_set), now)
        again = min((each for each in (available_in(replica_set, pods, now), wanted.wait) if each is not None), default=None)
        try:
            await self._carry_out(key, replica_set, pods, wanted, now)
        except ApiError as error:
            raise Unfinished(error, again) from error
        return again

    async def _carry_out(self, key: str, replica_set: ReplicaSet, pods: Sequence[Facts], wanted: Plan, now: float) -> None:
        if wanted.create:
            pod = pod_from(replica_set.spec.template, REPLICA_SETS, replica_set)
            error = await self._control.create(key, replica_set, [pod] * wanted.create)
        else:
            error = await self._control.delete(key, replica_set, wanted.delete)
        failed = Trouble("FailedCreate" if wanted.create else "FailedDelete", error.message) if error is not None else None
        await self._tell(key, replica_set, status_of(replica_set, pods, failed, now))
        if error is not None:
            raise error

    async def _tell(self, key: str, replica_set: ReplicaSet, status: ReplicaSetStatus) -> None:
        """Of the pods as they were seen: what was just made and deleted is news of the next look."""
        if status == replica_set.status:
            return
        changed = ReplicaSet(metadata=replica_set.metadata, spec=replica_set.spec, status=status)
        try:
            stored = await self._client.update_status(changed)
        except NotFound:
            return
        self._expectations.wrote(key, REPLICA_SETS, stored.metadata.resourceVersion)

    def _related(self, replica_set: ReplicaSet) -> Iterable[Facts]:
        """The pods of all replica sets of its deployment."""
        deployment = keeper(replica_set)
        family = self._siblings.under(deployment).values() if deployment else (replica_set,)
        for each in family:
            yield from self._facts.of(self._pods.under(kept_by(each)).values())

    def _of_pod(self, delta: Delta[Pod]) -> Iterable[str]:
        """Its replica set, or those that would adopt it."""
        yield from its_controller(REPLICA_SETS)(delta)
        metadata = delta.obj.metadata
        if delta.kind != DELETED and controller_of(delta.obj) is None:
            for each in self._selecting.that_select(metadata.namespace, metadata.labels):
                yield store_key(each)
