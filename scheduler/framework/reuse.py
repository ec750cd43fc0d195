"""The equivalence cache: equivalent pods reuse the filter results and scores of unchanged nodes.

Pods are equivalent if they have the same profile, template and identity. An `_EquivalenceClass` keeps the feasible nodes and
their scores. A plugin runs again according to its `Dependency`:

    NODES           in a new generation of the table, for which the class is rebuilt
    ROW             on dirty rows only (`NodeTable.dirty`)
    FREE_RESOURCES  as ROW; in addition, the results with one more such pod are computed ahead for all rows at once
    EVERYTHING      for every pod, on all nodes, unless its SKIP is valid for the generation

The result equals the framework's bit by bit: the same plugins run, and scores are added in the same order
(tests/unit/scheduler/test_reuse.py). If no node is feasible, a PreFilter refuses, or a plugin fails, the framework decides and
explains. Its diagnosis is reused for equivalent pods while all dirty rows are refused for the same reasons.

Filters use the table without the resources that are reserved for nominated pods. Each change of a nomination marks its row
dirty. A nominated pod may use its own reserved resources. It therefore reuses only results for its node that do not depend
on resources. The other filters run on this node alone.
"""

import logging
from bisect import bisect_left
from collections.abc import Hashable, Sequence, Set
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from prometheus_client import Counter

from pinnace.fit.table import BoolArray, IntArray
from pinnace.scheduler.cache.columns import ALL, Rows
from pinnace.scheduler.cache.pod_info import PodInfo
from pinnace.scheduler.cache.table import FloatArray, NodeTable, SomeNodes
from pinnace.scheduler.cache.what_if import TableWithOneMorePod
from pinnace.scheduler.framework.filtering import BY_ROWS, RowFilters, read_dependency, run_filter, run_pre_filter
from pinnace.scheduler.framework.interface import Dependency, FilterPlugin, PreFilterPlugin
from pinnace.scheduler.framework.plugin_errors import call_plugin
from pinnace.scheduler.framework.results import SKIP, CycleState, Diagnosis, NodeReasons, PluginError
from pinnace.scheduler.framework.runtime import Framework, Scorer

log = logging.getLogger(__name__)

FAILURES = Counter(
    "scheduler_equivalence_cache_failures", "Internal errors of the equivalence cache. The pod is evaluated without it."
)

BestRows = Sequence[int] | IntArray
"""Rows, at least one."""

MAX_CLASSES = 32
"""Maximum number of equivalence classes."""
_FEW = 16
"""Maximum number of dirty rows for which a cached diagnosis is checked."""
_MISSES = 16
"""Number of rows that are evaluated one by one before the next lookahead."""
_DEPTH = 3
"""Number of pods that a deep lookahead adds to each row."""
_MANY_HITS = 4 * _MISSES
"""Number of results of a lookahead that were used, above which the next lookahead is deep."""


class _PreFilterRejection(Exception):
    """A PreFilter refused the pod."""


class EquivalenceCache:
    """The equivalence classes of one table. The least recently used classes are evicted."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._classes: dict[Hashable, _EquivalenceClass] = {}
        """Classes by signature, the least recently used first."""
        self._logged_types: set[type[Exception]] = set()

    def __len__(self) -> int:
        return len(self._classes)

    def find_best_rows(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable, framework: Framework
    ) -> BestRows | Diagnosis | None:
        """Return the feasible rows with the highest score in ascending order, or the cached diagnosis with its state.

        Return None if the framework must decide. Raise a severe PluginError.
        """
        if nodes is not self._nodes or pod.volumes is not None:
            return None
        signature = _pod_signature(pod, framework)
        equivalence_class = self._classes.pop(signature, None)
        try:
            if equivalence_class is None or equivalence_class.generation != nodes.generation:
                equivalence_class = _EquivalenceClass(framework, state, pod, nodes)
            best = equivalence_class.find_best_rows(state, pod, nodes)
        except PluginError as error:
            if error.is_severe:  # a second run may take as long
                raise
            return None  # the framework runs the plugin again and reports the error
        except _PreFilterRejection:
            return None  # the framework runs the plugin again and explains
        except Exception as error:
            self._record_failure(error)
            return None
        self._classes[signature] = equivalence_class
        if len(self._classes) > MAX_CLASSES:
            del self._classes[next(iter(self._classes))]
        return best

    def fits_nominated(self, pod: PodInfo, nodes: NodeTable, framework: Framework, row: int) -> bool:
        """Return True if the nominated pod fits on this node. Return False if it does not, or if the framework must decide.

        Raise a severe PluginError.
        """
        if nodes is not self._nodes or pod.volumes is not None:
            return False
        equivalence_class = self._classes.get(_pod_signature(pod, framework))
        try:
            return (
                equivalence_class is not None
                and equivalence_class.generation == nodes.generation
                and equivalence_class.fits_nominated(pod, nodes, row)
            )
        except PluginError as error:
            if error.is_severe:
                raise
            return False  # the framework runs the plugin again and reports the error
        except Exception as error:
            self._record_failure(error)
            return False

    def store_diagnosis(self, state: CycleState, pod: PodInfo, framework: Framework, diagnosis: Diagnosis) -> None:
        """Store the diagnosis and its state for the class of the pod."""
        if (equivalence_class := self._classes.get(_pod_signature(pod, framework))) is not None:
            equivalence_class.store_diagnosis(state, diagnosis)

    def _record_failure(self, error: Exception) -> None:
        """Count an internal error, and log the first of each type with its traceback. The framework decides instead."""
        FAILURES.inc()
        if type(error) not in self._logged_types:
            self._logged_types.add(type(error))
            log.error("the equivalence cache failed, the pod is evaluated without it: %s", error, exc_info=error)


class _Column:
    """A scorer and its cached weighted scores."""

    __slots__ = ("dependency", "scorer", "values")

    def __init__(self, scorer: Scorer, rows: int) -> None:
        self.scorer = scorer
        self.dependency = read_dependency(scorer.plugin, "score_depends_on")
        self.values: FloatArray = np.zeros(rows)


@dataclass(slots=True)
class _Lookahead:
    """The results of each row with one more such pod, two more, and so on."""

    steps: Sequence[tuple[Sequence[bool], Sequence[float]]] = ()
    """(feasible, score) of all rows, by number of such pods."""
    steps_taken: dict[int, int] = field(default_factory=dict)
    """The number of such pods that were added since the computation, by row. Rows with other changes are omitted."""
    hits: int = 0

    def take_next(self, row: int) -> tuple[bool, float]:
        """Return the results of a known row after one more such pod was added."""
        step = self.steps_taken[row]
        if step + 1 < len(self.steps):
            self.steps_taken[row] = step + 1
        else:
            del self.steps_taken[row]
        self.hits += 1
        feasible, scores = self.steps[step]
        return feasible[row], scores[row]


class _EquivalenceClass:
    """The cached results for equivalent pods. Discard it after a method raises PluginError or _PreFilterRejection."""

    def __init__(self, framework: Framework, state: CycleState, pod: PodInfo, nodes: NodeTable) -> None:
        self.generation = nodes.generation
        self._position = nodes.dirty.position
        self._pre_filters: list[PreFilterPlugin] = []
        self._filters: list[FilterPlugin] = []
        """Filters that run for every pod."""
        self._row_filters = RowFilters(())
        self._node_mask: BoolArray = np.ones(len(nodes), np.bool_)
        self._classify_filters(framework, state, pod, nodes.subtract_reserved(pod.priority))
        self._feasible = self._node_mask.copy()
        self._scores: FloatArray = np.zeros(len(nodes))
        self._top = np.inf
        self._best: list[int] = []
        """The rows with the score `_top`. If it is empty, all scores are lower."""
        self._columns = [
            column for scorer in framework.scorers if (column := self._create_column(scorer, state, pod, nodes)) is not None
        ]
        """Columns in the order of addition."""
        self._for_every_pod = any(column.dependency is Dependency.EVERYTHING for column in self._columns)
        self._requests = pod.requests
        seen = [read_dependency(filter_plugin, "filter_depends_on") for filter_plugin in self._row_filters.filters] + [
            column.dependency for column in self._columns
        ]
        self._can_use_lookahead = all(item in (Dependency.NODES, Dependency.FREE_RESOURCES) for item in seen)
        self._lookahead = _Lookahead()
        self._misses = 0
        self._cached_diagnosis: CachedDiagnosis | None = None
        self._recompute_rows(ALL, pod, nodes)

    def find_best_rows(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> BestRows | Diagnosis | None:
        if self._position != nodes.dirty.position and not self._still_refused(pod, nodes):
            self._cached_diagnosis = None
            self._update_dirty_rows(pod, nodes)
        if self._cached_diagnosis is not None:
            state.update(self._cached_diagnosis.state)
            return self._cached_diagnosis.diagnosis
        feasible = self._run_filters_for_pod(state, pod, nodes)
        if feasible is None:
            return None
        if self._for_every_pod:
            return (
                rows_with_highest_score(self._sum_scores(state, pod, nodes, feasible)) if np.count_nonzero(feasible) else None
            )
        if feasible is not self._feasible:
            return rows_with_highest_score(np.where(feasible, self._scores, -np.inf)) if np.count_nonzero(feasible) else None
        if not self._best:
            self._top = float(self._scores.max(initial=-np.inf))  # there may be no nodes
            self._best = rows_with_highest_score(self._scores).tolist() if self._top > -np.inf else []
        return self._best or None

    def fits_nominated(self, pod: PodInfo, nodes: NodeTable, row: int) -> bool:
        """Check a nominated pod, as `EquivalenceCache.fits_nominated` does. Results that depend on nodes are still valid."""
        if self._pre_filters or self._filters:
            return False
        return bool(self._node_mask[row]) and self._row_filters.passes_row(
            pod, row, nodes.subtract_reserved(pod.priority, pod.uid)
        )

    def store_diagnosis(self, state: CycleState, diagnosis: Diagnosis) -> None:
        if not self._pre_filters and not self._filters and self._scores.size:  # without nodes, no filter gave a reason
            self._cached_diagnosis = CachedDiagnosis(dict(state), diagnosis, self._row_filters)

    # --- cached results

    def _still_refused(self, pod: PodInfo, nodes: NodeTable) -> bool:
        """Return True if all dirty rows are refused as before, so that the cached diagnosis is still valid."""
        dirty = nodes.dirty.entries_since(self._position)
        if self._cached_diagnosis is None or dirty is None:
            return False
        rows = {row for row, _ in dirty}
        if len(rows) > _FEW or not self._cached_diagnosis.still_holds(sorted(rows), pod, nodes):
            return False
        for row in rows:
            self._lookahead.steps_taken.pop(row, None)
        self._position = nodes.dirty.position
        return True

    def _classify_filters(self, framework: Framework, state: CycleState, pod: PodInfo, nodes: NodeTable) -> None:
        """Run the filters that depend on nodes, and classify the others."""
        skipped = set()
        for plugin in framework.pre_filters:
            by_nodes = read_dependency(plugin, "filter_depends_on") is not Dependency.EVERYTHING
            if by_nodes or read_dependency(plugin, "skip_depends_on") is Dependency.NODES:
                status = run_pre_filter(plugin, state, pod, nodes)
                if status is SKIP:
                    skipped.add(plugin.name)
                    continue
                if status is not None and by_nodes:
                    raise _PreFilterRejection
            if not by_nodes:
                self._pre_filters.append(plugin)
        by_rows = []
        for filterer in framework.filters:
            seen = read_dependency(filterer, "filter_depends_on")
            if filterer.name in skipped:
                continue
            if seen is Dependency.NODES:
                self._node_mask &= run_filter(filterer, state, pod, nodes).passed
            elif seen in BY_ROWS:
                by_rows.append(filterer)
            else:
                self._filters.append(filterer)
        self._row_filters = RowFilters(by_rows)

    def _create_column(self, scorer: Scorer, state: CycleState, pod: PodInfo, nodes: NodeTable) -> _Column | None:
        """Return the column of a scorer, or None if it skips the pods of this class."""
        column = _Column(scorer, len(nodes))
        if (
            column.dependency is not Dependency.EVERYTHING
            or read_dependency(scorer.plugin, "skip_depends_on") is Dependency.NODES
        ):
            if column.scorer.run_pre_score(state, pod, nodes, self._feasible):
                return None
            if column.dependency is Dependency.NODES:
                column.values[:] = scorer.weighted_scores(state, pod, nodes, self._feasible)
        return column

    def _update_dirty_rows(self, pod: PodInfo, nodes: NodeTable) -> None:
        dirty = nodes.dirty.entries_since(self._position)
        self._position = nodes.dirty.position
        if dirty is None:
            self._lookahead.steps_taken.clear()
            self._recompute_rows(ALL, pod, nodes)
            return
        rows = set()
        for row, requests in dirty:
            if row in self._lookahead.steps_taken:
                if requests is self._requests or requests == self._requests:
                    self._set_row(row, *self._lookahead.take_next(row))
                    continue
                del self._lookahead.steps_taken[row]
            rows.add(row)
        if len(rows) == 1:
            (row,) = rows
            self._recompute_rows(slice(row, row + 1), pod, nodes)
        elif len(rows) > len(nodes) // 4:
            self._recompute_rows(ALL, pod, nodes)
        elif rows:
            self._recompute_rows(np.array(sorted(rows)), pod, nodes)
        self._misses += len(rows)
        if self._misses >= _MISSES and self._can_use_lookahead:
            self._compute_lookahead(pod, nodes)

    def _compute_lookahead(self, pod: PodInfo, nodes: NodeTable) -> None:
        """Compute the results after more such pods. If many nodes have the highest score, pods are spread over them at random,
        and some nodes get several pods: then look several pods ahead."""
        depth = _DEPTH if self._lookahead.hits >= _MANY_HITS else 1
        steps, known = [], dict.fromkeys(range(len(nodes)), 0)
        for _ in range(depth):
            nodes = TableWithOneMorePod(nodes, self._requests)
            feasible, scores = self._compute_rows(ALL, pod, nodes)
            steps.append((feasible.tolist(), scores.tolist()))
        self._lookahead, self._misses = _Lookahead(steps, known), 0

    def _recompute_rows(self, rows: Rows, pod: PodInfo, nodes: NodeTable) -> None:
        feasible, scores = self._compute_rows(rows, pod, nodes)
        self._feasible[rows], self._scores[rows] = feasible, scores
        if rows is ALL:
            self._top, self._best = np.inf, []
        else:
            numbers = range(len(nodes))[rows] if isinstance(rows, slice) else rows.tolist()
            for row, score in zip(numbers, scores.tolist(), strict=True):
                self._update_best_rows(row, score)

    def _compute_rows(self, rows: Rows, pod: PodInfo, nodes: NodeTable) -> tuple[BoolArray, FloatArray]:
        """Run the plugins that depend on rows. Return a mask of the feasible rows, and the scores."""
        state: CycleState = {}
        seen = nodes.subtract_reserved(pod.priority)
        kept = seen is not nodes
        if rows is not ALL:
            nodes = SomeNodes(nodes, rows)
            seen = SomeNodes(seen, rows) if kept else nodes
        feasible = self._row_filters.passing_rows(state, pod, seen, self._node_mask[rows])
        total: FloatArray = np.zeros(len(feasible))
        for column in self._columns:
            if column.dependency in BY_ROWS:
                column.scorer.run_pre_score(state, pod, nodes, feasible)
                scores = column.scorer.weighted_scores(state, pod, nodes, feasible)
                if self._for_every_pod:
                    column.values[rows] = scores
                total += scores
            elif column.dependency is Dependency.NODES:
                total += column.values[rows]
        np.putmask(total, ~feasible, -np.inf)
        return feasible, total

    def _set_row(self, row: int, feasible: bool, score: float) -> None:
        self._feasible[row], self._scores[row] = feasible, score
        self._update_best_rows(row, score)

    def _update_best_rows(self, row: int, score: float) -> None:
        """Update the best rows with the new score of a row."""
        best = self._best
        at = bisect_left(best, row)
        listed = at < len(best) and best[at] == row
        if score > self._top:
            self._top, self._best = score, [row]
        elif score == self._top > -np.inf:
            if not listed:
                best.insert(at, row)
        elif listed:
            del best[at]

    # --- results that are computed for every pod

    def _run_filters_for_pod(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> BoolArray | None:
        """Return the feasible nodes, or None if a PreFilter refused the pod."""
        if not self._pre_filters and not self._filters:
            return self._feasible
        nodes, skipped = nodes.subtract_reserved(pod.priority), set()
        for plugin in self._pre_filters:
            status = run_pre_filter(plugin, state, pod, nodes)
            if status is SKIP:
                skipped.add(plugin.name)
            elif status is not None:
                return None
        feasible = self._feasible
        for filterer in self._filters:
            if filterer.name not in skipped:
                feasible = feasible & run_filter(filterer, state, pod, nodes).passed
        return feasible

    def _sum_scores(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        total: FloatArray = np.zeros(len(nodes))
        for column in self._columns:
            if column.dependency is not Dependency.EVERYTHING:
                total += column.values
            elif not column.scorer.run_pre_score(state, pod, nodes, feasible):
                total += column.scorer.weighted_scores(state, pod, nodes, feasible)
        np.putmask(total, ~feasible, -np.inf)
        return total


def rows_with_highest_score(scores: FloatArray) -> IntArray:
    """Return the rows with the highest score in ascending order, as an array because there may be thousands."""
    return np.flatnonzero(scores == scores.max())


def _pod_signature(pod: PodInfo, framework: Framework) -> Hashable:
    return framework.scheduler_name, pod.template, pod.identity


class CachedDiagnosis:
    def __init__(self, state: CycleState, diagnosis: Diagnosis, by_rows: RowFilters) -> None:
        """`by_rows` has the filters that depend on rows. The results of the others must still be valid. Raise PluginError."""
        self.state = state
        self.diagnosis = diagnosis
        said = dict(diagnosis.refusals)
        self._row_filters = by_rows
        self._row_reasons = [said[filter_plugin.name].explain() for filter_plugin in by_rows.filters]
        """The reasons of the row filters in order, computed while their data is available."""
        self._reasons: list[dict[int, Set[str]]] = [{0: frozenset()} for _ in self._row_reasons]
        """For each filter, the reasons by code, computed on demand."""

    def still_holds(self, rows: Sequence[int], pod: PodInfo, nodes: NodeTable) -> bool:
        """Return True if the filters refuse these rows for the same reasons as before. Raise PluginError."""
        if self._row_filters.resource_filters is not None:
            return self._single_nodes_agree(rows, pod, nodes.subtract_reserved(pod.priority))
        some = slice(rows[0], rows[0] + 1) if len(rows) == 1 else np.array(rows)
        seen = SomeNodes(nodes.subtract_reserved(pod.priority), some)
        now = (result.explain() for result in self._row_filters.run_filters({}, pod, seen))
        return all(_reasons_equal(then, rows, each) for then, each in zip(self._row_reasons, now, strict=True))

    def _single_nodes_agree(self, rows: Sequence[int], pod: PodInfo, nodes: NodeTable) -> bool:
        """Implement `still_holds` for filters that can check a single node."""
        for row in rows:
            free = partial(nodes.free_at, row)
            for then, known, each in zip(
                self._row_reasons, self._reasons, self._row_filters.resource_filters or (), strict=True
            ):
                code = int(then.codes[row])
                if (reasons := known.get(code)) is None:
                    reasons = known[code] = frozenset(then.reasons(code))
                if reasons != set(call_plugin(each, "Filter", each.lacking, pod, free)):
                    return False
        return True


def _reasons_equal(then: NodeReasons, rows: Sequence[int], now: NodeReasons) -> bool:
    """Return True if the reasons are equal. `now` contains only these rows."""
    for before, after in zip(then.codes[rows].tolist(), now.codes.tolist(), strict=True):
        if bool(before) != bool(after) or (before and set(then.reasons(before)) != set(now.reasons(after))):
            return False
    return True
