"""NodeResourcesBalancedAllocation: nodes are preferred whose use of cpu and memory the pod would balance.

The balance of a node is the standard deviation of the used shares: of cpu and memory, or of the `resources` in the args,
which count alike. The score compares the balance with and without the pod: 75 for no change, 100 from the worst to the best
balance, 50 for the reverse. The shares are of real requests: nothing is assumed for a container that requests none. A pod that
requests none of the resources is not scored. A resource that a node does not have is not counted there.

Source: https://github.com/kubernetes/kubernetes/pull/135573 (1.36)
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from scheduler.cache.table import SCORED
from scheduler.framework import MAX_SCORE, SKIP, BoolArray, CycleState, FloatArray, NodeTable, PodInfo, Sees, Status
from scheduler.plugins.arguments import check_names
from scheduler.plugins.scoring_strategy import Use, lacking, resources, share, uses


class NodeResourcesBalancedAllocation:
    name = "NodeResourcesBalancedAllocation"
    score_sees = Sees.ROOM

    def __init__(self, args: Mapping[str, Any] | None = None) -> None:
        self._resources = self.complete(args or {})["resources"]
        self._names = {each["name"] for each in self._resources}
        self._usual = self._names == set(SCORED)

    @staticmethod
    def complete(args: Mapping[str, Any]) -> dict[str, Any]:
        """The args with their defaults filled in. Raises ValueError."""
        check_names(args, ("resources",))
        found = resources(args)
        for index, each in enumerate(found):
            if each["weight"] != 1:
                raise ValueError(f"resources[{index}].weight: expected 1, got {each['weight']}: each counts alike")
        return {"resources": found}

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> Status | None:
        requested = {resource for resource, _ in pod.requests.amounts}
        return None if requested.intersection(self._names) else SKIP

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        with_pod, without = self._deviations(pod, nodes)
        scores: FloatArray = (without - with_pod) * (MAX_SCORE / 2)
        scores += 0.75 * MAX_SCORE
        return scores

    def _deviations(self, pod: PodInfo, nodes: NodeTable) -> tuple[FloatArray, FloatArray]:
        """The standard deviation of the used shares, at most 0.5, with the pod and without it."""
        if not self._usual:
            found = list(uses(self._resources, pod, nodes, assuming=False))
            before = [replace(each, used=each.used - each.requested) for each in found]
            return _deviation(found, len(nodes)), _deviation(before, len(nodes))
        # The deviation of two numbers is half their difference; of shares used, the same as of shares left.
        requested = dict(pod.requests.amounts)
        deviations = []
        for counted in (requested, {}):
            cpu, memory = (
                np.maximum((nodes.free(resource) - counted.get(resource, 0)) * nodes.inverse(scored), 0)
                for scored, resource in enumerate(SCORED)
            )
            deviations.append(np.abs(cpu - memory) / 2)
        if (absent := lacking(nodes)) is not None:
            for each in deviations:
                each[absent] = 0
        return deviations[0], deviations[1]


def _deviation(found: Sequence[Use], nodes: int) -> FloatArray:
    """Of the used shares of those resources that a node has."""
    shares = np.array([share(use) for use in found]).reshape(len(found), nodes)
    has = np.array([use.capacity > 0 for use in found]).reshape(shares.shape)
    count = np.maximum(has.sum(axis=0), 1)
    mean = (shares * has).sum(axis=0) / count
    deviation: FloatArray = np.sqrt(((shares - mean) ** 2 * has).sum(axis=0) / count)
    return deviation
