"""Pods that are alike ask again only what may have changed since the last of them: mostly about the one node that it went to.

A `_Pass` has the answers for one signature: which nodes are feasible, and their scores. What its plugins see (`Sees`) says when
they are asked again:

    NODES        in a new epoch of the table: then the whole pass is made anew
    ROW          about the rows that were touched since (`NodeTable.touched`), by running them on these rows alone
    ROOM         the same; but what they would say of each row with one more such pod is asked ahead, of all rows at once
    EVERYTHING   for every pod, about all nodes; unless a SKIP holds as long as the epoch

The outcome is the framework's, to the last bit: the same plugins, and their scores added in the same order
(tests/unit/scheduler/test_reuse.py). Whatever is out of the ordinary (no node is feasible, a PreFilter refuses, a plugin fails)
is left to the framework, which asks all plugins and tells why. Why no node is feasible is told again for the next pods that are
alike, until a row that was touched is not refused any more, or for another reason.

Filters are asked about the table as pods of that priority see it, less the room that is kept for nominated pods: a nomination
that begins or ends touches its row. A pod that is nominated itself sees its own room, so it shares no pass; but what filters
say of its node that do not look at room is the same, and the others are asked about that node alone.
"""

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np

from pinnace.fit.table import BoolArray, IntArray
from scheduler.cache.columns import ALL, Rows
from scheduler.cache.one_more import OneMore
from scheduler.cache.pod_info import PodInfo
from scheduler.cache.some_nodes import SomeNodes
from scheduler.cache.table import FloatArray, NodeTable
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.filtering import BY_ROWS, RowFilters, run_filter, run_pre_filter, sees
from scheduler.framework.interface import FilterPlugin, PreFilterPlugin, Sees
from scheduler.framework.remembered import RememberedDiagnosis
from scheduler.framework.results import SKIP, CycleState, PluginError
from scheduler.framework.runtime import Framework, Scorer

Best = Sequence[int] | IntArray
"""Rows, at least one."""

_PASSES = 32
_FEW = 16
"""Rows that are touched, at most, for a look at whether they are still refused."""
_MISSES = 16
"""Rows that are asked about one by one before the next is looked ahead."""


class Passes:
    """Of one table. Holds the latest passes."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._passes: dict[Hashable, _Pass] = {}
        """By signature, the least recently used first."""

    def __len__(self) -> int:
        return len(self._passes)

    def best(self, state: CycleState, pod: PodInfo, nodes: NodeTable, framework: Framework) -> Best | Diagnosis | None:
        """The rows that have the highest score of all feasible nodes, in ascending order; or why there are none, with the state
        that led to it. None: ask the framework. Raises a severe PluginError."""
        if nodes is not self._nodes or pod.volumes is not None:
            return None
        signature = _signature(pod, framework)
        found = self._passes.pop(signature, None)
        try:
            if found is None or found.epoch != nodes.epoch:
                found = _Pass(framework, state, pod, nodes)
            best = found.best(state, pod, nodes)
        except PluginError as error:
            if error.severe:  # to ask again may cost as much
                raise
            return None  # the framework meets it too, and tells
        except Exception:
            return None
        self._passes[signature] = found
        if len(self._passes) > _PASSES:
            del self._passes[next(iter(self._passes))]
        return best

    def takes(self, pod: PodInfo, nodes: NodeTable, framework: Framework, row: int) -> bool:
        """Does this node take the pod, which is nominated? False: no, or the framework must be asked. Raises a severe
        PluginError."""
        if nodes is not self._nodes or pod.volumes is not None:
            return False
        found = self._passes.get(_signature(pod, framework))
        try:
            return found is not None and found.epoch == nodes.epoch and found.takes(pod, nodes, row)
        except PluginError as error:
            if error.severe:
                raise
            return False  # the framework meets it too, and tells
        except Exception:
            return False

    def explain(self, state: CycleState, pod: PodInfo, framework: Framework, diagnosis: Diagnosis) -> None:
        """Why there was nothing best for the pod just now, and the state that led to it."""
        if (found := self._passes.get(_signature(pod, framework))) is not None:
            found.explain(state, diagnosis)


class _Column:
    """A scorer, and its weighted scores, as far as they are kept."""

    __slots__ = ("scorer", "sees", "values")

    def __init__(self, scorer: Scorer, rows: int) -> None:
        self.scorer = scorer
        self.sees = sees(scorer.plugin, "score_sees")
        self.values: FloatArray = np.zeros(rows)


@dataclass(slots=True)
class _Ahead:
    """What rows are like with one more pod."""

    feasible: Sequence[bool] = ()
    scores: Sequence[float] = ()
    known: set[int] = field(default_factory=set)
    """The rows that have not been touched since."""


class _Pass:
    """Its methods raise PluginError and _Refused; then it is good for nothing any more."""

    def __init__(self, framework: Framework, state: CycleState, pod: PodInfo, nodes: NodeTable) -> None:
        self.epoch = nodes.epoch
        self._position = nodes.touched.position
        self._pre_filters: list[PreFilterPlugin] = []
        self._filters: list[FilterPlugin] = []
        """Asked for every pod."""
        self._row_filters = RowFilters(())
        self._by_nodes: BoolArray = np.ones(len(nodes), np.bool_)
        self._filter(framework, state, pod, nodes.seen_at(pod.priority))
        self._feasible = self._by_nodes.copy()
        self._scores: FloatArray = np.zeros(len(nodes))
        self._top = np.inf
        self._best: list[int] = []
        """The rows with the score `_top`; without any, all scores are lower."""
        self._columns = [column for each in framework.scorers if (column := self._column(each, state, pod, nodes)) is not None]
        """In the order in which they are added."""
        self._for_every_pod = any(column.sees is Sees.EVERYTHING for column in self._columns)
        self._requests = pod.requests
        seen = [sees(each, "filter_sees") for each in self._row_filters.filters] + [column.sees for column in self._columns]
        self._can_look_ahead = all(each in (Sees.NODES, Sees.ROOM) for each in seen)
        self._ahead = _Ahead()
        self._misses = 0
        self._remembered: RememberedDiagnosis | None = None
        self._ask_about(ALL, pod, nodes)

    def best(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Best | Diagnosis | None:
        if self._position != nodes.touched.position and not self._still_refused(pod, nodes):
            self._remembered = None
            self._catch_up(pod, nodes)
        if self._remembered is not None:
            state.update(self._remembered.state)
            return self._remembered.diagnosis
        feasible = self._filter_for(state, pod, nodes)
        if feasible is None:
            return None
        if self._for_every_pod:
            return equal_best(self._total(state, pod, nodes, feasible)) if np.count_nonzero(feasible) else None
        if feasible is not self._feasible:
            return equal_best(np.where(feasible, self._scores, -np.inf)) if np.count_nonzero(feasible) else None
        if not self._best:
            self._top = float(self._scores.max())
            self._best = equal_best(self._scores).tolist() if self._top > -np.inf else []
        return self._best or None

    def takes(self, pod: PodInfo, nodes: NodeTable, row: int) -> bool:
        """As `Passes.takes`. What sees nodes alone has said of this one what it would say now."""
        if self._pre_filters or self._filters:
            return False
        return bool(self._by_nodes[row]) and self._row_filters.pass_row(pod, row, nodes.seen_at(pod.priority, pod.uid))

    def explain(self, state: CycleState, diagnosis: Diagnosis) -> None:
        if not self._pre_filters and not self._filters:
            self._remembered = RememberedDiagnosis(dict(state), diagnosis, self._row_filters)

    # --- what is kept

    def _still_refused(self, pod: PodInfo, nodes: NodeTable) -> bool:
        """All that was touched is refused as before: so is everything."""
        touched = nodes.touched.since(self._position)
        if self._remembered is None or touched is None:
            return False
        rows = {row for row, _ in touched}
        if len(rows) > _FEW or not self._remembered.holds(sorted(rows), pod, nodes):
            return False
        self._ahead.known -= rows
        self._position = nodes.touched.position
        return True

    def _filter(self, framework: Framework, state: CycleState, pod: PodInfo, nodes: NodeTable) -> None:
        """Asks the filters that see nodes, and sorts out the others."""
        skipped = set()
        for plugin in framework.pre_filters:
            by_nodes = sees(plugin, "filter_sees") is not Sees.EVERYTHING
            if by_nodes or sees(plugin, "skip_sees") is Sees.NODES:
                status = run_pre_filter(plugin, state, pod, nodes)
                if status is SKIP:
                    skipped.add(plugin.name)
                    continue
                if status is not None and by_nodes:
                    raise _Refused
            if not by_nodes:
                self._pre_filters.append(plugin)
        by_rows = []
        for filterer in framework.filters:
            seen = sees(filterer, "filter_sees")
            if filterer.name in skipped:
                continue
            if seen is Sees.NODES:
                self._by_nodes &= run_filter(filterer, state, pod, nodes).passed
            elif seen in BY_ROWS:
                by_rows.append(filterer)
            else:
                self._filters.append(filterer)
        self._row_filters = RowFilters(by_rows)

    def _column(self, scorer: Scorer, state: CycleState, pod: PodInfo, nodes: NodeTable) -> _Column | None:
        """None: it will skip the pods of this signature."""
        column = _Column(scorer, len(nodes))
        if column.sees is not Sees.EVERYTHING or sees(scorer.plugin, "skip_sees") is Sees.NODES:
            if column.scorer.skips(state, pod, nodes, self._feasible):
                return None
            if column.sees is Sees.NODES:
                column.values[:] = scorer.weighted(state, pod, nodes, self._feasible)
        return column

    def _catch_up(self, pod: PodInfo, nodes: NodeTable) -> None:
        touched = nodes.touched.since(self._position)
        self._position = nodes.touched.position
        if touched is None:
            self._ahead.known.clear()
            self._ask_about(ALL, pod, nodes)
            return
        rows = set()
        for row, requests in touched:
            if row in self._ahead.known:
                self._ahead.known.remove(row)
                if requests is self._requests or requests == self._requests:
                    self._set(row, self._ahead.feasible[row], self._ahead.scores[row])
                    continue
            rows.add(row)
        if len(rows) == 1:
            (row,) = rows
            self._ask_about(slice(row, row + 1), pod, nodes)
        elif len(rows) > len(nodes) // 4:
            self._ask_about(ALL, pod, nodes)
        elif rows:
            self._ask_about(np.array(sorted(rows)), pod, nodes)
        self._misses += len(rows)
        if self._misses >= _MISSES and self._can_look_ahead:
            self._look_ahead(pod, nodes)

    def _look_ahead(self, pod: PodInfo, nodes: NodeTable) -> None:
        feasible, scores = self._ask(ALL, pod, OneMore(nodes, self._requests))
        self._ahead = _Ahead(feasible.tolist(), scores.tolist(), set(range(len(nodes))))
        self._misses = 0

    def _ask_about(self, rows: Rows, pod: PodInfo, nodes: NodeTable) -> None:
        feasible, scores = self._ask(rows, pod, nodes)
        self._feasible[rows], self._scores[rows] = feasible, scores
        if rows is ALL:
            self._top, self._best = np.inf, []
        else:
            numbers = range(len(nodes))[rows] if isinstance(rows, slice) else rows.tolist()
            for row, score in zip(numbers, scores.tolist(), strict=True):
                self._rank(row, score)

    def _ask(self, rows: Rows, pod: PodInfo, nodes: NodeTable) -> tuple[BoolArray, FloatArray]:
        """Asks the plugins that see rows: which of these are feasible, and their scores."""
        state: CycleState = {}
        seen = nodes.seen_at(pod.priority)
        kept = seen is not nodes
        if rows is not ALL:
            nodes = SomeNodes(nodes, rows)
            seen = SomeNodes(seen, rows) if kept else nodes
        feasible = self._row_filters.passed(state, pod, seen, self._by_nodes[rows])
        total: FloatArray = np.zeros(len(feasible))
        for column in self._columns:
            if column.sees in BY_ROWS:
                column.scorer.skips(state, pod, nodes, feasible)
                scores = column.scorer.weighted(state, pod, nodes, feasible)
                if self._for_every_pod:
                    column.values[rows] = scores
                total += scores
            elif column.sees is Sees.NODES:
                total += column.values[rows]
        np.putmask(total, ~feasible, -np.inf)
        return feasible, total

    def _set(self, row: int, feasible: bool, score: float) -> None:
        self._feasible[row], self._scores[row] = feasible, score
        self._rank(row, score)

    def _rank(self, row: int, score: float) -> None:
        """The row has a new score."""
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

    # --- what is asked for every pod

    def _filter_for(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> BoolArray | None:
        """The feasible nodes; None: a PreFilter refuses."""
        if not self._pre_filters and not self._filters:
            return self._feasible
        nodes, skipped = nodes.seen_at(pod.priority), set()
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

    def _total(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        total: FloatArray = np.zeros(len(nodes))
        for column in self._columns:
            if column.sees is not Sees.EVERYTHING:
                total += column.values
            elif not column.scorer.skips(state, pod, nodes, feasible):
                total += column.scorer.weighted(state, pod, nodes, feasible)
        np.putmask(total, ~feasible, -np.inf)
        return total


class _Refused(Exception):
    """By a PreFilter."""


def equal_best(scores: FloatArray) -> IntArray:
    """The rows with the highest score, in ascending order. An array: there may be thousands, of which one is taken."""
    return np.flatnonzero(scores == scores.max())


def _signature(pod: PodInfo, framework: Framework) -> Hashable:
    return framework.scheduler_name, pod.template, pod.identity
