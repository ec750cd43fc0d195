"""NodeAffinity: nodeSelector and node affinity as a filter and as a score.

The argument `addedAffinity` is a node affinity that applies to every pod of the profile, in addition to the pod's own.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pinnace.api import names
from pinnace.api.codec import CodecError, from_dict
from pinnace.api.core_v1_pb2 import NodeAffinity as ApiNodeAffinity
from pinnace.api.core_v1_pb2 import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, PreferredSchedulingTerm
from pinnace.api.integers import parse_integer
from pinnace.fit.room import AFFINITY_REASON, matches_node, selector_matches
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
    IntArray,
    NodeTable,
    PodInfo,
    Status,
)
from pinnace.scheduler.plugins.helper import check_label_key, check_names

FIELD = "addedAffinity"
_REQUIRED, _PREFERRED = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
_BYTE, _BYTE_NODE = 0.5e-6, 0.1e-9
"""Seconds per byte of the terms, and additionally per byte and node."""
_SELECTED = 2e-6
ENFORCED = "node(s) didn't match scheduler-enforced node affinity"


def parse_added_affinity(args: Mapping[str, Any]) -> ApiNodeAffinity:
    """Parse `addedAffinity`, which is empty by default. Raise ValueError."""
    check_names(args, (FIELD,))
    try:
        added = from_dict(ApiNodeAffinity, args.get(FIELD) or {}, (FIELD,))
    except CodecError as error:
        raise ValueError(str(error)) from None
    if added.HasField(_REQUIRED):
        terms = added.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms
        if not terms:
            raise ValueError(f"{FIELD}.{_REQUIRED}.nodeSelectorTerms: expected at least one, an empty list matches no node")
        for index, term in enumerate(terms):
            _check_term(term, f"{FIELD}.{_REQUIRED}.nodeSelectorTerms[{index}]")
    for index, preferred in enumerate(added.preferredDuringSchedulingIgnoredDuringExecution):
        where = f"{FIELD}.{_PREFERRED}[{index}]"
        if not 1 <= preferred.weight <= 100:
            raise ValueError(f"{where}.weight: expected a whole number from 1 to 100, got {preferred.weight}")
        _check_term(preferred.preference, f"{where}.preference")
    return added


def _check_term(term: NodeSelectorTerm, path: str) -> None:
    for index, requirement in enumerate(term.matchExpressions):
        where = f"{path}.matchExpressions[{index}]"
        check_label_key(requirement.key, f"{where}.key")
        match requirement.operator:
            case "In" | "NotIn":
                _require(bool(requirement.values), f"{where}.values: expected at least one")
                for number, value in enumerate(requirement.values):
                    for problem in names.label_value(value):
                        raise ValueError(f"{where}.values[{number}]: {problem}, got {value!r}")
            case "Exists" | "DoesNotExist":
                _require(not requirement.values, f"{where}.values: expected none with {requirement.operator}")
            case "Gt" | "Lt":
                _require(len(requirement.values) == 1, f"{where}.values: expected one with {requirement.operator}")
                (bound,) = requirement.values
                _require(parse_integer(bound) is not None, f"{where}.values[0]: expected a whole number, got {bound!r}")
            case other:
                raise ValueError(f"{where}.operator: expected In, NotIn, Exists, DoesNotExist, Gt or Lt, got {other!r}")
    for index, requirement in enumerate(term.matchFields):
        where = f"{path}.matchFields[{index}]"
        _require(requirement.key == "metadata.name", f"{where}.key: expected metadata.name")
        _require(requirement.operator in ("In", "NotIn"), f"{where}.operator: expected In or NotIn")
        _require(len(requirement.values) == 1, f"{where}.values: expected one")


def _require(true: bool, otherwise: str) -> None:
    if not true:
        raise ValueError(otherwise)


class NodeAffinity:
    name = "NodeAffinity"
    filter_depends_on = Dependency.NODES
    skip_depends_on = Dependency.NODES
    helped_by = Change.NODE_ADDED | Change.NODE_LABELS

    def __init__(self, args: Mapping[str, Any] | None = None) -> None:
        added = parse_added_affinity(args or {})
        required = added.HasField("requiredDuringSchedulingIgnoredDuringExecution")
        self._required = added.requiredDuringSchedulingIgnoredDuringExecution if required else None
        self._preferred = added.preferredDuringSchedulingIgnoredDuringExecution

    def cost(self, pod: PodInfo, nodes: NodeTable) -> Sequence[Cost]:
        spec = pod.raw.spec
        affinity = spec.affinity.nodeAffinity
        terms = len(affinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms) + len(_preferred_terms(spec))
        by_term = affinity.ByteSize() * (_BYTE + len(nodes) * _BYTE_NODE)
        return [
            Cost(by_term, terms, "terms of node affinity"),
            Cost(len(spec.nodeSelector) * _SELECTED, len(spec.nodeSelector), "labels in nodeSelector"),
        ]

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        return None if self._required is not None or pod.raw.spec.nodeSelector or _has_required(pod.raw.spec) else SKIP

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
        unmatched = ~matching_nodes(pod.raw.spec, nodes)
        if self._required is None:
            return FilterResult.refusing(unmatched, AFFINITY_REASON)
        return FilterResult.coded(
            np.where(~match_selector(self._required, nodes), 1, 2 * unmatched), ("", ENFORCED, AFFINITY_REASON)
        )

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        """Return True if the event's node matches. Other nodes are not checked, because many pods may each wait for a node."""
        row = nodes.row(event.node)
        if row is None or not matches_node(pod.raw.spec, nodes.raw[row]):
            return False
        return self._required is None or selector_matches(self._required, nodes.raw[row])

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> Status | None:
        return None if self._preferred or _preferred_terms(pod.raw.spec) else SKIP

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        """Return the total weight of the matching preferred terms."""
        scores: FloatArray = np.zeros(len(nodes))
        numbers = _Numbers(nodes)
        for preferred in (*self._preferred, *_preferred_terms(pod.raw.spec)):
            matching = _match_term(preferred.preference, nodes, numbers)
            if matching is not None:
                scores += preferred.weight * matching
        return scores

    def normalize(self, state: CycleState, scores: FloatArray, feasible: BoolArray) -> FloatArray:
        """Map the highest score to 100."""
        most = scores[feasible].max()
        return scores * (MAX_SCORE / most) if most > 0 else scores


def _has_required(spec: PodSpec) -> bool:
    return spec.affinity.nodeAffinity.HasField("requiredDuringSchedulingIgnoredDuringExecution")


def _preferred_terms(spec: PodSpec) -> Sequence[PreferredSchedulingTerm]:
    return spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution


def matching_nodes(spec: PodSpec, nodes: NodeTable) -> BoolArray:
    matching = np.ones(len(nodes), np.bool_)
    for key, value in spec.nodeSelector.items():
        if not nodes.any_node_has_label(key):
            return np.zeros(len(nodes), np.bool_)
        matching &= nodes.label(key).equal(value)
    if _has_required(spec):
        matching &= match_selector(spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution, nodes)
    return matching


def match_selector(selector: NodeSelector, nodes: NodeTable) -> BoolArray:
    """Return the nodes that match at least one term.

    There may be thousands of terms. Terms with a single In requirement on the same label are evaluated together, and the
    evaluation ends when all nodes match.
    """
    any_term = np.zeros(len(nodes), np.bool_)
    together: dict[str, list[str]] = {}
    numbers = _Numbers(nodes)
    for term in selector.nodeSelectorTerms:
        expressions = term.matchExpressions
        if len(expressions) == 1 and not term.matchFields:
            (requirement,) = expressions
            if requirement.operator == "In":
                together.setdefault(requirement.key, []).extend(requirement.values)
                continue
        matching = _match_term(term, nodes, numbers)
        if matching is not None:
            any_term |= matching
            if any_term.all():
                return any_term
    for key, values in together.items():
        if nodes.any_node_has_label(key):
            any_term |= nodes.label(key).one_of(values)
    return any_term


class _Numbers:
    """Integer values of labels for Gt and Lt, parsed once per pod and label. A value that is not an integer does not match."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._parsed: dict[str, tuple[BoolArray, IntArray]] = {}

    def nodes_satisfying(self, requirement: NodeSelectorRequirement) -> BoolArray:
        """Return the nodes that satisfy a Gt or Lt requirement."""
        bound = parse_integer(requirement.values[0]) if len(requirement.values) == 1 else None
        if bound is None:
            return np.zeros(len(self._nodes), np.bool_)
        whole, number = self._parse_label(requirement.key)
        return whole & (number > bound if requirement.operator == "Gt" else number < bound)

    def _parse_label(self, key: str) -> tuple[BoolArray, IntArray]:
        """Return the mask of nodes with an integer value of the label, and the values."""
        result = self._parsed.get(key)
        if result is None:
            labels = self._nodes.label(key)
            whole = labels.map(lambda value: parse_integer(value or "") is not None, np.bool_)
            result = self._parsed[key] = whole, labels.map(lambda value: parse_integer(value or "") or 0, np.int64)
        return result


def _match_term(term: NodeSelectorTerm, nodes: NodeTable, numbers: _Numbers) -> BoolArray | None:
    """Return the nodes that satisfy all requirements, or None if there are none. An empty term matches no node."""
    matching: BoolArray | None = None
    for requirement in term.matchExpressions:
        if not nodes.any_node_has_label(requirement.key):
            if requirement.operator not in ("NotIn", "DoesNotExist"):
                return None
            continue
        holds = _match_expression(requirement, nodes, numbers)
        matching = holds if matching is None else matching & holds
    for requirement in term.matchFields:
        holds = _match_field(requirement, nodes)
        matching = holds if matching is None else matching & holds
    if matching is None and term.matchExpressions:
        return np.ones(len(nodes), np.bool_)
    return matching


def _match_expression(requirement: NodeSelectorRequirement, nodes: NodeTable, numbers: _Numbers) -> BoolArray:
    labels = nodes.label(requirement.key)
    match requirement.operator:
        case "Exists":
            return ~labels.equal(None)
        case "DoesNotExist":
            return labels.equal(None)
        case "In" | "NotIn":
            values = requirement.values
            among = labels.equal(values[0]) if len(values) == 1 else labels.one_of(values)
            return among if requirement.operator == "In" else ~among
        case "Gt" | "Lt":
            return numbers.nodes_satisfying(requirement)
        case _:
            return np.zeros(len(nodes), np.bool_)


def _match_field(requirement: NodeSelectorRequirement, nodes: NodeTable) -> BoolArray:
    """Evaluate a field requirement. Only metadata.name with In or NotIn is supported."""
    among = np.zeros(len(nodes), np.bool_)
    if requirement.key != "metadata.name" or requirement.operator not in ("In", "NotIn"):
        return among
    among[nodes.rows(requirement.values)] = True
    return among if requirement.operator == "In" else ~among
