"""The disruption controller."""

from collections.abc import Iterable, Sequence
from typing import Any

from controllers.budgets.status import Scale, needs_scale, remark, spared, status_of
from controllers.controller import Shared, Watch, controller_of, itself
from controllers.expectations import Expectations
from controllers.workqueue import MAX_BACKOFF
from pinnace.api.apps_v1_pb2 import Deployment, ReplicaSet
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.policy_v1_pb2 import PodDisruptionBudget
from pinnace.api.resources import DEPLOYMENTS, POD_DISRUPTION_BUDGETS, PODS, REPLICA_SETS, store_key
from pinnace.api.selectors import NOTHING, LabelSelector, from_message
from pinnace.client.errors import NotFound
from pinnace.client.informer import Delta


def selector_of(budget: PodDisruptionBudget) -> LabelSelector:
    """Without one it selects nothing."""
    return from_message(budget.spec.selector) if budget.spec.HasField("selector") else NOTHING


class DisruptionController:
    name = "disruption"
    workers = 8
    max_backoff = MAX_BACKOFF

    def __init__(self, shared: Shared) -> None:
        informers = shared.informers
        self._client = shared.client.of(POD_DISRUPTION_BUDGETS)
        self._events = shared.events
        self._clock = shared.clock
        self._budgets = informers.store(POD_DISRUPTION_BUDGETS)
        self._selecting = informers.selecting(POD_DISRUPTION_BUDGETS, selector_of)
        self._pods = informers.labelled(PODS)
        self._sets = informers.store(REPLICA_SETS)
        self._deployments = informers.store(DEPLOYMENTS)
        self._facts = informers.facts
        self._expectations = Expectations(informers)

    @property
    def watches(self) -> Sequence[Watch[Any]]:
        return (
            Watch(POD_DISRUPTION_BUDGETS, itself),
            Watch(PODS, self._of_pod),
            Watch(REPLICA_SETS, self._of_workload),
            Watch(DEPLOYMENTS, self._of_workload),
        )

    async def sync(self, key: str) -> float | None:
        await self._expectations.met(key)
        budget = self._budgets.get(key)
        if budget is None:
            return None
        pods = self._pods.select(budget.metadata.namespace, selector_of(budget).matches)
        scale = self._scale(pods) if needs_scale(budget) else Scale(0)
        facts = list(self._facts.of(pods))
        status, again = status_of(budget, facts, scale, self._clock.time())
        if status != budget.status:
            changed = PodDisruptionBudget(metadata=budget.metadata, spec=budget.spec, status=status)
            try:
                stored = await self._client.update_status(changed)
            except NotFound:
                return None
            self._expectations.wrote(key, POD_DISRUPTION_BUDGETS, stored.metadata.resourceVersion)
            if (said := remark(facts, scale)) is not None:
                self._events.event(budget, *said)
            for pod in spared(budget.status, status, facts):
                message = f"Pod was expected by PDB {key} to be deleted but it wasn't"
                self._events.event(pod, "Warning", "NotDeleted", message)
        return again

    def _scale(self, pods: Iterable[Pod]) -> Scale:
        """Pods without a controller do not count, as in Kubernetes."""
        sizes: dict[str, int] = {}
        seen, unmanaged = set[str](), False
        for pod in pods:
            reference = controller_of(pod)
            unmanaged = unmanaged or reference is None
            if reference is None or reference.uid in seen:
                continue
            seen.add(reference.uid)
            namespace = pod.metadata.namespace
            replica_set = self._sets.get(f"{namespace}/{reference.name}") if reference.kind == REPLICA_SETS.kind else None
            if replica_set is None or replica_set.metadata.uid != reference.uid:
                what = f"{reference.kind} {namespace}/{reference.name}"
                return Scale(0, f"found no scale of {what}, the controller of pod {pod.metadata.name}")
            top = controller_of(replica_set)
            deployment = self._deployments.get(f"{namespace}/{top.name}") if top is not None else None
            if deployment is not None and top is not None and deployment.metadata.uid != top.uid:
                deployment = None  # a later one of its name
            owner: ReplicaSet | Deployment = deployment if deployment is not None else replica_set
            sizes[owner.metadata.uid] = owner.spec.replicas
        return Scale(sum(sizes.values()), unmanaged=unmanaged)

    def _of_pod(self, delta: Delta[Pod]) -> Iterable[str]:
        """The budgets that select it now or did."""
        labels = [obj.metadata.labels for obj in (delta.obj, delta.old) if obj is not None]
        return self._that_select(delta.obj.metadata.namespace, labels)

    def _of_workload(self, delta: Delta[ReplicaSet | Deployment]) -> Iterable[str]:
        """When its size changes, so does what its pods' budgets expect."""
        if delta.old is not None and delta.old.spec.replicas == delta.obj.spec.replicas:
            return ()
        return self._that_select(delta.obj.metadata.namespace, [delta.obj.spec.template.metadata.labels])

    def _that_select(self, namespace: str, labels: Sequence[Any]) -> Iterable[str]:
        return {store_key(budget) for each in labels for budget in self._selecting.that_select(namespace, each)}
