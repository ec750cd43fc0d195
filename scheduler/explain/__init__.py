"""Explains why a pod is where it is, or why it has no node: the analysis behind `pinnace why`. Pure.

    explain   runs every filter on every node and every scorer, ranks the nodes, and simulates preemption
    advice    for each plugin, what would remove its refusal

The plugins that made the decision compute it again. The result lacks what only the leader knows: assumed pods that are not
bound yet, which of several nodes with the same score its hash selects, and the answers of extenders.
"""

from scheduler.explain.explain import explain

__all__ = ["explain"]
