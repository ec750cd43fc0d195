"""Why a pod has no place: every plugin's verdict on every node, and the sentence that people read.

The sentence is kube-scheduler's, to the letter: a node counts for the first plugin that refuses it, reasons are sorted as
text. Source: FitError.Error in k8s.io/kubernetes/pkg/scheduler/framework/types.go
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pinnace.fit.table import BoolArray
from scheduler.framework.results import FilterResult, PluginError, Verdicts

NO_NODES = "no nodes available to schedule pods"


@dataclass(frozen=True)
class Diagnosis:
    """Of one attempt. `refusals` come in the order in which the plugins ran."""

    nodes: int
    refusals: Sequence[tuple[str, FilterResult]] = ()
    """(plugin, verdict on every node)."""
    pre_filter: tuple[str, str] | None = None
    """(plugin, reason) when a PreFilter refused the pod for all nodes."""

    @cached_property
    def counts(self) -> dict[str, Counter[str]]:
        """For each plugin, how many nodes it refused for which reason. Raises PluginError."""
        found: dict[str, Counter[str]] = {}
        left = np.ones(self.nodes, np.bool_)
        for plugin, result in self.refusals:
            try:
                counter = _count(result.explain(), left & ~result.passed)
            except Exception as error:
                raise PluginError(plugin, "Filter", error) from error
            if counter:
                found[plugin] = counter
                left &= result.passed
        return found

    @property
    def plugins(self) -> frozenset[str]:
        """Those whose verdict must change before another attempt makes sense."""
        return frozenset([self.pre_filter[0]] if self.pre_filter else self.counts)

    def message(self) -> str:
        """Such as "0/5 nodes are available: 3 Insufficient cpu, 2 node(s) had untolerated taint {gpu: true}."."""
        if not self.nodes:
            return NO_NODES
        if self.pre_filter:
            return f"0/{self.nodes} nodes are available: {self.pre_filter[1]}."
        total = sum(self.counts.values(), Counter[str]())
        reasons = sorted(f"{number} {reason}" for reason, number in total.items())
        return f"0/{self.nodes} nodes are available: {', '.join(reasons)}."


def _count(verdicts: Verdicts, nodes: BoolArray) -> Counter[str]:
    """How many of these nodes are refused for which reason."""
    counter = Counter[str]()
    codes, numbers = np.unique(verdicts.codes[nodes], return_counts=True)
    for code, number in zip(codes.tolist(), numbers.tolist(), strict=True):
        counter.update(dict.fromkeys(verdicts.reasons(code), number))
    return counter
