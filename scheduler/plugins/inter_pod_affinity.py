"""InterPodAffinity: affinity and anti-affinity between pods in a topology.

The filter evaluates the pod's own required terms, and the required anti-affinity of existing pods. The score uses the preferred
terms of both sides, and the required affinity of existing pods with the weight hardPodAffinityWeight.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#inter-pod-affinity-and-anti-affinity
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from pinnace.api.core_v1_pb2 import PodAffinity, PodAntiAffinity
from pinnace.api.resources import NAMESPACES
from pinnace.api.selectors import LabelSelector
from pinnace.scheduler.cache.pod_index import AffinityTerm, Selection, TermKind
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
from pinnace.scheduler.framework.filtering import BUDGET
from pinnace.scheduler.plugins.helper import (
    NamespaceLabels,
    ObjectStores,
    Weighted,
    check_names,
    parse_flag,
    parse_whole_number,
    sum_per_domain,
    weighted_sum,
)

AFFINITY_REASON = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY_REASON = "node(s) didn't match pod anti-affinity rules"
EXISTING_REASON = "node(s) didn't satisfy existing pods anti-affinity rules"
_REFUSING = "InterPodAffinity.refusing"
_SCORES = "InterPodAffinity.scores"
_BYTE, _NAMESPACE = 0.9e-6, 0.5e-6
"""Seconds per byte of the terms, and per namespace to evaluate a namespace selector."""


class InterPodAffinity:
    name = "InterPodAffinity"
    skip_depends_on = Dependency.NODES
    needs = NamespaceLabels.needs
    helped_by = (
        Change.NODE_ADDED
        | Change.NODE_REMOVED
        | Change.NODE_LABELS
        | Change.POD_FREED
        | Change.POD_PLACED
        | Change.POD_LABELS
        | Change.OBJECT
    )

    def __init__(self, args: Mapping[str, Any] | None = None, handle: ObjectStores | None = None) -> None:
        args = args or {}
        check_names(args, ("hardPodAffinityWeight", "ignorePreferredTermsOfExistingPods"))
        self._hard_weight = parse_whole_number(args, "hardPodAffinityWeight", 1, 0, 100)
        self._own_only = parse_flag(args, "ignorePreferredTermsOfExistingPods")
        self._namespaces = NamespaceLabels(handle)

    def cost(self, pod: PodInfo, nodes: NodeTable) -> Sequence[Cost]:
        if not pod.raw.spec.HasField("affinity"):
            return ()
        near, away = pod.raw.spec.affinity.podAffinity, pod.raw.spec.affinity.podAntiAffinity
        required = (item.requiredDuringSchedulingIgnoredDuringExecution for item in (near, away))
        preferred = (item.preferredDuringSchedulingIgnoredDuringExecution for item in (near, away))
        number = sum(len(affinity_terms) for affinity_terms in required) + sum(
            len(affinity_terms) for affinity_terms in preferred
        )
        seconds = (near.ByteSize() + away.ByteSize()) * _BYTE
        if seconds <= BUDGET:  # otherwise the pod is refused anyway
            seconds += _count_namespace_selectors(near, away) * len(self._namespaces) * _NAMESPACE
        return [Cost(seconds, number, "terms of pod affinity and anti-affinity")]

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        refusing = list(self._existing_terms(TermKind.ANTI_AFFINITY, pod, nodes))
        state[_REFUSING] = refusing
        return None if refusing or _own_terms(pod, TermKind.AFFINITY) or _own_terms(pod, TermKind.ANTI_AFFINITY) else SKIP

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
        codes = np.zeros(len(nodes), np.int8)
        refusing: list[AffinityTerm] = state[_REFUSING]
        if refusing:
            codes[weighted_sum(nodes, [(term.topology_key, term, 1) for term in refusing]) > 0] = 3
        if away := _own_terms(pod, TermKind.ANTI_AFFINITY):
            codes[weighted_sum(nodes, self._own_preferences(away, nodes)) > 0] = 2
        if near := _own_terms(pod, TermKind.AFFINITY):
            codes[~self._nodes_satisfying(near, pod, nodes)] = 1
        reasons = ["", AFFINITY_REASON, ANTI_AFFINITY_REASON, EXISTING_REASON]
        # removing pods does not help where the required affinity fails
        return FilterResult.coded(codes, reasons, lambda: codes == 1, needs_pods=bool(near))

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        """Return True if the event may help the pod.

        A node that is removed or leaves a topology may take conflicting pods with it. A node that is added may bring pods
        that satisfy the affinity in its topologies. After a change of namespace labels, terms may apply to other pods.
        """
        if event.change & (Change.NODE_LABELS | Change.NODE_REMOVED):
            return True
        if event.change & Change.NODE_ADDED:
            row = nodes.row(event.node)
            near = _own_terms(pod, TermKind.AFFINITY)
            return row is not None and (not near or any(term.topology_key in nodes.raw[row].metadata.labels for term in near))
        required = [*_own_terms(pod, TermKind.AFFINITY), *_own_terms(pod, TermKind.ANTI_AFFINITY)]
        if event.change & Change.OBJECT:
            selecting = any(term.namespace_selector is not None for term in required)
            return event.resource == NAMESPACES.plural and (selecting or nodes.pods.has_terms(TermKind.ANTI_AFFINITY))
        if event.pod is None:
            return True
        if event.change & Change.POD_FREED and any(term.kind is TermKind.ANTI_AFFINITY for term in event.pod.terms):
            return True
        if event.was is not None and event.was.terms != event.pod.terms:
            return True
        pods = [event.pod] if event.was is None else [event.pod, event.was]
        return any(term.labels.matches(pod_group.labels) for pod_group in pods for term in required)

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> Status | None:
        own = _own_terms(pod, TermKind.PREFERRED)
        if not own and self._own_only:
            return SKIP
        items = self._own_preferences(own, nodes)
        items += self._existing_preferences(TermKind.PREFERRED, 1, pod, nodes)
        if self._hard_weight:
            items += self._existing_preferences(TermKind.AFFINITY, self._hard_weight, pod, nodes)
        if not items:
            return SKIP
        state[_SCORES] = weighted_sum(nodes, items)
        return None

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        """Return the weighted number of pods that the terms prefer, minus the pods that they avoid."""
        scores: FloatArray = state[_SCORES]
        return scores

    def normalize(self, state: CycleState, scores: FloatArray, feasible: BoolArray) -> FloatArray:
        """Map the highest score to 100 and the lowest to 0."""
        among = scores[feasible]
        least, most = among.min(), among.max()
        return (scores - least) * (MAX_SCORE / (most - least)) if most > least else np.zeros_like(scores)

    def _nodes_satisfying(self, terms: Sequence[AffinityTerm], pod: PodInfo, nodes: NodeTable) -> BoolArray:
        """Return the nodes that satisfy the required affinity: each topology has a pod that all terms select.

        The first pod of a set with affinity to itself has no such pod. It fits on all nodes that have the topology labels.
        """
        if not all(nodes.any_node_has_label(term.topology_key) for term in terms):
            return np.zeros(len(nodes), np.bool_)
        selection = self._selection_of_all(terms)
        counts = nodes.pods.sum_pods([(selection, 1)])
        labels = [nodes.label(key) for key in {term.topology_key for term in terms}]
        around = [sum_per_domain(counts, label) > 0 for label in labels]
        namespaces = selection.namespaces
        if (
            (namespaces is None or pod.namespace in namespaces)
            and selection.labels.matches(pod.raw.metadata.labels)
            and not any(np.count_nonzero(item) for item in around)
        ):
            around = [~label.equal(None) for label in labels]
        return reduce(np.logical_and, around)

    def _selection_of_all(self, terms: Sequence[AffinityTerm]) -> Selection:
        """Return a selection of the pods that all terms select."""
        namespaces: frozenset[str] | None = None
        for term in terms:
            covered = self._namespaces.namespaces_of_term(term)
            if covered is not None:
                namespaces = covered if namespaces is None else namespaces & covered
        requirements = {requirement for term in terms for requirement in term.labels.requirements}
        return Selection(namespaces, LabelSelector().and_also(requirements))

    def _own_preferences(self, terms: Iterable[AffinityTerm], nodes: NodeTable) -> list[Weighted]:
        """Return the pods that the pod's own terms select, with weights."""
        return [
            (term.topology_key, Selection(self._namespaces.namespaces_of_term(term), term.labels), term.weight)
            for term in terms
            if nodes.any_node_has_label(term.topology_key)
        ]

    def _existing_terms(self, kind: TermKind, pod: PodInfo, nodes: NodeTable) -> Iterator[AffinityTerm]:
        """Yield the terms of existing pods that select this pod."""
        if nodes.pods.has_terms(kind):
            labels = self._namespaces.labels(pod.namespace)
            for term in nodes.pods.terms_for(kind, pod.namespace, pod.raw.metadata.labels):
                if term.applies_to(pod.namespace, labels):
                    yield term

    def _existing_preferences(self, kind: TermKind, weight: int, pod: PodInfo, nodes: NodeTable) -> list[Weighted]:
        """Return the existing pods with terms that select this pod, with weights."""
        return [(term.topology_key, term, weight * term.weight) for term in self._existing_terms(kind, pod, nodes)]


def _count_namespace_selectors(*stated: PodAffinity | PodAntiAffinity) -> int:
    """Return the number of terms with a namespaceSelector."""
    terms = [term for item in stated for term in item.requiredDuringSchedulingIgnoredDuringExecution]
    terms += [
        affinity_term.podAffinityTerm
        for kind in stated
        for affinity_term in kind.preferredDuringSchedulingIgnoredDuringExecution
    ]
    return sum(term.HasField("namespaceSelector") for term in terms)


def _own_terms(pod: PodInfo, kind: TermKind) -> list[AffinityTerm]:
    return [term for term in pod.terms if term.kind is kind]
