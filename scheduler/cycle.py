"""The story of one pod: which node, or why none. Synchronous: the table cannot change while a cycle looks at it.

    pop -> PreFilter -> Filter -> none is left: PostFilter -> Unschedulable
                          |
                          +-> PreScore -> Score -> choose -> assume -> Reserve -> Permit -> Placed, to the binder
                                                                |         |
                                                                '---------'--> Unreserve, forget -> Unschedulable

Given the pod, the table (with its order of rows), the seed and the profile, the decision is always the same: equal scores are
told apart by a hash of the seed and the pod's uid.

A pass over all nodes costs some tens of microseconds. Should that ever be too much, its reuse has its place around `filter` and
`score`: for pods of one `PodInfo.template` the rows that changed since are all that must be computed again.
"""

from dataclasses import dataclass
from zlib import crc32

from scheduler.cache.cache import Cache
from scheduler.framework import CycleState, FloatArray, NodeTable, PodInfo
from scheduler.framework.binding_cycle import BindingCycle
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.results import PluginError, Refused
from scheduler.framework.runtime import Framework


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


@dataclass(frozen=True, slots=True)
class Broken:
    """A plugin failed; the cluster is not to blame."""

    error: PluginError


def schedule_one(pod: PodInfo, cache: Cache, framework: Framework, seed: int) -> Placed | Unschedulable | Broken:
    state: CycleState = {}
    nodes = cache.nodes
    try:
        feasible = framework.filter(state, pod, nodes)
        if isinstance(feasible, Diagnosis):
            return _unschedulable(state, pod, nodes, framework, feasible)
        node = nodes.names[_choose(pod, framework.score(state, pod, nodes, feasible), seed)]
    except PluginError as error:
        return Broken(error)
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


def _unschedulable(
    state: CycleState, pod: PodInfo, nodes: NodeTable, framework: Framework, diagnosis: Diagnosis
) -> Unschedulable:
    """Raises PluginError."""
    nominated, said = framework.post_filter(state, pod, nodes, diagnosis) if diagnosis.nodes else ("", "")
    message = f"{diagnosis.message()} {said}" if said else diagnosis.message()
    return Unschedulable(diagnosis.plugins, message, nominated)


def _choose(pod: PodInfo, scores: FloatArray, seed: int) -> int:
    """The row with the highest score; among equals a random one."""
    best = (scores == scores[scores.argmax()]).nonzero()[0]
    return int(best[crc32(pod.uid.encode(), seed) % len(best)])
