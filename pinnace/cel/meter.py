"""Limits of an evaluation.

Two amounts are counted. `cost` is in cel-go's units, with Kubernetes' limits. `work` is about one step of the interpreter (0.1
us), for what cel-go's units do not see: copies of lists, comparisons of whole objects. `work` bounds the time.
"""

from typing import Any

from pinnace.cel.types import EvaluationFailure

CALL_LIMIT = 1_000_000
"""Maximum cost of one evaluation, as in Kubernetes: PerCallLimit."""
OBJECT_LIMIT = 10_000_000
"""Maximum cost of all rules of an object, as in Kubernetes: RuntimeCELCostBudget."""
WORK_LIMIT = 500_000
"""Maximum work of all rules of an object, or of all expressions of a request. About 50 ms."""
EXCEEDED = "operation cancelled: actual cost limit exceeded"


class CostExceeded(EvaluationFailure):
    """An evaluation exceeded its limits. No operator absorbs this error."""


class Meter:
    """The cost and the work of an evaluation so far, and their limits. Several evaluations may share the work of one meter."""

    __slots__ = ("converted", "cost", "cost_limit", "work", "work_limit")

    def __init__(self, cost_limit: int = CALL_LIMIT, work_limit: int = WORK_LIMIT) -> None:
        self.cost = self.work = 0
        self.cost_limit, self.work_limit = cost_limit, work_limit
        self.converted: dict[tuple[int, int], tuple[Any, Any]] = {}
        """Parts of the object that an expression has read, and their values, by the identities of the part and its schema."""

    def charge(self, cost: int, work: int) -> None:
        """Count cost and work. Raises CostExceeded."""
        self.cost += cost
        self.work += work
        if self.cost > self.cost_limit or self.work > self.work_limit:
            raise CostExceeded(EXCEEDED)

    def reserve(self, work: int) -> None:
        """Raise CostExceeded if this work would exceed the limit. It is not counted."""
        if self.work + work > self.work_limit:
            raise CostExceeded(EXCEEDED)
