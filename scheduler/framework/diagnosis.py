"""Why a pod has no place: every plugin's verdict on every node, and the sentence that people read.

The sentence is kube-scheduler's, to the letter: a node counts for the first plugin that refuses it, reasons are sorted as
text. Source: FitError.Error in k8s.io/kubernetes/pkg/scheduler/framework/types.go
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pinnace.fit.table import BoolArray
from scheduler.framework.faults import failure
from scheduler.framework.results import FilterResult, Verdicts

_FEW = 256
NO_NODES = "no nodes available to schedule pods"


@dataclass(frozen=True)
class Diagnosis:
    """Of one attempt. `refusals` come in the order in which the plugins ran."""

    nodes: int
    refusals: Sequence[tuple[str, FilterResult]] = ()
    """(plugin, verdict on every node)."""
    pre_filter: tuple[str, str] | None = None
    """(plugin, reason) when a PreFilter refused the pod for all nodes."""
    hopeless: BoolArray | None = None
    """Nodes that could not take the pod whatever pods left them, beside those of which the plugins say so."""
    awaited: dict[bool, frozenset[str]] = field(default_factory=dict, init=False, compare=False, repr=False)
    """Whose verdicts must change, by whether the pod may preempt, once the framework has found out: alike pods share it."""

    @cached_property
    def feasible(self) -> BoolArray:
        """The nodes that nobody refuses."""
        if self.pre_filter or not self.refusals:
            return np.full(self.nodes, self.pre_filter is None)
        return reduce(np.logical_and, [result.passed for _, result in self.refusals])

    def passes(self, row: int) -> bool:
        """Does nobody refuse the node?"""
        return self.pre_filter is None and all(result.passed[row] for _, result in self.refusals)

    def at(self, row: int) -> list[tuple[str, FilterResult]]:
        """The refusals of one node, explained now: the table may change then. They pass all other nodes. Raises PluginError."""
        if self.pre_filter:
            plugin, reason = self.pre_filter
            return [(plugin, FilterResult.refusing(np.arange(self.nodes) == row, reason))]
        found = []
        for plugin, result in self.refusals:
            if not result.passed[row]:
                with _named(plugin):
                    found.append((plugin, _only(row, result.explain())))
        return found

    @cached_property
    def counts(self) -> dict[str, Counter[str]]:
        """For each plugin, how many nodes it refused for which reason. Raises PluginError."""
        found: dict[str, Counter[str]] = {}
        left = np.ones(self.nodes, np.bool_)
        for plugin, result in self.refusals:
            with _named(plugin):
                counter = _count(result.explain(), left & ~result.passed)
            if counter:
                found.setdefault(plugin, Counter()).update(counter)
                left &= result.passed
        return found

    @property
    def plugins(self) -> frozenset[str]:
        """Those whose verdict must change before the pod can have a node: of each node the first that refuses it."""
        return frozenset([self.pre_filter[0]] if self.pre_filter else self.counts)

    @cached_property
    def message(self) -> str:
        """Such as "0/5 nodes are available: 3 Insufficient cpu, 2 node(s) had untolerated taint {gpu: true}."."""
        if not self.nodes:
            return NO_NODES
        if self.pre_filter:
            return f"0/{self.nodes} nodes are available: {self.pre_filter[1]}."
        total = sum(self.counts.values(), Counter[str]())
        reasons = sorted(f"{number} {reason}" for reason, number in total.items())
        return f"0/{self.nodes} nodes are available: {', '.join(reasons)}."


@contextmanager
def _named(plugin: str) -> Iterator[None]:
    """What is raised is the plugin's fault."""
    try:
        yield
    except BaseException as error:
        raise failure(plugin, "Filter", error) from error


def _only(row: int, verdicts: Verdicts) -> FilterResult:
    """The verdict on one node; it passes all others."""
    codes = np.zeros(len(verdicts.codes), np.int64)
    codes[row] = 1
    reasons = verdicts.reasons(verdicts.codes[row])
    return FilterResult(codes == 0, lambda: Verdicts(codes, lambda _: reasons))


def _count(verdicts: Verdicts, nodes: BoolArray) -> Counter[str]:
    """How many of these nodes are refused for which reason."""
    counter = Counter[str]()
    for code, number in _occurrences(verdicts.codes[nodes]):
        counter.update(dict.fromkeys(verdicts.reasons(code), number))
    return counter


def _occurrences(codes: NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Each code, in ascending order, and how often it is there. Most plugins have few reasons: they are counted, not sorted."""
    if len(codes) and codes.min() >= 0 and codes.max() < _FEW:
        numbers = np.bincount(codes)
        found = np.flatnonzero(numbers)
        yield from zip(found.tolist(), numbers[found].tolist(), strict=True)
    else:
        unique, numbers = np.unique(codes, return_counts=True)
        yield from zip(unique.tolist(), numbers.tolist(), strict=True)
