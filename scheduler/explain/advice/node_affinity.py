"""NodeAffinity: which requirement keeps the pod off, found by leaving out one after the other."""

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from pinnace.api.core_v1_pb2 import NodeSelectorRequirement, PodSpec
from pinnace.api.records import Remedy
from scheduler.explain.advice.advisor import Reasons, names_of, rows_of
from scheduler.explain.case import Case
from scheduler.plugins.node_affinity import ENFORCED, matching_nodes

_MOST = 3
_TRIED = 20
"""Requirements that are looked at: each costs a copy of the spec, and a look at all nodes."""


class Unmatched:
    def remedies(self, case: Case, reasons: Reasons) -> list[Remedy]:
        """The requirements without which nodes match, that with the most nodes first; or all of them together. Nothing about
        the pod helps where the scheduler's own affinity refuses."""
        enforced = reasons.get(ENFORCED, ())
        rows = np.array([row for row in rows_of(reasons) if row not in enforced], np.int64)
        if not len(rows):
            return [Remedy("label a node as addedAffinity of the scheduler's configuration wants", names_of(case, enforced))]
        found = []
        for text, without in islice(_each_left_out(case.pod.raw.spec), _TRIED):
            matching = rows[matching_nodes(without, case.nodes)[rows]].tolist()
            if matching:
                found.append(Remedy(f"drop {text}{_nobody(case, text)}, or label a node accordingly", names_of(case, matching)))
        if not found:
            texts = [text for text, _ in islice(_each_left_out(case.pod.raw.spec), _TRIED)]
            number = len(case.pod.raw.spec.nodeSelector) + sum(1 for _ in _requirements(case.pod.raw.spec))
            more = [f"{number - len(texts)} more"] if number > len(texts) else []
            every = " and ".join([*texts, *more])
            found = [Remedy(f"drop {every}, or label a node accordingly", names_of(case, rows.tolist()))]
        return sorted(found, key=lambda remedy: -len(remedy.nodes))[:_MOST]

    def details(self, case: Case, row: int, reasons: Sequence[str]) -> list[str]:
        if ENFORCED in reasons:
            return [f"{ENFORCED}: addedAffinity of the scheduler's configuration"]
        labels = case.nodes.raw[row].metadata.labels
        spec = case.pod.raw.spec
        found = [
            f"nodeSelector {key}={value}: {_has(labels.get(key), key)}"
            for key, value in sorted(spec.nodeSelector.items())
            if labels.get(key) != value
        ]
        for requirement in islice(_requirements(spec), _TRIED):
            if not _matches(requirement, case, row):
                field = case.nodes.names[row] if requirement.key == "metadata.name" else labels.get(requirement.key)
                found.append(f"node affinity {_text(requirement)}: {_has(field, requirement.key)}")
        return found


def _each_left_out(spec: PodSpec) -> Iterator[tuple[str, PodSpec]]:
    """(requirement, the spec without it)."""
    for key, value in sorted(spec.nodeSelector.items()):
        without = _copy(spec)
        del without.nodeSelector[key]
        yield f"nodeSelector {key}={value}", without
    for number, term in enumerate(spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms):
        several = len(term.matchExpressions) + len(term.matchFields) > 1
        for field in ("matchExpressions", "matchFields"):
            for place, requirement in enumerate(getattr(term, field)):
                without = _copy(spec)
                affinity = without.affinity.nodeAffinity
                if several:
                    left = affinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[number]
                    del getattr(left, field)[place]
                else:  # a term without requirements would match nothing
                    affinity.ClearField("requiredDuringSchedulingIgnoredDuringExecution")
                yield f"node affinity {_text(requirement)}", without


def _copy(spec: PodSpec) -> PodSpec:
    copy = PodSpec()
    copy.CopyFrom(spec)
    return copy


def _requirements(spec: PodSpec) -> Iterator[NodeSelectorRequirement]:
    for term in spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms:
        yield from term.matchExpressions
        yield from term.matchFields


def _matches(requirement: NodeSelectorRequirement, case: Case, row: int) -> bool:
    alone = PodSpec()
    term = alone.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms.add()
    (term.matchFields if requirement.key == "metadata.name" else term.matchExpressions).append(requirement)
    return bool(matching_nodes(alone, case.nodes)[row])


def _nobody(case: Case, text: str) -> str:
    key, equals, value = text.removeprefix("nodeSelector ").partition("=")
    return " (no node has it)" if equals and not case.nodes.label(key).equal(value).any() else ""


def _text(requirement: NodeSelectorRequirement) -> str:
    values = f" [{', '.join(requirement.values)}]" if requirement.values else ""
    return f"{requirement.key} {requirement.operator}{values}"


def _has(value: str | None, key: str) -> str:
    return f"the node has no label {key}" if value is None else f"the node has {key}={value}"
