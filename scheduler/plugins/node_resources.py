"""NodeResourcesFit and NodeResourcesBalancedAllocation, and the scoring strategies.

The filter refuses a node with too little of a requested resource (`pinnace.fit`). It skips the extended resources in
`ignoredResources` and `ignoredResourceGroups`. The default score is LeastAllocated: the mean of the free percentages of CPU and
memory. `scoringStrategy` selects MostAllocated or RequestedToCapacityRatio.

The balance of a node is the standard deviation of the used shares of its resources, with and without the pod. The score grows
with the decrease of the deviation and is 75 if it does not change. Resources that a node does not have are not counted.

All percentages are truncated where kube-scheduler truncates them, and computed with its floating-point operations in its order,
so that the scores are equal to its scores. Amounts are below 2**46 (64 TiB), so that quotients of exact amounts are truncated
correctly.

Source: https://github.com/kubernetes/kubernetes/tree/release-1.36/pkg/scheduler/framework/plugins/noderesources
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pinnace.fit import Requests
from pinnace.fit.room import insufficient_reason
from pinnace.fit.table import insufficient_nodes
from pinnace.scheduler.cache.table import SCORED
from pinnace.scheduler.framework import (
    MAX_SCORE,
    SKIP,
    BoolArray,
    Change,
    ClusterEvent,
    Cost,
    CycleState,
    Dependency,
    FilterResult,
    FloatArray,
    NodeReasons,
    NodeTable,
    PodInfo,
    Status,
)
from pinnace.scheduler.plugins.helper import check_label_key, check_names, parse_fields, parse_items, parse_whole_number

LEAST, MOST, RATIO = "LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"
USUAL = [{"name": resource, "weight": 1} for resource in SCORED]
_RATIO_PATH = "scoringStrategy.requestedToCapacityRatio"
_NATIVE = (*SCORED, "ephemeral-storage")
_TOP = 10
"""The highest score in a shape."""
_CONTAINER, _RESOURCE, _RESOURCE_NODE = 25e-6, 5e-6, 6e-9
"""Seconds per container, per request or limit, and additionally per request or limit and node."""
_BITS = 63
"""Number of usable bits in a code."""


def complete_strategy(raw: Any) -> dict[str, Any]:
    """Return a strategy with defaults. Raise ValueError."""
    args = parse_fields(raw, "scoringStrategy", ("type", "resources", "requestedToCapacityRatio"))
    kind = args.get("type", LEAST)
    if kind not in (LEAST, MOST, RATIO):
        raise ValueError(f"scoringStrategy.type: expected {LEAST}, {MOST} or {RATIO}, got {kind!r}")
    result = {"type": kind, "resources": parse_resources(args, "scoringStrategy.")}
    if kind == RATIO:
        ratio = parse_fields(args.get("requestedToCapacityRatio", {}), _RATIO_PATH, ("shape",))
        result["requestedToCapacityRatio"] = {"shape": _parse_shape(ratio.get("shape"), f"{_RATIO_PATH}.shape")}
    elif "requestedToCapacityRatio" in args:
        raise ValueError(f"{_RATIO_PATH}: requires the type {RATIO}")
    return result


def parse_resources(args: Mapping[str, Any], path: str = "") -> list[dict[str, Any]]:
    """Parse the field `resources`: names, and weights from 1 to 100."""
    result: list[dict[str, Any]] = []
    for index, raw in enumerate(parse_items(args.get("resources") or USUAL, f"{path}resources")):
        where = f"{path}resources[{index}]"
        given = parse_fields(raw, where, ("name", "weight"))
        name = given.get("name")
        if not isinstance(name, str) or not name or any(item["name"] == name for item in result):
            raise ValueError(f"{where}.name: expected a resource name without duplicates, got {name!r}")
        result.append({"name": name, "weight": parse_whole_number(given, "weight", 1, 1, 100, f"{where}.")})
    return result


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """The use of one resource on all nodes, including the pod."""

    weight: float
    used: FloatArray
    capacity: FloatArray
    requested: int
    """The pod's own request, which is included in `used`."""


def resource_uses(
    resources: Sequence[Mapping[str, Any]], requests: Requests, nodes: NodeTable, *, assuming: bool = True
) -> Iterator[ResourceUse]:
    """Yield the use of the resources that count for a pod with these requests.

    With `assuming`, a container without a CPU or memory request counts with a default amount.
    """
    requested = dict(requests.amounts)
    for counted in resources:
        resource, weight = counted["name"], counted["weight"]
        capacity = nodes.allocatable(resource).astype(np.float64)
        if assuming and resource in SCORED:
            scored = SCORED.index(resource)
            own = requests.scored[scored]
            yield ResourceUse(weight, capacity - nodes.free_for_scoring(scored) + own, capacity, own)
        elif resource in requested or resource in _NATIVE:
            own = requested.get(resource, 0)
            yield ResourceUse(weight, capacity - nodes.free(resource) + own, capacity, own)


def without_capacity(nodes: NodeTable) -> BoolArray | None:
    """Return the nodes that lack a resource of SCORED, or None if there are none."""
    lacking: BoolArray = np.isinf(reduce(np.add, (nodes.capacity_for_scoring(scored) for scored in range(len(SCORED)))))
    return lacking if lacking.any() else None


def _compute_percentage(amount: FloatArray, capacity: FloatArray) -> FloatArray:
    """Return 0 to 100, truncated; 0 on nodes without the resource."""
    clipped = np.clip(amount, 0, capacity)
    clipped *= MAX_SCORE
    np.divide(clipped, capacity, out=clipped, where=capacity > 0)
    return np.floor(clipped, out=clipped)


def strategy_scorer(strategy: Mapping[str, Any]) -> Callable[[Requests, NodeTable], FloatArray]:
    """Return the scoring function of a strategy with all defaults."""
    counted, kind = strategy["resources"], strategy["type"]
    shape = strategy["requestedToCapacityRatio"]["shape"] if kind == RATIO else []
    heights = _scores_by_utilization([(point["utilization"], point["score"] * int(MAX_SCORE) // _TOP) for point in shape])

    def score(requests: Requests, nodes: NodeTable) -> FloatArray:
        total, weights = np.zeros(len(nodes)), np.zeros(len(nodes))
        for use in resource_uses(counted, requests, nodes):
            counts = use.capacity > 0
            if kind == RATIO:
                liked = heights[_compute_percentage(use.used, use.capacity).astype(np.int64)]
                counts &= liked > 0
            else:
                liked = _compute_percentage(use.used if kind == MOST else use.capacity - use.used, use.capacity)
            total += np.where(counts, liked, 0) * use.weight
            weights += counts * use.weight
        mean: FloatArray = total / np.maximum(weights, 1)
        return np.floor(mean + 0.5) if kind == RATIO else mean

    return score


def _scores_by_utilization(points: Sequence[tuple[int, int]]) -> FloatArray:
    """Return the score of each utilization from 0 to 100. Between two (utilization, score), the difference to the first is
    truncated."""
    if not points:
        return np.zeros(0)
    utilizations, scores = zip(*points, strict=True)
    heights: FloatArray = np.interp(np.arange(int(MAX_SCORE) + 1), utilizations, scores)
    for (left, low), (right, high) in pairwise(points):
        for utilization in range(left, right):
            heights[utilization] = low + int((high - low) * (utilization - left) / (right - left))
    return heights


def _parse_shape(listed: Any, path: str) -> list[dict[str, int]]:
    points: list[dict[str, int]] = []
    for index, raw in enumerate(parse_items(listed, path)):
        where = f"{path}[{index}]"
        point = parse_fields(raw, where, ("utilization", "score"))
        utilization = parse_whole_number(point, "utilization", 0, 0, 100, f"{where}.")
        if points and utilization <= points[-1]["utilization"]:
            raise ValueError(f"{where}.utilization: expected more than {points[-1]['utilization']}, got {utilization}")
        points.append({"utilization": utilization, "score": parse_whole_number(point, "score", 0, 0, _TOP, f"{where}.")})
    if not points:
        raise ValueError(f"{path}: expected at least one point")
    return points


class NodeResourcesFit:
    name = "NodeResourcesFit"
    filter_depends_on = score_depends_on = Dependency.FREE_RESOURCES
    helped_by = Change.NODE_ADDED | Change.NODE_ALLOCATABLE | Change.POD_FREED

    def __init__(self, args: Mapping[str, Any] | None = None) -> None:
        complete = self.complete(args or {})
        self._ignored = frozenset(complete["ignoredResources"])
        self._ignored_groups = frozenset(complete["ignoredResourceGroups"])
        strategy = complete["scoringStrategy"]
        self._usual = strategy == complete_strategy({})
        self._score = strategy_scorer(strategy)

    @staticmethod
    def complete(args: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments with defaults. Raise ValueError."""
        check_names(args, ("ignoredResources", "ignoredResourceGroups", "scoringStrategy"))
        return {
            "ignoredResources": _parse_names(args, "ignoredResources"),
            "ignoredResourceGroups": _parse_groups(args, "ignoredResourceGroups"),
            "scoringStrategy": complete_strategy(args.get("scoringStrategy", {})),
        }

    def cost(self, pod: PodInfo, nodes: NodeTable) -> Sequence[Cost]:
        spec = pod.raw.spec
        containers = len(spec.containers) + len(spec.initContainers)
        stated = sum(len(container.resources.requests) + len(container.resources.limits) for container in spec.containers)
        stated += sum(
            len(init_container.resources.requests) + len(init_container.resources.limits)
            for init_container in spec.initContainers
        )
        each_resource = _RESOURCE + len(nodes) * _RESOURCE_NODE
        return [
            Cost(containers * _CONTAINER, containers, "containers"),
            Cost(max(stated - 2 * containers, 0) * each_resource, stated, "resource requests and limits"),
        ]

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
        requests = self._counted_requests(pod)
        short = [lacking for _, lacking in insufficient_nodes(requests, nodes.free)]

        def explain() -> NodeReasons:
            lacked = [
                (insufficient_reason(resource), lacking)
                for (resource, _), lacking in zip(requests.amounts, short, strict=True)
                if lacking.any()
            ]
            codes = _shortage_codes([lacking for _, lacking in lacked], len(short[0]))

            def reasons(code: int) -> list[str]:
                """Return the reasons of a code. All nodes with the same code lack the same resources."""
                row = np.argmax(codes == code)
                return [reason for reason, lacking in lacked if lacking[row]]

            return NodeReasons(codes, reasons)

        def too_small() -> BoolArray:
            return reduce(np.bitwise_or, [lacking for _, lacking in insufficient_nodes(requests, nodes.allocatable)])

        return FilterResult(~reduce(np.bitwise_or, short), explain, too_small)

    def lacking(self, pod: PodInfo, free: Callable[[str], int]) -> Sequence[str]:
        return [
            insufficient_reason(resource) for resource, amount in self._counted_requests(pod).amounts if free(resource) < amount
        ]

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        row = nodes.row(event.node)
        return row is not None and not self.lacking(pod, partial(nodes.free_at, row))

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        score = _least_allocated if self._usual else self._score
        return score(pod.container_requests, nodes)

    def _counted_requests(self, pod: PodInfo) -> Requests:
        """Return the pod's requests without ignored resources."""
        if not (self._ignored or self._ignored_groups):
            return pod.requests
        amounts = tuple((resource, amount) for resource, amount in pod.requests.amounts if not self._ignores_resource(resource))
        return replace(pod.requests, amounts=amounts)

    def _ignores_resource(self, resource: str) -> bool:
        group, extended, _ = resource.partition("/")
        return bool(extended) and (resource in self._ignored or group in self._ignored_groups)


def _least_allocated(requests: Requests, nodes: NodeTable) -> FloatArray:
    """Return the LeastAllocated score over SCORED with equal weights.

    Containers without requests count with default amounts. Their sum can exceed the capacity of the node; the free share
    is then 0.
    """
    percentages = []
    for scored, own in enumerate(requests.scored):
        free = nodes.free_for_scoring(scored) - own
        np.maximum(free, 0, out=free)
        free *= MAX_SCORE
        free /= nodes.capacity_for_scoring(scored)
        percentages.append(np.floor(free, out=free))
    scores: FloatArray = (percentages[0] + percentages[1]) / 2
    if (lacking := without_capacity(nodes)) is not None:
        scores[lacking] *= 2  # only the other resource counts there
    return scores


def _shortage_codes(short: Sequence[BoolArray], nodes: int) -> NDArray[np.int64]:
    """Return a code per node that is equal for nodes that lack the same resources, and 0 for nodes that lack none.

    A code has one bit per resource, or a number per combination if there are more than _BITS resources.
    """
    if len(short) <= _BITS:
        codes = np.zeros(nodes, np.int64)
        for bit, lacking in enumerate(short):
            codes |= lacking.astype(np.int64) << bit
        return codes
    packed = np.packbits(np.stack(short, axis=1), axis=1)
    numbers = {bytes(packed.shape[1]): 0}
    return np.array([numbers.setdefault(row.tobytes(), len(numbers)) for row in packed], np.int64)


def _parse_names(args: Mapping[str, Any], field: str) -> Sequence[str]:
    names = args.get(field, [])
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise ValueError(f"{field}: expected a list of names")
    return [check_label_key(name, f"{field}[{index}]") for index, name in enumerate(names)]


def _parse_groups(args: Mapping[str, Any], field: str) -> Sequence[str]:
    groups = _parse_names(args, field)
    for index, group in enumerate(groups):
        if "/" in group:
            raise ValueError(f"{field}[{index}]: expected only the part before the '/', got {group!r}")
    return groups


class NodeResourcesBalancedAllocation:
    name = "NodeResourcesBalancedAllocation"
    score_depends_on = Dependency.FREE_RESOURCES

    def __init__(self, args: Mapping[str, Any] | None = None) -> None:
        self._resources = self.complete(args or {})["resources"]
        self._names = {resource["name"] for resource in self._resources}
        self._usual = self._names == set(SCORED)

    @staticmethod
    def complete(args: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments with defaults. Raise ValueError."""
        check_names(args, ("resources",))
        result = parse_resources(args)
        for index, each in enumerate(result):
            if each["weight"] != 1:
                raise ValueError(f"resources[{index}].weight: expected 1, got {each['weight']}: all resources count equally")
        return {"resources": result}

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> Status | None:
        requested = {resource for resource, _ in pod.requests.amounts}
        return None if requested.intersection(self._names) else SKIP

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        with_pod, without = (_to_balance(deviation) for deviation in self._usage_deviations(pod, nodes))
        scores = np.subtract(with_pod, without, out=with_pod)
        scores += 1.5 * MAX_SCORE
        scores *= 0.5
        return np.floor(scores, out=scores)

    def _usage_deviations(self, pod: PodInfo, nodes: NodeTable) -> tuple[FloatArray, FloatArray]:
        """Return the standard deviations of the used shares with the pod and without it. They are at most 0.5."""
        if not self._usual:
            counted = list(resource_uses(self._resources, pod.requests, nodes, assuming=False))
            before = [replace(use, used=use.used - use.requested) for use in counted]
            return _share_deviation(counted, len(nodes)), _share_deviation(before, len(nodes))
        requested = dict(pod.requests.amounts)
        used = [(nodes.allocatable(resource) - nodes.free(resource)).astype(np.float64) for resource in SCORED]
        with_pod = [amount + requested.get(resource, 0) for resource, amount in zip(SCORED, used, strict=True)]
        deviations = _half_difference(with_pod, nodes), _half_difference(used, nodes)
        if (absent := without_capacity(nodes)) is not None:
            for deviation in deviations:
                deviation[absent] = 0
        return deviations


def _half_difference(used: Sequence[FloatArray], nodes: NodeTable) -> FloatArray:
    """Return the standard deviation of the used shares of SCORED. It overwrites `used`."""
    for scored, amount in enumerate(used):
        amount /= nodes.capacity_for_scoring(scored)
        np.minimum(amount, 1, out=amount)
    diff_stores, memory = used
    diff_stores -= memory
    np.abs(diff_stores, out=diff_stores)
    diff_stores *= 0.5
    return diff_stores


def _to_balance(deviation: FloatArray) -> FloatArray:
    """Return the balance of nodes in percent, truncated. It overwrites `deviation`."""
    np.subtract(1, deviation, out=deviation)
    deviation *= MAX_SCORE
    return np.floor(deviation, out=deviation)


def _share_deviation(counted: Sequence[ResourceUse], nodes: int) -> FloatArray:
    """Return the standard deviation of the used shares of the resources that each node has. The sums are in the order of the
    resources. Two resources have half their difference, which is not rounded as the general formula is."""
    if not counted:
        return np.zeros(nodes)
    has = np.array([use.capacity > 0 for use in counted])
    used, capacity = (np.array([getattr(use, field) for use in counted]) for field in ("used", "capacity"))
    shares = np.minimum(np.divide(used, capacity, out=np.zeros(has.shape), where=has), 1)
    count = has.sum(axis=0)
    mean = reduce(np.add, shares) / np.maximum(count, 1)
    squares = reduce(np.add, np.where(has, (shares - mean) ** 2, 0))
    half = np.maximum(shares.max(axis=0) - np.where(has, shares, 1).min(axis=0), 0) / 2
    deviation: FloatArray = np.where(count > 2, np.sqrt(squares / np.maximum(count, 1)), half)
    return deviation
