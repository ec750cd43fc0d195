"""Inter-pod affinity as it is worked with: the terms that pods state about other pods, parsed once for all that are alike.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#inter-pod-affinity-and-anti-affinity
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import lru_cache

from pinnace.api import selectors
from pinnace.api.core_v1_pb2 import Pod, PodAffinity, PodAffinityTerm, PodAntiAffinity
from pinnace.api.selectors import NOTHING, LabelRequirement, LabelSelector

Labels = tuple[tuple[str, str], ...]
MAX_REMEMBERED = 16 << 10
"""Bytes of what a pod states that are remembered after the pod is gone, which makes 64 MiB of them."""


class Kind(Enum):
    AFFINITY = auto()
    """Required affinity."""
    ANTI_AFFINITY = auto()
    """Required anti-affinity."""
    PREFERRED = auto()
    """Preferred affinity, or anti-affinity: then the weight is negative."""


@dataclass(frozen=True, slots=True)
class Term:
    """Where the pods are that it is about, in terms of a topology."""

    kind: Kind
    topology_key: str
    namespaces: frozenset[str]
    labels: LabelSelector
    namespace_selector: LabelSelector | None = None
    """More namespaces, by their labels; one without requirements means all."""
    weight: int = 1
    """What it counts for; of a required one, how many times it is stated."""

    def covers(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Is it about pods of this namespace, which has these labels?"""
        selector = self.namespace_selector
        return namespace in self.namespaces or (selector is not None and selector.matches(labels))


def pod_terms(pod: Pod) -> tuple[Term, ...]:
    """Of all kinds, each once. Pods that are alike share one tuple."""
    if not states_terms(pod):
        return ()
    affinity, anti_affinity = stated(pod)
    parse = _remembered if len(affinity) + len(anti_affinity) <= MAX_REMEMBERED else _parse
    return parse(affinity, anti_affinity, pod.metadata.namespace, tuple(sorted(pod.metadata.labels.items())))


def states_terms(pod: Pod) -> bool:
    spec = pod.spec
    if not spec.HasField("affinity"):
        return False
    affinity = spec.affinity
    return affinity.HasField("podAffinity") or affinity.HasField("podAntiAffinity")


def stated(pod: Pod) -> tuple[bytes, bytes]:
    """Equal for pods that state the same."""
    affinity = pod.spec.affinity
    return (
        affinity.podAffinity.SerializeToString(deterministic=True),
        affinity.podAntiAffinity.SerializeToString(deterministic=True),
    )


@lru_cache(maxsize=4096)
def _remembered(affinity: bytes, anti_affinity: bytes, namespace: str, labels: Labels) -> tuple[Term, ...]:
    return _parse(affinity, anti_affinity, namespace, labels)


def _parse(affinity: bytes, anti_affinity: bytes, namespace: str, labels: Labels) -> tuple[Term, ...]:
    own = dict(labels)
    near, far = PodAffinity.FromString(affinity), PodAntiAffinity.FromString(anti_affinity)
    required = (
        (Kind.AFFINITY, near.requiredDuringSchedulingIgnoredDuringExecution),
        (Kind.ANTI_AFFINITY, far.requiredDuringSchedulingIgnoredDuringExecution),
    )
    terms = [_term(kind, term, namespace, own) for kind, stated in required for term in stated]
    for sign, preferred in (
        (1, near.preferredDuringSchedulingIgnoredDuringExecution),
        (-1, far.preferredDuringSchedulingIgnoredDuringExecution),
    ):
        terms += [_term(Kind.PREFERRED, each.podAffinityTerm, namespace, own, sign * each.weight) for each in preferred]
    return tuple(_each_once(terms))


def _each_once(terms: Iterable[Term]) -> Iterable[Term]:
    """Terms that differ in their weights alone are one."""
    found: dict[tuple[object, ...], Term] = {}
    for term in terms:
        key = term.kind, term.topology_key, term.namespaces, term.labels, term.namespace_selector
        known = found.get(key)
        found[key] = term if known is None else replace(term, weight=known.weight + term.weight)
    return (term for term in found.values() if term.weight)


def _term(kind: Kind, term: PodAffinityTerm, namespace: str, own: Mapping[str, str], weight: int = 1) -> Term:
    """`own`: the labels of the pod that states it, of which matchLabelKeys and mismatchLabelKeys speak."""
    by_selector = term.HasField("namespaceSelector")
    labels = selectors.from_message(term.labelSelector) if term.HasField("labelSelector") else NOTHING
    more = [LabelRequirement(key, frozenset((own[key],))) for key in term.matchLabelKeys if key in own]
    more += [LabelRequirement(key, frozenset((own[key],)), negated=True) for key in term.mismatchLabelKeys if key in own]
    return Term(
        kind,
        term.topologyKey,
        frozenset(term.namespaces if term.namespaces or by_selector else (namespace,)),
        labels.and_also(more) if more else labels,
        selectors.from_message(term.namespaceSelector) if by_selector else None,
        weight,
    )
