"""DefaultPreemption: evict pods of lower priority to make room for a pod that fits on no node."""

from collections.abc import Mapping, Sequence
from typing import Any

from pinnace.api.resources import POD_DISRUPTION_BUDGETS
from pinnace.fit.requests import PODS
from scheduler import metrics
from scheduler.cache.table import SomeNodes
from scheduler.framework import (
    Change,
    ClusterEvent,
    CycleState,
    Diagnosis,
    Handle,
    IntArray,
    NodeTable,
    Nominated,
    PodInfo,
    Status,
)
from scheduler.framework.profile import Preemption
from scheduler.framework.results import Proposed, Victims, choose
from scheduler.plugins.helper import check_names, whole_number
from scheduler.plugins.node_resources import NodeResourcesFit
from scheduler.preemption import Bounds, Candidates, Found, SearchExhausted

NEVER = "preemption: not eligible due to preemptionPolicy=Never."
ON_THEIR_WAY = "preemption: not eligible due to a terminating pod on the nominated node."
NOT_YET = "preemption: no candidate node found yet, the search goes on with the next attempt."
_MOST = (1 << 31) - 1


class DefaultPreemption:
    name = "DefaultPreemption"
    needs = (POD_DISRUPTION_BUDGETS,)
    helped_by = Change.NODE_ADDED | Change.NODE_ALLOCATABLE | Change.NODE_REMOVED | Change.POD_FREED

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        check_names(args, ("minCandidateNodesPercentage", "minCandidateNodesAbsolute"))
        percentage = whole_number(args, "minCandidateNodesPercentage", 10, 0, 100)
        absolute = whole_number(args, "minCandidateNodesAbsolute", 100, 0, _MOST)
        if not percentage and not absolute:
            raise ValueError("minCandidateNodesPercentage: cannot be 0 together with minCandidateNodesAbsolute")
        self._handle = handle
        self._candidates = Candidates(Bounds(percentage, absolute))
        self._in_vain: tuple[Diagnosis, int, Status] | None = None
        """Of the last search that found nothing: why no node takes the pod, the journal's position, and the answer. It holds as
        long as the very same diagnosis is told, since the pods are alike (scheduler.framework.reuse), and nothing changes."""

    def post_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable, diagnosis: Diagnosis
    ) -> Nominated | Proposed | Status | None:
        preemption = self._handle.preemption
        if preemption is None:
            return None
        if pod.raw.spec.preemptionPolicy == "Never":
            return Status(NEVER)
        metrics.PREEMPTIONS.inc()
        filters = preemption.filters(pod)
        nominated = nodes.nominated.node_of(pod.uid)
        row = nodes.row(nominated)
        if row is not None and filters.curable(diagnosis)[row] and _on_their_way(pod, nominated, preemption):
            return Nominated(nominated, ON_THEIR_WAY)
        if self._in_vain is not None and self._in_vain[0] is diagnosis and self._in_vain[1] == nodes.dirty.position:
            return self._in_vain[2]
        budgets = list(self._handle.objects(POD_DISRUPTION_BUDGETS).values())
        try:
            found = self._candidates.find(pod, diagnosis, preemption.cache, filters, budgets, preemption.seed)
        except SearchExhausted:
            return Status(NOT_YET, unfinished=True)
        if isinstance(found, Diagnosis):
            nothing = Status(f"preemption: {found.message}")
            self._in_vain = diagnosis, nodes.dirty.position, nothing
            return nothing
        return Proposed(self.name, found, lambda candidates: self._make_room(pod, candidates, preemption))

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        """Where there is not room enough even now, there may be so much now that removing pods makes it enough. Not while
        victims are still on their way out: then there will be more. A pod whose node is gone, or whose victims are, without
        making it fit, needs another."""
        preemption, row = self._handle.preemption, nodes.row(event.node)
        if preemption is None or pod.raw.spec.preemptionPolicy == "Never":
            return False
        nominated = nodes.nominated.node_of(pod.uid) == event.node
        if row is None:
            return nominated
        return (nominated or _has_room(pod, row, nodes, preemption)) and not _on_their_way(pod, event.node, preemption)

    def _make_room(self, pod: PodInfo, candidates: Sequence[Victims], preemption: Preemption) -> Nominated:
        best = candidates.best if isinstance(candidates, Found) else choose(candidates)
        preemption.evict(self.name, pod, best.node, best.pods)
        return Nominated(best.node)


def _has_room(pod: PodInfo, row: int, nodes: NodeTable, preemption: Preemption) -> bool:
    """Is there room enough for the pod on a node, with what pods of a lower priority take up, if there are any? Extended
    resources may be somebody else's to count: whether they are, the profile's filter is asked, and only then, for it costs
    more."""
    lower = preemption.cache.below(pod.priority)
    if PODS not in lower or not lower[PODS][row]:
        return False
    short = [resource for resource, amount in pod.requests.amounts if _room(resource, row, nodes, lower) < amount]
    if not short or not all("/" in resource for resource in short):
        return not short
    without = nodes.more(lower)
    verdict = preemption.filters(pod).ask(NodeResourcesFit.name, pod, SomeNodes(without, slice(row, row + 1)))
    return verdict is None or bool(verdict.passed[0])


def _room(resource: str, row: int, nodes: NodeTable, lower: Mapping[str, IntArray]) -> int:
    """What is free on a node, with what pods of a lower priority take up."""
    return nodes.free_at(row, resource) + (int(lower[resource][row]) if resource in lower else 0)


def _on_their_way(pod: PodInfo, node: str, preemption: Preemption) -> bool:
    """Is a pod of a lower priority about to leave the node because it was preempted?"""
    return any(each.priority < pod.priority and preemption.is_leaving(each) for each in preemption.cache.pods_on(node))
