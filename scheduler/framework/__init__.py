"""The scheduling framework: the plugin interface, and the runtime of plugins. Plugins import everything from here.

The extension points of one pod:

    PreEnqueue -> QueueSort -> PreFilter -> Filter -> PreScore -> Score -> NormalizeScore -> Reserve -> Permit -> PreFlight
                                              |                                                                    |
                                              v no node passes                 concurrently with other decisions:  v
                                          PostFilter                       PostBind <- Bind <- PreBind <- [wait for Permit]

`scheduling_cycle` runs the upper line for one pod at a time; `binding_cycle` runs the rest for many pods concurrently. If the
bind is abandoned after Reserve, Unreserve is called. Preemption considers a node only if all filters that refuse it list
POD_FREED in `helped_by`.

A plugin is a class with a `name` and the methods of one or more extension points (`interface`). Its methods return arrays
for all nodes. Plugins that handle one node at a time derive from `PerNodeFilter` or `PerNodeScore`. See examples/plugins/.
"""

from pinnace.fit.table import BoolArray, IntArray
from pinnace.scheduler.cache.cache import Change, ClusterEvent
from pinnace.scheduler.cache.pod_info import PodInfo
from pinnace.scheduler.cache.table import FloatArray, NodeTable
from pinnace.scheduler.framework.interface import (
    BindPlugin,
    CostPlugin,
    Dependency,
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
    ResourceFilterPlugin,
    ScorePlugin,
)
from pinnace.scheduler.framework.profile import Handle, WaitingPod
from pinnace.scheduler.framework.results import (
    BIND_ANNOTATIONS,
    MAX_SCORE,
    SKIP,
    Cost,
    CycleState,
    Diagnosis,
    FilterResult,
    NodeReasons,
    Nominated,
    Status,
    Wait,
    floor_scores,
)

__all__ = [
    "BIND_ANNOTATIONS",
    "MAX_SCORE",
    "SKIP",
    "BindPlugin",
    "BoolArray",
    "Change",
    "ClusterEvent",
    "Cost",
    "CostPlugin",
    "CycleState",
    "Dependency",
    "Diagnosis",
    "EnqueueHint",
    "FilterPlugin",
    "FilterResult",
    "FloatArray",
    "Handle",
    "IntArray",
    "NodeReasons",
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
    "ResourceFilterPlugin",
    "ScorePlugin",
    "Status",
    "Wait",
    "WaitingPod",
    "floor_scores",
]
