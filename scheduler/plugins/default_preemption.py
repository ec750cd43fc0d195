"""DefaultPreemption: evicts pods of lower priority for a pod without a feasible node."""

from collections.abc import Mapping, Sequence
from typing import Any

from pinnace.api.resources import POD_DISRUPTION_BUDGETS
from pinnace.fit.requests import PODS
from pinnace.scheduler import metrics
from pinnace.scheduler.cache.table import SomeNodes
from pinnace.scheduler.framework import (
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
from pinnace.scheduler.framework.profile import Preemption
from pinnace.scheduler.framework.results import Proposed, Victims, choose_best_victims
from pinnace.scheduler.plugins.helper import check_names, parse_whole_number
from pinnace.scheduler.plugins.node_resources import NodeResourcesFit
from pinnace.scheduler.preemption import CandidateBounds, CandidateFinder, FoundCandidates, SearchExhausted

NEVER = "preemption: not eligible due to preemptionPolicy=Never."
ON_THEIR_WAY = "preemption: not eligible due to a terminating pod on the nominated node."
NOT_YET = "preemption: no candidate node found yet, the search continues with the next attempt."
_MOST = (1 << 31) - 1


class DefaultPreemption:
    name = "DefaultPreemption"
    needs = (POD_DISRUPTION_BUDGETS,)
    helped_by = Change.NODE_ADDED | Change.NODE_ALLOCATABLE | Change.NODE_REMOVED | Change.POD_FREED

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        check_names(args, ("minCandidateNodesPercentage", "minCandidateNodesAbsolute"))
        percentage = parse_whole_number(args, "minCandidateNodesPercentage", 10, 0, 100)
        absolute = parse_whole_number(args, "minCandidateNodesAbsolute", 100, 0, _MOST)
        if not percentage and not absolute:
            raise ValueError("minCandidateNodesPercentage: cannot be 0 together with minCandidateNodesAbsolute")
        self._handle = handle
        self._candidates = CandidateFinder(CandidateBounds(percentage, absolute))
        self._in_vain: tuple[Diagnosis, int, Status] | None = None
        """The last search without a result: the diagnosis, the journal's position, and the status. It is valid while
        equivalent pods share the same diagnosis object (scheduler.framework.reuse) and the journal does not advance."""

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
        if row is not None and filters.curable_nodes(diagnosis)[row] and _has_leaving_victim(pod, nominated, preemption):
            return Nominated(nominated, ON_THEIR_WAY)
        if self._in_vain is not None and self._in_vain[0] is diagnosis and self._in_vain[1] == nodes.dirty.position:
            return self._in_vain[2]
        budgets = list(self._handle.objects(POD_DISRUPTION_BUDGETS).values())
        try:
            result = self._candidates.find_candidates(pod, diagnosis, preemption.cache, filters, budgets, preemption.seed)
        except SearchExhausted:
            return Status(NOT_YET, unfinished=True)
        if isinstance(result, Diagnosis):
            nothing = Status(f"preemption: {result.message}")
            self._in_vain = diagnosis, nodes.dirty.position, nothing
            return nothing
        return Proposed(self.name, result, lambda candidates: self._evict_victims(pod, candidates, preemption))

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        """Return True if preemption on the event's node may help after the event.

        The node must have sufficient resources without its pods of lower priority, and no victims may still be leaving,
        because more resources follow. A nominated pod whose node was removed, or whose victims are gone without making it
        fit, is retried.
        """
        preemption, row = self._handle.preemption, nodes.row(event.node)
        if preemption is None or pod.raw.spec.preemptionPolicy == "Never":
            return False
        nominated = nodes.nominated.node_of(pod.uid) == event.node
        if row is None:
            return nominated
        return (nominated or _has_room(pod, row, nodes, preemption)) and not _has_leaving_victim(pod, event.node, preemption)

    def _evict_victims(self, pod: PodInfo, candidates: Sequence[Victims], preemption: Preemption) -> Nominated:
        best = candidates.best_candidate if isinstance(candidates, FoundCandidates) else choose_best_victims(candidates)
        preemption.evict(self.name, pod, best.node, best.pods)
        return Nominated(best.node)


def _has_room(pod: PodInfo, row: int, nodes: NodeTable, preemption: Preemption) -> bool:
    """Return True if the node has pods of lower priority, and sufficient resources for the pod without them.

    For missing extended resources the profile's filter decides, because it may ignore them. This check is more expensive.
    """
    lower = preemption.cache.requests_below(pod.priority)
    if PODS not in lower or not lower[PODS][row]:
        return False
    short = [
        resource for resource, amount in pod.requests.amounts if _free_without_lower_pods(resource, row, nodes, lower) < amount
    ]
    if not short or not all("/" in resource for resource in short):
        return not short
    without = nodes.add_amounts(lower)
    verdict = preemption.filters(pod).run_single_filter(NodeResourcesFit.name, pod, SomeNodes(without, slice(row, row + 1)))
    return verdict is None or bool(verdict.passed[0])


def _free_without_lower_pods(resource: str, row: int, nodes: NodeTable, lower: Mapping[str, IntArray]) -> int:
    """Return the free amount on a node plus the requests of its pods of lower priority."""
    return nodes.free_at(row, resource) + (int(lower[resource][row]) if resource in lower else 0)


def _has_leaving_victim(pod: PodInfo, node: str, preemption: Preemption) -> bool:
    """Return True if a preempted pod of lower priority still exists on the node."""
    return any(
        placed_pod.priority < pod.priority and preemption.is_leaving(placed_pod)
        for placed_pod in preemption.cache.pods_on(node)
    )
