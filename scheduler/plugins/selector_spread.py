"""SelectorSpread: the fewer pods of its controller and services (`listers.Siblings`) a node has, and its zone, the better for
a pod.

A zone counts two thirds, the node one. Pods with topology spread constraints are left to those. The default constraints of
PodTopologySpread took its place in Kubernetes; it scores only where a configuration enables it.

Source: k8s.io/kubernetes/pkg/scheduler/framework/plugins/selectorspread/selector_spread.go (release-1.22)
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pinnace.api.wellknown import REGION_LABEL, ZONE_LABEL
from pinnace.fit.table import IntArray
from scheduler.framework import MAX_SCORE, SKIP, BoolArray, CycleState, FloatArray, NodeTable, PodInfo, Sees, Status
from scheduler.plugins.arguments import check_names
from scheduler.plugins.listers import Objects, Siblings

_ZONE_SHARE = 2 / 3
_SIBLINGS = "SelectorSpread.siblings"
_ZONES = "SelectorSpread.zones"


class SelectorSpread:
    name = "SelectorSpread"
    skip_sees = Sees.NODES
    needs = Siblings.needs

    def __init__(self, args: Mapping[str, Any] | None = None, handle: Objects | None = None) -> None:
        check_names(args or {}, ())
        self._siblings = Siblings(handle)

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> Status | None:
        siblings = None if pod.raw.spec.topologySpreadConstraints else self._siblings.of(pod)
        if siblings is None:
            return SKIP
        state[_SIBLINGS] = siblings
        state[_ZONES] = _zones(nodes)
        return None

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        """How many of them a node has."""
        scores: FloatArray = nodes.pods.pods(state[_SIBLINGS])
        return scores

    def normalize(self, state: CycleState, scores: FloatArray, feasible: BoolArray) -> FloatArray:
        """None is 100, and the most is 0, both of the nodes and of the zones."""
        spread = _fewest(scores, float(scores[feasible].max()))
        zones: IntArray = state[_ZONES]
        in_zone = zones > 0
        if np.count_nonzero(in_zone & feasible):
            by_zone = np.bincount(zones, scores * feasible).astype(np.float64, copy=False)
            by_zone[0] = 0
            zoned = (1 - _ZONE_SHARE) * spread + _ZONE_SHARE * _fewest(by_zone, float(by_zone.max()))[zones]
            spread = np.where(in_zone, zoned, spread)
        return spread


def _fewest(counts: FloatArray, most: float) -> FloatArray:
    return (most - counts) * (MAX_SCORE / most) if most > 0 else np.full(len(counts), MAX_SCORE)


def _zones(nodes: NodeTable) -> IntArray:
    """A number for each node's zone, which is one of its region; 0 for a node that is in neither."""
    regions, zones = nodes.label(REGION_LABEL).codes.astype(np.int64), nodes.label(ZONE_LABEL).codes
    return regions * (int(zones.max()) + 1) + zones
