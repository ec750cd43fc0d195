"""What plugins say that count pods, once more and as plainly as can be: from the objects, one node after another."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from pinnace.api.core_v1_pb2 import Node, Pod, PodAffinityTerm, TopologySpreadConstraint
from pinnace.api.meta_v1_pb2 import LabelSelector
from tests.unit.scheduler import reference

Placed = Sequence[tuple[Pod, Node]]
Namespaces = Mapping[str, Mapping[str, str]]
"""Their labels, by name."""
Domain = tuple[str, str]
"""Topology key, and value."""


def matches(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    for key, value in selector.matchLabels.items():
        if labels.get(key) != value:
            return False
    for match_expression in selector.matchExpressions:
        value_or_none = labels.get(match_expression.key)
        holds = {
            "In": value_or_none in match_expression.values,
            "NotIn": value_or_none not in match_expression.values,
            "Exists": value_or_none is not None,
            "DoesNotExist": value_or_none is None,
        }
        if not holds[match_expression.operator]:
            return False
    return True


def about(term: PodAffinityTerm, stating: Pod, other: Pod, namespaces: Namespaces) -> bool:
    """Is the term, which `stating` states, about the other pod?"""
    by_name = set(term.namespaces)
    if not by_name and not term.HasField("namespaceSelector"):
        by_name = {stating.metadata.namespace}
    by_labels = term.HasField("namespaceSelector") and matches(
        term.namespaceSelector, namespaces.get(other.metadata.namespace, {})
    )
    return (
        (other.metadata.namespace in by_name or by_labels)
        and term.HasField("labelSelector")
        and matches(term.labelSelector, other.metadata.labels)
    )


class Affinity:
    """InterPodAffinity for one pod."""

    def __init__(self, pod: Pod, placed: Placed, namespaces: Namespaces, hard_weight: int = 1) -> None:
        near, away = pod.spec.affinity.podAffinity, pod.spec.affinity.podAntiAffinity
        self._near = near.requiredDuringSchedulingIgnoredDuringExecution
        self._away = away.requiredDuringSchedulingIgnoredDuringExecution
        self._around, self._away_from, self._refusing = set[Domain](), set[Domain](), set[Domain]()
        self._scores = Counter[Domain]()
        self._first = all(about(term, pod, pod, namespaces) for term in self._near)
        for other, node in placed:
            labels = node.metadata.labels
            theirs = other.spec.affinity
            if all(about(term, pod, other, namespaces) for term in self._near):
                self._around |= {(t.topologyKey, labels[t.topologyKey]) for t in self._near if t.topologyKey in labels}
            for term in self._away:
                if about(term, pod, other, namespaces) and term.topologyKey in labels:
                    self._away_from.add((term.topologyKey, labels[term.topologyKey]))
            for term in theirs.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution:
                if about(term, other, pod, namespaces) and term.topologyKey in labels:
                    self._refusing.add((term.topologyKey, labels[term.topologyKey]))
            weighted = [
                (term.podAffinityTerm, stating, about_whom, sign * term.weight)
                for stating, about_whom in ((pod, other), (other, pod))
                for sign, terms in (
                    (1, stating.spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution),
                    (-1, stating.spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution),
                )
                for term in terms
            ]
            weighted += [
                (item, other, pod, hard_weight) for item in theirs.podAffinity.requiredDuringSchedulingIgnoredDuringExecution
            ]
            for term, stating, about_whom, weight in weighted:
                if term.topologyKey in labels and about(term, stating, about_whom, namespaces):
                    self._scores[term.topologyKey, labels[term.topologyKey]] += weight

    def reason(self, node: Node) -> str:
        """Why the pod cannot go there; empty: it can."""
        labels = node.metadata.labels
        if any(term.topologyKey not in labels for term in self._near):
            return "node(s) didn't match pod affinity rules"
        if not all((t.topologyKey, labels[t.topologyKey]) in self._around for t in self._near) and not (
            self._first and not self._around
        ):
            return "node(s) didn't match pod affinity rules"
        if any((t.topologyKey, labels.get(t.topologyKey, "")) in self._away_from for t in self._away):
            return "node(s) didn't match pod anti-affinity rules"
        if any(domain in self._refusing for domain in labels.items()):
            return "node(s) didn't satisfy existing pods anti-affinity rules"
        return ""

    def scores(self, nodes: Sequence[Node]) -> list[float]:
        result = [sum(self._scores[domain] for domain in node.metadata.labels.items()) for node in nodes]
        least, most = min(result), max(result)
        return [100 * (item - least) / (most - least) if most > least else 0.0 for item in result]


class Spread:
    """PodTopologySpread for one pod with constraints of its own; none of their selectors is empty."""

    def __init__(self, pod: Pod, placed: Placed, nodes: Sequence[Node]) -> None:
        self._pod, self._nodes = pod, nodes
        self._on: dict[str, list[Pod]] = {}
        for other, node in placed:
            self._on.setdefault(node.metadata.name, []).append(other)
        own = pod.spec.topologySpreadConstraints
        self._hard = [item for item in own if item.whenUnsatisfiable == "DoNotSchedule"]
        self._soft = [item for item in own if item.whenUnsatisfiable == "ScheduleAnyway"]
        self._in_domains = [self._domains(item, self._hard) for item in self._hard]
        self._room = [
            # how many pods a domain may have already
            (min(domains.values()) if len(domains) >= (each.minDomains or 1) else 0) + each.maxSkew - self._counts(each, pod)
            for each, domains in zip(self._hard, self._in_domains, strict=True)
        ]

    def reason(self, node: Node) -> str:
        labels = node.metadata.labels
        for each, domains, room in zip(self._hard, self._in_domains, self._room, strict=True):
            if each.topologyKey not in labels:
                return "node(s) didn't match pod topology spread constraints (missing required label)"
            if domains[labels[each.topologyKey]] > room:
                return "node(s) didn't match pod topology spread constraints"
        return ""

    def scores(self, feasible: Sequence[bool]) -> list[float]:
        scored = [node for node, can in zip(self._nodes, feasible, strict=True) if can and _in_all(node, self._soft)]
        result = dict.fromkeys((node.metadata.name for node in scored), 0.0)
        for item in self._soft:
            key = item.topologyKey
            domains = self._domains(item, self._soft)
            weight = math.log(len({node.metadata.labels[key] for node in scored}) + 2)
            for node in scored:
                pods = self._on_node(item, node) if key == "kubernetes.io/hostname" else domains[node.metadata.labels[key]]
                result[node.metadata.name] += pods * weight + item.maxSkew - 1
        result = {name: round(score) for name, score in result.items()}
        most, least = max(result.values(), default=0), min(result.values(), default=0)
        return [
            (100 * (most + least - result[node.metadata.name]) / most if most else 100) if node.metadata.name in result else 0
            for node in self._nodes
        ]

    def _domains(self, each: TopologySpreadConstraint, together: Sequence[TopologySpreadConstraint]) -> Counter[str]:
        """Pods by domain, of the domains that have a node which counts."""
        result = Counter[str]()
        for node in self._nodes:
            if _in_all(node, together) and self._includes(each, node):
                result[node.metadata.labels[each.topologyKey]] += self._on_node(each, node)
        return result

    def _on_node(self, each: TopologySpreadConstraint, node: Node) -> int:
        return sum(self._counts(each, other) for other in self._on.get(node.metadata.name, ()))

    def _includes(self, each: TopologySpreadConstraint, node: Node) -> bool:
        affine = each.nodeAffinityPolicy == "Ignore" or reference.affine(self._pod, node)
        tainted = each.nodeTaintsPolicy == "Honor" and any(
            taint.effect != "PreferNoSchedule" and not any(reference.tolerates(t, taint) for t in self._pod.spec.tolerations)
            for taint in node.spec.taints
        )
        return affine and not tainted

    def _counts(self, each: TopologySpreadConstraint, other: Pod) -> bool:
        return (
            other.metadata.namespace == self._pod.metadata.namespace
            and not other.metadata.HasField("deletionTimestamp")
            and matches(each.labelSelector, other.metadata.labels)
        )


def _in_all(node: Node, constraints: Sequence[TopologySpreadConstraint]) -> bool:
    return all(constraint.topologyKey in node.metadata.labels for constraint in constraints)
