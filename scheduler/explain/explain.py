"""Explain one pod: all refusals on all nodes, the ranking of feasible nodes, remedies, and the effect of preemption.

`survey_nodes` runs the filters as `Framework.run_filters` does, but keeps the result of each plugin, and continues after a
PreFilter has refused the pod (tests/unit/scheduler/test_survey.py proves that the counts are equal). If only one plugin refuses
a node, its advisor supplies the remedies. Otherwise the remedy applies to the node with the fewest refusing plugins.

`preemption_advice` simulates preemption one node at a time, as the scheduler does, and names the victims on the best node. It
ignores PodDisruptionBudgets, which make a victim less preferred but do not exclude it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.records import Asked, Explanation, NodePluginScores, PluginRejectionRecord, Refusal, Remedy, format_list
from pinnace.fit.requests import PODS
from pinnace.fit.table import BoolArray, IntArray
from pinnace.scheduler.cache.cache import Cache
from pinnace.scheduler.cache.pod_info import PodInfo
from pinnace.scheduler.cache.table import FloatArray, NodeTable
from pinnace.scheduler.explain.advice import AdvisorInput, Reasons, advisor_of, amount_text, missing_share
from pinnace.scheduler.framework.filtering import run_filter, run_pre_filter
from pinnace.scheduler.framework.profile import Point
from pinnace.scheduler.framework.results import (
    NO_NODES,
    SKIP,
    CycleState,
    Diagnosis,
    FilterResult,
    PluginError,
    Status,
    plugin_failure,
)
from pinnace.scheduler.framework.runtime import Framework
from pinnace.scheduler.node_selector import find_nominated_conflicts
from pinnace.scheduler.plugins.helper import ObjectStores
from pinnace.scheduler.plugins.nodes import CORDON_TAINT, HARD_EFFECTS, NodeUnschedulable, TaintToleration, untolerated_taints
from pinnace.scheduler.preemption import CandidateBounds, CandidateFinder, SearchExhausted

MAX_REMEDIES = 5
MAX_PREEMPTION_NODES = 100
"""Maximum number of candidate nodes of the search."""
NEVER = "Never"
MAX_RANKED = 5
"""Maximum number of ranked nodes, in addition to the pod's node and the requested node."""


@dataclass(frozen=True, slots=True)
class Survey:
    """The results of all filters.

    `refusals` has the results of the plugins that did not skip the pod, in call order. A plugin may occur twice with different
    nodes. `cordoned` is the mask of nodes where TaintToleration only repeats the refusal of NodeUnschedulable.
    """

    nodes: NodeTable
    refusals: Sequence[tuple[str, FilterResult]]
    cordoned: BoolArray
    nowhere: tuple[str, str] | None = None
    """(plugin, reason) of the first PreFilter that refused the pod on all nodes."""

    @property
    def objecting(self) -> Iterator[tuple[str, FilterResult]]:
        """The refusals without duplicates: a cordon counts once, although the node also has a taint for it."""
        for plugin, result in self.refusals:
            said_again = plugin == TaintToleration.name
            yield plugin, FilterResult(result.passed | self.cordoned, result.explain) if said_again else result

    @property
    def refusing_plugin_counts(self) -> IntArray:
        """The number of plugins that refuse each node."""
        found = np.zeros(len(self.nodes), np.int64)
        for _, result in self.objecting:
            found += ~result.passed
        return found

    @property
    def feasible(self) -> BoolArray:
        none: BoolArray = self.refusing_plugin_counts == 0
        return none

    @property
    def diagnosis(self) -> Diagnosis:
        """The diagnosis that the scheduler uses if no node is feasible."""
        return Diagnosis(len(self.nodes), self.refusals, self.nowhere)

    def refused_groups(self) -> Iterator[tuple[str, str, BoolArray]]:
        """Yield (plugin, reason, nodes). A node refused for several reasons occurs several times. Raise PluginError."""
        found: dict[tuple[str, str], BoolArray] = {}
        for plugin, result in self.objecting:
            for reason, nodes in _nodes_by_reason(plugin, result).items():
                found[plugin, reason] = found[plugin, reason] | nodes if (plugin, reason) in found else nodes
        yield from ((plugin, reason, nodes) for (plugin, reason), nodes in found.items())

    def plugins_refusing(self, rows: Sequence[int]) -> list[str]:
        """Return the plugins that refuse at least one of these nodes."""
        return list(dict.fromkeys(plugin for plugin, result in self.objecting if not result.passed[rows].all()))


def refused_everywhere(nodes: NodeTable, by: str, reason: str) -> Survey:
    """Return a survey with one reason for all nodes. No plugin is called."""
    refused = FilterResult.refusing(np.ones(len(nodes), np.bool_), reason)
    return Survey(nodes, [(by, refused)], np.zeros(len(nodes), np.bool_), (by, reason))


def survey_nodes(framework: Framework, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Survey:
    """Run all filters on all nodes, at least one.

    A reason that several PreFilters return is counted once, for the first of them. Raise PluginError.
    """
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
    filters = [filter_plugin for filter_plugin in framework.filters if filter_plugin.name not in skipped]
    refusals += [(filter_plugin.name, run_filter(filter_plugin, state, pod, nodes)) for filter_plugin in filters]
    return Survey(nodes, refusals, _cordoned_nodes(refusals, pod, nodes), nowhere)


def _cordoned_nodes(refusals: Sequence[tuple[str, FilterResult]], pod: PodInfo, nodes: NodeTable) -> BoolArray:
    """Return the nodes that NodeUnschedulable refuses and whose only untolerated taint is the taint of the cordon."""
    refused = next((~result.passed for plugin, result in refusals if plugin == NodeUnschedulable.name), None)
    if refused is None:
        return np.zeros(len(nodes), np.bool_)
    only: BoolArray = nodes.taints.map(lambda taints: untolerated_taints(taints, pod, HARD_EFFECTS) == [CORDON_TAINT], np.bool_)
    return refused & only


def plugin_scores(
    framework: Framework, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray
) -> Iterator[tuple[str, float, FloatArray]]:
    """Yield (plugin, weight, score of every node) of the plugins that do not skip the pod. Raise PluginError."""
    for scorer in framework.scorers:
        if not scorer.run_pre_score(state, pod, nodes, feasible):
            yield scorer.plugin.name, scorer.weight, scorer.score_nodes(state, pod, nodes, feasible)


def _nodes_by_reason(plugin: str, result: FilterResult) -> dict[str, BoolArray]:
    nodes_by_reason: dict[str, BoolArray] = {}
    try:
        verdicts = result.explain()
        for code in np.unique(verdicts.codes[~result.passed]).tolist():
            nodes = (verdicts.codes == code) & ~result.passed
            for reason in verdicts.reasons(code):
                nodes_by_reason[reason] = nodes_by_reason[reason] | nodes if reason in nodes_by_reason else nodes
    except BaseException as error:
        raise plugin_failure(plugin, "Filter", error) from error
    return nodes_by_reason


def find_remedies(case: AdvisorInput, survey: Survey) -> list[Remedy]:
    """Return at most MAX_REMEDIES remedies, the one for the most nodes first. No node may be feasible."""
    objections = survey.refusing_plugin_counts
    rows = np.flatnonzero(objections == objections.min())
    if objections.min() > 1:
        return [_combined_remedies(case, survey, rows.tolist())]
    result = [
        remedy
        for plugin in survey.plugins_refusing(rows.tolist())
        for remedy in _remedies_of_plugin(case, survey, plugin, rows.tolist())
    ]
    return sorted(result, key=lambda remedy: -len(remedy.nodes))[:MAX_REMEDIES]


def remedy_without_nodes(case: AdvisorInput) -> Remedy:
    """Return the remedy for a cluster without nodes."""
    asked = " and ".join(
        f"{amount_text(resource, amount)} {resource}" for resource, amount in case.pod.requests.amounts if resource != PODS
    )
    return Remedy(f"add a node{f' with {asked} free' if asked else ''}", [])


def _remedies_of_plugin(case: AdvisorInput, survey: Survey, plugin: str, rows: Sequence[int]) -> Iterator[Remedy]:
    reasons = _refusal_reasons(survey, plugin, rows)
    for remedy in advisor_of(plugin).suggest_remedies(case, reasons):
        yield Remedy(remedy.text, remedy.nodes, [plugin])


def _combined_remedies(case: AdvisorInput, survey: Survey, rows: Sequence[int]) -> Remedy:
    """Return the combined remedies of the node that lacks the smallest share of resources, and of several the first by name."""
    row = min(rows, key=lambda row: (missing_share(case, row), case.nodes.names[row]))
    plugins = survey.plugins_refusing([row])
    texts = [advisor_of(plugin).suggest_remedies(case, _refusal_reasons(survey, plugin, [row]))[0].text for plugin in plugins]
    return Remedy("; and ".join(dict.fromkeys(texts)), [case.nodes.names[row]], plugins)


def _refusal_reasons(survey: Survey, plugin: str, rows: Sequence[int]) -> Reasons:
    among = np.zeros(len(survey.nodes), np.bool_)
    among[rows] = True
    numbers = {
        reason: np.flatnonzero(nodes & among).tolist() for name, reason, nodes in survey.refused_groups() if name == plugin
    }
    return {reason: rows for reason, rows in numbers.items() if rows}


def preemption_advice(framework: Framework, pod: PodInfo, cache: Cache, diagnosis: Diagnosis) -> str:
    """Return a sentence about preemption, or an empty string if there are no pods of lower priority.

    `diagnosis` has the reasons why no node fits the pod. Raise PluginError.
    """
    lower = cache.requests_below(pod.priority)
    if PODS not in lower or not lower[PODS].any():
        return ""
    try:
        result = CandidateFinder(CandidateBounds(0, MAX_PREEMPTION_NODES)).find_candidates(
            pod, diagnosis, cache, framework, (), 0
        )
    except SearchExhausted:
        return "it may help, but the search for a node exceeds the time limit"
    if isinstance(result, Diagnosis):
        return f"it would not help: no node fits the pod even without its pods of lower priority than {pod.priority}"
    best = min(result, key=lambda item: (item.rank, item.node))
    more = " or more" if len(result) == MAX_PREEMPTION_NODES else ""
    room = "1 node fits the pod without its" if len(result) == 1 else f"{len(result)} nodes{more} fit the pod without their"
    victims = format_list([victim.key for victim in best.pods])
    would = f"{room} pods of lower priority than {pod.priority}; on {best.node} the victims would be {victims}"
    if pod.raw.spec.preemptionPolicy == NEVER:
        return f"{would}; but its preemptionPolicy is Never"
    if not framework.profile.get(Point.POST_FILTER):
        return f"{would}; but no plugin of the profile preempts"
    return would


def explain_pod(
    pod: Pod,
    cache: Cache,
    placed: Mapping[str, Sequence[PodInfo]],
    framework: Framework,
    objects: ObjectStores,
    asked: str = "",
) -> Explanation:
    """Explain where the scheduler would place the pod now, and the reasons.

    A bound pod is first removed from the cache and from `placed`, which has the pods by node. `objects` has the other
    objects that plugins read. `asked` is a node of the cache for which to report details, or empty.
    """
    cache.remove_pod(pod.metadata.uid)
    others = {node: [info for info in pods if info.uid != pod.metadata.uid] for node, pods in placed.items()}
    unbound = _without_node(pod)
    for info in cache.nodes.nominated:
        if info.priority >= unbound.priority:
            others.setdefault(cache.nodes.nominated.node_of(info.uid), []).append(info)
    case = AdvisorInput(unbound, cache.nodes.subtract_reserved(unbound.priority, unbound.uid), others, objects)
    explanation = Explanation(
        case.pod.key,
        framework.scheduler_name,
        bound=pod.spec.nodeName,
        nodes=len(cache.nodes),
        problem=_find_gate(framework, case.pod),
    )
    if not len(cache.nodes):
        return replace(
            explanation, message=NO_NODES, remedies=[*_ungate_remedies(case.pod, explanation), remedy_without_nodes(case)]
        )
    state: CycleState = {}
    try:
        surveyed = _run_survey(framework, state, case, cache)
        explanation = replace(
            explanation,
            feasible=int(np.count_nonzero(surveyed.feasible)),
            refusals=_ordered_refusals(surveyed),
            remedies=_ungate_remedies(case.pod, explanation),
            asked=_add_node_details(case, surveyed, asked) if asked else None,
        )
        if explanation.feasible:
            return _add_scores(explanation, framework, state, replace(case, nodes=cache.nodes), surveyed)
        return replace(
            explanation,
            message=surveyed.diagnosis.message,
            remedies=[*explanation.remedies, *find_remedies(case, surveyed)],
            preemption=preemption_advice(framework, case.pod, cache, surveyed.diagnosis),
        )
    except PluginError as error:
        return replace(explanation, problem=str(error))


def _run_survey(framework: Framework, state: CycleState, case: AdvisorInput, cache: Cache) -> Survey:
    """Run the filters as the scheduler does. Raise PluginError.

    The resources of nominated pods count on all nodes. Their other conflicts (ports, affinity, ...) are checked on
    feasible nodes.
    """
    costly = framework.reject_too_costly(case.pod, cache.nodes)
    if costly is not None and costly.pre_filter is not None:
        return refused_everywhere(case.nodes, *costly.pre_filter)
    survey = survey_nodes(framework, state, case.pod, case.nodes)
    refused = [
        nominated_conflict
        for row in np.flatnonzero(survey.feasible).tolist()
        for nominated_conflict in find_nominated_conflicts(case.pod, row, cache, framework)
    ]
    return replace(survey, refusals=[*survey.refusals, *refused])


def _without_node(pod: Pod) -> PodInfo:
    """Return a copy of the pod without its node."""
    copy = Pod()
    copy.CopyFrom(pod)
    copy.spec.nodeName = ""
    return PodInfo(copy)


def _find_gate(framework: Framework, pod: PodInfo) -> str:
    gates = [gate.name for gate in pod.raw.spec.schedulingGates]
    if gates:
        return f"it has scheduling gates: {', '.join(gates)}; it is not scheduled until they are removed"
    gate = framework.find_gate(pod)
    return f"it is gated at preEnqueue by {gate.plugin}" if gate is not None else ""


def _ungate_remedies(pod: PodInfo, found: Explanation) -> list[Remedy]:
    gates = [gate.name for gate in pod.raw.spec.schedulingGates]
    return (
        [Remedy(f"remove the scheduling {'gate' if len(gates) == 1 else 'gates'} {' and '.join(gates)}", [])] if gates else []
    )


def _ordered_refusals(surveyed: Survey) -> list[Refusal]:
    """Return the refusals in call order of the plugins, and for each plugin the reason with the most nodes first."""
    alone = surveyed.refusing_plugin_counts == 1
    refusals = [
        Refusal(plugin, reason, _node_names(surveyed, nodes), int(np.count_nonzero(nodes & alone)))
        for plugin, reason, nodes in surveyed.refused_groups()
    ]
    order = {plugin: place for place, plugin in enumerate(dict.fromkeys(plugin for plugin, _ in surveyed.refusals))}
    return sorted(refusals, key=lambda refusal: (order[refusal.plugin], -len(refusal.nodes), refusal.reason))


def _node_names(surveyed: Survey, nodes: "np.ndarray[tuple[int, ...], np.dtype[np.bool_]]") -> list[str]:
    return sorted(surveyed.nodes.names[row] for row in np.flatnonzero(nodes).tolist())


def _add_node_details(case: AdvisorInput, surveyed: Survey, node: str) -> Asked:
    row = case.nodes.row(node)
    if row is None:
        raise KeyError(node)
    reasons: dict[str, list[str]] = {}
    for plugin, reason, nodes in surveyed.refused_groups():
        if nodes[row]:
            reasons.setdefault(plugin, []).append(reason)
    return Asked(
        node,
        [
            PluginRejectionRecord(plugin, advisor_of(plugin).describe_node_problems(case, row, said))
            for plugin, said in reasons.items()
        ],
    )


def _add_scores(
    found: Explanation, framework: Framework, state: CycleState, case: AdvisorInput, surveyed: Survey
) -> Explanation:
    """Add the scores. The nodes of `case` include resources that are reserved for nominated pods. Raise PluginError."""
    feasible = surveyed.feasible
    table = list(plugin_scores(framework, state, case.pod, case.nodes, feasible))
    total = np.zeros(len(case.nodes))
    for _, weight, score in table:
        total += weight * score
    rows = sorted(np.flatnonzero(feasible).tolist(), key=lambda row: (-total[row], case.nodes.names[row]))
    wanted = {found.bound, found.asked.node if found.asked else ""}
    shown = [row for place, row in enumerate(rows) if place < MAX_RANKED or case.nodes.names[row] in wanted]

    def ranked() -> Iterator[NodePluginScores]:
        for row in shown:
            rank = 1 + int(np.count_nonzero(total[feasible] > total[row]))
            yield NodePluginScores(
                case.nodes.names[row], rank, float(total[row]), {plugin: float(score[row]) for plugin, _, score in table}
            )

    return replace(
        found,
        weights={plugin: weight for plugin, weight, _ in table},
        ranking=list(ranked()),
        best=int(np.count_nonzero(total[feasible] == total[rows[0]])),
    )
