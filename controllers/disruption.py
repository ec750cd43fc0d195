"""The disruption controller: maintains the status of pod disruption budgets.

The eviction API takes disruptions from this status. Both compare the resource version of the budget. If the controller has not
seen an eviction, its write fails and the sync is retried.

Source: https://kubernetes.io/docs/tasks/run-application/configure-pdb/, and pkg/controller/disruption of Kubernetes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pinnace.api import conditions
from pinnace.api.apps_v1_pb2 import Deployment, ReplicaSet, StatefulSet
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.meta_v1_pb2 import Time
from pinnace.api.policy_v1_pb2 import PodDisruptionBudget, PodDisruptionBudgetStatus
from pinnace.api.resources import DEPLOYMENTS, POD_DISRUPTION_BUDGETS, PODS, REPLICA_SETS, STATEFUL_SETS, store_key
from pinnace.api.scalars import MAX_INT32, STRING, to_seconds, to_time
from pinnace.api.selectors import NOTHING, LabelSelector, from_message
from pinnace.client.errors import NotFound
from pinnace.client.informer import Delta
from pinnace.client.workqueue import MAX_BACKOFF
from pinnace.controllers.pods import PodProperties
from pinnace.controllers.runtime import ControllerContext, WatchedResource, get_controller_of, key_of_object, scaled_value
from pinnace.controllers.writes import Expectations

UNCONFIRMED = 120.0
"""Seconds for which a pod with a granted eviction counts as disrupted. Then the disruption is returned to the budget."""
_ALLOWED = "DisruptionAllowed"
_UNMANAGED = (
    "Some of the pods have no controller, and are not expected: the status cannot be calculated correctly. To account for them "
    "set .spec.minAvailable to an integer."
)


@dataclass(frozen=True, slots=True)
class ExpectedScale:
    """The total size of the controllers of all selected pods.

    `unknown` is the reason why it is unknown, or empty. `unmanaged` is True if a pod has no controller; such pods do not count.
    """

    total: int
    unknown: str = ""
    unmanaged: bool = False


def needs_scale(budget: PodDisruptionBudget) -> bool:
    """Return True if the budget depends on the expected number of pods. An integer in minAvailable does not."""
    return budget.spec.HasField("maxUnavailable") or budget.spec.minAvailable.type == STRING


def calculate_budget_status(
    budget: PodDisruptionBudget, pods: Sequence[PodProperties], scale: ExpectedScale, now: float
) -> tuple[PodDisruptionBudgetStatus, float | None]:
    """Return the status, and the seconds until a disruption is returned to the budget, or None. `pods` are the selected
    pods."""
    status = PodDisruptionBudgetStatus()
    status.CopyFrom(budget.status)
    status.observedGeneration = budget.metadata.generation
    if needs_scale(budget) and scale.unknown:
        status.disruptionsAllowed = 0  # no disruptions if the number of pods is unknown
        _set_condition(status, "False", "SyncFailed", scale.unknown, now)
        return status, None
    bounds = _expected_and_required_pods(budget, len(pods), scale.total)
    status.expectedPods, status.desiredHealthy = (min(MAX_INT32, bound) for bound in bounds)  # the fields are int32
    going, again = build_disrupted_pod_map(budget.status.disruptedPods, pods, now)
    status.ClearField("disruptedPods")
    for name, since in going.items():
        status.disruptedPods[name].CopyFrom(to_time(since))
    status.currentHealthy = sum(pod.ready and not pod.deleting and pod.pod.metadata.name not in going for pod in pods)
    spare = status.currentHealthy - status.desiredHealthy
    status.disruptionsAllowed = max(0, spare) if status.expectedPods else 0
    enough = status.disruptionsAllowed > 0
    _set_condition(status, "True" if enough else "False", "SufficientPods" if enough else "InsufficientPods", "", now)
    return status, again


def unmanaged_pods_event(pods: Sequence[PodProperties], scale: ExpectedScale) -> tuple[str, str, str] | None:
    """Return an event (type, reason, message) that explains why a budget may allow fewer disruptions than expected, or None."""
    if not pods:
        return "Normal", "NoPods", "No matching pods found"
    if scale.unknown:
        message = f"Failed to calculate the number of expected pods: {scale.unknown}"
        return "Warning", "CalculateExpectedPodCountFailed", message
    return ("Warning", "UnmanagedPods", _UNMANAGED) if scale.unmanaged else None


def find_undeleted_evicted_pods(
    before: PodDisruptionBudgetStatus, now: PodDisruptionBudgetStatus, pods: Iterable[PodProperties]
) -> list[Pod]:
    """Return the pods that still exist although their eviction was granted UNCONFIRMED seconds ago."""
    given_back = before.disruptedPods.keys() - now.disruptedPods.keys()
    return [pod.pod for pod in pods if pod.pod.metadata.name in given_back and not pod.deleting]


def build_disrupted_pod_map(
    granted: Mapping[str, Time], pods: Iterable[PodProperties], now: float
) -> tuple[dict[str, float], float | None]:
    """Return the disrupted pods by name with the time of the eviction, and the seconds until the first entry expires, or
    None."""
    if not granted:
        return {}, None
    there = {pod.pod.metadata.name for pod in pods if not pod.deleting}
    since = {name: to_seconds(at) for name, at in granted.items() if name in there}
    going = {name: at for name, at in since.items() if at + UNCONFIRMED > now}
    return going, min((at + UNCONFIRMED - now for at in going.values()), default=None)


def _expected_and_required_pods(budget: PodDisruptionBudget, pods: int, scale: int) -> tuple[int, int]:
    """Return the number of expected pods and the required number of healthy pods."""
    spec = budget.spec
    if spec.HasField("maxUnavailable"):
        return scale, max(0, scale - scaled_value(spec.maxUnavailable, scale, up=True))
    if needs_scale(budget):
        return scale, scaled_value(spec.minAvailable, scale, up=True)
    return pods, scaled_value(spec.minAvailable, pods, up=True)


def _set_condition(status: PodDisruptionBudgetStatus, value: str, reason: str, message: str, now: float) -> None:
    said = conditions.set_condition(status.conditions, _ALLOWED, value, reason, message, now)
    said.observedGeneration = status.observedGeneration


def budget_selector(budget: PodDisruptionBudget) -> LabelSelector:
    """Return the selector of the budget. A budget without a selector selects no pods."""
    return from_message(budget.spec.selector) if budget.spec.HasField("selector") else NOTHING


class DisruptionController:
    name = "disruption"
    workers = 8
    max_backoff = MAX_BACKOFF

    def __init__(self, shared: ControllerContext) -> None:
        informers = shared.informers
        self._client = shared.client.of(POD_DISRUPTION_BUDGETS)
        self._events = shared.events
        self._clock = shared.clock
        self._budgets = informers.store(POD_DISRUPTION_BUDGETS)
        self._selecting = informers.selecting(POD_DISRUPTION_BUDGETS, budget_selector)
        self._pods = informers.labelled(PODS)
        self._sets = informers.store(REPLICA_SETS)
        self._deployments = informers.store(DEPLOYMENTS)
        self._stateful_sets = informers.store(STATEFUL_SETS)
        self._facts = informers.pod_properties
        self._expectations = Expectations(informers)

    @property
    def watches(self) -> Sequence[WatchedResource[Any]]:
        return (
            WatchedResource(POD_DISRUPTION_BUDGETS, key_of_object),
            WatchedResource(PODS, self._keys_of_pod),
            WatchedResource(REPLICA_SETS, self._keys_of_workload),
            WatchedResource(DEPLOYMENTS, self._keys_of_workload),
            WatchedResource(STATEFUL_SETS, self._keys_of_workload),
        )

    async def sync(self, key: str) -> float | None:
        await self._expectations.wait_until_met(key)
        budget = self._budgets.get(key)
        if budget is None:
            return None
        pods = self._pods.select(budget.metadata.namespace, budget_selector(budget).matches)
        scale = self._expected_scale(pods) if needs_scale(budget) else ExpectedScale(0)
        facts = list(self._facts.properties_of(pods))
        status, again = calculate_budget_status(budget, facts, scale, self._clock.time())
        if status != budget.status:
            changed = PodDisruptionBudget(metadata=budget.metadata, spec=budget.spec, status=status)
            try:
                stored = await self._client.update_status(changed)
            except NotFound:
                return None
            self._expectations.expect_version(key, POD_DISRUPTION_BUDGETS, stored.metadata.resourceVersion)
            if (said := unmanaged_pods_event(facts, scale)) is not None:
                self._events.event(budget, *said)
            for pod in find_undeleted_evicted_pods(budget.status, status, facts):
                message = f"Pod was expected by PDB {key} to be deleted but it wasn't"
                self._events.event(pod, "Warning", "NotDeleted", message)
        return again

    def _expected_scale(self, pods: Iterable[Pod]) -> ExpectedScale:
        """Return the total size of the pods' controllers. Pods without a controller do not count, as in Kubernetes."""
        sizes: dict[str, int] = {}
        seen, unmanaged = set[str](), False
        for pod in pods:
            reference = get_controller_of(pod)
            unmanaged = unmanaged or reference is None
            if reference is None or reference.uid in seen:
                continue
            seen.add(reference.uid)
            namespace = pod.metadata.namespace
            if reference.kind == STATEFUL_SETS.kind:
                stateful_set = self._stateful_sets.get(f"{namespace}/{reference.name}")
                if stateful_set is not None and stateful_set.metadata.uid == reference.uid:
                    sizes[reference.uid] = stateful_set.spec.replicas
                    continue
            replica_set = self._sets.get(f"{namespace}/{reference.name}") if reference.kind == REPLICA_SETS.kind else None
            if replica_set is None or replica_set.metadata.uid != reference.uid:
                what = f"{reference.kind} {namespace}/{reference.name}"
                return ExpectedScale(0, f"found no scale of {what}, the controller of pod {pod.metadata.name}")
            top = get_controller_of(replica_set)
            deployment = self._deployments.get(f"{namespace}/{top.name}") if top is not None else None
            if deployment is not None and top is not None and deployment.metadata.uid != top.uid:
                deployment = None  # a later deployment with the same name
            owner: ReplicaSet | Deployment = deployment if deployment is not None else replica_set
            sizes[owner.metadata.uid] = owner.spec.replicas
        return ExpectedScale(sum(sizes.values()), unmanaged=unmanaged)

    def _keys_of_pod(self, delta: Delta[Pod]) -> Iterable[str]:
        """Return the budgets that select the pod now or before the change."""
        labels = [obj.metadata.labels for obj in (delta.obj, delta.old) if obj is not None]
        return self._keys_of_budgets(delta.obj.metadata.namespace, labels)

    def _keys_of_workload(self, delta: Delta[ReplicaSet | Deployment | StatefulSet]) -> Iterable[str]:
        """Return the budgets that select the pods of a workload whose size has changed."""
        if delta.old is not None and delta.old.spec.replicas == delta.obj.spec.replicas:
            return ()
        return self._keys_of_budgets(delta.obj.metadata.namespace, [delta.obj.spec.template.metadata.labels])

    def _keys_of_budgets(self, namespace: str, labels: Sequence[Any]) -> Iterable[str]:
        return {store_key(budget) for label in labels for budget in self._selecting.objects_selecting(namespace, label)}
