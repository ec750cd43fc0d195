"""Where could preemption make room, and at what price?

    all nodes  --curable, with pods of a lower priority, enough room without them: NumPy-->  rows  --dry runs-->  candidates

A dry run thinks pods of one node away and asks the profile's own filters, so it cannot disagree with them: about this node
alone, if none of them that has something to say about the pod sees more. It is the costly part: as in Kubernetes no more are
made than it takes to find some share of the nodes that could be helped, but at least a minimum. They begin at a row that the
seed and the pod's template decide, and go on until one candidate violates no PodDisruptionBudget.

What a dry run found is remembered as long as nothing about the node has changed, and no object that plugins look at, for pods
that are alike, if no filter needs to see everything (scheduler.preemption.search). So for many pods that are alike, the next
one's price is that of the nodes that changed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pinnace.api.policy_v1_pb2 import PodDisruptionBudget
from pinnace.fit.requests import PODS
from pinnace.fit.table import BoolArray
from scheduler.cache.cache import Cache
from scheduler.cache.columns import ALL, Rows
from scheduler.cache.freed import Freed
from scheduler.cache.pod_info import PodInfo
from scheduler.cache.some_nodes import SomeNodes
from scheduler.cache.table import NodeTable
from scheduler.cache.what_if import WhatIf
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.filtering import OneByOne
from scheduler.framework.handle import Filters
from scheduler.framework.results import FilterResult
from scheduler.framework.victims import Victims
from scheduler.preemption.found import Found
from scheduler.preemption.rules import select_victims
from scheduler.preemption.search import Exhausted, Search

NOT_HELPFUL = "Preemption is not helpful for scheduling"
NO_VICTIMS = "No preemption victims found for incoming pod"
_FIT = "NodeResourcesFit"
_TEMPLATES = 8
BUDGET = 0.2
"""Seconds of CPU for the dry runs of one decision, by estimate."""
_AT_LEAST = 8
"""Dry runs, whatever they take."""
_ROW, _HELD = 10e-6, 0.5e-6
"""Seconds to ask about one row alone, and to hold a pod against a disruption budget."""
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
        self._searches: dict[_Key, Search] = {}
        """By template. The least recently used first."""
        self._stopped: dict[bytes, int] = {}
        """By template: where the last search stopped, as an offset, if it found nothing in time."""
        self._judged: dict[int, tuple[Diagnosis, BoolArray, OneByOne | None]] = {}
        """The latest diagnoses by their ids, and what follows from each alone. Pods that are alike share one
        (scheduler.framework.reuse)."""

    def find(
        self,
        pod: PodInfo,
        diagnosis: Diagnosis,
        cache: Cache,
        filters: Filters,
        budgets: Sequence[PodDisruptionBudget],
        seed: int,
    ) -> Found | Diagnosis:
        """At least one candidate; or why there is none. `diagnosis`: why no node takes the pod as things are. Raises Exhausted
        when none was found within BUDGET: the next search for such a pod goes on where this one has stopped."""
        nodes = cache.nodes
        curable, one_by_one = self._consequences(diagnosis, filters)
        without = _Without(pod, cache, filters)
        stopped = self._stopped.pop(pod.template, 0)
        if one_by_one is not None:
            search = self._remembered(pod, budgets, nodes, seed)
        else:
            search = Search(pod, len(nodes), seed, stopped)
        dry_runs = _DryRuns(pod, cache, filters, one_by_one, budgets)
        own = nodes.row(nodes.nominated.node_of(pod.uid))  # where the pod is in nobody's way but its own
        search.forget(own)
        try:
            search.look(nodes.versions, curable, without.promise)
            found = search.run(max(self._bounds.of(int(np.count_nonzero(curable))), 1), dry_runs.on)
        except Exhausted:
            self._stopped[pod.template] = stopped + search.last
            if len(self._stopped) > _TEMPLATES:
                del self._stopped[next(iter(self._stopped))]
            raise
        finally:
            search.forget(own)
        if found:
            return found
        unresolvable = FilterResult.refusing(filters.unresolvable(diagnosis), NOT_HELPFUL)
        refusals = [("", unresolvable), *without.refusals(), *filters.lasting(diagnosis), *diagnosis.refusals]
        return Diagnosis(len(nodes), refusals)

    def _consequences(self, diagnosis: Diagnosis, filters: Filters) -> tuple[BoolArray, OneByOne | None]:
        """Which nodes are curable, and the filters one by one."""
        known = self._judged.pop(id(diagnosis), None)
        found = self._judged[id(diagnosis)] = known or (diagnosis, filters.curable(diagnosis), filters.one_by_one(diagnosis))
        if len(self._judged) > _TEMPLATES:
            del self._judged[next(iter(self._judged))]
        return found[1:]

    def _remembered(self, pod: PodInfo, budgets: Sequence[PodDisruptionBudget], nodes: NodeTable, seed: int) -> Search:
        key = (
            pod.template,
            pod.identity,
            nodes.epoch,
            *(f"{budget.metadata.uid} {budget.metadata.resourceVersion}" for budget in budgets),
        )
        search = self._searches.pop(key, None) or Search(pod, len(nodes), seed)
        self._searches[key] = search
        if len(self._searches) > _TEMPLATES:
            del self._searches[next(iter(self._searches))]
        return search


class _Without:
    """Nodes without their pods of a lower priority than one pod's. Raises what the filter raises."""

    def __init__(self, pod: PodInfo, cache: Cache, filters: Filters) -> None:
        self._pod = pod
        self._filters = filters
        self._lower = cache.below(pod.priority)
        self._nodes = cache.nodes.seen_at(pod.priority, pod.uid).more(self._lower)

    def promise(self, rows: Rows) -> BoolArray:
        """Would there be room enough for the pod, where there are such pods?"""
        room = self._room(rows)
        return self._inhabited(rows) if room is None else self._inhabited(rows) & room.passed

    def refusals(self) -> list[tuple[str, FilterResult]]:
        """Why it is not promised."""
        room = self._room(ALL)
        refusals = [("", FilterResult.refusing(~self._inhabited(ALL), NO_VICTIMS))]
        return refusals if room is None else [*refusals, (_FIT, room)]

    def _inhabited(self, rows: Rows) -> BoolArray:
        return self._lower[PODS][rows] > 0 if PODS in self._lower else np.zeros(len(self._nodes), np.bool_)[rows]

    def _room(self, rows: Rows) -> FilterResult | None:
        nodes = self._nodes if rows is ALL else SomeNodes(self._nodes, rows)
        return self._filters.ask(_FIT, self._pod, nodes)


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
        self._ask = _ROW if one_by_one is not None else filters.estimate(pod, cache.nodes)
        """Seconds for an answer about one node."""
        self._left = BUDGET
        self._runs = 0

    def on(self, row: int) -> Victims | None:
        """Who would have to go from this node. Raises PluginError, Exhausted."""
        if self._left <= 0 and self._runs >= _AT_LEAST:
            raise Exhausted
        self._runs += 1
        nodes, one_by_one = self._cache.nodes, self._one_by_one
        name = nodes.names[row]
        lower = [each for each in self._cache.pods_on(name) if each.priority < self._pod.priority]
        self._left -= len(self._budgets) * (1 + len(lower)) * _HELD
        if one_by_one is not None and one_by_one.see_room and not nodes.nominated.ahead_of(self._pod, name):
            freed = Freed(nodes, row)
            return select_victims(lower, self._budgets, freed, lambda: self._passes(one_by_one, row, freed))
        node = SomeNodes(nodes, slice(row, row + 1))
        with self._cache.what_if() as what_if:
            return select_victims(lower, self._budgets, what_if, lambda: self._fits(row, node, what_if))

    def _passes(self, one_by_one: OneByOne, row: int, node: NodeTable) -> bool:
        self._left -= self._ask
        return one_by_one.passes(self._pod, row, node)

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
        return self._judged(row) if self._one_by_one is None else self._passes(self._one_by_one, row, node)

    def _judged(self, row: int) -> bool:
        self._left -= self._ask
        return self._filters.judge({}, self._pod, self._cache.nodes).passes(row)
