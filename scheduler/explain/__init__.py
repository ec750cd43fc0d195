"""Explain why a pod is on its node, or why it has no node. This is the pure analysis of `pinnace why`.

    explain   runs every filter on every node and every scorer, ranks the nodes, and simulates preemption
    advice    for each plugin, the changes that remove its refusal

The analysis runs the same plugins as the scheduler. It lacks the data that only the leader has: assumed pods, the choice
between nodes with the same score, and the responses of extenders.
"""

from pinnace.scheduler.explain.explain import explain_pod

__all__ = ["explain_pod"]
