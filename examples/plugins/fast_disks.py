"""A score plugin that prefers nodes with a type of disk. It computes the scores of all nodes at once. See fast_disks.yaml."""

import numpy as np

from pinnace.scheduler.framework import BoolArray, CycleState, FloatArray, NodeTable, PodInfo


class FastDisks:
    name = "FastDisks"

    def __init__(self, args: dict[str, str]) -> None:
        self.disk = args.get("disk", "ssd")

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        """100 for nodes whose label `disk` has the configured value, otherwise 0. The lambda is called once per value."""
        return nodes.label("disk").map(lambda disk: 100.0 if disk == self.disk else 0.0, np.float64)
