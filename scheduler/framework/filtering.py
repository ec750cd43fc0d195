"""Run PreFilter and Filter plugins for all nodes or some rows, and limit the cost of one decision."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from pinnace.fit.table import BoolArray
from pinnace.scheduler.cache.cache import Change, ClusterEvent
from pinnace.scheduler.cache.pod_info import PodInfo
from pinnace.scheduler.cache.table import NodeTable, SomeNodes
from pinnace.scheduler.framework.interface import (
    CostPlugin,
    Dependency,
    FilterPlugin,
    Plugin,
    PreFilterPlugin,
    ResourceFilterPlugin,
)
from pinnace.scheduler.framework.plugin_errors import (
    TRUSTED,
    call_plugin,
    check_costs,
    check_passed,
    check_status,
    guard_callbacks,
)
from pinnace.scheduler.framework.results import Cost, CycleState, FilterResult, Status

BY_ROWS = (Dependency.ROW, Dependency.FREE_RESOURCES)
_ONE: BoolArray = np.ones(1, np.bool_)
BUDGET = 0.1
"""Maximum CPU seconds of one decision."""
SMALL = 8 << 10
"""Maximum size of the spec of a small pod, in bytes."""
_FEW_LABELS = 256
_LABEL = 3e-6
"""Seconds per label, because each label is matched with selectors and distinguishes groups of pods."""


def run_pre_filter(plugin: PreFilterPlugin, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
    """Run PreFilter. Return None, the SKIP object, or a Status with a reason. Raise PluginError."""
    answer = call_plugin(plugin, "PreFilter", plugin.pre_filter, state, pod, nodes)
    return answer if answer is None else call_plugin(plugin, "PreFilter", check_status, answer)


def run_filter(plugin: FilterPlugin, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
    """Run Filter. Raise PluginError."""
    result = call_plugin(plugin, "Filter", plugin.filter, state, pod, nodes)
    if type(plugin) in TRUSTED:
        return result
    return guard_callbacks(plugin, call_plugin(plugin, "Filter", check_passed, result, len(nodes)))


def read_dependency(plugin: Plugin, attribute: str) -> Dependency:
    """Return the value of one of the plugin's attributes that `Dependency` describes."""
    result: Dependency = getattr(plugin, attribute, Dependency.EVERYTHING)
    return result


def _lacking_matches_filter(plugin: ResourceFilterPlugin) -> bool:
    """Return True if `lacking` is consistent with `filter`. A derived class that overrides only `filter` is not consistent."""
    return any("lacking" in vars(item) for item in _classes_defining(type(plugin), "filter"))


def _classes_defining(kind: type, method: str) -> Sequence[type]:
    """Return the classes from the plugin's class to the one that defines the method, or none if the instance defines it."""
    order = kind.__mro__
    return order[: 1 + next((index for index, each in enumerate(order) if method in vars(each)), -1)]


class RowFilters:
    """Filters that depend on rows (BY_ROWS) and do not skip the pod."""

    def __init__(self, filters: Sequence[FilterPlugin]) -> None:
        self.filters = filters
        self._prepared: Sequence[tuple[Any, FilterPlugin]] = [
            (filter_plugin if isinstance(filter_plugin, PreFilterPlugin) else None, filter_plugin) for filter_plugin in filters
        ]
        rooms = [
            filter_plugin
            for filter_plugin in filters
            if isinstance(filter_plugin, ResourceFilterPlugin) and _lacking_matches_filter(filter_plugin)
        ]
        self.resource_filters = rooms if len(rooms) == len(filters) else None
        """All filters if each can check a single node, otherwise None."""

    def passing_rows(self, state: CycleState, pod: PodInfo, nodes: NodeTable, among: BoolArray) -> BoolArray:
        """Return the nodes of `among` that pass all filters. Raise PluginError."""
        for result in self.run_filters(state, pod, nodes):
            among = among & result.passed
        return among

    def passes_row(self, pod: PodInfo, row: int, nodes: NodeTable) -> bool:
        """Return True if the node passes all filters. Raise PluginError."""
        if self.resource_filters is not None:
            free = partial(nodes.free_at, row)
            return not any(call_plugin(room, "Filter", room.lacking, pod, free) for room in self.resource_filters)
        node = nodes if len(nodes) == 1 else SomeNodes(nodes, slice(row, row + 1))
        return bool(self.passing_rows({}, pod, node, _ONE)[0])

    def run_filters(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Iterator[FilterResult]:
        """Yield the result of each filter. Raise PluginError."""
        for pre_filter, filterer in self._prepared:
            if pre_filter is not None:
                run_pre_filter(pre_filter, state, pod, nodes)
            yield run_filter(filterer, state, pod, nodes)


class SingleNodeFilter:
    """The filters of a profile for one node, after a run on all nodes.

    It is valid while only the pods on nodes change. Results that depend only on nodes are reused; the other filters run
    on the row.
    """

    def __init__(self, by_nodes: Sequence[FilterResult], by_rows: RowFilters) -> None:
        """`by_nodes`: the results that depend only on nodes."""
        self._by_nodes = by_nodes
        self._by_rows = by_rows

    @property
    def depends_on_resources_only(self) -> bool:
        """True if all filters depend only on free resources."""
        return all(
            read_dependency(filter_plugin, "filter_depends_on") is Dependency.FREE_RESOURCES
            for filter_plugin in self._by_rows.filters
        )

    def passes_filters(self, pod: PodInfo, row: int, node: NodeTable) -> bool:
        """Return True if the row passes. `node` is the row as a table of one row. Raise PluginError."""
        return all(result.passed[row] for result in self._by_nodes) and self._by_rows.passes_row(pod, 0, node)

    def refusal_reasons(self, pod: PodInfo, row: int, node: NodeTable) -> tuple[str, ...]:
        """Return the reasons of the first filter that refuses the row; those that depend only on nodes are last. Raise
        PluginError."""
        for result in self._by_rows.run_filters({}, pod, node):
            if not result.passed[0]:
                return result.reasons_at(0)
        return next((result.reasons_at(row) for result in self._by_nodes if not result.passed[row]), ())


def is_small(pod: PodInfo) -> bool:
    """Return True if the pod is within the budget without an estimate."""
    return len(pod.template) <= SMALL and len(pod.raw.metadata.labels) <= _FEW_LABELS


class CostLimit:
    """The hint for pods that are refused for their cost. Only a change of the pod or fewer nodes help. The periodic flush of
    the queue retries them."""

    name = "SchedulingCost"
    helped_by = Change.NODE_REMOVED

    def __init__(self, plugins: Sequence[CostPlugin]) -> None:
        self._plugins = plugins

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        return False

    def find_refusal(self, pod: PodInfo, nodes: NodeTable) -> str:
        """Return the reason for a refusal, or an empty string if the pod is within the budget. Raise PluginError."""
        costs = self._plugin_costs(pod, nodes)
        total = sum(cost.seconds for cost in costs)
        if total <= BUDGET:
            return ""
        most = max(costs, key=lambda cost: cost.seconds)
        return (
            f"a decision about the pod would take {total:.1f} s of CPU, at most {BUDGET:g} s are allowed: the pod has "
            f"{most.number:,} {most.what}, use fewer"
        )

    def estimate_decision_cost(self, pod: PodInfo, nodes: NodeTable) -> float:
        """Return the estimated CPU seconds of one decision. It also accepts small pods. Raise PluginError."""
        return sum(cost.seconds for cost in self._plugin_costs(pod, nodes))

    def _plugin_costs(self, pod: PodInfo, nodes: NodeTable) -> Sequence[Cost]:
        labels = len(pod.raw.metadata.labels)
        costs = [Cost(labels * _LABEL, labels, "labels")]
        for plugin in self._plugins:
            costs += call_plugin(plugin, "Cost", check_costs, call_plugin(plugin, "Cost", plugin.cost, pod, nodes))
        return costs
