"""How much the pods below some priority take up, node by node: a column for each resource, so that all nodes are asked at once.

The columns of a priority are made when somebody first asks for it, and then follow every pod that comes or goes; those that
were asked for least recently make room. Who never asks pays nothing.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

import numpy as np

from pinnace.fit import Requests
from pinnace.fit.table import IntArray
from scheduler.cache.columns import Column

_THRESHOLDS = 16


class Sized(Protocol):
    @property
    def node(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def requests(self) -> Requests: ...


class PrioritySums:
    def __init__(self, rows: Mapping[str, int]) -> None:
        """`rows`: the rows of the table, by node, as they are at any time."""
        self._rows = rows
        self._sums: dict[int, dict[str, Column]] = {}
        """By priority and resource. The least recently used first."""

    def below(self, priority: int, pods: Iterable[Sized]) -> dict[str, IntArray]:
        """By resource, what the pods with a lower priority request on each node. `pods`: all of them; they are only looked at
        the first time."""
        sums = self._sums.pop(priority, None)
        if sums is None:
            if len(self._sums) == _THRESHOLDS:
                del self._sums[next(iter(self._sums))]
            sums = self._summed(each for each in pods if each.priority < priority)
        self._sums[priority] = sums
        return {resource: column.array for resource, column in sums.items()}

    def count(self, pod: Sized, pods: int) -> None:
        """One more (1) or less (-1). On a node that is not in the table it does not count."""
        row = self._rows.get(pod.node) if self._sums else None
        if row is not None:
            for priority, sums in self._sums.items():
                if pod.priority < priority:
                    for resource, amount in pod.requests.amounts:
                        column = sums.get(resource)
                        if column is None:
                            column = sums[resource] = Column(np.int64, rows=len(self._rows))
                        column.array[row] += pods * amount

    def add_row(self) -> None:
        """The table has one more row, at its end, where no pod is counted yet."""
        for sums in self._sums.values():
            for column in sums.values():
                column.append(0)

    def remove_row(self, row: int) -> None:
        """The last row takes the place of this one."""
        for sums in self._sums.values():
            for column in sums.values():
                column.remove(row)

    def _summed(self, pods: Iterable[Sized]) -> dict[str, Column]:
        found: dict[str, tuple[list[int], list[int]]] = {}
        for pod in pods:
            row = self._rows.get(pod.node)
            if row is not None:
                for resource, amount in pod.requests.amounts:
                    rows, amounts = found.setdefault(resource, ([], []))
                    rows.append(row)
                    amounts.append(amount)
        sums = {}
        for resource, (rows, amounts) in found.items():
            sums[resource] = Column(np.int64, rows=len(self._rows))
            np.add.at(sums[resource].array, rows, amounts)
        return sums
