"""The rules of preemption: which pods of a node must go. They are Kubernetes'.

A node's victims: all pods of a lower priority are thought away; if the pod fits then, as many as possible are reprieved again,
the most important first, but before them those whose loss would violate a PodDisruptionBudget. Important is who has the higher
priority, and of equals who started earlier.

Source: SelectVictimsOnNode in k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption.
"""

from collections.abc import Callable, Iterable, Sequence

from pinnace.api import selectors
from pinnace.api.policy_v1_pb2 import PodDisruptionBudget
from scheduler.cache.freed import Freed
from scheduler.cache.placed_pod import PlacedPod
from scheduler.cache.what_if import WhatIf
from scheduler.framework.victims import Victims


def select_victims(
    lower: Iterable[PlacedPod], budgets: Sequence[PodDisruptionBudget], what_if: WhatIf | Freed, fits: Callable[[], bool]
) -> Victims | None:
    """Who must go of one node's pods of a lower priority. None: it would not help, or nobody is in the way.

    `fits`: would the pod fit on the node, as things are in `what_if`? That is left with all victims thought away.
    """
    potential = by_importance(lower)
    for pod in potential:
        what_if.lift(pod)
    if not potential or not fits():
        return None
    protected = protected_by(budgets, potential)
    victims = []
    for pod in (*(each for each in potential if each in protected), *(each for each in potential if each not in protected)):
        what_if.put_back(pod)
        if not fits():
            what_if.lift(pod)
            victims.append(pod)
    if not victims:
        return None
    return Victims(victims[0].node, by_importance(victims), sum(pod in protected for pod in victims))


def by_importance(pods: Iterable[PlacedPod]) -> list[PlacedPod]:
    """The most important first."""
    return sorted(pods, key=lambda pod: (-pod.priority, pod.started, pod.uid))


def protected_by(budgets: Sequence[PodDisruptionBudget], pods: Iterable[PlacedPod]) -> set[PlacedPod]:
    """The pods whose loss would violate a budget, if those before them were lost too. A pod whose disruption has been granted
    is counted in its budget already."""
    found: set[PlacedPod] = set()
    if not budgets:
        return found
    left = [budget.status.disruptionsAllowed for budget in budgets]
    matching = [selectors.from_message(budget.spec.selector) for budget in budgets]
    for pod in pods:
        namespace, _, name = pod.key.partition("/")
        for number, budget in enumerate(budgets):
            if (
                budget.metadata.namespace == namespace
                and name not in budget.status.disruptedPods
                and budget.spec.HasField("selector")
                and matching[number].matches(pod.group.labels)
            ):
                left[number] -= 1
                if left[number] < 0:
                    found.add(pod)
    return found
