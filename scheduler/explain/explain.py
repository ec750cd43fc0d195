"""Explains one pod: all refusals on all nodes, the ranking of feasible nodes, remedies, and what preemption could do.

`survey_nodes` does what `Framework.run_filters` does, but keeps the result of each plugin, and continues after a PreFilter has
refused the pod (tests/unit/scheduler/test_survey.py proves that the sums are equal). If one plugin alone refuses some nodes,
the remedies are what its advisor returns. Otherwise the remedy is for the node that the fewest plugins refuse.

`preemption_advice` simulates preemption one node at a time, as the scheduler does, and names the victims on the best node. It
ignores PodDisruptionBudgets, which make a victim less preferred but not impossible.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.records import Asked, Explanation, Objection, Ranked, Refusal, Remedy, listing
from pinnace.fit.requests import PODS
from pinnace.fit.table import BoolArray, IntArray
from scheduler.cache.cache import Cache
from scheduler.cache.pod_info import PodInfo
from scheduler.cache.table import FloatArray, NodeTable
from scheduler.explain.advice import Case, Reasons, advisor, missing_share, size
from scheduler.framework.filtering import run_filter, run_pre_filter
from scheduler.framework.profile import Point
from scheduler.framework.results import NO_NODES, SKIP, CycleState, Diagnosis, FilterResult, PluginError, Status, failure
from scheduler.framework.runtime import Framework
from scheduler.plugins.helper import Objects
from scheduler.plugins.nodes import CORDON_TAINT, HARD_EFFECTS, NodeUnschedulable, TaintToleration, untolerated
from scheduler.preemption import Bounds, Candidates, SearchExhausted
from scheduler.scheduling_cycle import nominated_conflicts


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


def survey_nodes(framework: Framework, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Survey:
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


MAX_REMEDIES = 5


def remedies(case: Case, survey: Survey) -> list[Remedy]:
    """Those that open the most nodes first, at most MOST. There must be nodes, none of them feasible."""
    objections = survey.objections
    rows = np.flatnonzero(objections == objections.min())
    if objections.min() > 1:
        return [_together(case, survey, rows.tolist())]
    found = [remedy for plugin in survey.refusing(rows.tolist()) for remedy in _alone(case, survey, plugin, rows.tolist())]
    return sorted(found, key=lambda remedy: -len(remedy.nodes))[:MAX_REMEDIES]


def without_nodes(case: Case) -> Remedy:
    """When there is none at all."""
    asked = " and ".join(
        f"{size(resource, amount)} {resource}" for resource, amount in case.pod.requests.amounts if resource != PODS
    )
    return Remedy(f"add a node{f' with {asked} free' if asked else ''}", [])


def _alone(case: Case, survey: Survey, plugin: str, rows: Sequence[int]) -> Iterator[Remedy]:
    reasons = _reasons(survey, plugin, rows)
    for remedy in advisor(plugin).remedies(case, reasons):
        yield Remedy(remedy.text, remedy.nodes, [plugin])


def _together(case: Case, survey: Survey, rows: Sequence[int]) -> Remedy:
    """All that one node wants: the one that lacks the least, the first by name."""
    row = min(rows, key=lambda row: (missing_share(case, row), case.nodes.names[row]))
    plugins = survey.refusing([row])
    texts = [advisor(plugin).remedies(case, _reasons(survey, plugin, [row]))[0].text for plugin in plugins]
    return Remedy("; and ".join(dict.fromkeys(texts)), [case.nodes.names[row]], plugins)


def _reasons(survey: Survey, plugin: str, rows: Sequence[int]) -> Reasons:
    among = np.zeros(len(survey.nodes), np.bool_)
    among[rows] = True
    found = {reason: np.flatnonzero(nodes & among).tolist() for name, reason, nodes in survey.groups() if name == plugin}
    return {reason: rows for reason, rows in found.items() if rows}


MAX_PREEMPTION_NODES = 100
"""Nodes; there is no search for more."""
NEVER = "Never"


def preemption_advice(framework: Framework, pod: PodInfo, cache: Cache, diagnosis: Diagnosis) -> str:
    """A sentence; empty when there is nothing to say. `diagnosis`: why no node takes the pod as things are. Raises
    PluginError."""
    lower = cache.below(pod.priority)
    if PODS not in lower or not lower[PODS].any():
        return ""
    try:
        found = Candidates(Bounds(0, MAX_PREEMPTION_NODES)).find(pod, diagnosis, cache, framework, (), 0)
    except SearchExhausted:
        return "it may help: the search for a node takes too long to be made here"
    if isinstance(found, Diagnosis):
        return f"it would not help: no node could take it, not even without its pods of lower priority than {pod.priority}"
    best = min(found, key=lambda each: (each.rank, each.node))
    more = " or more" if len(found) == MAX_PREEMPTION_NODES else ""
    room = "1 node could take it without its" if len(found) == 1 else f"{len(found)} nodes{more} could take it without their"
    victims = listing([victim.key for victim in best.pods])
    would = f"{room} pods of lower priority than {pod.priority}; on {best.node} {victims} would have to go"
    if pod.raw.spec.preemptionPolicy == NEVER:
        return f"{would}; but its preemptionPolicy is Never"
    if not framework.profile.get(Point.POST_FILTER):
        return f"{would}; but no plugin of the profile preempts"
    return would


MAX_RANKED = 5
"""Nodes that are ranked, beside the pod's own and the one that was asked about."""


def explain(
    pod: Pod,
    cache: Cache,
    placed: Mapping[str, Sequence[PodInfo]],
    framework: Framework,
    objects: Objects,
    asked: str = "",
) -> Explanation:
    """Where the pod would go now, and why. If it is bound, it is first taken out of the cache, and does not count among
    `placed`, the pods by node. `objects`: what the plugins read of other kinds. `asked`: a node of the cache to say more about;
    empty: none."""
    cache.remove(pod.metadata.uid)
    others = {node: [info for info in pods if info.uid != pod.metadata.uid] for node, pods in placed.items()}
    unbound = _unbound(pod)
    for info in cache.nodes.nominated:
        if info.priority >= unbound.priority:
            others.setdefault(cache.nodes.nominated.node_of(info.uid), []).append(info)
    case = Case(unbound, cache.nodes.seen_at(unbound.priority, unbound.uid), others, objects)
    found = Explanation(
        case.pod.key,
        framework.scheduler_name,
        bound=pod.spec.nodeName,
        nodes=len(cache.nodes),
        problem=_gated(framework, case.pod),
    )
    if not len(cache.nodes):
        return replace(found, message=NO_NODES, remedies=[*_ungate(case.pod, found), without_nodes(case)])
    state: CycleState = {}
    try:
        surveyed = _surveyed(framework, state, case, cache)
        found = replace(
            found,
            feasible=int(np.count_nonzero(surveyed.feasible)),
            refusals=_refusals(surveyed),
            remedies=_ungate(case.pod, found),
            asked=_asked(case, surveyed, asked) if asked else None,
        )
        if found.feasible:
            return _scored(found, framework, state, replace(case, nodes=cache.nodes), surveyed)
        return replace(
            found,
            message=surveyed.diagnosis.message,
            remedies=[*found.remedies, *remedies(case, surveyed)],
            preemption=preemption_advice(framework, case.pod, cache, surveyed.diagnosis),
        )
    except PluginError as error:
        return replace(found, problem=str(error))


def _surveyed(framework: Framework, state: CycleState, case: Case, cache: Cache) -> Survey:
    """As the scheduler decides: of nominated pods amounts count on all nodes, the rest (ports, affinity, ...) where the pod
    would have a place. Raises PluginError."""
    costly = framework.too_costly(case.pod, cache.nodes)
    if costly is not None and costly.pre_filter is not None:
        return refused_everywhere(case.nodes, *costly.pre_filter)
    found = survey_nodes(framework, state, case.pod, case.nodes)
    refused = [
        each for row in np.flatnonzero(found.feasible).tolist() for each in nominated_conflicts(case.pod, row, cache, framework)
    ]
    return replace(found, refusals=[*found.refusals, *refused])


def _unbound(pod: Pod) -> PodInfo:
    """As it was before it was bound."""
    copy = Pod()
    copy.CopyFrom(pod)
    copy.spec.nodeName = ""
    return PodInfo(copy)


def _gated(framework: Framework, pod: PodInfo) -> str:
    gates = [gate.name for gate in pod.raw.spec.schedulingGates]
    if gates:
        return f"it has scheduling gates: {', '.join(gates)}; until they are removed it is not tried"
    gate = framework.gate(pod)
    return f"it is held back at preEnqueue, by {gate.plugin}" if gate is not None else ""


def _ungate(pod: PodInfo, found: Explanation) -> list[Remedy]:
    gates = [gate.name for gate in pod.raw.spec.schedulingGates]
    return (
        [Remedy(f"remove the scheduling {'gate' if len(gates) == 1 else 'gates'} {' and '.join(gates)}", [])] if gates else []
    )


def _refusals(surveyed: Survey) -> list[Refusal]:
    """Of each plugin in its order, what refuses the most nodes first."""
    alone = surveyed.objections == 1
    found = [
        Refusal(plugin, reason, _names(surveyed, nodes), int(np.count_nonzero(nodes & alone)))
        for plugin, reason, nodes in surveyed.groups()
    ]
    order = {plugin: place for place, plugin in enumerate(dict.fromkeys(plugin for plugin, _ in surveyed.refusals))}
    return sorted(found, key=lambda refusal: (order[refusal.plugin], -len(refusal.nodes), refusal.reason))


def _names(surveyed: Survey, nodes: "np.ndarray[tuple[int, ...], np.dtype[np.bool_]]") -> list[str]:
    return sorted(surveyed.nodes.names[row] for row in np.flatnonzero(nodes).tolist())


def _asked(case: Case, surveyed: Survey, node: str) -> Asked:
    row = case.nodes.row(node)
    if row is None:
        raise KeyError(node)
    reasons: dict[str, list[str]] = {}
    for plugin, reason, nodes in surveyed.groups():
        if nodes[row]:
            reasons.setdefault(plugin, []).append(reason)
    return Asked(node, [Objection(plugin, advisor(plugin).details(case, row, said)) for plugin, said in reasons.items()])


def _scored(found: Explanation, framework: Framework, state: CycleState, case: Case, surveyed: Survey) -> Explanation:
    """What is kept for nominated pods counts in no score: the nodes of `case` are without it. Raises PluginError."""
    feasible = surveyed.feasible
    table = list(scores(framework, state, case.pod, case.nodes, feasible))
    total = np.zeros(len(case.nodes))
    for _, weight, score in table:
        total += weight * score
    rows = sorted(np.flatnonzero(feasible).tolist(), key=lambda row: (-total[row], case.nodes.names[row]))
    wanted = {found.bound, found.asked.node if found.asked else ""}
    shown = [row for place, row in enumerate(rows) if place < MAX_RANKED or case.nodes.names[row] in wanted]

    def ranked() -> Iterator[Ranked]:
        for row in shown:
            rank = 1 + int(np.count_nonzero(total[feasible] > total[row]))
            yield Ranked(
                case.nodes.names[row], rank, float(total[row]), {plugin: float(score[row]) for plugin, _, score in table}
            )

    return replace(
        found,
        weights={plugin: weight for plugin, weight, _ in table},
        ranking=list(ranked()),
        best=int(np.count_nonzero(total[feasible] == total[rows[0]])),
    )
