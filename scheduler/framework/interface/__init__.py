"""The extension points. A plugin has a `name` and those methods that it needs; the framework finds out which.

`nodes` is the table of all nodes; an array "of all nodes" has `len(nodes)` elements, in row order. A plugin must not change
its arguments (but for `state`), keeps nothing of them after the call, and must answer the same to the same question. What it
raises fails the attempt of that one pod, which is tried again later, and is told in an event that names the plugin.
"""

from scheduler.framework.interface.binding import (
    BatchBindPlugin,
    BindPlugin,
    PermitPlugin,
    PostBindPlugin,
    PreBindPlugin,
    PreFlightPlugin,
    ReservePlugin,
)
from scheduler.framework.interface.plugin import CompletesArgs, Plugin
from scheduler.framework.interface.queueing import EnqueueHint, Gate, PreEnqueuePlugin, QueueSortPlugin
from scheduler.framework.interface.reuse import Sees
from scheduler.framework.interface.scheduling import (
    CostPlugin,
    FilterPlugin,
    NormalizePlugin,
    PostFilterPlugin,
    PreFilterPlugin,
    PreScorePlugin,
    RoomFilterPlugin,
    ScorePlugin,
)

__all__ = [
    "BatchBindPlugin",
    "BindPlugin",
    "CompletesArgs",
    "CostPlugin",
    "EnqueueHint",
    "FilterPlugin",
    "Gate",
    "NormalizePlugin",
    "PermitPlugin",
    "Plugin",
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
]
