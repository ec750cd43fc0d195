"""Runs PreFilter and Filter plugins for all nodes or some rows, and bounds the cost of one decision."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from pinnace.fit.table import BoolArray
from scheduler.cache.changes import Change, ClusterEvent
from scheduler.cache.pod_info import PodInfo
from scheduler.cache.some_nodes import SomeNodes
from scheduler.cache.table import NodeTable
from scheduler.framework.faults import TRUSTED, call, check_costs, check_passed, check_status, guarded
from scheduler.framework.interface import CostPlugin, FilterPlugin, Plugin, PreFilterPlugin, RoomFilterPlugin, Sees
from scheduler.framework.results import Cost, CycleState, FilterResult, Status

BY_ROWS = (Sees.ROW, Sees.ROOM)


def run_pre_filter(plugin: PreFilterPlugin, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
    """None, SKIP itself, or a reason. Raises PluginError."""
    answer = call(plugin, "PreFilter", plugin.pre_filter, state, pod, nodes)
    return answer if answer is None else call(plugin, "PreFilter", check_status, answer)


def run_filter(plugin: FilterPlugin, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
    """Raises PluginError."""
    result = call(plugin, "Filter", plugin.filter, state, pod, nodes)
    if type(plugin) in TRUSTED:
        return result
    return guarded(plugin, call(plugin, "Filter", check_passed, result, len(nodes)))


def sees(plugin: Plugin, attribute: str) -> Sees:
    """Of one of the attributes that `Sees` is for."""
    found: Sees = getattr(plugin, attribute, Sees.EVERYTHING)
    return found


def _says_itself(plugin: RoomFilterPlugin) -> bool:
    """Does `lacking` speak for `filter`? Not where a class was derived that only replaces the latter."""
    return any("lacking" in vars(each) for each in _down_to(type(plugin), "filter"))


def _down_to(kind: type, method: str) -> Sequence[type]:
    """The class that has the method, and those derived from it, of which this is one; none, if it is the instance's own."""
    order = kind.__mro__
    return order[: 1 + next((index for index, each in enumerate(order) if method in vars(each)), -1)]


class RowFilters:
    """Filters that see rows (BY_ROWS), and do not skip the pod."""

    def __init__(self, filters: Sequence[FilterPlugin]) -> None:
        self.filters = filters
        self._prepared: Sequence[tuple[Any, FilterPlugin]] = [
            (each if isinstance(each, PreFilterPlugin) else None, each) for each in filters
        ]
        rooms = [each for each in filters if isinstance(each, RoomFilterPlugin) and _says_itself(each)]
        self.rooms = rooms if len(rooms) == len(filters) else None
        """All of them, if they can be asked about a single node; else None."""

    def passed(self, state: CycleState, pod: PodInfo, nodes: NodeTable, among: BoolArray) -> BoolArray:
        """Those among the nodes that all of them pass. Raises PluginError."""
        for result in self.results(state, pod, nodes):
            among = among & result.passed
        return among

    def pass_row(self, pod: PodInfo, row: int, nodes: NodeTable) -> bool:
        """Do all of them pass one of the nodes? Raises PluginError."""
        if self.rooms is not None:
            free = partial(nodes.free_at, row)
            return not any(call(each, "Filter", each.lacking, pod, free) for each in self.rooms)
        node = nodes if len(nodes) == 1 else SomeNodes(nodes, slice(row, row + 1))
        return bool(self.passed({}, pod, node, _ONE)[0])

    def results(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Iterator[FilterResult]:
        """What each of them says. Raises PluginError."""
        for pre_filter, filterer in self._prepared:
            if pre_filter is not None:
                run_pre_filter(pre_filter, state, pod, nodes)
            yield run_filter(filterer, state, pod, nodes)


class OneByOne:
    """All filters of a profile about one node, once they have judged all nodes, and as long as nothing changes but the pods on
    nodes: who sees nodes says the same, the others are asked about the row alone."""

    def __init__(self, by_nodes: Sequence[BoolArray], by_rows: RowFilters) -> None:
        self._by_nodes = by_nodes
        self._by_rows = by_rows

    @property
    def see_room(self) -> bool:
        """Of the pods on the node it is only what they leave free that counts."""
        return all(sees(each, "filter_sees") is Sees.ROOM for each in self._by_rows.filters)

    def passes(self, pod: PodInfo, row: int, node: NodeTable) -> bool:
        """`node`: the row, as a table of its own. Raises PluginError."""
        return all(passed[row] for passed in self._by_nodes) and self._by_rows.pass_row(pod, 0, node)


_ONE: BoolArray = np.ones(1, np.bool_)


BUDGET = 0.1
"""Seconds of CPU."""
SMALL = 8 << 10
"""Bytes of a spec."""
_FEW_LABELS = 256
_LABEL = 3e-6
"""Seconds for a label: selectors are held against it, and pods with other labels are told apart."""


def is_small(pod: PodInfo) -> bool:
    """Is it within the budget, whatever it states?"""
    return len(pod.template) <= SMALL and len(pod.raw.metadata.labels) <= _FEW_LABELS


class CostBound:
    """The hint of pods that are refused for their cost: nothing helps them but a change of the pod, or fewer nodes, which the
    flush of the queue tries."""

    name = "SchedulingCost"
    helped_by = Change.NODE_REMOVED

    def __init__(self, plugins: Sequence[CostPlugin]) -> None:
        self._plugins = plugins

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        return False

    def refusal(self, pod: PodInfo, nodes: NodeTable) -> str:
        """Why no decision is made about the pod; empty: it is within the budget. Raises PluginError."""
        costs = self._costs(pod, nodes)
        total = sum(each.seconds for each in costs)
        if total <= BUDGET:
            return ""
        most = max(costs, key=lambda each: each.seconds)
        return (
            f"a decision about the pod would take {total:.1f} s of CPU, at most {BUDGET:g} s are allowed: the pod has "
            f"{most.number:,} {most.what}, use fewer"
        )

    def estimate(self, pod: PodInfo, nodes: NodeTable) -> float:
        """Seconds of CPU for one decision, also about a small pod. Raises PluginError."""
        return sum(each.seconds for each in self._costs(pod, nodes))

    def _costs(self, pod: PodInfo, nodes: NodeTable) -> Sequence[Cost]:
        labels = len(pod.raw.metadata.labels)
        costs = [Cost(labels * _LABEL, labels, "labels")]
        for plugin in self._plugins:
            costs += call(plugin, "Cost", check_costs, call(plugin, "Cost", plugin.cost, pod, nodes))
        return costs
