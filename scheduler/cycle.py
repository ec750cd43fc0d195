"""The story of one pod: which node, or why none. Synchronous: the table cannot change while a cycle looks at it.

    pop -> [cost] -> PreFilter -> Filter -> none is left: PostFilter -> Unschedulable
                          |
                          +-> [PreScore -> Score -> choose] -> assume -> Reserve -> Permit -> Placed, to the binder
                                                                  |         |
                                                                  '---------'--> Unreserve, forget -> Unschedulable

A pod that was nominated to a node, and fits there, goes there without being scored. One about which a decision would take too
long is refused first (`scheduler.framework.filtering`).

Given the pod, the table (with its order of rows), the seed and the profile, the decision is always the same: equal scores are
told apart by a hash of the seed and the pod's uid.

With `passes`, what was found out for an earlier pod that is alike is used again, and the decision is still the same. With an
`opinion`, what extenders said about the pod counts as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from zlib import crc32

import numpy as np

from scheduler.cache.cache import Cache
from scheduler.extenders.interface import ExtenderError, Opinion
from scheduler.framework import BoolArray, CycleState, NodeTable, PodInfo
from scheduler.framework.binding_plugins import BindingCycle
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.faults import failure
from scheduler.framework.filtering import BUDGET
from scheduler.framework.results import FilterResult, Nominated, PluginError, Proposed, Refused, Victims
from scheduler.framework.reuse import Best, Passes, equal_best
from scheduler.framework.runtime import Framework

CROWDED = "too many nodes are kept for nominated pods, the pod is tried again."
NO_CANDIDATE = "no candidate node for preemption"


@dataclass(frozen=True, slots=True)
class Placed:
    """The pod is assumed on the node."""

    node: str
    cycle: BindingCycle | None = None
    """What plugins will do about it; None: nothing."""


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """No node can take the pod."""

    refused_by: frozenset[str]
    message: str
    nominated: str = ""
    """Where room is being made for it."""
    outdated: bool = False
    """What this rests on has changed meanwhile, or not all has been tried: the pod is to be tried again after its backoff,
    whatever happens."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A plugin or an extender failed; the cluster is not to blame."""

    error: PluginError | ExtenderError


@dataclass(frozen=True, slots=True)
class Proposal:
    """No node can take the pod. Room could be made; nothing has been done about it."""

    refused_by: frozenset[str]
    message: str
    proposed: Proposed

    def settled(self, candidates: Sequence[Victims]) -> Unschedulable | Broken:
        """Makes room on the best of these, if there is one."""
        if not candidates:
            return self.turned_down(NO_CANDIDATE)
        try:
            nominated = self.proposed.settle(candidates)
        except BaseException as error:
            return Broken(failure(self.proposed.plugin, "PostFilter", error))
        message = f"{self.message} {nominated.reason}" if nominated.reason else self.message
        return Unschedulable(self.refused_by, message, nominated.node)

    def turned_down(self, reason: str) -> Unschedulable:
        return Unschedulable(self.refused_by, f"{self.message} preemption: {reason}")

    def put_off(self, reason: str, nominated: str) -> Unschedulable:
        """Whether room can be made is not known: it is kept where it was, and the pod is tried again. `nominated`: there."""
        return Unschedulable(self.refused_by, f"{self.message} preemption: {reason}", nominated, outdated=True)


Outcome = Placed | Unschedulable | Broken


def schedule_one(pod: PodInfo, cache: Cache, framework: Framework, seed: int, passes: Passes | None = None) -> Outcome:
    outcome = attempt(pod, cache, framework, seed, passes)
    return outcome.settled(outcome.proposed.candidates) if isinstance(outcome, Proposal) else outcome


def attempt(
    pod: PodInfo,
    cache: Cache,
    framework: Framework,
    seed: int,
    passes: Passes | None = None,
    opinion: Opinion | None = None,
) -> Outcome | Proposal:
    """As `schedule_one`, but makes no room."""
    state: CycleState = {}
    nodes = cache.nodes
    try:
        costly = framework.too_costly(pod, nodes)
        if costly is not None:
            return Unschedulable(costly.plugins, costly.message)
        row = _pick(state, pod, cache, framework, seed, passes, opinion)
        if isinstance(row, Diagnosis):
            return _unschedulable(state, pod, nodes, framework, row)
        node = nodes.names[row]
    except PluginError as error:
        return Broken(error)
    except _Unfinished:
        return Unschedulable(frozenset(), f"0/{len(nodes)} nodes are available: {CROWDED}", outdated=True)
    cache.assume(pod, node)
    if framework.binding.none:
        return Placed(node)
    try:
        started = framework.binding.start(state, pod, node)
    except PluginError as error:
        cache.forget(pod.uid)
        return Broken(error)
    if isinstance(started, Refused):
        cache.forget(pod.uid)
        return Unschedulable(frozenset([started.plugin]), started.message)
    return Placed(node, started)


def _pick(
    state: CycleState,
    pod: PodInfo,
    cache: Cache,
    framework: Framework,
    seed: int,
    passes: Passes | None,
    opinion: Opinion | None,
) -> int | Diagnosis:
    """The row of the node that the pod is nominated to, if it fits there, or else of the best; or why there is none.
    Raises PluginError."""
    if passes is not None and (known := _reused(state, pod, cache, framework, seed, passes)) is not None:
        return known
    nodes = cache.nodes
    state.clear()
    diagnosis = framework.judge(state, pod, nodes.seen_at(pod.priority, pod.uid))
    if opinion is not None:
        diagnosis = opinion.added_to(diagnosis, nodes)
    if np.count_nonzero(diagnosis.feasible):
        return _not_crowded(state, pod, cache, framework, seed, diagnosis, opinion)
    if passes is not None and not nodes.nominated.node_of(pod.uid):
        passes.explain(state, pod, framework, diagnosis)
    return diagnosis


def _reused(
    state: CycleState, pod: PodInfo, cache: Cache, framework: Framework, seed: int, passes: Passes
) -> int | Diagnosis | None:
    """By what was found out for earlier pods that are alike. None: the framework must be asked."""
    nodes = cache.nodes
    nominated = nodes.nominated.node_of(pod.uid)
    if nominated:
        row = nodes.row(nominated)
        fits = row is not None and passes.takes(pod, nodes, framework, row) and not crowded(pod, row, cache, framework)
        return row if fits else None
    best = passes.best(state, pod, nodes, framework)
    if best is None or isinstance(best, Diagnosis):
        return best
    row = one_of(best, pod, seed)
    return None if crowded(pod, row, cache, framework) else row


def _not_crowded(
    state: CycleState,
    pod: PodInfo,
    cache: Cache,
    framework: Framework,
    seed: int,
    diagnosis: Diagnosis,
    opinion: Opinion | None,
) -> int | Diagnosis:
    """As `_pick`, of the nodes that are feasible.

    What nominated pods need is counted for all nodes at once; whether they are in the way otherwise (ports, affinity, ...) is
    only looked at on the node that is chosen, and then the next best is. Raises _Unfinished when that takes too long."""
    nodes = cache.nodes
    own = nodes.row(nodes.nominated.node_of(pod.uid))
    feasible, refusals = diagnosis.feasible.copy(), list(diagnosis.refusals)
    left = BUDGET
    while np.count_nonzero(feasible):
        if left <= 0:
            raise _Unfinished
        if own is not None and feasible[own]:
            row = own
        else:
            row = one_of(_best(state, pod, nodes, framework, feasible, opinion), pod, seed)
        refused = crowded(pod, row, cache, framework)
        if not refused:
            return row
        left -= framework.estimate(pod, nodes)
        refusals += refused
        feasible[row] = False
    return replace(diagnosis, refusals=refusals)


class _Unfinished(Exception):
    """No more nodes are looked at in this decision."""


def _best(
    state: CycleState, pod: PodInfo, nodes: NodeTable, framework: Framework, feasible: BoolArray, opinion: Opinion | None
) -> Best:
    """The rows with the highest score. Raises PluginError."""
    scores = framework.score(state, pod, nodes, feasible)
    return equal_best(scores if opinion is None else scores + opinion.added_score(nodes))


def crowded(pod: PodInfo, row: int, cache: Cache, framework: Framework) -> list[tuple[str, FilterResult]]:
    """Why a node would refuse the pod if those were there already that are nominated to it, and ahead of the pod.
    Raises PluginError."""
    nodes = cache.nodes
    ahead = nodes.nominated.ahead_of(pod, nodes.names[row])
    if not ahead:
        return []
    with cache.what_if() as what_if:
        for each in ahead:
            what_if.add(each, nodes.names[row])
        return framework.judge({}, pod, nodes).at(row)


def _unschedulable(
    state: CycleState, pod: PodInfo, nodes: NodeTable, framework: Framework, diagnosis: Diagnosis
) -> Unschedulable | Proposal:
    """Raises PluginError."""
    answer = framework.post_filter(state, pod, nodes, diagnosis) if diagnosis.nodes else (Nominated(""), False)
    awaited = framework.awaited_plugins(pod, diagnosis)
    if isinstance(answer, Proposed):
        return Proposal(awaited, diagnosis.message, answer)
    nominated, unfinished = answer
    message = f"{diagnosis.message} {nominated.reason}" if nominated.reason else diagnosis.message
    return Unschedulable(awaited, message, nominated.node, outdated=unfinished)


def one_of(best: Best, pod: PodInfo, seed: int) -> int:
    """A random one."""
    return int(best[crc32(pod.uid.encode(), seed) % len(best)])
