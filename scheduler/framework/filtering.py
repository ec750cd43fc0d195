"""Asking filters: one about all nodes, or those that look at each node by itself about some rows alone."""

from collections.abc import Sequence

import numpy as np

from pinnace.fit.table import BoolArray
from scheduler.cache.pod_info import PodInfo
from scheduler.cache.some_nodes import SomeNodes
from scheduler.cache.table import NodeTable
from scheduler.framework.interface import FilterPlugin, Plugin, PreFilterPlugin, Sees
from scheduler.framework.results import CycleState, FilterResult, PluginError

BY_ROWS = (Sees.ROW, Sees.ROOM)


def run_filter(plugin: FilterPlugin, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
    """Raises PluginError."""
    try:
        result = plugin.filter(state, pod, nodes)
        if result.passed.shape != (len(nodes),) or result.passed.dtype != np.bool_:
            raise ValueError(f"`passed` must be {len(nodes)} booleans")
        return result
    except Exception as error:
        raise PluginError(plugin.name, "Filter", error) from error


def sees(plugin: Plugin, attribute: str) -> Sees:
    """Of one of the attributes that `Sees` is for."""
    found: Sees = getattr(plugin, attribute, Sees.EVERYTHING)
    return found


class RowFilters:
    """Filters that see rows (BY_ROWS), and do not skip the pod."""

    def __init__(self, filters: Sequence[FilterPlugin]) -> None:
        self.filters = filters
        self._prepared = [(each if isinstance(each, PreFilterPlugin) else None, each) for each in filters]

    def passed(self, state: CycleState, pod: PodInfo, nodes: NodeTable, among: BoolArray) -> BoolArray:
        """Those among the nodes that all of them pass. Raises what plugins raise."""
        for pre_filter, filterer in self._prepared:
            if pre_filter is not None:
                pre_filter.pre_filter(state, pod, nodes)
            among = among & run_filter(filterer, state, pod, nodes).passed
        return among


class OneByOne:
    """All filters of a profile about one node, once they have judged all nodes, and as long as nothing changes but the pods on
    nodes: who sees nodes says the same, the others are asked about the row alone."""

    def __init__(self, by_nodes: Sequence[BoolArray], by_rows: RowFilters) -> None:
        self._by_nodes = by_nodes
        self._by_rows = by_rows

    def passes(self, pod: PodInfo, row: int, nodes: NodeTable) -> bool:
        """Raises what plugins raise."""
        if not all(passed[row] for passed in self._by_nodes):
            return False
        return bool(self._by_rows.passed({}, pod, SomeNodes(nodes, slice(row, row + 1)), _ONE)[0])


_ONE: BoolArray = np.ones(1, np.bool_)
