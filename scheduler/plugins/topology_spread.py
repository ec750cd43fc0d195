"""PodTopologySpread and SelectorSpread: spread equivalent pods over topology domains.

PodTopologySpread applies the pod's own constraints, or the default constraints of the configuration. SelectorSpread spreads the
pods that share a Service or a controller over nodes and zones.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any

import numpy as np

from pinnace.api import selectors
from pinnace.api.core_v1_pb2 import TopologySpreadConstraint
from pinnace.api.resources import SERVICES
from pinnace.api.selectors import NOTHING
from pinnace.api.wellknown import REGION_LABEL, ZONE_LABEL
from pinnace.fit.table import IntArray
from pinnace.scheduler.cache.pod_index import Selection, selectable_labels
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
    NodeTable,
    PodInfo,
    Status,
)
from pinnace.scheduler.plugins.helper import (
    ObjectStores,
    SiblingPods,
    check_label_key,
    check_names,
    parse_fields,
    parse_items,
    parse_whole_number,
    sum_per_domain,
    sums_by_domain,
)
from pinnace.scheduler.plugins.node_affinity import matching_nodes
from pinnace.scheduler.plugins.nodes import HARD_EFFECTS, untolerated_taints

HARD, SOFT = "DoNotSchedule", "ScheduleAnyway"
HOSTNAME = "kubernetes.io/hostname"
SYSTEM_DEFAULTS = (
    TopologySpreadConstraint(topologyKey=HOSTNAME, maxSkew=3, whenUnsatisfiable=SOFT),
    TopologySpreadConstraint(topologyKey=ZONE_LABEL, maxSkew=5, whenUnsatisfiable=SOFT),
)
_DEFAULT_FIELDS = ("topologyKey", "maxSkew", "whenUnsatisfiable", "minDomains", "nodeAffinityPolicy", "nodeTaintsPolicy")
REASON = "node(s) didn't match pod topology spread constraints"
LABEL_REASON = f"{REASON} (missing required label)"
_BYTE, _NODE = 0.5e-6, 40e-9
"""Seconds per byte of the constraints, and per node for each constraint whose label nodes have."""
_HARD = "PodTopologySpread.hard"
_SOFT = "PodTopologySpread.soft"
_SCORED = "PodTopologySpread.scored"
_ZONE_SHARE = 2 / 3
_SIBLINGS = "SelectorSpread.siblings"
_ZONES = "SelectorSpread.zones"


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    topology_key: str
    max_skew: int
    pods: Selection | None
    """The pods to spread, or None to count no pods."""
    min_domains: int
    honors_affinity: bool
    """True if only nodes count that match the pod's node affinity."""
    honors_taints: bool
    """True if only nodes count whose taints the pod tolerates."""


def own_constraints(pod: PodInfo, when: str) -> list[SpreadConstraint]:
    known: list[SpreadConstraint] | None = pod.parsed.get(("topologySpreadConstraints", when))
    if known is None:
        known = pod.parsed["topologySpreadConstraints", when] = _own_constraints(pod, when)
    return known


def _own_constraints(pod: PodInfo, when: str) -> list[SpreadConstraint]:
    constraints = pod.raw.spec.topologySpreadConstraints
    return [
        _parse_constraint(constraint.SerializeToString(deterministic=True), pod.namespace)
        for constraint in constraints
        if constraint.whenUnsatisfiable == when
    ]


def with_selection(constraint: TopologySpreadConstraint, pods: Selection | None) -> SpreadConstraint:
    """Create a constraint that counts `pods` instead of its own selector."""
    return SpreadConstraint(
        constraint.topologyKey,
        constraint.maxSkew,
        pods,
        constraint.minDomains if constraint.HasField("minDomains") else 1,
        constraint.nodeAffinityPolicy != "Ignore",
        constraint.nodeTaintsPolicy == "Honor",
    )


@lru_cache(maxsize=4096)
def _parse_constraint(text: bytes, namespace: str) -> SpreadConstraint:
    """Parse a constraint. Its selector contains matchLabelKeys since the pod's creation. An empty selector counts no pods, as
    in Kubernetes."""
    constraint = TopologySpreadConstraint.FromString(text)
    labels = selectors.from_message(constraint.labelSelector) if constraint.HasField("labelSelector") else NOTHING
    return with_selection(constraint, Selection(frozenset((namespace,)), labels, living=True) if labels.requirements else None)


def default_constraints(args: Mapping[str, Any]) -> Sequence[TopologySpreadConstraint]:
    """Parse the default constraints from the plugin's arguments. Raise ValueError."""
    check_names(args, ("defaultingType", "defaultConstraints"))
    kind, listed = args.get("defaultingType", "System"), args.get("defaultConstraints") or []
    if kind not in ("System", "List"):
        raise ValueError(f"defaultingType: expected System or List, got {kind!r}")
    if kind == "System":
        if listed:
            raise ValueError("defaultConstraints: requires defaultingType List")
        return SYSTEM_DEFAULTS
    spread_constraints = [
        _parse_default_constraint(each, f"defaultConstraints[{index}]")
        for index, each in enumerate(parse_items(listed, "defaultConstraints"))
    ]
    pairs = [(spread_constraint.topologyKey, spread_constraint.whenUnsatisfiable) for spread_constraint in spread_constraints]
    for index, pair in enumerate(pairs):
        if pair in pairs[:index]:
            raise ValueError(f"defaultConstraints[{index}]: duplicate constraint with {pair[0]} and {pair[1]}")
    return spread_constraints


def _parse_default_constraint(raw: Any, path: str) -> TopologySpreadConstraint:
    raw = parse_fields(raw, path, _DEFAULT_FIELDS)
    if not isinstance(raw.get("topologyKey"), str) or not raw["topologyKey"]:
        raise ValueError(f"{path}.topologyKey: expected text")
    check_label_key(raw["topologyKey"], f"{path}.topologyKey")
    if raw.get("whenUnsatisfiable") not in (HARD, SOFT):
        raise ValueError(f"{path}.whenUnsatisfiable: expected {HARD} or {SOFT}, got {raw.get('whenUnsatisfiable')!r}")
    for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if raw.get(policy, "Honor") not in ("Honor", "Ignore"):
            raise ValueError(f"{path}.{policy}: expected Honor or Ignore, got {raw[policy]!r}")
    for number in ("maxSkew", "minDomains"):
        parse_whole_number(raw, number, 0 if number == "maxSkew" else 1, 1, 1 << 30, f"{path}.")
    return TopologySpreadConstraint(**raw)


class PodTopologySpread:
    name = "PodTopologySpread"
    skip_depends_on = Dependency.NODES
    needs = SiblingPods.needs
    helped_by = (
        Change.NODE_ADDED
        | Change.NODE_REMOVED
        | Change.NODE_LABELS
        | Change.NODE_TAINTS
        | Change.POD_FREED
        | Change.POD_PLACED
        | Change.POD_LABELS
        | Change.OBJECT
    )

    def __init__(self, args: Mapping[str, Any] | None = None, handle: ObjectStores | None = None) -> None:
        self._defaults = default_constraints(args or {})
        self._siblings = SiblingPods(handle)

    def cost(self, pod: PodInfo, nodes: NodeTable) -> Sequence[Cost]:
        constraints = pod.raw.spec.topologySpreadConstraints
        known = sum(nodes.any_node_has_label(constraint.topologyKey) for constraint in constraints)
        seconds = sum(constraint.ByteSize() for constraint in constraints) * _BYTE + known * len(nodes) * _NODE
        return [Cost(seconds, len(constraints), "topology spread constraints")]

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        state[_HARD] = self._constraints_of(pod, HARD)
        return None if state[_HARD] else SKIP

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
        constraints: list[SpreadConstraint] = state[_HARD]
        counted = nodes_with_topologies(constraints, nodes)
        codes = np.zeros(len(nodes), np.int8)
        if not counted.any():  # no node has all labels
            codes[:] = 1
            return FilterResult.coded(codes, ["", LABEL_REASON, REASON], lambda: ~counted)
        eligible = EligibleNodes(pod, nodes)
        for constraint in constraints:
            labels = nodes.label(constraint.topology_key)
            counting = counted & eligible(constraint)
            sums = sums_by_domain(count_pods_per_node(constraint, nodes) * counting, labels)
            among = sums[sums_by_domain(counting, labels) > 0]
            least = among.min() if len(among) >= constraint.min_domains else 0
            skew = sums + (_is_counted(pod, constraint) - least)
            told = codes > 0
            codes[(skew > constraint.max_skew)[labels.codes] & ~told] = 2
            codes[labels.equal(None) & ~told] = 1
        return FilterResult.coded(codes, ["", LABEL_REASON, REASON], lambda: ~counted)

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        """Return True if the event may help the pod.

        A node that is removed or relabelled may remove the domain with the fewest pods, which changes the skew of the
        others. By default a pod is spread among the pods of its Services.
        """
        if event.change & Change.OBJECT:
            return event.resource == SERVICES.plural and not pod.raw.spec.topologySpreadConstraints
        own = [
            spread_constraint
            for spread_constraint in pod.raw.spec.topologySpreadConstraints
            if spread_constraint.whenUnsatisfiable == HARD
        ]
        if event.change & (Change.NODE_REMOVED | Change.NODE_LABELS) or not own:
            return True
        if event.change & (Change.NODE_ADDED | Change.NODE_TAINTS):
            row = nodes.row(event.node)
            return row is not None and all(
                spread_constraint.topologyKey in nodes.raw[row].metadata.labels for spread_constraint in own
            )
        counted = [selectors.from_message(spread_constraint.labelSelector) for spread_constraint in own]
        pods = [pod_group for pod_group in (event.pod, event.was) if pod_group is not None]
        return not pods or any(selector.matches(pod_group.labels) for pod_group in pods for selector in counted)

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> Status | None:
        constraints = self._constraints_of(pod, SOFT)
        if not constraints:
            return SKIP
        state[_SOFT] = constraints
        lenient = self._defaults is SYSTEM_DEFAULTS and not pod.raw.spec.topologySpreadConstraints
        state[_SCORED] = np.ones(len(nodes), np.bool_) if lenient else nodes_with_topologies(constraints, nodes)
        return None

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        """Return the weighted number of pods in each node's domains. Topologies with more domains have a larger weight."""
        constraints: list[SpreadConstraint] = state[_SOFT]
        scored: BoolArray = state[_SCORED]
        candidates = feasible & scored
        scores: FloatArray = np.zeros(len(nodes))
        eligible = EligibleNodes(pod, nodes)
        for constraint in constraints:
            if not nodes.any_node_has_label(constraint.topology_key):
                continue
            labels = nodes.label(constraint.topology_key)
            there = count_pods_per_node(constraint, nodes)
            if constraint.topology_key == HOSTNAME:
                domains, around = np.count_nonzero(candidates), there
            else:
                domains = np.count_nonzero(np.bincount(labels.codes, candidates))
                around = sum_per_domain(there * (scored & eligible(constraint)), labels)
            scores += (around * math.log(domains + 2) + (constraint.max_skew - 1)) * ~labels.equal(None)
        return np.rint(scores)

    def normalize(self, state: CycleState, scores: FloatArray, feasible: BoolArray) -> FloatArray:
        """Map the lowest number to 100. Nodes that lack a topology label get 0."""
        scored: BoolArray = state[_SCORED]
        among = scores[feasible & scored]
        most = among.max(initial=0)
        spread: FloatArray = np.full(len(scores), MAX_SCORE)
        if most > 0:
            spread = (most + among.min() - scores) * (MAX_SCORE / most)
        spread[~scored] = 0
        return spread

    def _constraints_of(self, pod: PodInfo, when: str) -> list[SpreadConstraint]:
        if pod.raw.spec.topologySpreadConstraints:
            return own_constraints(pod, when)
        defaults = [default for default in self._defaults if default.whenUnsatisfiable == when]
        siblings = self._siblings.selection_of(pod) if defaults else None
        return [with_selection(default, siblings) for default in defaults] if siblings is not None else []


def nodes_with_topologies(constraints: Sequence[SpreadConstraint], nodes: NodeTable) -> BoolArray:
    """Return the nodes that have the labels of all topologies."""
    if not all(nodes.any_node_has_label(constraint.topology_key) for constraint in constraints):
        return np.zeros(len(nodes), np.bool_)
    return reduce(np.logical_and, [~nodes.label(constraint.topology_key).equal(None) for constraint in constraints])


def count_pods_per_node(constraint: SpreadConstraint, nodes: NodeTable) -> FloatArray:
    """Return the number of pods to spread on each node, including ineligible nodes."""
    return nodes.pods.count_pods(constraint.pods) if constraint.pods is not None else np.zeros(len(nodes))


class EligibleNodes:
    """The nodes whose pods count for a constraint of one pod. Constraints with the same policies share a result."""

    def __init__(self, pod: PodInfo, nodes: NodeTable) -> None:
        self._pod = pod
        self._nodes = nodes
        self._found: dict[tuple[bool, bool], BoolArray] = {}

    def __call__(self, constraint: SpreadConstraint) -> BoolArray:
        honors = constraint.honors_affinity, constraint.honors_taints and not self._nodes.taints.uniform
        result = self._found.get(honors)
        if result is None:
            result = self._found[honors] = self._find(*honors)
        return result

    def _find(self, affinity: bool, taints: bool) -> BoolArray:
        result = matching_nodes(self._pod.raw.spec, self._nodes) if affinity else np.ones(len(self._nodes), np.bool_)
        if taints:
            hard = HARD_EFFECTS
            result &= self._nodes.taints.map(lambda taints: not untolerated_taints(taints, self._pod, hard), np.bool_)
        return result


def _is_counted(pod: PodInfo, constraint: SpreadConstraint) -> bool:
    """Return True if the constraint counts the pod itself. With an empty selector this is true, although no pods are
    counted."""
    return constraint.pods is None or constraint.pods.labels.matches(selectable_labels(pod.raw))


class SelectorSpread:
    name = "SelectorSpread"
    skip_depends_on = Dependency.NODES
    needs = SiblingPods.needs

    def __init__(self, args: Mapping[str, Any] | None = None, handle: ObjectStores | None = None) -> None:
        check_names(args or {}, ())
        self._siblings = SiblingPods(handle)

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> Status | None:
        siblings = None if pod.raw.spec.topologySpreadConstraints else self._siblings.selection_of(pod)
        if siblings is None:
            return SKIP
        state[_SIBLINGS] = siblings
        state[_ZONES] = _number_zones(nodes)
        return None

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        """Return the number of sibling pods on each node."""
        scores: FloatArray = nodes.pods.count_pods(state[_SIBLINGS])
        return scores

    def normalize(self, state: CycleState, scores: FloatArray, feasible: BoolArray) -> FloatArray:
        """Map no pods to 100 and the highest number to 0, for nodes and for zones."""
        spread = _score_fewest(scores, float(scores[feasible].max()))
        zones: IntArray = state[_ZONES]
        in_zone = zones > 0
        if np.count_nonzero(in_zone & feasible):
            by_zone = np.bincount(zones, scores * feasible).astype(np.float64, copy=False)
            by_zone[0] = 0
            zoned = (1 - _ZONE_SHARE) * spread + _ZONE_SHARE * _score_fewest(by_zone, float(by_zone.max()))[zones]
            spread = np.where(in_zone, zoned, spread)
        return spread


def _score_fewest(counts: FloatArray, most: float) -> FloatArray:
    return (most - counts) * (MAX_SCORE / most) if most > 0 else np.full(len(counts), MAX_SCORE)


def _number_zones(nodes: NodeTable) -> IntArray:
    """Return a number for the region and zone of each node, or 0 for nodes without both."""
    regions, zones = nodes.label(REGION_LABEL).codes.astype(np.int64), nodes.label(ZONE_LABEL).codes
    return regions * (int(zones.max()) + 1) + zones
