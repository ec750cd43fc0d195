"""One pod's explanation, put together."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.records import Asked, Explanation, Objection, Ranked, Refusal, Remedy
from scheduler.cache.cache import Cache
from scheduler.cache.pod_info import PodInfo
from scheduler.cycle import crowded
from scheduler.explain.advice import advisor
from scheduler.explain.case import Case
from scheduler.explain.preempting import preemption
from scheduler.explain.remedies import remedies, without_nodes
from scheduler.explain.survey import Survey, refused_everywhere, scores, survey
from scheduler.framework.diagnosis import NO_NODES
from scheduler.framework.results import CycleState, PluginError
from scheduler.framework.runtime import Framework
from scheduler.plugins.helper import Objects

TOP = 5
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
            preemption=preemption(framework, case.pod, cache, surveyed.diagnosis),
        )
    except PluginError as error:
        return replace(found, problem=str(error))


def _surveyed(framework: Framework, state: CycleState, case: Case, cache: Cache) -> Survey:
    """As the scheduler decides: of nominated pods amounts count on all nodes, the rest (ports, affinity, ...) where the pod
    would have a place. Raises PluginError."""
    costly = framework.too_costly(case.pod, cache.nodes)
    if costly is not None and costly.pre_filter is not None:
        return refused_everywhere(case.nodes, *costly.pre_filter)
    found = survey(framework, state, case.pod, case.nodes)
    refused = [each for row in np.flatnonzero(found.feasible).tolist() for each in crowded(case.pod, row, cache, framework)]
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
    shown = [row for place, row in enumerate(rows) if place < TOP or case.nodes.names[row] in wanted]

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
