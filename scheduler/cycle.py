"""The story of one pod: which node, or why none. Synchronous and pure: the table cannot change while a cycle looks at it.

    pop -> PreFilter -> Filter -> none is left: [PostFilter: preemption has its place here] -> Unschedulable
                          |
                          +-> PreScore -> Score -> choose -> assume ([Reserve, Permit]) -> Placed, to the binder

Given the pod, the table (with its order of rows), the seed and the profile, the decision is always the same: equal scores are
told apart by a hash of the seed and the pod's uid.

A pass over all nodes costs some tens of microseconds. Should that ever be too much, its reuse has its place around `filter` and
`score`: for pods of one `PodInfo.template` the rows that changed since are all that must be computed again.
"""

from dataclasses import dataclass
from zlib import crc32

from scheduler.cache.cache import Cache
from scheduler.framework import CycleState, FloatArray, PodInfo
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.results import PluginError
from scheduler.framework.runtime import Framework


@dataclass(frozen=True, slots=True)
class Placed:
    """The pod is assumed on the node."""

    node: str


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """No node can take the pod."""

    refused_by: frozenset[str]
    message: str


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
            return Unschedulable(feasible.plugins, feasible.message())
        node = nodes.names[_choose(pod, framework.score(state, pod, nodes, feasible), seed)]
    except PluginError as error:
        return Broken(error)
    cache.assume(pod, node)
    return Placed(node)


def _choose(pod: PodInfo, scores: FloatArray, seed: int) -> int:
    """The row with the highest score; among equals a random one."""
    best = (scores == scores[scores.argmax()]).nonzero()[0]
    return int(best[crc32(pod.uid.encode(), seed) % len(best)])
