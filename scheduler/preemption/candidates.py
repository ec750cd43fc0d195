"""Where could preemption make room, and at what price?

    all nodes  --curable, with pods of a lower priority, enough room without them: NumPy-->  rows  --dry runs-->  candidates

A dry run thinks pods of one node away and asks the profile's own filters, so it cannot disagree with them. It is the costly
part: as in Kubernetes no more are made than it takes to find some share of the nodes that could be helped, but at least a
minimum. They begin at a row that the seed and the pod's template decide, and go on until one candidate violates no
PodDisruptionBudget.

What a dry run found is remembered as long as nothing about the node has changed, and no object that plugins look at, for pods
that are alike, if no filter needs to see everything. So for many pods that are alike, the next one's price is that of the nodes
that changed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np

from pinnace.api.policy_v1_pb2 import PodDisruptionBudget
from pinnace.fit.requests import PODS
from pinnace.fit.table import BoolArray
from scheduler.cache.cache import Cache
from scheduler.cache.pod_info import PodInfo
from scheduler.cache.table import NodeTable
from scheduler.cache.what_if import WhatIf
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.handle import Filters
from scheduler.framework.results import FilterResult
from scheduler.preemption.rules import Victims, select_victims

NOT_HELPFUL = "Preemption is not helpful for scheduling"
NO_VICTIMS = "No preemption victims found for incoming pod"
_FIT = "NodeResourcesFit"
_TEMPLATES = 8
_Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many candidates are enough: of the nodes that could be helped, this percentage, but at least so many."""

    percentage: int = 10
    absolute: int = 100

    def of(self, nodes: int) -> int:
        return max(nodes * self.percentage // 100, self.absolute)


class Candidates:
    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._known: dict[_Key, dict[str, tuple[int, Victims | None]]] = {}
        """By template, what is known of nodes as of some version. The least recently used first."""

    def find(
        self,
        pod: PodInfo,
        diagnosis: Diagnosis,
        cache: Cache,
        filters: Filters,
        budgets: Sequence[PodDisruptionBudget],
        seed: int,
    ) -> list[Victims] | Diagnosis:
        """At least one candidate; or why there is none. `diagnosis`: why no node takes the pod as things are."""
        nodes = cache.nodes
        curable = filters.curable(diagnosis)
        lower = cache.below(pod.priority)
        inhabited = lower[PODS] > 0 if PODS in lower else np.zeros(len(nodes), np.bool_)
        without = nodes.seen_at(pod.priority, pod.uid).less({resource: -amount for resource, amount in lower.items()})
        room = filters.ask(_FIT, pod, without)
        promising = curable & inhabited if room is None else curable & inhabited & room.passed
        known = self._remembered(pod, budgets, nodes.epoch) if filters.is_local(diagnosis) else {}
        found: list[Victims] = []
        enough, harmless = self._bounds.of(int(np.count_nonzero(curable))), False
        names, own = nodes.names, nodes.nominated.node_of(pod.uid)
        for row in _rows(pod, promising, seed):
            node = names[row]
            version = cache.version(node)
            result = known.get(node)
            if result is None or result[0] != version or node == own:
                result = version, _try(pod, row, cache, filters, budgets)
                if node != own:
                    known[node] = result
            victims = result[1]
            if victims is not None:
                found.append(victims)
                harmless |= not victims.violations
                if harmless and len(found) >= enough:
                    break
        if found:
            return found
        reasons = [("", FilterResult.refusing(~curable, NOT_HELPFUL)), ("", FilterResult.refusing(~inhabited, NO_VICTIMS))]
        return Diagnosis(len(nodes), [*reasons, *([(_FIT, room)] if room is not None else []), *diagnosis.refusals])

    def _remembered(
        self, pod: PodInfo, budgets: Sequence[PodDisruptionBudget], epoch: tuple[int, int]
    ) -> dict[str, tuple[int, Victims | None]]:
        key = (
            pod.template,
            pod.identity,
            epoch,
            *(f"{budget.metadata.uid} {budget.metadata.resourceVersion}" for budget in budgets),
        )
        known = self._known.pop(key, {})
        self._known[key] = known
        if len(self._known) > _TEMPLATES:
            del self._known[next(iter(self._known))]
        return known


def _rows(pod: PodInfo, promising: BoolArray, seed: int) -> list[int]:
    """Those that are promising, beginning somewhere: at the same node for pods of one template."""
    rows = promising.nonzero()[0]
    start = crc32(pod.pod.spec.SerializeToString(deterministic=True), seed) % len(promising)
    found: list[int] = np.roll(rows, -int(np.searchsorted(rows, start))).tolist()
    return found


def _try(pod: PodInfo, row: int, cache: Cache, filters: Filters, budgets: Sequence[PodDisruptionBudget]) -> Victims | None:
    """A dry run on one node."""
    lower = [each for each in cache.pods_on(cache.nodes.names[row]) if each.priority < pod.priority]
    with cache.what_if() as what_if:
        return select_victims(lower, budgets, what_if, lambda: _fits(pod, row, cache.nodes, filters, what_if))


def _fits(pod: PodInfo, row: int, nodes: NodeTable, filters: Filters, what_if: WhatIf) -> bool:
    """Would the pod fit on a node, with the nominated pods there that are ahead of it, and without them? Without, because it
    must not rely on pods that may never come."""
    ahead = nodes.nominated.ahead_of(pod, nodes.names[row])
    if ahead:
        for each in ahead:
            what_if.add(each, nodes.names[row])
        crowded = filters.judge({}, pod, nodes).passes(row)
        what_if.clear()
        if not crowded:
            return False
    return filters.judge({}, pod, nodes).passes(row)
