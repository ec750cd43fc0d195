"""A bound on the work of one decision: a pod whose decision would take too long is refused before it is made.

Kubernetes does not limit how many terms, constraints, tolerations or ports a pod has; an object may be 1 MiB. A decision holds
the event loop, and with it the heartbeats of the election: one that lasts as long as the lease ends the term, and the next
leader takes the same pod first. So plugins estimate the CPU time that they would need (`cost` of CostPlugin), from what the
pod states and what the table holds, and the sum must be at most BUDGET. The estimate does not depend on the clock: the same pod
and the same table give the same answer.

A spec of at most SMALL bytes is not looked at: whatever it states, it stays within the budget.
"""

from collections.abc import Sequence

from scheduler.cache.changes import Change, ClusterEvent
from scheduler.cache.pod_info import PodInfo
from scheduler.cache.table import NodeTable
from scheduler.framework.faults import call, check_costs
from scheduler.framework.interface import CostPlugin
from scheduler.framework.results import Cost

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
        """Seconds; 0 for a small pod. Raises PluginError."""
        return sum(each.seconds for each in self._costs(pod, nodes))

    def _costs(self, pod: PodInfo, nodes: NodeTable) -> Sequence[Cost]:
        if is_small(pod):
            return ()
        labels = len(pod.raw.metadata.labels)
        costs = [Cost(labels * _LABEL, labels, "labels")]
        for plugin in self._plugins:
            costs += call(plugin, "Cost", check_costs, call(plugin, "Cost", plugin.cost, pod, nodes))
        return costs
