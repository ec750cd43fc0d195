"""NodeResourcesFit: what the pod requests must be free; which node is liked is a matter of strategy (`scoring_strategy`).

The filter is pinnace.fit's. Without args the score is LeastAllocated's: the mean over cpu and memory of the share, in percent,
that would be left. Extended resources that are in `ignoredResources`, or whose prefix is in `ignoredResourceGroups`, are left
to somebody else, such as an extender.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pinnace.fit import Requests
from pinnace.fit.room import reason_of
from pinnace.fit.table import insufficient
from scheduler.cache.table import SCORED
from scheduler.framework import (
    MAX_SCORE,
    BoolArray,
    Change,
    ClusterEvent,
    Cost,
    CycleState,
    FilterResult,
    FloatArray,
    NodeTable,
    PodInfo,
    Sees,
    Verdicts,
    whole,
)
from scheduler.plugins import scoring_strategy
from scheduler.plugins.arguments import check_names, label_key

_CONTAINER, _RESOURCE, _RESOURCE_NODE = 25e-6, 5e-6, 6e-9
"""Seconds for a container, for a request or limit, and for it on each node."""
_BITS = 63
"""Of a code that is not negative."""


class NodeResourcesFit:
    name = "NodeResourcesFit"
    filter_sees = score_sees = Sees.ROOM
    helped_by = Change.NODE_ADDED | Change.NODE_ALLOCATABLE | Change.POD_FREED

    def __init__(self, args: Mapping[str, Any] | None = None) -> None:
        complete = self.complete(args or {})
        self._ignored = frozenset(complete["ignoredResources"])
        self._ignored_groups = frozenset(complete["ignoredResourceGroups"])
        strategy = complete["scoringStrategy"]
        self._usual = strategy == scoring_strategy.complete({})
        self._score = scoring_strategy.scorer(strategy)

    @staticmethod
    def complete(args: Mapping[str, Any]) -> dict[str, Any]:
        """The args with their defaults filled in. Raises ValueError."""
        check_names(args, ("ignoredResources", "ignoredResourceGroups", "scoringStrategy"))
        return {
            "ignoredResources": _names(args, "ignoredResources"),
            "ignoredResourceGroups": _groups(args, "ignoredResourceGroups"),
            "scoringStrategy": scoring_strategy.complete(args.get("scoringStrategy", {})),
        }

    def cost(self, pod: PodInfo, nodes: NodeTable) -> Sequence[Cost]:
        spec = pod.raw.spec
        containers = len(spec.containers) + len(spec.initContainers)
        stated = sum(len(each.resources.requests) + len(each.resources.limits) for each in spec.containers)
        stated += sum(len(each.resources.requests) + len(each.resources.limits) for each in spec.initContainers)
        each_resource = _RESOURCE + len(nodes) * _RESOURCE_NODE
        return [
            Cost(containers * _CONTAINER, containers, "containers"),
            Cost(max(stated - 2 * containers, 0) * each_resource, stated, "resource requests and limits"),
        ]

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
        requests = self._requests(pod)
        short = [lacking for _, lacking in insufficient(requests, nodes.free)]

        def explain() -> Verdicts:
            lacked = [
                (reason_of(resource), lacking)
                for (resource, _), lacking in zip(requests.amounts, short, strict=True)
                if lacking.any()
            ]
            codes = _codes([lacking for _, lacking in lacked], len(short[0]))

            def reasons(code: int) -> list[str]:
                """What any of the nodes with this code lacks, they all lack."""
                row = np.argmax(codes == code)
                return [reason for reason, lacking in lacked if lacking[row]]

            return Verdicts(codes, reasons)

        def too_small() -> BoolArray:
            return reduce(np.bitwise_or, [lacking for _, lacking in insufficient(requests, nodes.allocatable)])

        return FilterResult(~reduce(np.bitwise_or, short), explain, too_small)

    def lacking(self, pod: PodInfo, free: Callable[[str], int]) -> Sequence[str]:
        return [reason_of(resource) for resource, amount in self._requests(pod).amounts if free(resource) < amount]

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        row = nodes.row(event.node)
        return row is not None and not self.lacking(pod, partial(nodes.free_at, row))

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        if not self._usual:
            return self._score(pod, nodes)
        return _least_allocated(pod, nodes)

    def _requests(self, pod: PodInfo) -> Requests:
        """Without what is ignored."""
        if not (self._ignored or self._ignored_groups):
            return pod.requests
        amounts = tuple((resource, amount) for resource, amount in pod.requests.amounts if not self._ignores(resource))
        return replace(pod.requests, amounts=amounts)

    def _ignores(self, resource: str) -> bool:
        group, extended, _ = resource.partition("/")
        return bool(extended) and (resource in self._ignored or group in self._ignored_groups)


def _least_allocated(pod: PodInfo, nodes: NodeTable) -> FloatArray:
    """The strategy of that name over SCORED, with equal weights. A container that requests none counts as a small one: many of
    them can be more than the node has; then nothing is left."""
    cpu, memory = (
        whole(np.maximum((nodes.slack(scored) - pod.requests.scored[scored]) * nodes.inverse(scored) * MAX_SCORE, 0))
        for scored in range(len(SCORED))
    )
    scores: FloatArray = (cpu + memory) / 2
    if (lacking := scoring_strategy.lacking(nodes)) is not None:
        scores[lacking] *= 2  # the other one alone counts there
    return scores


def _codes(short: Sequence[BoolArray], nodes: int) -> NDArray[np.int64]:
    """Nodes that lack the same have the same code, those that lack nothing 0: a bit for each resource, or where there are too
    many of them, a number for each combination that there is."""
    if len(short) <= _BITS:
        codes = np.zeros(nodes, np.int64)
        for bit, lacking in enumerate(short):
            codes |= lacking.astype(np.int64) << bit
        return codes
    packed = np.packbits(np.stack(short, axis=1), axis=1)
    numbers = {bytes(packed.shape[1]): 0}
    return np.array([numbers.setdefault(row.tobytes(), len(numbers)) for row in packed], np.int64)


def _names(args: Mapping[str, Any], field: str) -> Sequence[str]:
    names = args.get(field, [])
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise ValueError(f"{field}: expected a list of names")
    return [label_key(name, f"{field}[{index}]") for index, name in enumerate(names)]


def _groups(args: Mapping[str, Any], field: str) -> Sequence[str]:
    groups = _names(args, field)
    for index, group in enumerate(groups):
        if "/" in group:
            raise ValueError(f"{field}[{index}]: expected what stands before the '/', got {group!r}")
    return groups
