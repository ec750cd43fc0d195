"""Every plugin's opinion on every node: `Framework.judge` and `Framework.score` in slow motion, with nothing left out.

The sum is the same (tests/unit/scheduler/test_survey.py): what the framework adds up is kept apart here, and a PreFilter that
refuses the pod everywhere does not keep the other plugins from saying what they have against it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pinnace.fit.table import BoolArray, IntArray
from scheduler.cache.pod_info import PodInfo
from scheduler.cache.table import FloatArray, NodeTable
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.faults import failure
from scheduler.framework.filtering import run_filter, run_pre_filter
from scheduler.framework.results import SKIP, CycleState, FilterResult, Status
from scheduler.framework.runtime import Framework
from scheduler.plugins.nodes import CORDON_TAINT, HARD_EFFECTS, NodeUnschedulable, TaintToleration, untolerated


@dataclass(frozen=True, slots=True)
class Survey:
    """`refusals`: the verdicts of the plugins that had something to look at, in their order. A plugin may be there twice, about
    different nodes. `cordoned`: nodes of which TaintToleration only says again what NodeUnschedulable says."""

    nodes: NodeTable
    refusals: Sequence[tuple[str, FilterResult]]
    cordoned: BoolArray
    nowhere: tuple[str, str] | None = None
    """(plugin, reason) of the first PreFilter that refused the pod for all nodes."""

    @property
    def objecting(self) -> Iterator[tuple[str, FilterResult]]:
        """The refusals, less what is said again: a cordon is one thing in the way, although there is a taint for it as well."""
        for plugin, result in self.refusals:
            said_again = plugin == TaintToleration.name
            yield plugin, FilterResult(result.passed | self.cordoned, result.explain) if said_again else result

    @property
    def objections(self) -> IntArray:
        """For each node, by how many plugins it is refused."""
        found = np.zeros(len(self.nodes), np.int64)
        for _, result in self.objecting:
            found += ~result.passed
        return found

    @property
    def feasible(self) -> BoolArray:
        none: BoolArray = self.objections == 0
        return none

    @property
    def diagnosis(self) -> Diagnosis:
        """What the scheduler goes by when no node is feasible."""
        return Diagnosis(len(self.nodes), self.refusals, self.nowhere)

    def groups(self) -> Iterator[tuple[str, str, BoolArray]]:
        """(plugin, reason, nodes). A node is in several when it is refused for several reasons. Raises PluginError."""
        found: dict[tuple[str, str], BoolArray] = {}
        for plugin, result in self.objecting:
            for reason, nodes in _by_reason(plugin, result).items():
                found[plugin, reason] = found[plugin, reason] | nodes if (plugin, reason) in found else nodes
        yield from ((plugin, reason, nodes) for (plugin, reason), nodes in found.items())

    def refusing(self, rows: Sequence[int]) -> list[str]:
        """The plugins that refuse one of these nodes."""
        return list(dict.fromkeys(plugin for plugin, result in self.objecting if not result.passed[rows].all()))


def refused_everywhere(nodes: NodeTable, by: str, reason: str) -> Survey:
    """No plugin is asked."""
    refused = FilterResult.refusing(np.ones(len(nodes), np.bool_), reason)
    return Survey(nodes, [(by, refused)], np.zeros(len(nodes), np.bool_), (by, reason))


def survey(framework: Framework, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Survey:
    """What several PreFilters refuse the pod for, in the same words, is one thing in the way: the first tells of it. Raises
    PluginError. There must be a node."""
    skipped = set()
    refusals = []
    said = set[str]()
    nowhere = None
    for plugin in framework.pre_filters:
        status = run_pre_filter(plugin, state, pod, nodes)
        if status is not None:
            skipped.add(plugin.name)
        if isinstance(status, Status) and status is not SKIP and status.reason not in said:
            said.add(status.reason)
            refusals.append((plugin.name, FilterResult.refusing(np.ones(len(nodes), np.bool_), status.reason)))
            nowhere = nowhere or (plugin.name, status.reason)
    filters = [each for each in framework.filters if each.name not in skipped]
    refusals += [(each.name, run_filter(each, state, pod, nodes)) for each in filters]
    return Survey(nodes, refusals, _cordoned(refusals, pod, nodes), nowhere)


def _cordoned(refusals: Sequence[tuple[str, FilterResult]], pod: PodInfo, nodes: NodeTable) -> BoolArray:
    """The nodes that NodeUnschedulable refuses, and that have no taint in the pod's way but the one that says so."""
    refused = next((~result.passed for plugin, result in refusals if plugin == NodeUnschedulable.name), None)
    if refused is None:
        return np.zeros(len(nodes), np.bool_)
    only: BoolArray = nodes.taints.map(lambda taints: untolerated(taints, pod, HARD_EFFECTS) == [CORDON_TAINT], np.bool_)
    return refused & only


def scores(
    framework: Framework, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray
) -> Iterator[tuple[str, float, FloatArray]]:
    """(plugin, weight, score of every node) of those that do not skip the pod. Raises PluginError."""
    for scorer in framework.scorers:
        if not scorer.skips(state, pod, nodes, feasible):
            yield scorer.plugin.name, scorer.weight, scorer.scores(state, pod, nodes, feasible)


def _by_reason(plugin: str, result: FilterResult) -> dict[str, BoolArray]:
    found: dict[str, BoolArray] = {}
    try:
        verdicts = result.explain()
        for code in np.unique(verdicts.codes[~result.passed]).tolist():
            nodes = (verdicts.codes == code) & ~result.passed
            for reason in verdicts.reasons(code):
                found[reason] = found[reason] | nodes if reason in found else nodes
    except BaseException as error:
        raise failure(plugin, "Filter", error) from error
    return found
