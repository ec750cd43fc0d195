"""Eviction: a delete that first checks the PodDisruptionBudget of the pod.

    pod --no budget selects it-------------------------------------------> deleted
         '--a budget --no disruption allowed--> refused, with a retry delay
                      '--disruption taken, pod recorded in the status--> marked as DisruptionTarget, deleted

A compare-and-swap of the budget's status takes the disruption, so concurrent evictions cannot take the same one. The status
lists the pod until the disruption controller observes its deletion. If the delete failed, the controller returns the disruption
after a timeout.

Source: pkg/registry/core/pod/storage/eviction.go of Kubernetes 1.36, which also defines the messages.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pinnace.api import conditions
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.meta_v1_pb2 import DeleteOptions
from pinnace.api.pods import ended
from pinnace.api.policy_v1_pb2 import PodDisruptionBudget, PodDisruptionBudgetStatus
from pinnace.api.resources import POD_DISRUPTION_BUDGETS, PODS
from pinnace.api.scalars import to_time
from pinnace.api.selectors import NOTHING, LabelSelector, from_message
from pinnace.api.status import Code, Refusal
from pinnace.api.verbs_pb2 import Disruption
from pinnace.apiserver import errors
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry.deletion import copy_without_version, delete_step
from pinnace.apiserver.registry.mutation import Mutation, Next, ObjectVersion, PutObject
from pinnace.apiserver.registry.strategy import Strategy

RETRY_AFTER = 1.0
"""Seconds until a client should retry a refused eviction. The disruption controller updates a budget when a pod changes."""
MAX_UNCONFIRMED = 2000
"""Maximum number of entries in a budget's `disruptedPods`."""
_BY_EVICTION = Disruption(reason="EvictionByEvictionAPI", message="Eviction API: evicting")
_VIOLATION = "Cannot evict pod as it would violate the pod's disruption budget."


def needs_disruption_budget(pod: Pod) -> bool:
    """Return whether an eviction of the pod needs a budget. Pending, finished and terminating pods need none."""
    return pod.status.phase != "Pending" and not ended(pod) and not pod.metadata.HasField("deletionTimestamp")


class ParsedBudget(NamedTuple):
    """A budget with its parsed selector."""

    selector: LabelSelector
    budget: PodDisruptionBudget


def parse_budget(budget: PodDisruptionBudget) -> ParsedBudget:
    return ParsedBudget(from_message(budget.spec.selector) if budget.spec.HasField("selector") else NOTHING, budget)


def find_budget(pod: Pod, protections: Iterable[ParsedBudget]) -> PodDisruptionBudget | None:
    """Return the budget that selects the pod, or None. `protections` are those of the pod's namespace. Raises Rejected if
    several budgets select the pod."""
    labels = dict(pod.metadata.labels)
    budgets = [budget for selector, budget in protections if selector.matches(labels)]
    if len(budgets) > 1:
        message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise Rejected(Refusal(Code.FAILED_PRECONDITION, "SeveralDisruptionBudgets", message))
    return budgets[0] if budgets else None


def needs_disruption(pod: Pod, budget: PodDisruptionBudget) -> bool:
    """Return whether the eviction of a guarded pod takes a disruption of its budget.

    A pod that is not ready needs none if the budget's unhealthyPodEvictionPolicy is AlwaysAllow, or if enough other pods are
    healthy.
    """
    if conditions.is_condition_true(pod.status.conditions, "Ready"):
        return True
    status = budget.status
    enough = status.currentHealthy >= status.desiredHealthy > 0
    return budget.spec.unhealthyPodEvictionPolicy != "AlwaysAllow" and not enough


def take_disruptions_mutation(
    budget: PodDisruptionBudget, pods: Sequence[str], granted: set[str], now: float
) -> Mutation[PodDisruptionBudget]:
    """Return a mutation that takes disruptions for the first of the named pods, as many as the budget allows.

    When the mutation has run, `granted` contains the names of these pods. The step raises Rejected if the budget allows no
    disruption. `now` is in Unix seconds.
    """
    name = budget.metadata.name

    def step(version: ObjectVersion[PodDisruptionBudget] | None) -> Next[PodDisruptionBudget]:
        granted.clear()
        if version is None:
            raise Rejected(errors.not_found(POD_DISRUPTION_BUDGETS, name))
        _check_budgets(version.obj)
        new = copy_without_version(POD_DISRUPTION_BUDGETS, version.obj)
        taken = pods[: new.status.disruptionsAllowed]
        granted.update(taken)
        new.status.disruptionsAllowed -= len(taken)
        for pod in taken:
            new.status.disruptedPods[pod].CopyFrom(to_time(now))
        if not new.status.disruptionsAllowed:
            _set_no_disruptions_allowed(new.status, now)
        return PutObject(new)

    return Mutation(POD_DISRUPTION_BUDGETS.key(budget.metadata.namespace, name), name, step)


def delete_pod_mutation(pods: Strategy[Pod], pod: Pod, options: DeleteOptions, *, spared: bool, now: float) -> Mutation[Pod]:
    """Return a mutation that deletes the pod with this uid.

    `spared`: the pod's status made a check of the budget unnecessary. The step then raises Rejected (a conflict) if the status
    has changed.
    """
    metadata = pod.metadata

    def step(version: ObjectVersion[Pod] | None) -> Next[Pod]:
        if version is not None:
            if version.obj.metadata.uid != metadata.uid:
                raise Rejected(errors.uid_mismatch(PODS, metadata.name, metadata.uid, version.obj.metadata.uid))
            if spared and version.obj.status != pod.status:
                raise Rejected(errors.contended_object(PODS, metadata.name))
        return delete_step(pods, metadata.name, options, version, now, why=_BY_EVICTION)

    return Mutation(PODS.key(metadata.namespace, metadata.name), metadata.name, step)


def eviction_refused(budget: PodDisruptionBudget) -> Refusal:
    """Return the refusal of an eviction that the budget does not allow now."""
    status = budget.status
    needs = f"needs {status.desiredHealthy} healthy pods and has {status.currentHealthy} currently"
    return _too_many_disruptions(f"The disruption budget {budget.metadata.name} {needs}")


def _too_many_disruptions(cause: str) -> Refusal:
    facts = (("cause", cause),)
    return Refusal(Code.RESOURCE_EXHAUSTED, "DisruptionBudget", _VIOLATION, retry_after=RETRY_AFTER, metadata=facts)


def _check_budgets(budget: PodDisruptionBudget) -> None:
    """Check that the budget allows a disruption. Raises Rejected."""
    status, name = budget.status, budget.metadata.name
    if status.observedGeneration < budget.metadata.generation:
        raise Rejected(_too_many_disruptions(f"The disruption budget {name} is still being processed by the server."))
    if len(status.disruptedPods) > MAX_UNCONFIRMED:
        detail = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise Rejected(errors.forbidden(f'poddisruptionbudgets.policy "{name}" is forbidden: {detail}'))
    if not status.disruptionsAllowed:
        raise Rejected(eviction_refused(budget))


def _set_no_disruptions_allowed(status: PodDisruptionBudgetStatus, now: float) -> None:
    condition = conditions.find_condition(status.conditions, "DisruptionAllowed")
    if condition is not None and condition.status != "False":
        condition_changed = conditions.set_condition(
            status.conditions, "DisruptionAllowed", "False", "InsufficientPods", "", now
        )
        condition_changed.observedGeneration = status.observedGeneration
