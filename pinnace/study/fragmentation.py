"""GPU fragmentation: the free thousandths of GPUs that a typical task cannot use.

Typical tasks are the most frequent shapes (CPU, share, number of devices, models) that make 95 % of all tasks.
For one typical task and one node:

    it does not fit (CPU, devices or model), or it requests no GPU    all free thousandths are a fragment
    it fits                                                            the free thousandths of devices that are too small for it

The fragmentation of a node is the mean over the typical tasks by their frequency. That of a cluster is the sum.
Source: Q. Weng et al., Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent
(USENIX ATC 2023), section 3.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from pinnace.scheduler.cache.table import NodeTable
from pinnace.scheduler.framework import FloatArray, IntArray
from pinnace.scheduler.plugins.gpu_share import MODEL_LABEL, WHOLE
from pinnace.study.trace import Shape

TYPICAL = 0.95
"""The share of the tasks that the typical tasks make."""


def typical_shapes(shapes: Iterable[Shape], share: float = TYPICAL) -> dict[Shape, float]:
    """Return the frequencies of the typical shapes, which sum to 1. Memory does not count."""
    counter = Counter(Shape(shape.cpu, 0, shape.gpus, shape.milli, shape.models) for shape in shapes)
    total = counter.total()
    order = sorted(counter, key=lambda shape: (counter[shape], shape.cpu, shape.milli, shape.gpus, shape.models), reverse=True)
    typical: dict[Shape, int] = {}
    for shape in order:
        if sum(typical.values()) >= share * total:
            break
        typical[shape] = counter[shape]
    return {shape: number / sum(typical.values()) for shape, number in typical.items()}


class Fragmentation:
    """Computes the fragmentation of many nodes at once. Arrays have a row per node; `free` is [row, device].

    Typical tasks with equal devices form a group. `_weights[model, rank, group]` is the frequency of the tasks of the group
    that accept the model and fit into the CPU; the rank is the number of different CPU requests that fit.
    """

    def __init__(self, typical: Mapping[Shape, float]) -> None:
        sharing = {shape: weight for shape, weight in typical.items() if shape.gpus}
        self._cpus = np.array(sorted({shape.cpu for shape in sharing}), np.int64)
        groups = sorted({(shape.milli, shape.gpus) for shape in sharing})
        self._milli = np.array([milli for milli, _ in groups], np.int64)
        self._number = np.array([number for _, number in groups], np.int64)
        self._models = {model: code for code, model in enumerate(sorted({m for s in sharing for m in s.models}), start=1)}
        self._weights = np.zeros((len(self._models) + 1, len(self._cpus) + 1, len(groups)))
        for shape, weight in sharing.items():
            codes = [self._models[model] for model in shape.models] or range(len(self._models) + 1)
            rank = int(np.searchsorted(self._cpus, shape.cpu)) + 1
            for code in codes:
                self._weights[code, rank:, groups.index((shape.milli, shape.gpus))] += weight

    def codes(self, nodes: NodeTable) -> IntArray:
        """Return the codes of the nodes' models. 0 is a model that no typical task requires."""
        models = self._models
        return nodes.label(MODEL_LABEL).map(lambda model: models.get(model or "", 0), np.int64)

    def amount(self, cpu: IntArray, free: IntArray, codes: IntArray) -> FloatArray:
        """Return the fragmentation in thousandths of a device for the free CPU, the free devices and the models."""
        enough = free[:, :, None] >= self._milli
        usable = np.einsum("rd,rdg->rg", free, enough)
        weights = self._weights[codes, np.searchsorted(self._cpus, cpu, "right")]
        fits = np.count_nonzero(enough, axis=1) >= self._number
        amount: FloatArray = free.sum(axis=1) - np.einsum("rg,rg,rg->r", weights, fits, usable)
        return amount

    def amount_after_share(self, cpu: IntArray, free: IntArray, codes: IntArray, milli: int) -> FloatArray:
        """Return the fragmentation [row, device] after `milli` thousandths of the device are used, infinite if they do not fit.

        `cpu` is the free CPU after the task is placed.
        """
        before, left = free[:, :, None] >= self._milli, free - milli
        after = left[:, :, None] >= self._milli
        number = np.count_nonzero(before, axis=1)[:, None] - before + after
        usable = np.einsum("rd,rdg->rg", free, before)[:, None] - free[:, :, None] * before + left[:, :, None] * after
        weights = self._weights[codes, np.searchsorted(self._cpus, cpu, "right")]
        satisfied = np.einsum("rg,rdg,rdg->rd", weights, number >= self._number, usable)
        amount: FloatArray = free.sum(axis=1)[:, None] - milli - satisfied
        return np.where(left >= 0, amount, np.inf)


def without_whole(free: IntArray, number: int) -> IntArray:
    """Return the free devices after `number` whole devices of each row are used, or fewer if a row has fewer."""
    left = free.copy()
    whole = free >= WHOLE
    left[whole & (np.cumsum(whole, axis=1) <= number)] -= WHOLE
    return left


def plain_amount(cpu: int, free: Sequence[int], model: str, typical: Mapping[Shape, float]) -> float:
    """Return the fragmentation of one node. The plain form, for tests."""
    total = 0.0
    for shape, weight in typical.items():
        enough = [amount for amount in free if amount >= shape.milli]
        fits = shape.gpus > 0 and cpu >= shape.cpu and len(enough) >= shape.gpus
        fits = fits and (not shape.models or model in shape.models)
        total += weight * (sum(free) - (sum(enough) if fits else 0))
    return total
