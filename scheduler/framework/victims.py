"""What preemption on one node would take, and on which node it takes the least.

The best node, each rule among those that the rules before it leave:

1. the fewest violations of budgets;
2. the most important victim has the lowest priority;
3. the smallest sum of the victims' priorities;
4. the fewest victims;
5. the victims of the highest priority started last;
6. the first in the order in which they were tried.

Source: pickOneNodeForPreemption in k8s.io/kubernetes/pkg/scheduler/framework/preemption.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from scheduler.cache.placed_pod import PlacedPod

Rank = tuple[int, int, int, int, float]
_OFFSET = 1 << 31
"""Makes every priority positive, so that more victims have a larger sum."""


@dataclass(frozen=True)
class Victims:
    """What preemption on one node would take."""

    node: str
    pods: Sequence[PlacedPod]
    """At least one; the most important first."""
    violations: int = 0
    """How many of them a PodDisruptionBudget protects."""

    @cached_property
    def rank(self) -> Rank:
        """The least is the best."""
        highest = self.pods[0].priority
        started = min(pod.started for pod in self.pods if pod.priority == highest)
        total = sum(pod.priority + _OFFSET for pod in self.pods)
        return self.violations, highest, total, len(self.pods), -started


def choose(candidates: Iterable[Victims]) -> Victims:
    """The best of them, at least one; of equals the first."""
    return min(candidates, key=lambda each: each.rank)
