"""The base of the policies: scores by the shape of the pod, which are computed again only for nodes that have changed."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np

from pinnace.scheduler.framework import MAX_SCORE, BoolArray, CycleState, FloatArray, IntArray, NodeTable, PodInfo
from pinnace.scheduler.plugins.gpu_share import DEVICES, DeviceTable
from pinnace.study.trace import Shape, shape_of_pod

SHAPES = 4096
"""Maximum number of shapes whose scores are kept."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Some nodes. Arrays have one row for each of them."""

    numbers: IntArray
    """Their rows in the table."""
    cpu: IntArray
    """Free millicores."""
    free: IntArray
    """[row, device]: free thousandths of each device, 0 for a device that the node does not have."""
    count: IntArray
    """Number of devices."""
    kinds: IntArray
    """[row, n]: pods with n whole devices; for n = 0, pods with a share of a device."""


@dataclass(slots=True)
class _Scores:
    versions: IntArray
    scores: FloatArray
    devices: IntArray


class DevicePolicy(ABC):
    """Derived classes set `name` and implement `score_rows`."""

    name: str

    def __init__(self) -> None:
        self._known: dict[bytes, _Scores] = {}
        self._generation: object = None

    @abstractmethod
    def score_rows(self, shape: Shape, nodes: NodeTable, rows: Rows) -> tuple[FloatArray, IntArray | None]:
        """Return the score of each row from 0 to 100, and the preferred device for a share, or None if there is no preference.

        Rows on which the pod does not fit may have any score. The result must depend only on the arguments.
        """

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        devices: DeviceTable = state[DEVICES]
        if nodes.generation != self._generation:
            self._known.clear()
            self._generation = nodes.generation
        known = self._known.get(pod.template)
        if known is None:
            if len(self._known) == SHAPES:
                self._known.clear()
            known = self._known[pod.template] = _Scores(
                np.full(len(nodes), -1), np.zeros(len(nodes)), np.full(len(nodes), -1, np.int64)
            )
        changed = np.flatnonzero(known.versions != nodes.versions)
        if len(changed):
            rows = Rows(
                changed, nodes.free("cpu")[changed], devices.free[changed], devices.count[changed], devices.kinds[changed]
            )
            scores, preferred = self.score_rows(shape_of(pod), nodes, rows)
            known.scores[changed] = np.clip(np.nan_to_num(scores), 0, MAX_SCORE)
            known.devices[changed] = -1 if preferred is None else preferred
            known.versions = nodes.versions.copy()
        self.after_score(state, nodes, known.devices)
        return known.scores.copy()

    def after_score(self, state: CycleState, nodes: NodeTable, devices: IntArray) -> None:
        """Handle the preferred devices of all nodes, -1 for no preference."""
        return


def shape_of(pod: PodInfo) -> Shape:
    """Return the shape of a pod. The models are those of its node affinity to the label of the model."""
    shape = pod.parsed.get(Shape)
    if shape is None:
        shape = pod.parsed[Shape] = replace(shape_of_pod(pod.raw), memory=0)
    found: Shape = shape
    return found
