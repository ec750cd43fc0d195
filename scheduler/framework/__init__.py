"""The scheduling framework: what a plugin is, and how plugins are run. All that a plugin needs is imported from here.

The way of one pod, with the extension points that have a caller today; those in brackets have their place kept, and come with
the first plugin that needs them:

    PreEnqueue -> QueueSort -> PreFilter -> Filter -> [PostFilter: preemption] -> PreScore -> Score -> NormalizeScore
               -> [Reserve] -> [Permit] -> [PreBind] -> Bind (scheduler.binding) -> [PostBind]

The bracketed ones belong to `scheduler.cycle` (PostFilter, after a cycle found no node; Reserve and Permit, around `assume`)
and to `scheduler.binding` (PreBind and PostBind, around a batch). Preemption needs no more from a filter than it says already:
only where all that refuse a node are `helped_by` POD_FREED can removing pods make room.

A plugin is a class with a `name` and the methods of one or more extension points (`interface`). The native form answers for
all nodes at once, with arrays. For a first plugin, or one that is easier to say about one node at a time, derive from
`PerNodeFilter` or `PerNodeScore`. See examples/plugins/.
"""

from pinnace.fit.table import BoolArray, IntArray
from scheduler.cache.changes import Change, ClusterEvent
from scheduler.cache.pod_info import PodInfo
from scheduler.cache.table import FloatArray, NodeTable
from scheduler.framework.interface import (
    EnqueueHint,
    FilterPlugin,
    NormalizePlugin,
    Plugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    QueueSortPlugin,
    ScorePlugin,
)
from scheduler.framework.per_node import NodeView, PerNodeFilter, PerNodeScore
from scheduler.framework.results import MAX_SCORE, SKIP, CycleState, FilterResult, Status, Verdicts

__all__ = [
    "MAX_SCORE",
    "SKIP",
    "BoolArray",
    "Change",
    "ClusterEvent",
    "CycleState",
    "EnqueueHint",
    "FilterPlugin",
    "FilterResult",
    "FloatArray",
    "IntArray",
    "NodeTable",
    "NodeView",
    "NormalizePlugin",
    "PerNodeFilter",
    "PerNodeScore",
    "Plugin",
    "PodInfo",
    "PreEnqueuePlugin",
    "PreFilterPlugin",
    "PreScorePlugin",
    "QueueSortPlugin",
    "ScorePlugin",
    "Status",
    "Verdicts",
]
