"""How NodeResourcesFit likes nodes: `scoringStrategy` of its args, with Kubernetes' defaults and meaning.

    LeastAllocated             the share that would be left: spreads
    MostAllocated              the share that would be used: packs
    RequestedToCapacityRatio   the used share, in percent, put on a line through the points of `shape`

The score is the mean over `resources`, by weight, of whole numbers as in kube-scheduler. Not counted: on a node that has none
of a resource, that resource; and extended resources that the pod does not request. RequestedToCapacityRatio counts a resource
only where its score is not 0.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/resource-bin-packing/, and resource_allocation.go and its
neighbours in k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scheduler.cache.table import SCORED
from scheduler.framework import MAX_SCORE, BoolArray, FloatArray, NodeTable, PodInfo, whole
from scheduler.plugins.arguments import fields, items, whole_number

LEAST, MOST, RATIO = "LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"
USUAL = [{"name": resource, "weight": 1} for resource in SCORED]
_RATIO_PATH = "scoringStrategy.requestedToCapacityRatio"
_NATIVE = (*SCORED, "ephemeral-storage")
_TOP = 10
"""The best score in a shape."""


def complete(raw: Any) -> dict[str, Any]:
    """A strategy with its defaults filled in. Raises ValueError."""
    args = fields(raw, "scoringStrategy", ("type", "resources", "requestedToCapacityRatio"))
    kind = args.get("type", LEAST)
    if kind not in (LEAST, MOST, RATIO):
        raise ValueError(f"scoringStrategy.type: expected {LEAST}, {MOST} or {RATIO}, got {kind!r}")
    found = {"type": kind, "resources": resources(args, "scoringStrategy.")}
    if kind == RATIO:
        ratio = fields(args.get("requestedToCapacityRatio", {}), _RATIO_PATH, ("shape",))
        found["requestedToCapacityRatio"] = {"shape": _shape(ratio.get("shape"), f"{_RATIO_PATH}.shape")}
    elif "requestedToCapacityRatio" in args:
        raise ValueError(f"{_RATIO_PATH}: only with the type {RATIO}")
    return found


def resources(args: Mapping[str, Any], path: str = "") -> list[dict[str, Any]]:
    """The field `resources`: names, and weights from 1 to 100."""
    found: list[dict[str, Any]] = []
    for index, raw in enumerate(items(args.get("resources") or USUAL, f"{path}resources")):
        where = f"{path}resources[{index}]"
        given = fields(raw, where, ("name", "weight"))
        name = given.get("name")
        if not isinstance(name, str) or not name or any(each["name"] == name for each in found):
            raise ValueError(f"{where}.name: expected a resource, each once, got {name!r}")
        found.append({"name": name, "weight": whole_number(given, "weight", 1, 1, 100, f"{where}.")})
    return found


@dataclass(frozen=True, slots=True)
class Use:
    """Of one resource, with the pod on the node; of all nodes."""

    weight: float
    used: FloatArray
    capacity: FloatArray
    requested: int
    """By the pod itself; counted in `used`."""


def uses(wanted: Sequence[Mapping[str, Any]], pod: PodInfo, nodes: NodeTable, *, assuming: bool = True) -> Iterator[Use]:
    """Of those resources that count for the pod. `assuming`: for cpu and memory, a container that requests none counts as a
    small one."""
    requested = dict(pod.requests.amounts)
    for each in wanted:
        resource, weight = each["name"], each["weight"]
        capacity = nodes.allocatable(resource).astype(np.float64)
        if assuming and resource in SCORED:
            scored = SCORED.index(resource)
            own = pod.requests.scored[scored]
            yield Use(weight, capacity - nodes.slack(scored) + own, capacity, own)
        elif resource in requested or resource in _NATIVE:
            own = requested.get(resource, 0)
            yield Use(weight, capacity - nodes.free(resource) + own, capacity, own)


def lacking(nodes: NodeTable) -> BoolArray | None:
    """The nodes that do not have all of SCORED; None when, as nearly always, all have."""
    inverses = [nodes.inverse(scored) for scored in range(len(SCORED))]
    if all(inverse.all() for inverse in inverses):
        return None
    found: BoolArray = ~np.logical_and.reduce(inverses)
    return found


def share(use: Use) -> FloatArray:
    """The used share, at most 1; 0 where the node has none of it."""
    found: FloatArray = np.divide(use.used, use.capacity, out=np.zeros(len(use.used)), where=use.capacity > 0)
    return np.clip(found, 0, 1, out=found)


def scorer(strategy: Mapping[str, Any]) -> Callable[[PodInfo, NodeTable], FloatArray]:
    """The score of a complete strategy."""
    wanted, kind = strategy["resources"], strategy["type"]
    shape = strategy["requestedToCapacityRatio"]["shape"] if kind == RATIO else []
    utilizations = [point["utilization"] for point in shape]
    heights = [point["score"] * MAX_SCORE / _TOP for point in shape]

    def score(pod: PodInfo, nodes: NodeTable) -> FloatArray:
        total, weights = np.zeros(len(nodes)), np.zeros(len(nodes))
        for use in uses(wanted, pod, nodes):
            counts = use.capacity > 0
            if kind == RATIO:
                liked = np.interp(whole(share(use) * 100), utilizations, heights)
                counts &= liked > 0
            else:
                liked = (share(use) if kind == MOST else 1 - share(use)) * MAX_SCORE
            total += np.where(counts, whole(liked), 0) * use.weight
            weights += counts * use.weight
        mean: FloatArray = total / np.maximum(weights, 1)
        return np.rint(mean) if kind == RATIO else mean

    return score


def _shape(listed: Any, path: str) -> list[dict[str, int]]:
    points: list[dict[str, int]] = []
    for index, raw in enumerate(items(listed, path)):
        where = f"{path}[{index}]"
        point = fields(raw, where, ("utilization", "score"))
        utilization = whole_number(point, "utilization", 0, 0, 100, f"{where}.")
        if points and utilization <= points[-1]["utilization"]:
            raise ValueError(f"{where}.utilization: expected more than {points[-1]['utilization']}, got {utilization}")
        points.append({"utilization": utilization, "score": whole_number(point, "score", 0, 0, _TOP, f"{where}.")})
    if not points:
        raise ValueError(f"{path}: expected at least one point")
    return points
