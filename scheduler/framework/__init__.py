"""The scheduling framework: what a plugin is, and how plugins are run. All that a plugin needs is imported from here.

The way of one pod:

    PreEnqueue -> QueueSort -> PreFilter -> Filter -> PreScore -> Score -> NormalizeScore -> Reserve -> Permit -> pre-flight
                                              |                                                                    |
                                              v no node is left                 beside the next decisions:         v
                                          PostFilter                       PostBind <- Bind <- PreBind <- [wait for Permit]

`cycle` walks the upper line, one pod at a time; `binding_cycles` and `binding` the rest, for many pods at once. After Reserve,
whoever gives a pod up calls Unreserve. Preemption needs no more from a filter than it says already: only where all that refuse
a node are `helped_by` POD_FREED can removing pods make room.

A plugin is a class with a `name` and the methods of one or more extension points (`interface`). The native form answers for
all nodes at once, with arrays. To look at one node at a time, derive from `PerNodeFilter` or `PerNodeScore`. See
examples/plugins/.
"""

from pinnace.fit.table import BoolArray, IntArray
from scheduler.cache.changes import Change, ClusterEvent
from scheduler.cache.pod_info import PodInfo
from scheduler.cache.table import FloatArray, NodeTable
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.handle import Handle, WaitingPod
from scheduler.framework.interface import (
    BindPlugin,
    CostPlugin,
    EnqueueHint,
    FilterPlugin,
    NodeView,
    NormalizePlugin,
    PermitPlugin,
    PerNodeFilter,
    PerNodeScore,
    Plugin,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreFlightPlugin,
    PreScorePlugin,
    QueueSortPlugin,
    ReservePlugin,
    RoomFilterPlugin,
    ScorePlugin,
    Sees,
)
from scheduler.framework.results import (
    MAX_SCORE,
    SKIP,
    Cost,
    CycleState,
    FilterResult,
    Nominated,
    Status,
    Verdicts,
    Wait,
    whole,
)

__all__ = [
    "MAX_SCORE",
    "SKIP",
    "BindPlugin",
    "BoolArray",
    "Change",
    "ClusterEvent",
    "Cost",
    "CostPlugin",
    "CycleState",
    "Diagnosis",
    "EnqueueHint",
    "FilterPlugin",
    "FilterResult",
    "FloatArray",
    "Handle",
    "IntArray",
    "NodeTable",
    "NodeView",
    "Nominated",
    "NormalizePlugin",
    "PerNodeFilter",
    "PerNodeScore",
    "PermitPlugin",
    "Plugin",
    "PodInfo",
    "PostBindPlugin",
    "PostFilterPlugin",
    "PreBindPlugin",
    "PreEnqueuePlugin",
    "PreFilterPlugin",
    "PreFlightPlugin",
    "PreScorePlugin",
    "QueueSortPlugin",
    "ReservePlugin",
    "RoomFilterPlugin",
    "ScorePlugin",
    "Sees",
    "Status",
    "Verdicts",
    "Wait",
    "WaitingPod",
    "whole",
]
