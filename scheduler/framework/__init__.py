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
all nodes at once, with arrays. For a first plugin, or one that is easier to say about one node at a time, derive from
`PerNodeFilter` or `PerNodeScore`. See examples/plugins/.

    interface/         what a plugin may do, at each extension point; points.py: these by name, in their order
    results.py         what it answers; handle.py: what it may use; shown.py: the same, but nothing can be changed
    victims.py         who would go from a node to make room, and where that takes the least
    per_node.py        the plain form of a plugin, made native
    loader.py          finding, making and checking plugins, all at the start
    profile.py         who takes part where, and whether that can work; profiles.py: several, which sort the queue alike

    runtime.py         running the plugins of a profile: a fault of one fails one attempt, and nothing else
    filtering.py       asking filters about all nodes, or about some rows; faults.py: those who fail, in the log
    cost.py            the bound on the work of one decision
    diagnosis.py       why a pod has no place, in kube-scheduler's sentence
    reuse.py           pods that are alike: what may have changed since the last is asked, and the outcome is the same
    remembered.py      why no node takes them, for as long as it is true
    binding_cycle.py   from the choice to the bind; whoever is given up is unreserved
    waiting.py         who waits in Permit: an entry, no task
"""

from pinnace.fit.table import BoolArray, IntArray
from scheduler.cache.changes import Change, ClusterEvent
from scheduler.cache.pod_info import PodInfo
from scheduler.cache.table import FloatArray, NodeTable
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.handle import Handle
from scheduler.framework.interface import (
    BindPlugin,
    CostPlugin,
    EnqueueHint,
    FilterPlugin,
    NormalizePlugin,
    PermitPlugin,
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
from scheduler.framework.per_node import NodeView, PerNodeFilter, PerNodeScore
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
from scheduler.framework.waiting import WaitingPod

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
