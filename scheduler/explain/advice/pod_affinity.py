"""InterPodAffinity: which pods are in the way, or are missing."""

from collections.abc import Iterator, Sequence

from pinnace.api.records import Remedy, listing
from scheduler.cache.pod_info import PodInfo
from scheduler.cache.pod_terms import Kind, Term
from scheduler.explain.advice.advisor import Reasons, names_of
from scheduler.explain.case import Case
from scheduler.plugins.inter_pod_affinity import AFFINITY_REASON, ANTI_AFFINITY_REASON


class Unwanted:
    """A selector of namespaces by their labels is not followed here: such pods are not named."""

    def remedies(self, case: Case, reasons: Reasons) -> list[Remedy]:
        found = list[Remedy]()
        for reason, rows in reasons.items():
            if reason == AFFINITY_REASON:
                found += _nearer(case, rows)
                continue
            if reason == ANTI_AFFINITY_REASON:
                text = f"move {_terms(case, Kind.ANTI_AFFINITY)} as one of these nodes away, or only prefer not to be near"
            else:
                text = f"move away what will not have it near: {listing(self._hostile(case, rows[0]))}"
            found.append(Remedy(text, names_of(case, rows)))
        return sorted(found, key=lambda remedy: -len(remedy.nodes))

    def details(self, case: Case, row: int, reasons: Sequence[str]) -> list[str]:
        found = []
        for reason in reasons:
            if reason == AFFINITY_REASON:
                keys = " and ".join(_lacking(case, row))
                lack = f"the node has no label {keys}" if keys else "there are none"
                found.append(f"it wants to be near {_terms(case, Kind.AFFINITY)}, and {lack}")
            elif reason == ANTI_AFFINITY_REASON:
                near = [
                    pod.key
                    for term in case.pod.terms
                    if term.kind is Kind.ANTI_AFFINITY
                    for pod in _around(case, row, term)
                    if _about(term, pod)
                ]
                found.append(f"it will not be near {_terms(case, Kind.ANTI_AFFINITY)}: {listing(sorted(set(near)))}")
            else:
                found.append(f"pods in the same topology will not have it near: {listing(self._hostile(case, row))}")
        return found

    def _hostile(self, case: Case, row: int) -> list[str]:
        """The pods in one of the node's domains whose anti-affinity is about the pod in question."""
        return sorted(
            {
                pod.key
                for node, pods in case.placed.items()
                for pod in pods
                for term in pod.terms
                if term.kind is Kind.ANTI_AFFINITY and _about(term, case.pod) and _together(case, row, node, term)
            }
        )


def _nearer(case: Case, rows: Sequence[int]) -> Iterator[Remedy]:
    """One for the nodes that are in all the topologies, one for those that lack the same labels."""
    by_keys: dict[tuple[str, ...], list[int]] = {}
    for row in rows:
        by_keys.setdefault(_lacking(case, row), []).append(row)
    wanted = _terms(case, Kind.AFFINITY)
    for keys, lacking in by_keys.items():
        text = (
            f"label the nodes with {' and '.join(keys)}, or only prefer to be near {wanted}"
            if keys
            else f"place {wanted} as one of these nodes, or only prefer to be near"
        )
        yield Remedy(text, names_of(case, lacking))


def _lacking(case: Case, row: int) -> tuple[str, ...]:
    """The topologies in which the pod wants to be near others, and the node is not."""
    keys = dict.fromkeys(term.topology_key for term in case.pod.terms if term.kind is Kind.AFFINITY)
    return tuple(key for key in keys if case.nodes.label(key).at(row) is None)


def _terms(case: Case, kind: Kind) -> str:
    """ "pods with app=db in the same zone"."""
    return " and ".join(
        f"pods with {term.labels} in the same {term.topology_key}" for term in case.pod.terms if term.kind is kind
    )


def _about(term: Term, pod: PodInfo) -> bool:
    return term.covers(pod.namespace, {}) and term.labels.matches(pod.raw.metadata.labels)


def _around(case: Case, row: int, term: Term) -> Iterator[PodInfo]:
    """The pods in the node's domain."""
    for node, pods in case.placed.items():
        if _together(case, row, node, term):
            yield from pods


def _together(case: Case, row: int, node: str, term: Term) -> bool:
    """Are they in one domain of the term's topology?"""
    codes, other = case.nodes.label(term.topology_key).codes, case.nodes.row(node)
    return other is not None and bool(codes[row]) and bool(codes[row] == codes[other])
