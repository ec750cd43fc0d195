"""The story of one pod: which node, or why none. Synchronous: the table cannot change while a cycle looks at it.

    pop -> PreFilter -> Filter -> none is left: PostFilter -> Unschedulable
                          |
                          +-> PreScore -> Score -> choose -> assume -> Reserve -> Permit -> Placed, to the binder
                                                                |         |
                                                                '---------'--> Unreserve, forget -> Unschedulable

Given the pod, the table (with its order of rows), the seed and the profile, the decision is always the same: equal scores are
told apart by a hash of the seed and the pod's uid.

With `passes`, what was found out for an earlier pod that is alike is used again, and the decision is still the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

from scheduler.cache.cache import Cache
from scheduler.framework import CycleState, NodeTable, PodInfo
from scheduler.framework.binding_cycle import BindingCycle
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.results import PluginError, Refused
from scheduler.framework.reuse import Passes, equal_best
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


def schedule_one(
    pod: PodInfo, cache: Cache, framework: Framework, seed: int, passes: Passes | None = None
) -> Placed | Unschedulable | Broken:
    state: CycleState = {}
    nodes = cache.nodes
    try:
        best = passes.best(state, pod, nodes, framework) if passes is not None else None
        if best is None:
            state.clear()
            feasible = framework.filter(state, pod, nodes)
            if isinstance(feasible, Diagnosis):
                return _unschedulable(state, pod, nodes, framework, feasible)
            best = equal_best(framework.score(state, pod, nodes, feasible))
        node = nodes.names[one_of(best, pod, seed)]
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


def one_of(best: Sequence[int], pod: PodInfo, seed: int) -> int:
    """A random one."""
    return best[crc32(pod.uid.encode(), seed) % len(best)]
