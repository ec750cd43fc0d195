"""Why no node takes the pods that are alike, as long as it is true.

For the next of them it is enough that the rows which were touched since are refused as they were: all filters need not be
asked about all nodes again, nor reasons be counted.
"""

from collections.abc import Sequence, Set
from functools import partial

import numpy as np

from scheduler.cache.pod_info import PodInfo
from scheduler.cache.some_nodes import SomeNodes
from scheduler.cache.table import NodeTable
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.faults import call
from scheduler.framework.filtering import RowFilters
from scheduler.framework.results import CycleState, Verdicts


class RememberedDiagnosis:
    def __init__(self, state: CycleState, diagnosis: Diagnosis, by_rows: RowFilters) -> None:
        """`by_rows`: the filters whose answers change with rows. What others said is to hold. Raises PluginError."""
        self.state = state
        self.diagnosis = diagnosis
        said = dict(diagnosis.refusals)
        self._by_rows = by_rows
        self._said = [said[each.name].explain() for each in by_rows.filters]
        """What they said, in their order, now that it can still be asked for."""
        self._reasons: list[dict[int, Set[str]]] = [{0: frozenset()} for _ in self._said]
        """Of each, by code, as far as they were needed."""

    def holds(self, rows: Sequence[int], pod: PodInfo, nodes: NodeTable) -> bool:
        """Do the filters say of these rows what they said then, in as many words? Raises PluginError."""
        if self._by_rows.rooms is not None:
            return self._lack(rows, pod, nodes.seen_at(pod.priority))
        some = slice(rows[0], rows[0] + 1) if len(rows) == 1 else np.array(rows)
        seen = SomeNodes(nodes.seen_at(pod.priority), some)
        now = (result.explain() for result in self._by_rows.results({}, pod, seen))
        return all(_alike(then, rows, each) for then, each in zip(self._said, now, strict=True))

    def _lack(self, rows: Sequence[int], pod: PodInfo, nodes: NodeTable) -> bool:
        """`holds`, where the filters can be asked about a single node."""
        for row in rows:
            free = partial(nodes.free_at, row)
            for then, known, each in zip(self._said, self._reasons, self._by_rows.rooms or (), strict=True):
                code = int(then.codes[row])
                if (reasons := known.get(code)) is None:
                    reasons = known[code] = frozenset(then.reasons(code))
                if reasons != set(call(each, "Filter", each.lacking, pod, free)):
                    return False
        return True


def _alike(then: Verdicts, rows: Sequence[int], now: Verdicts) -> bool:
    """`now` is about these rows alone."""
    for before, after in zip(then.codes[rows].tolist(), now.codes.tolist(), strict=True):
        if bool(before) != bool(after) or (before and set(then.reasons(before)) != set(now.reasons(after))):
            return False
    return True
