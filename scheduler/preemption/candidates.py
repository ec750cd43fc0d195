"""Where could preemption make room, and at what price?

    all nodes  --curable, with pods of a lower priority, enough room without them: NumPy-->  rows  --dry runs-->  candidates

A dry run thinks pods of one node away and asks the profile's own filters, so it cannot disagree with them: about this node
alone, if none of them that has something to say about the pod sees more. It is the costly part: as in Kubernetes no more are
made than it takes to find some share of the nodes that could be helped, but at least a minimum. They begin at a row that the
seed and the pod's template decide, and go on until one candidate violates no PodDisruptionBudget.

What a dry run found is remembered as long as nothing about the node has changed, and no object that plugins look at, for pods
that are alike, if no filter needs to see everything. So for many pods that are alike, the next one's price is that of the nodes
that changed, and of a look at arrays for all others.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from pinnace.api.policy_v1_pb2 import PodDisruptionBudget
from pinnace.fit.requests import PODS
from pinnace.fit.table import BoolArray, IntArray
from scheduler.cache.cache import Cache
from scheduler.cache.freed import Freed
from scheduler.cache.pod_info import PodInfo
from scheduler.cache.some_nodes import SomeNodes
from scheduler.cache.table import FloatArray, NodeTable
from scheduler.cache.what_if import WhatIf
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.filtering import OneByOne
from scheduler.framework.handle import Filters
from scheduler.framework.results import FilterResult
from scheduler.preemption.found import Found
from scheduler.preemption.rules import RULES, Victims, select_victims

NOT_HELPFUL = "Preemption is not helpful for scheduling"
NO_VICTIMS = "No preemption victims found for incoming pod"
_FIT = "NodeResourcesFit"
_TEMPLATES = 8
_NEVER = -1
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
        self._searches: dict[_Key, _Search] = {}
        """By template. The least recently used first."""
        self._judged: tuple[Diagnosis, BoolArray, OneByOne | None] | None = None
        """The latest diagnosis, and what follows from it alone. Pods that are alike share one (scheduler.framework.reuse)."""

    def find(
        self,
        pod: PodInfo,
        diagnosis: Diagnosis,
        cache: Cache,
        filters: Filters,
        budgets: Sequence[PodDisruptionBudget],
        seed: int,
    ) -> Found | Diagnosis:
        """At least one candidate; or why there is none. `diagnosis`: why no node takes the pod as things are."""
        nodes = cache.nodes
        curable, one_by_one = self._consequences(diagnosis, filters)
        lower = cache.below(pod.priority)
        inhabited = lower[PODS] > 0 if PODS in lower else np.zeros(len(nodes), np.bool_)
        without = nodes.seen_at(pod.priority, pod.uid).less({resource: -amount for resource, amount in lower.items()})
        room = filters.ask(_FIT, pod, without)
        promising = curable & inhabited if room is None else curable & inhabited & room.passed
        search = self._remembered(pod, budgets, nodes, seed) if one_by_one is not None else _Search(pod, nodes, seed)
        dry_runs = _DryRuns(pod, cache, filters, one_by_one, budgets)
        own = nodes.row(nodes.nominated.node_of(pod.uid))  # where the pod is in nobody's way but its own
        enough = max(self._bounds.of(int(np.count_nonzero(curable))), 1)
        search.forget(own)
        try:
            found = search.run(promising, nodes.versions, enough, dry_runs.on)
        finally:
            search.forget(own)
        if found:
            return found
        reasons = [("", FilterResult.refusing(~curable, NOT_HELPFUL)), ("", FilterResult.refusing(~inhabited, NO_VICTIMS))]
        return Diagnosis(len(nodes), [*reasons, *([(_FIT, room)] if room is not None else []), *diagnosis.refusals])

    def _consequences(self, diagnosis: Diagnosis, filters: Filters) -> tuple[BoolArray, OneByOne | None]:
        """Which nodes are curable, and the filters one by one."""
        if self._judged is None or self._judged[0] is not diagnosis:
            self._judged = diagnosis, filters.curable(diagnosis), filters.one_by_one(diagnosis)
        return self._judged[1:]

    def _remembered(self, pod: PodInfo, budgets: Sequence[PodDisruptionBudget], nodes: NodeTable, seed: int) -> "_Search":
        key = (
            pod.template,
            pod.identity,
            nodes.epoch,
            *(f"{budget.metadata.uid} {budget.metadata.resourceVersion}" for budget in budgets),
        )
        search = self._searches.pop(key, None) or _Search(pod, nodes, seed)
        self._searches[key] = search
        if len(self._searches) > _TEMPLATES:
            del self._searches[next(iter(self._searches))]
        return search


class _Search:
    """What dry runs have found for pods that are alike, in one epoch of the table, in which rows keep their nodes. All arrays
    are in the order in which nodes are tried: by place, not by row."""

    def __init__(self, pod: PodInfo, nodes: NodeTable, seed: int) -> None:
        rows = len(nodes)
        self._start = crc32(pod.raw.spec.SerializeToString(deterministic=True), seed) % rows
        self._tried: IntArray = np.full(rows, _NEVER)
        """The version of each node when it was tried."""
        self._helps = np.zeros(rows, np.bool_)
        self._harmless = np.zeros(rows, np.bool_)
        """It helps, and violates no budget."""
        self._victims: dict[int, Victims] = {}
        self._ranks: FloatArray = np.zeros((RULES, rows))

    def forget(self, row: int | None) -> None:
        """It is to be tried anew."""
        if row is not None:
            self._tried[(row - self._start) % len(self._tried)] = _NEVER

    def run(self, promising: BoolArray, versions: IntArray, enough: int, attempt: Callable[[int], Victims | None]) -> Found:
        """The first candidates, in order, that are enough; all there are if they are not. Only what is not known is tried."""
        promising, versions = self._in_order(promising), self._in_order(versions)
        while True:
            known = promising & (self._tried == versions)
            found = (known & self._helps).nonzero()[0]
            missing = enough - len(found)
            enough_found = _enough(found, enough, self._harmless)
            end = int(found[enough_found - 1]) + 1 if enough_found else len(known)
            unknown = (promising[:end] & ~known[:end]).nonzero()[0]
            if not len(unknown):
                return Found(found[:enough_found] if enough_found else found, self._victims, self._ranks)
            for place in (unknown[:missing] if missing > 0 else unknown).tolist():
                victims = attempt((place + self._start) % len(known))
                self._tried[place] = versions[place]
                self._helps[place] = victims is not None
                self._harmless[place] = harmless = victims is not None and not victims.violations
                if victims is not None:
                    self._victims[place], self._ranks[:, place] = victims, victims.rank
                if missing <= 0 and harmless:
                    break

    def _in_order(self, by_row: NDArray[Any]) -> NDArray[Any]:
        return np.concatenate((by_row[self._start :], by_row[: self._start]))


def _enough(found: IntArray, enough: int, harmless: BoolArray) -> int:
    """With how many of the candidates found, from the first, they are enough and one of them is harmless; 0: they are not."""
    if len(found) < enough:
        return 0
    harmless_at = harmless[found].nonzero()[0]
    return max(enough, int(harmless_at[0]) + 1) if len(harmless_at) else 0


class _DryRuns:
    """Of one pod."""

    def __init__(
        self,
        pod: PodInfo,
        cache: Cache,
        filters: Filters,
        one_by_one: OneByOne | None,
        budgets: Sequence[PodDisruptionBudget],
    ) -> None:
        self._pod = pod
        self._cache = cache
        self._filters = filters
        self._one_by_one = one_by_one
        self._budgets = budgets

    def on(self, row: int) -> Victims | None:
        """Who would have to go from this node. Raises PluginError."""
        nodes, one_by_one = self._cache.nodes, self._one_by_one
        name = nodes.names[row]
        lower = [each for each in self._cache.pods_on(name) if each.priority < self._pod.priority]
        if one_by_one is not None and one_by_one.see_room and not nodes.nominated.ahead_of(self._pod, name):
            freed = Freed(nodes, row)
            return select_victims(lower, self._budgets, freed, lambda: one_by_one.passes(self._pod, row, freed))
        node = SomeNodes(nodes, slice(row, row + 1))
        with self._cache.what_if() as what_if:
            return select_victims(lower, self._budgets, what_if, lambda: self._fits(row, node, what_if))

    def _fits(self, row: int, node: NodeTable, what_if: WhatIf) -> bool:
        """Would the pod fit, with the nominated pods there that are ahead of it, and without them? Without, because it must not
        rely on pods that may never come. `node`: the row, as a table of its own."""
        nodes = self._cache.nodes
        name = nodes.names[row]
        ahead = nodes.nominated.ahead_of(self._pod, name)
        if ahead:
            for each in ahead:
                what_if.add(each, name)
            crowded = self._judged(row)  # who comes may state something about the pod: what skipped it need not do so then
            what_if.clear()
            if not crowded:
                return False
        return self._judged(row) if self._one_by_one is None else self._one_by_one.passes(self._pod, row, node)

    def _judged(self, row: int) -> bool:
        return self._filters.judge({}, self._pod, self._cache.nodes).passes(row)
