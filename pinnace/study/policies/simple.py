"""Policies without knowledge of the workload: Random, DotProd, GpuPacking, GpuClustering and BestFit; and FirstNode.

Scores are whole numbers, so that nearly equal nodes tie. The scheduler chooses among equal nodes at random, by its seed. With
FirstNode at a low weight, the first of them in the table wins instead. This decides much: always the same order of nodes packs.
Definitions: Q. Weng et al., Beware of Fragmentation (USENIX ATC 2023), section 6.1.
"""

import numpy as np

from pinnace.scheduler.framework import MAX_SCORE, BoolArray, CycleState, Dependency, FloatArray, IntArray, NodeTable, PodInfo
from pinnace.scheduler.plugins.gpu_share import WHOLE
from pinnace.study.policies.base import DevicePolicy, Rows
from pinnace.study.trace import Shape

MAX_CPU, MAX_GPU = 128_000, 8_000
"""The largest node of the openb cluster, in thousandths. It makes CPU and GPU comparable."""


class Random:
    """Any feasible node. Use `deviceSelection: Random` for a random device as well.

    All scores are equal, and the scheduler's seed decides.
    """

    name = "Random"

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        return np.zeros(len(nodes))


class FirstNode:
    """The order of the table, which is the order in which the scheduler has received the nodes: 100 for the first, 0 for none.

    With a weight of 1 beside a weight of 1000 of a policy with whole scores, it only breaks ties.
    """

    name = "FirstNode"
    score_depends_on = Dependency.NODES

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        return np.linspace(MAX_SCORE, 0, len(nodes), endpoint=False)


class DotProd(DevicePolicy):
    """The node whose free resources are aligned least with the request: 100 minus the dot product of both vectors.

    A node with little free CPU and GPU has a small product, so that the policy packs. Vectors are (CPU, GPU) as fractions of
    the largest node. Source: R. Grandl et al., Multi-resource Packing for Cluster Schedulers (SIGCOMM 2014).
    """

    name = "DotProd"

    def score_rows(self, shape: Shape, nodes: NodeTable, rows: Rows) -> tuple[FloatArray, IntArray | None]:
        gpu = rows.free.sum(axis=1)
        product = rows.cpu / MAX_CPU * (shape.cpu / MAX_CPU) + gpu / MAX_GPU * (shape.gpu_milli / MAX_GPU)
        return np.floor(100 * (1 - product / 2)), None


class BestFit(DevicePolicy):
    """The node with the least free resources after the task is placed: the mean of CPU and GPU, as fractions of the largest
    node."""

    name = "BestFit"

    def score_rows(self, shape: Shape, nodes: NodeTable, rows: Rows) -> tuple[FloatArray, IntArray | None]:
        gpu = rows.free.sum(axis=1) - shape.gpu_milli
        left = 0.5 * (rows.cpu - shape.cpu) / MAX_CPU + 0.5 * gpu / MAX_GPU
        return np.floor(100 * (1 - left)), None


class GpuPacking(DevicePolicy):
    """Shared devices first, then free devices of a used node, then free nodes.

    67 to 100 or less for used devices, by their free thousandths; 33 to 50 for free devices of a node with used ones; less for
    free nodes, and the less the more devices they have. Tasks without GPUs have no preference.
    """

    name = "GpuPacking"

    def score_rows(self, shape: Shape, nodes: NodeTable, rows: Rows) -> tuple[FloatArray, IntArray | None]:
        if not shape.gpus:
            return np.zeros(len(rows.numbers)), None
        whole = np.count_nonzero(rows.free == WHOLE, axis=1)
        order = np.sort(np.where(rows.free >= shape.milli, rows.free, 2 * WHOLE), axis=1)[:, : shape.gpus]
        new = np.count_nonzero(order == WHOLE, axis=1)
        used = np.maximum(100 - (order * 100 // WHOLE).sum(axis=1) // 10, 50)
        scores = np.where(new > 0, np.maximum(50 - new, 33), used)
        return np.where(whole == rows.count, np.maximum(33 - whole, whole), scores).astype(np.float64), None


class GpuClustering(DevicePolicy):
    """Tasks of the same kind together: shares of a device, and each number of whole devices, are a kind.

    75 to 100 for nodes with this kind only, 50 to 75 with this kind and others, 25 to 50 for nodes without GPU tasks, less for
    nodes with other kinds only; within each, the fuller node is better. Tasks without GPUs have no preference.
    """

    name = "GpuClustering"

    def score_rows(self, shape: Shape, nodes: NodeTable, rows: Rows) -> tuple[FloatArray, IntArray | None]:
        if not shape.gpus:
            return np.zeros(len(rows.numbers)), None
        kind = shape.gpus if shape.milli == WHOLE else 0
        kinds = np.count_nonzero(rows.kinds, axis=1)
        alike = rows.kinds[:, kind] > 0
        base = np.where(alike, np.where(kinds == 1, 75, 50), np.where(kinds == 0, 25, 0))
        fuller = 25 * (MAX_GPU - rows.free.sum(axis=1)) // MAX_GPU
        return (base + fuller).astype(np.float64), None
