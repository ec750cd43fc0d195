"""NodeResourcesBalancedAllocation: the closer the used shares of cpu and memory would be, the better; or of the `resources` in
its args, each of which counts alike.

The score is 100 less the standard deviation of the shares, in percent. Unlike NodeResourcesFit's it is about what pods really
request: nothing is assumed for a container that requests none. A pod that requests nothing at all is left alone: what it will
use is anyone's guess. A resource that a node does not have is not counted there.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from scheduler.cache.table import SCORED
from scheduler.framework import MAX_SCORE, SKIP, BoolArray, CycleState, FloatArray, NodeTable, PodInfo, Sees, Status
from scheduler.plugins.arguments import check_names
from scheduler.plugins.scoring_strategy import lacking, resources, share, uses


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
        if not self._usual:
            return self._of_any(pod, nodes)
        # The standard deviation of two numbers is half their difference; of shares used, the same as of shares left.
        requested = dict(pod.requests.amounts)
        cpu, memory = (
            np.maximum((nodes.free(resource) - requested.get(resource, 0)) * nodes.inverse(scored), 0)
            for scored, resource in enumerate(SCORED)
        )
        scores: FloatArray = np.abs(cpu - memory)
        scores *= -MAX_SCORE / 2
        scores += MAX_SCORE
        if (without := lacking(nodes)) is not None:
            scores[without] = MAX_SCORE
        return scores

    def _of_any(self, pod: PodInfo, nodes: NodeTable) -> FloatArray:
        """Of those resources that a node has."""
        found = list(uses(self._resources, pod, nodes, assuming=False))
        shares = np.array([share(use) for use in found]).reshape(len(found), len(nodes))
        has = np.array([use.capacity > 0 for use in found]).reshape(shares.shape)
        count = np.maximum(has.sum(axis=0), 1)
        mean = (shares * has).sum(axis=0) / count
        deviation = np.sqrt(((shares - mean) ** 2 * has).sum(axis=0) / count)
        scores: FloatArray = MAX_SCORE * (1 - deviation)
        return scores
