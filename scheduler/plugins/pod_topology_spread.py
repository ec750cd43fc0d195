"""PodTopologySpread: pods of a kind are spread evenly over the domains of a topology.

The skew of a domain is how many more of these pods it has than the one that has fewest. A constraint with DoNotSchedule
refuses a node whose domain would exceed maxSkew; one with ScheduleAnyway scores domains: the fewer the better. A pod without
constraints of its own has the default ones, about the pods of its controller and services (`listers.Siblings`).

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/topology-spread-constraints/
"""

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from pinnace.api import selectors
from pinnace.api.resources import SERVICES
from scheduler.cache.pod_index import selectable
from scheduler.framework import (
    MAX_SCORE,
    SKIP,
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
    Status,
)
from scheduler.plugins import taint_toleration
from scheduler.plugins.listers import Objects, Siblings
from scheduler.plugins.node_affinity import matching_nodes
from scheduler.plugins.spread_constraints import (
    HARD,
    HOSTNAME,
    SOFT,
    SYSTEM_DEFAULTS,
    Constraint,
    default_constraints,
    own_constraints,
    with_pods,
)
from scheduler.plugins.tolerations import untolerated
from scheduler.plugins.topology import domain_sums, per_domain

REASON = "node(s) didn't match pod topology spread constraints"
LABEL_REASON = f"{REASON} (missing required label)"
_BYTE, _NODE = 0.5e-6, 40e-9
"""Seconds for a byte of the constraints, and for one over a label that nodes have, on each node."""
_HARD = "PodTopologySpread.hard"
_SOFT = "PodTopologySpread.soft"
_SCORED = "PodTopologySpread.scored"


class PodTopologySpread:
    name = "PodTopologySpread"
    skip_sees = Sees.NODES
    needs = Siblings.needs
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

    def __init__(self, args: Mapping[str, Any] | None = None, handle: Objects | None = None) -> None:
        self._defaults = default_constraints(args or {})
        self._siblings = Siblings(handle)

    def cost(self, pod: PodInfo, nodes: NodeTable) -> Sequence[Cost]:
        constraints = pod.raw.spec.topologySpreadConstraints
        known = sum(nodes.has_label(each.topologyKey) for each in constraints)
        seconds = sum(each.ByteSize() for each in constraints) * _BYTE + known * len(nodes) * _NODE
        return [Cost(seconds, len(constraints), "topology spread constraints")]

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        state[_HARD] = self._constraints(pod, HARD)
        return None if state[_HARD] else SKIP

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
        constraints: list[Constraint] = state[_HARD]
        counted = labelled(constraints, nodes)
        codes = np.zeros(len(nodes), np.int8)
        if not counted.any():  # then nothing is too full anywhere
            codes[:] = 1
            return FilterResult.coded(codes, ["", LABEL_REASON, REASON], lambda: ~counted)
        eligible = Eligible(pod, nodes)
        for each in constraints:
            labels = nodes.label(each.topology_key)
            counting = counted & eligible(each)
            sums = domain_sums(counts(each, nodes) * counting, labels)
            among = sums[domain_sums(counting, labels) > 0]
            least = among.min() if len(among) >= each.min_domains else 0
            skew = sums + (_is_counted(pod, each) - least)
            told = codes > 0
            codes[(skew > each.max_skew)[labels.codes] & ~told] = 2
            codes[labels.equal(None) & ~told] = 1
        return FilterResult.coded(codes, ["", LABEL_REASON, REASON], lambda: ~counted)

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        """A node that leaves the topology may take the domain with it that had fewest pods: then others are not too full.
        By default a pod is spread among those of its Services."""
        if event.change & Change.OBJECT:
            return event.resource == SERVICES.plural and not pod.raw.spec.topologySpreadConstraints
        own = [each for each in pod.raw.spec.topologySpreadConstraints if each.whenUnsatisfiable == HARD]
        if event.change & (Change.NODE_REMOVED | Change.NODE_LABELS) or not own:
            return True
        if event.change & (Change.NODE_ADDED | Change.NODE_TAINTS):
            row = nodes.row(event.node)
            return row is not None and all(each.topologyKey in nodes.raw[row].metadata.labels for each in own)
        counted = [selectors.from_message(each.labelSelector) for each in own]
        pods = [each for each in (event.pod, event.was) if each is not None]
        return not pods or any(selector.matches(each.labels) for each in pods for selector in counted)

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> Status | None:
        constraints = self._constraints(pod, SOFT)
        if not constraints:
            return SKIP
        state[_SOFT] = constraints
        lenient = self._defaults is SYSTEM_DEFAULTS and not pod.raw.spec.topologySpreadConstraints
        state[_SCORED] = np.ones(len(nodes), np.bool_) if lenient else labelled(constraints, nodes)
        return None

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        """How many pods are in each node's domains: those of a topology with many domains weigh more, as each has fewer."""
        constraints: list[Constraint] = state[_SOFT]
        scored: BoolArray = state[_SCORED]
        candidates = feasible & scored
        scores: FloatArray = np.zeros(len(nodes))
        eligible = Eligible(pod, nodes)
        for each in constraints:
            if not nodes.has_label(each.topology_key):
                continue
            labels = nodes.label(each.topology_key)
            there = counts(each, nodes)
            if each.topology_key == HOSTNAME:
                domains, around = np.count_nonzero(candidates), there
            else:
                domains = np.count_nonzero(np.bincount(labels.codes, candidates))
                around = per_domain(there * (scored & eligible(each)), labels)
            scores += (around * math.log(domains + 2) + (each.max_skew - 1)) * ~labels.equal(None)
        return np.rint(scores)

    def normalize(self, state: CycleState, scores: FloatArray, feasible: BoolArray) -> FloatArray:
        """The fewest pods are 100; nodes that lack a topology are 0."""
        scored: BoolArray = state[_SCORED]
        among = scores[feasible & scored]
        most = among.max(initial=0)
        spread: FloatArray = np.full(len(scores), MAX_SCORE)
        if most > 0:
            spread = (most + among.min() - scores) * (MAX_SCORE / most)
        spread[~scored] = 0
        return spread

    def _constraints(self, pod: PodInfo, when: str) -> list[Constraint]:
        if pod.raw.spec.topologySpreadConstraints:
            return own_constraints(pod, when)
        defaults = [each for each in self._defaults if each.whenUnsatisfiable == when]
        siblings = self._siblings.of(pod) if defaults else None
        return [with_pods(each, siblings) for each in defaults] if siblings is not None else []


def labelled(constraints: Sequence[Constraint], nodes: NodeTable) -> BoolArray:
    """The nodes that are in all the topologies."""
    if not all(nodes.has_label(each.topology_key) for each in constraints):
        return np.zeros(len(nodes), np.bool_)
    return reduce(np.logical_and, [~nodes.label(each.topology_key).equal(None) for each in constraints])


def counts(constraint: Constraint, nodes: NodeTable) -> FloatArray:
    """The pods that are spread, on each node, eligible or not."""
    return nodes.pods.pods(constraint.pods) if constraint.pods is not None else np.zeros(len(nodes))


class Eligible:
    """The nodes whose pods count for a constraint of one pod. Constraints that honor the same share an answer."""

    def __init__(self, pod: PodInfo, nodes: NodeTable) -> None:
        self._pod = pod
        self._nodes = nodes
        self._found: dict[tuple[bool, bool], BoolArray] = {}

    def __call__(self, constraint: Constraint) -> BoolArray:
        honors = constraint.honors_affinity, constraint.honors_taints and not self._nodes.taints.uniform
        found = self._found.get(honors)
        if found is None:
            found = self._found[honors] = self._find(*honors)
        return found

    def _find(self, affinity: bool, taints: bool) -> BoolArray:
        found = matching_nodes(self._pod.raw.spec, self._nodes) if affinity else np.ones(len(self._nodes), np.bool_)
        if taints:
            hard = taint_toleration.HARD
            found &= self._nodes.taints.map(lambda taints: not untolerated(taints, self._pod, hard), np.bool_)
        return found


def _is_counted(pod: PodInfo, constraint: Constraint) -> bool:
    """Would the pod itself be one of those that are spread? With a selector that is empty, yes, although none are counted."""
    return constraint.pods is None or constraint.pods.labels.matches(selectable(pod.raw))
