"""FGD, Fragmentation Gradient Descent: the node and the device on which the expected fragmentation grows least.

The score of a node is 100 * sigmoid(-growth), with the growth in devices, rounded down. For a share of a device, the best
device of the node counts, and GpuShare reserves it. Tasks without GPUs are placed by the same rule, because the CPU that they
use can make GPUs unusable.

The typical tasks come from the past of the trace in a study. On a cluster, they are the shapes of the pods that the scheduler
has scored so far; they are computed again each time that their number doubles.

Source: Q. Weng et al., Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent
(USENIX ATC 2023), section 5.
"""

from collections.abc import Iterable

import numpy as np

from pinnace.scheduler.framework import BoolArray, CycleState, FloatArray, IntArray, NodeTable, PodInfo
from pinnace.scheduler.plugins.gpu_share import DEVICE_CHOICE, WHOLE
from pinnace.study.fragmentation import Fragmentation, typical_shapes, without_whole
from pinnace.study.policies.base import DevicePolicy, Rows, shape_of
from pinnace.study.trace import Shape, Task

FIRST = 16
"""Number of pods after which the typical tasks are computed for the first time."""
LAST = 65536
"""Number of pods after which they stay."""


class FGD(DevicePolicy):
    name = "FGD"

    def __init__(self) -> None:
        super().__init__()
        self._fragmentation = Fragmentation({})
        self._seen: list[Shape] | None = []
        """The shapes of the pods so far, or None if the typical tasks are given."""

    def learn(self, past: Iterable[Task]) -> None:
        """Take the typical tasks from the past of a trace."""
        self._fragmentation = Fragmentation(typical_shapes(task.shape for task in past))
        self._seen = None
        self._known.clear()

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        if self._seen is not None and len(self._seen) < LAST:
            self._seen.append(shape_of(pod))
            if len(self._seen) >= FIRST and len(self._seen).bit_count() == 1:
                self._fragmentation = Fragmentation(typical_shapes(self._seen))
                self._known.clear()
        return super().score(state, pod, nodes, feasible)

    def score_rows(self, shape: Shape, nodes: NodeTable, rows: Rows) -> tuple[FloatArray, IntArray | None]:
        fragmentation, cpu = self._fragmentation, rows.cpu - shape.cpu
        codes = fragmentation.codes(nodes)[rows.numbers]
        before = fragmentation.amount(rows.cpu, rows.free, codes)
        if shape.gpus and shape.milli < WHOLE:
            growth = fragmentation.amount_after_share(cpu, rows.free, codes, shape.milli) - before[:, None]
            scores = _scores(growth)
            return scores.max(axis=1), scores.argmax(axis=1)
        return _scores(fragmentation.amount(cpu, without_whole(rows.free, shape.gpus), codes) - before), None

    def after_score(self, state: CycleState, nodes: NodeTable, devices: IntArray) -> None:
        def choose(node: str) -> int | None:
            row = nodes.row(node)
            return int(devices[row]) if row is not None and devices[row] >= 0 else None

        state[DEVICE_CHOICE] = choose


def _scores(growth: FloatArray) -> FloatArray:
    """Return the scores for a growth in thousandths. An infinite growth has the score 0."""
    return np.floor(100 / (1 + np.exp(np.minimum(growth, 100 * WHOLE) / WHOLE)))
