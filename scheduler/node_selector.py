"""Select a node for a pod: the node with the highest score among the feasible nodes.

    NodeSelector.select_node -> FullEvaluator: run the filters, score the feasible nodes, break ties, check nominated pods
                       or  CachedEvaluator: reuse the results of equivalent pods, else as FullEvaluator

The result depends only on the pod, the table with its row order, the seed, the profile and the responses of extenders. A hash
of the seed and the pod's UID selects between nodes with the same score. The equivalence cache never changes the result.
"""

from dataclasses import replace
from typing import Protocol
from zlib import crc32

import numpy as np

from pinnace.scheduler.cache.cache import Cache
from pinnace.scheduler.extenders.interface import ExtenderResult
from pinnace.scheduler.framework import BoolArray, CycleState, PodInfo
from pinnace.scheduler.framework.filtering import BUDGET
from pinnace.scheduler.framework.results import Diagnosis, FilterResult
from pinnace.scheduler.framework.reuse import BestRows, EquivalenceCache, rows_with_highest_score
from pinnace.scheduler.framework.runtime import Framework


class BudgetExceeded(Exception):
    """The decision has exceeded its budget."""


class Evaluator(Protocol):
    """Evaluates the nodes for a pod."""

    def evaluate(self, pod: PodInfo, state: CycleState) -> int | Diagnosis:
        """Return the row of the selected node, or a diagnosis if no node fits. Raise PluginError and BudgetExceeded."""
        ...


class NodeSelector:
    """Selects nodes with the plugins of one profile. Without an equivalence cache, it evaluates every node for every pod."""

    __slots__ = ("cache", "evaluator", "framework")

    def __init__(
        self,
        cache: Cache,
        framework: Framework,
        seed: int,
        equivalence: EquivalenceCache | None = None,
        extender_result: ExtenderResult | None = None,
    ) -> None:
        """`extender_result` is valid for one pod only."""
        self.cache = cache
        self.framework = framework
        full = FullEvaluator(cache, framework, seed, extender_result)
        self.evaluator: Evaluator = full if equivalence is None else CachedEvaluator(full, equivalence)

    def select_node(self, pod: PodInfo, state: CycleState) -> int | Diagnosis:
        """Return a row or a diagnosis. Prefer the nominated node. Raise PluginError and BudgetExceeded."""
        return self.evaluator.evaluate(pod, state)


class FullEvaluator:
    """Runs all plugins on all nodes."""

    __slots__ = ("cache", "extender_result", "framework", "seed")

    def __init__(self, cache: Cache, framework: Framework, seed: int, extender_result: ExtenderResult | None = None) -> None:
        self.cache = cache
        self.framework = framework
        self.seed = seed
        self.extender_result = extender_result

    def evaluate(self, pod: PodInfo, state: CycleState) -> int | Diagnosis:
        diagnosis = self.run_filters(pod, state)
        return self.select_feasible(pod, state, diagnosis) if np.count_nonzero(diagnosis.feasible) else diagnosis

    def run_filters(self, pod: PodInfo, state: CycleState) -> Diagnosis:
        """Run the filters on all nodes, and add the responses of extenders. Raise PluginError."""
        nodes = self.cache.nodes
        diagnosis = self.framework.run_filters(state, pod, nodes.subtract_reserved(pod.priority, pod.uid))
        return diagnosis if self.extender_result is None else self.extender_result.add_to_diagnosis(diagnosis, nodes)

    def select_feasible(self, pod: PodInfo, state: CycleState, diagnosis: Diagnosis) -> int | Diagnosis:
        """Select one of the feasible nodes.

        Resources of nominated pods are subtracted on all nodes at once. Other conflicts with nominated pods (ports, affinity,
        ...) are checked only on the selected node; after a conflict the next best node is selected.
        """
        nodes, framework = self.cache.nodes, self.framework
        nominated_row = nodes.row(nodes.nominated.node_of(pod.uid))
        feasible, refusals = diagnosis.feasible.copy(), list(diagnosis.refusals)
        budget = BUDGET
        while np.count_nonzero(feasible):
            if budget <= 0:
                raise BudgetExceeded
            if nominated_row is not None and feasible[nominated_row]:
                row = nominated_row
            else:
                row = break_tie(self._find_best_rows(pod, state, feasible), pod, self.seed)
            conflicts = find_nominated_conflicts(pod, row, self.cache, framework)
            if not conflicts:
                return row
            budget -= framework.estimate_filter_cost(pod, nodes)
            refusals += conflicts
            feasible[row] = False
        return replace(diagnosis, refusals=refusals)

    def _find_best_rows(self, pod: PodInfo, state: CycleState, feasible: BoolArray) -> BestRows:
        nodes = self.cache.nodes
        scores = self.framework.score(state, pod, nodes, feasible)
        if self.extender_result is not None:
            scores = scores + self.extender_result.sum_scores(nodes)
        return rows_with_highest_score(scores)


class CachedEvaluator:
    """Reuses the results of equivalent pods, and evaluates in full if there are none."""

    __slots__ = ("_cache", "_equivalence", "_framework", "_full", "_seed")

    def __init__(self, full: FullEvaluator, equivalence: EquivalenceCache) -> None:
        self._full = full
        self._equivalence = equivalence
        self._cache = full.cache
        self._framework = full.framework
        self._seed = full.seed

    def evaluate(self, pod: PodInfo, state: CycleState) -> int | Diagnosis:
        nominated_node = self._cache.nodes.nominated.node_of(pod.uid)
        reused = self._reuse_for_nominated(pod, nominated_node) if nominated_node else self._reuse_result(pod, state)
        if reused is not None:
            return reused
        state.clear()
        diagnosis = self._full.run_filters(pod, state)
        if np.count_nonzero(diagnosis.feasible):
            return self._full.select_feasible(pod, state, diagnosis)
        if not nominated_node:
            self._equivalence.store_diagnosis(state, pod, self._framework, diagnosis)
        return diagnosis

    def _reuse_result(self, pod: PodInfo, state: CycleState) -> int | Diagnosis | None:
        """Return the result for equivalent pods, or None if there is none or a nominated pod conflicts."""
        cache = self._cache
        best = self._equivalence.find_best_rows(state, pod, cache.nodes, self._framework)
        if best is None or isinstance(best, Diagnosis):
            return best
        row = break_tie(best, pod, self._seed)
        if len(cache.nodes.nominated) and find_nominated_conflicts(pod, row, cache, self._framework):
            return None
        return row

    def _reuse_for_nominated(self, pod: PodInfo, node: str) -> int | None:
        """Return the row of the nominated node if cached results show that the pod fits there, else None."""
        nodes = self._cache.nodes
        row = nodes.row(node)
        if row is None or not self._equivalence.fits_nominated(pod, nodes, self._framework, row):
            return None
        return None if find_nominated_conflicts(pod, row, self._cache, self._framework) else row


def find_nominated_conflicts(pod: PodInfo, row: int, cache: Cache, framework: Framework) -> list[tuple[str, FilterResult]]:
    """Return the reasons why the pod does not fit if the nominated pods with precedence run on the node.

    The list is empty if there is no conflict. Raise PluginError.
    """
    nodes = cache.nodes
    preceding_pods = nodes.nominated.nominated_pods_with_precedence(pod, nodes.names[row])
    if not preceding_pods:
        return []
    with cache.what_if() as what_if:
        for preceding_pod in preceding_pods:
            what_if.add_pod(preceding_pod, nodes.names[row])
        return framework.run_filters({}, pod, nodes).refusals_at(row)


def break_tie(best: BestRows, pod: PodInfo, seed: int) -> int:
    """Select one of the rows by a hash of the seed and the pod's UID."""
    return int(best[crc32(pod.uid.encode(), seed) % len(best)])
