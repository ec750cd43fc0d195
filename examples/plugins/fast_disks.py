"""Nodes with the disk that a pod would like are liked, in the native form: one answer for all nodes. See fast_disks.yaml."""

import numpy as np

from scheduler.framework import BoolArray, CycleState, FloatArray, NodeTable, PodInfo


class FastDisks:
    name = "FastDisks"

    def __init__(self, args: dict[str, str]) -> None:
        self.disk = args.get("disk", "ssd")

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        """100 where the label `disk` has the value that is wanted, else 0. Called for each value, not for each node."""
        return nodes.label("disk").map(lambda disk: 100.0 if disk == self.disk else 0.0, np.float64)
