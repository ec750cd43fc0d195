"""Advisors: for each plugin, the changes that remove its refusal, and the problems of one node with numbers.

For a plugin without its own advisor, `GenericAdvisor` repeats the plugin's reasons.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import numpy as np

from pinnace.api.core_v1_pb2 import NodeSelectorRequirement, PersistentVolumeClaim, PodSpec
from pinnace.api.pods import class_of
from pinnace.api.quantity import format_amount
from pinnace.api.records import Remedy, format_list
from pinnace.api.resources import STORAGE_CLASSES
from pinnace.api.wellknown import NO_PROVISIONER
from pinnace.fit import HostPort
from pinnace.fit.requests import PODS
from pinnace.fit.room import insufficient_reason
from pinnace.fit.table import IntArray
from pinnace.scheduler.cache.pod_index import AffinityTerm, TermKind
from pinnace.scheduler.cache.pod_info import PodInfo
from pinnace.scheduler.cache.table import FloatArray, NodeTable, Taint
from pinnace.scheduler.plugins.helper import ObjectStores, sum_per_domain
from pinnace.scheduler.plugins.inter_pod_affinity import AFFINITY_REASON, ANTI_AFFINITY_REASON, InterPodAffinity
from pinnace.scheduler.plugins.node_affinity import ENFORCED, NodeAffinity, matching_nodes
from pinnace.scheduler.plugins.node_resources import NodeResourcesFit
from pinnace.scheduler.plugins.nodes import (
    CORDON_TAINT,
    HARD_EFFECTS,
    NodePorts,
    NodeUnschedulable,
    TaintToleration,
    untolerated_taints,
)
from pinnace.scheduler.plugins.topology_spread import (
    HARD,
    LABEL_REASON,
    EligibleNodes,
    PodTopologySpread,
    SpreadConstraint,
    count_pods_per_node,
    nodes_with_topologies,
    own_constraints,
)
from pinnace.scheduler.plugins.volume_binding import UNBOUND_IMMEDIATE, VolumeBinding, needs_immediate_binding
from pinnace.scheduler.plugins.volumes import (
    NO_CLASS,
    NO_SUCH_CLASS,
    NO_VOLUME,
    VolumeRestrictions,
    Volumes,
    VolumeZone,
    claims_of,
    missing_claim_name,
)

_WAITING = "volumeBindingMode: WaitForFirstConsumer"
_MOST = 3
_TRIED = 20
"""Maximum number of requirements to check. Each check copies the spec and evaluates all nodes."""
_BYTES = ("memory", "ephemeral-storage")
_UNITS = (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))
_CONDITION = "node.kubernetes.io/"
"""Prefix of taints that follow the conditions of a node."""
Reasons = Mapping[str, Sequence[int]]
"""The refused rows by reason, at least one."""


@dataclass(frozen=True, slots=True)
class AdvisorInput:
    """The input of an advisor.

    `pod` is the unbound pod. `nodes` is the table for this pod, without resources that are reserved for nominated pods.
    `placed` has the pods by node, including nominated pods with precedence. `objects` has the other objects that plugins
    read.
    """

    pod: PodInfo
    nodes: NodeTable
    placed: Mapping[str, Sequence[PodInfo]]
    objects: ObjectStores


class Advisor(Protocol):
    def suggest_remedies(self, case: AdvisorInput, reasons: Reasons) -> list[Remedy]:
        """Return the changes that remove the plugin's refusal on some of these nodes, which no other plugin refuses.

        The list has at least one remedy, the best first.
        """
        ...

    def describe_node_problems(self, case: AdvisorInput, row: int, reasons: Sequence[str]) -> list[str]:
        """Return the problems of one node with numbers, at least one line."""
        ...


def refused_rows(reasons: Reasons) -> list[int]:
    """Return all refused rows without duplicates."""
    return sorted({row for rows in reasons.values() for row in rows})


def node_names(case: AdvisorInput, rows: Sequence[int]) -> list[str]:
    """Return the sorted node names."""
    return sorted(case.nodes.names[row] for row in rows)


class GenericAdvisor:
    def __init__(self, plugin: str) -> None:
        self._plugin = plugin

    def suggest_remedies(self, case: AdvisorInput, reasons: Reasons) -> list[Remedy]:
        most_first = sorted(reasons, key=lambda reason: -len(reasons[reason]))
        return [Remedy(f"satisfy {self._plugin}: {reason}", node_names(case, reasons[reason])) for reason in most_first]

    def describe_node_problems(self, case: AdvisorInput, row: int, reasons: Sequence[str]) -> list[str]:
        return list(reasons)


class VolumeClaimAdvisor:
    def __init__(self, plugin: str) -> None:
        self._general = GenericAdvisor(plugin)

    def suggest_remedies(self, case: AdvisorInput, reasons: Reasons) -> list[Remedy]:
        result, others, unbound = [], dict[str, Sequence[int]](), _unbound_claims(case)
        for reason, rows in reasons.items():
            if name := missing_claim_name(reason):
                result.append(Remedy(f"create the PersistentVolumeClaim {name}", node_names(case, rows)))
            elif _concerns_claims(reason, unbound):
                result.append(Remedy(_advise_binding(case, unbound), node_names(case, rows)))
            else:
                others[reason] = rows
        return [*result, *self._general.suggest_remedies(case, others)]

    def describe_node_problems(self, case: AdvisorInput, row: int, reasons: Sequence[str]) -> list[str]:
        unbound = _unbound_claims(case)
        return [
            f"{reason}: {_advise_binding(case, unbound)}" if _concerns_claims(reason, unbound) else reason for reason in reasons
        ]


def _unbound_claims(case: AdvisorInput) -> list[PersistentVolumeClaim]:
    """Return the pod's unbound claims that do not use WaitForFirstConsumer."""
    objects = Volumes(case.objects)
    claims = [objects.find_usable_claim(case.pod, key) for key in claims_of(case.pod)]
    return [claim for claim in claims if not isinstance(claim, str) and needs_immediate_binding(objects, claim)]


def _concerns_claims(reason: str, unbound: Sequence[PersistentVolumeClaim]) -> bool:
    classes = [NO_SUCH_CLASS.format(class_of(claim)) for claim in unbound]
    return bool(unbound) and reason in (UNBOUND_IMMEDIATE, NO_CLASS, NO_VOLUME, *classes)


def _advise_binding(case: AdvisorInput, unbound: Sequence[PersistentVolumeClaim]) -> str:
    """Return the changes after which the claims can be bound, without duplicates."""
    return "; and ".join(dict.fromkeys(_bind(claim, case.objects.objects(STORAGE_CLASSES)) for claim in unbound))


def _bind(claim: PersistentVolumeClaim, classes: Container[str]) -> str:
    name, class_name = claim.metadata.name, class_of(claim)
    if claim.spec.volumeName:
        return f"create or free the PersistentVolume {claim.spec.volumeName}, which the PersistentVolumeClaim {name} requests"
    if not class_name or class_name in classes:
        of_class = f" of the class {class_name}" if class_name else ""
        return f"create a PersistentVolume{of_class} that satisfies the PersistentVolumeClaim {name}"
    return f"create the StorageClass {class_name} with provisioner: {NO_PROVISIONER} and {_WAITING}"


class NodeAffinityAdvisor:
    def suggest_remedies(self, case: AdvisorInput, reasons: Reasons) -> list[Remedy]:
        """Return the single requirements that exclude nodes, the one with the most nodes first, or all requirements together.

        No change of the pod helps where the scheduler's addedAffinity refuses it.
        """
        enforced = reasons.get(ENFORCED, ())
        rows = np.array([row for row in refused_rows(reasons) if row not in enforced], np.int64)
        if not len(rows):
            return [Remedy("label a node to match addedAffinity in the scheduler's configuration", node_names(case, enforced))]
        result = []
        for text, without in islice(_specs_without_one_requirement(case.pod.raw.spec), _TRIED):
            matching = rows[matching_nodes(without, case.nodes)[rows]].tolist()
            if matching:
                result.append(
                    Remedy(
                        f"remove {text}{_remedy_if_no_node_matches(case, text)}, or label a node accordingly",
                        node_names(case, matching),
                    )
                )
        if not result:
            texts = [text for text, _ in islice(_specs_without_one_requirement(case.pod.raw.spec), _TRIED)]
            number = len(case.pod.raw.spec.nodeSelector) + sum(1 for _ in _node_requirements(case.pod.raw.spec))
            more = [f"{number - len(texts)} more"] if number > len(texts) else []
            every = " and ".join([*texts, *more])
            result = [Remedy(f"remove {every}, or label a node accordingly", node_names(case, rows.tolist()))]
        return sorted(result, key=lambda remedy: -len(remedy.nodes))[:_MOST]

    def describe_node_problems(self, case: AdvisorInput, row: int, reasons: Sequence[str]) -> list[str]:
        if ENFORCED in reasons:
            return [f"{ENFORCED}: addedAffinity of the scheduler's configuration"]
        labels = case.nodes.raw[row].metadata.labels
        spec = case.pod.raw.spec
        result = [
            f"nodeSelector {key}={value}: {_has(labels.get(key), key)}"
            for key, value in sorted(spec.nodeSelector.items())
            if labels.get(key) != value
        ]
        for requirement in islice(_node_requirements(spec), _TRIED):
            if not _matches(requirement, case, row):
                field = case.nodes.names[row] if requirement.key == "metadata.name" else labels.get(requirement.key)
                result.append(f"node affinity {_requirement_text(requirement)}: {_has(field, requirement.key)}")
        return result


def _specs_without_one_requirement(spec: PodSpec) -> Iterator[tuple[str, PodSpec]]:
    """Yield each requirement with a copy of the spec that lacks it."""
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
                    remaining_term = affinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[number]
                    del getattr(remaining_term, field)[place]
                else:  # a term without requirements matches nothing
                    affinity.ClearField("requiredDuringSchedulingIgnoredDuringExecution")
                yield f"node affinity {_requirement_text(requirement)}", without


def _copy(spec: PodSpec) -> PodSpec:
    copy = PodSpec()
    copy.CopyFrom(spec)
    return copy


def _node_requirements(spec: PodSpec) -> Iterator[NodeSelectorRequirement]:
    for term in spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms:
        yield from term.matchExpressions
        yield from term.matchFields


def _matches(requirement: NodeSelectorRequirement, case: AdvisorInput, row: int) -> bool:
    alone = PodSpec()
    term = alone.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms.add()
    (term.matchFields if requirement.key == "metadata.name" else term.matchExpressions).append(requirement)
    return bool(matching_nodes(alone, case.nodes)[row])


def _remedy_if_no_node_matches(case: AdvisorInput, text: str) -> str:
    key, equals, value = text.removeprefix("nodeSelector ").partition("=")
    return " (no node has it)" if equals and not case.nodes.label(key).equal(value).any() else ""


def _requirement_text(requirement: NodeSelectorRequirement) -> str:
    values = f" [{', '.join(requirement.values)}]" if requirement.values else ""
    return f"{requirement.key} {requirement.operator}{values}"


def _has(value: str | None, key: str) -> str:
    return f"the node has no label {key}" if value is None else f"the node has {key}={value}"


class PodAffinityAdvisor:
    """Advice on pod affinity. Terms with a namespaceSelector are ignored, so their pods are not named."""

    def suggest_remedies(self, case: AdvisorInput, reasons: Reasons) -> list[Remedy]:
        result = list[Remedy]()
        for reason, rows in reasons.items():
            if reason == AFFINITY_REASON:
                result += _affinity_remedies(case, rows)
                continue
            if reason == ANTI_AFFINITY_REASON:
                terms = _describe_terms(case, TermKind.ANTI_AFFINITY)
                text = f"remove {terms} as one of these nodes, or use preferred anti-affinity"
            else:
                text = (
                    f"remove pods whose anti-affinity excludes it: {format_list(self._pods_with_anti_affinity(case, rows[0]))}"
                )
            result.append(Remedy(text, node_names(case, rows)))
        return sorted(result, key=lambda remedy: -len(remedy.nodes))

    def describe_node_problems(self, case: AdvisorInput, row: int, reasons: Sequence[str]) -> list[str]:
        result = []
        for reason in reasons:
            if reason == AFFINITY_REASON:
                keys = " and ".join(_missing_topology_keys(case, row))
                lack = f"the node has no label {keys}" if keys else "none exist"
                result.append(f"it requires {_describe_terms(case, TermKind.AFFINITY)}, but {lack}")
            elif reason == ANTI_AFFINITY_REASON:
                near = [
                    pod.key
                    for term in case.pod.terms
                    if term.kind is TermKind.ANTI_AFFINITY
                    for pod in _pods_in_domain(case, row, term)
                    if _describe_term(term, pod)
                ]
                result.append(
                    f"its anti-affinity excludes {_describe_terms(case, TermKind.ANTI_AFFINITY)}: "
                    f"{format_list(sorted(set(near)))}"
                )
            else:
                excluding = format_list(self._pods_with_anti_affinity(case, row))
                result.append(f"pods in the same topology exclude it by anti-affinity: {excluding}")
        return result

    def _pods_with_anti_affinity(self, case: AdvisorInput, row: int) -> list[str]:
        """Return the pods in the node's domains whose anti-affinity excludes the pod."""
        return sorted(
            {
                pod.key
                for node, pods in case.placed.items()
                for pod in pods
                for term in pod.terms
                if term.kind is TermKind.ANTI_AFFINITY
                and _describe_term(term, case.pod)
                and _in_same_domain(case, row, node, term)
            }
        )


def _affinity_remedies(case: AdvisorInput, rows: Sequence[int]) -> Iterator[Remedy]:
    """Yield a remedy for the nodes with all topology labels, and one for each set of missing labels."""
    by_keys: dict[tuple[str, ...], list[int]] = {}
    for row in rows:
        by_keys.setdefault(_missing_topology_keys(case, row), []).append(row)
    terms = _describe_terms(case, TermKind.AFFINITY)
    for keys, lacking in by_keys.items():
        text = (
            f"label the nodes with {' and '.join(keys)}, or use preferred affinity for {terms}"
            if keys
            else f"place {terms} as one of these nodes, or use preferred affinity"
        )
        yield Remedy(text, node_names(case, lacking))


def _missing_topology_keys(case: AdvisorInput, row: int) -> tuple[str, ...]:
    """Return the topology keys of the pod's required affinity that the node has no label for."""
    keys = dict.fromkeys(term.topology_key for term in case.pod.terms if term.kind is TermKind.AFFINITY)
    return tuple(key for key in keys if case.nodes.label(key).at(row) is None)


def _describe_terms(case: AdvisorInput, kind: TermKind) -> str:
    """Return the terms as text, for example "pods with app=db in the same zone"."""
    return " and ".join(
        f"pods with {term.labels} in the same {term.topology_key}" for term in case.pod.terms if term.kind is kind
    )


def _describe_term(term: AffinityTerm, pod: PodInfo) -> bool:
    return term.applies_to(pod.namespace, {}) and term.labels.matches(pod.raw.metadata.labels)


def _pods_in_domain(case: AdvisorInput, row: int, term: AffinityTerm) -> Iterator[PodInfo]:
    """Yield the pods in the node's domain."""
    for node, pods in case.placed.items():
        if _in_same_domain(case, row, node, term):
            yield from pods


def _in_same_domain(case: AdvisorInput, row: int, node: str, term: AffinityTerm) -> bool:
    """Return True if the nodes are in the same domain of the term's topology."""
    codes, other = case.nodes.label(term.topology_key).codes, case.nodes.row(node)
    return other is not None and bool(codes[row]) and bool(codes[row] == codes[other])


class PortAdvisor:
    def suggest_remedies(self, case: AdvisorInput, reasons: Reasons) -> list[Remedy]:
        rows = sorted(refused_rows(reasons), key=lambda row: case.nodes.names[row])
        ports = " and ".join(dict.fromkeys(_port_text(port) for row in rows for port, _ in _port_users(case, row)))
        first = ", ".join(dict.fromkeys(pod for _, pod in _port_users(case, rows[0])))
        return [Remedy(f"free host port {ports}, which {first} uses on {case.nodes.names[rows[0]]}", node_names(case, rows))]

    def describe_node_problems(self, case: AdvisorInput, row: int, reasons: Sequence[str]) -> list[str]:
        return [f"host port {_port_text(port)} is used by {pod}" for port, pod in _port_users(case, row)]


def _port_users(case: AdvisorInput, row: int) -> Iterator[tuple[HostPort, str]]:
    """Yield each requested port with the pod that uses it."""
    for port in case.pod.requests.ports:
        for other in case.placed.get(case.nodes.names[row], ()):
            if any(port.conflicts(used) for used in other.requests.ports):
                yield port, other.key


def _port_text(port: HostPort) -> str:
    return f"{port.port}/{port.protocol}"


class ResourceAdvisor:
    def suggest_remedies(self, case: AdvisorInput, reasons: Reasons) -> list[Remedy]:
        """Return advice for the closest node, which lacks the smallest share of the pod's requests."""
        requested = [
            (resource, amount) for resource, amount in case.pod.requests.amounts if insufficient_reason(resource) in reasons
        ]
        rows = np.array(refused_rows(reasons))
        enough = np.logical_and.reduce([case.nodes.allocatable(resource)[rows] >= amount for resource, amount in requested])
        if not enough.any():
            return [self._too_large(case, rows, requested)]
        rows = rows[enough]
        row = _closest_row(
            case, rows, _missing_share([(case.nodes.free(resource)[rows], amount) for resource, amount in requested])
        )
        node = case.nodes.names[row]
        missing = [
            f"{amount_text(resource, short)} {resource}" if resource != PODS else f"room for {short} pod"
            for resource, amount in requested
            if (short := amount - case.nodes.free_at(row, resource)) > 0
        ]
        stated = "; ".join(
            _format_shortage(case, row, resource, amount)
            for resource, amount in requested
            if case.nodes.free_at(row, resource) < amount
        )
        nearest = f", the closest of {len(rows)} nodes" if len(rows) > 1 else ""
        less = "" if missing == ["room for 1 pod"] else ", or reduce its requests accordingly"
        return [Remedy(f"free {' and '.join(missing)} on {node}{nearest}{less}: {stated}", [node])]

    def describe_node_problems(self, case: AdvisorInput, row: int, reasons: Sequence[str]) -> list[str]:
        return [
            f"{insufficient_reason(resource)}: {_format_shortage(case, row, resource, amount)}"
            f"{_format_missing(case, row, resource, amount)}"
            for resource, amount in case.pod.requests.amounts
            if insufficient_reason(resource) in reasons
        ]

    def _too_large(self, case: AdvisorInput, rows: IntArray, requested: Sequence[tuple[str, int]]) -> Remedy:
        """Return advice for a pod that does not fit on an empty node."""
        row = _closest_row(
            case, rows, _missing_share([(case.nodes.allocatable(resource)[rows], amount) for resource, amount in requested])
        )
        beyond = [(r, amount) for r, amount in requested if case.nodes.allocatable(r)[row] < amount]
        asked = " and ".join(f"{amount_text(resource, amount)} {resource}" for resource, amount in beyond)
        there = " and ".join(f"{amount_text(resource, int(case.nodes.allocatable(resource)[row]))}" for resource, _ in beyond)
        nearest = f", the closest of {len(rows)} nodes," if len(rows) > 1 else ""
        return Remedy(
            f"reduce its requests, or add a larger node: it requests {asked}; {case.nodes.names[row]}{nearest} has {there}", []
        )


def amount_text(resource: str, amount: int) -> str:
    """Format an amount for people. Bytes that are not a multiple of 1 Mi are rounded."""
    if resource in _BYTES and amount % (1 << 20):
        return next((f"{amount / unit:.1f}{name}" for name, unit in _UNITS if abs(amount) >= unit), str(amount))
    return format_amount(resource, amount)


def _format_shortage(case: AdvisorInput, row: int, resource: str, amount: int) -> str:
    free, there = case.nodes.free_at(row, resource), int(case.nodes.allocatable(resource)[row])
    ahead = case.nodes.nominated.nominated_pods_with_precedence(case.pod, case.nodes.names[row])
    keeping = sorted(pod_info.key for pod_info in ahead if dict(pod_info.requests.amounts).get(resource))
    reserved = f"resources are reserved for {format_list(keeping)}" if keeping else ""
    if resource == PODS:
        return f"it runs {there - free - len(keeping)} of at most {there} pods{reserved and f', and {reserved}'}"
    requested, available, total = (amount_text(resource, number) for number in (amount, free, there))
    stated = f"it requests {requested} {resource}, {available} of {total} is free"
    return f"{stated}{reserved and f', because {reserved}'}"


def _format_missing(case: AdvisorInput, row: int, resource: str, amount: int) -> str:
    """Return text such as ", 200m is missing", or an empty string for pods, which always lack one."""
    short = amount - case.nodes.free_at(row, resource)
    return f", {amount_text(resource, short)} is missing" if short > 0 and resource != PODS else ""


def missing_share(case: AdvisorInput, row: int) -> float:
    """Return the largest missing share of the pod's requests on one node, over all resources."""
    amounts = case.pod.requests.amounts
    return max((max(0.0, 1 - case.nodes.free_at(row, resource) / amount) for resource, amount in amounts), default=0.0)


def _missing_share(amounts: Sequence[tuple[IntArray, int]]) -> FloatArray:
    """Return the largest missing share of the requests on each node, over the resources."""
    shares: FloatArray = np.maximum.reduce([(asked - there) / asked for there, asked in amounts])
    return shares


def _closest_row(case: AdvisorInput, rows: IntArray, shares: FloatArray) -> int:
    """Return the row with the smallest share, and of several the first by name."""
    return int(min(rows[shares == shares.min()].tolist(), key=lambda row: case.nodes.names[row]))


class SpreadAdvisor:
    def suggest_remedies(self, case: AdvisorInput, reasons: Reasons) -> list[Remedy]:
        if not _hard_constraints(case):  # refused by a default constraint of the configuration
            return GenericAdvisor(PodTopologySpread.name).suggest_remedies(case, reasons)
        keys = " and ".join(dict.fromkeys(constraint.topology_key for constraint in _hard_constraints(case)))
        skews = " and ".join(f"{constraint.max_skew} over {constraint.topology_key}" for constraint in _hard_constraints(case))
        return [
            Remedy(
                f"label the nodes with {keys}"
                if reason == LABEL_REASON
                else f"increase maxSkew above {skews}, or use ScheduleAnyway",
                node_names(case, rows),
            )
            for reason, rows in sorted(reasons.items(), key=lambda item: -len(item[1]))
        ]

    def describe_node_problems(self, case: AdvisorInput, row: int, reasons: Sequence[str]) -> list[str]:
        lines = [line for constraint in _hard_constraints(case) if (line := _describe_skew(case, row, constraint))]
        return lines or list(reasons)


def _hard_constraints(case: AdvisorInput) -> list[SpreadConstraint]:
    return own_constraints(case.pod, HARD)


def _describe_skew(case: AdvisorInput, row: int, each: SpreadConstraint) -> str:
    labels = case.nodes.label(each.topology_key)
    value = labels.at(row)
    if value is None:
        return f"the node has no label {each.topology_key}, which a topology spread constraint of the pod requires"
    if each.pods is None:
        return ""
    counting = nodes_with_topologies(_hard_constraints(case), case.nodes) & EligibleNodes(case.pod, case.nodes)(each)
    there = int(sum_per_domain(count_pods_per_node(each, case.nodes) * counting, labels)[row])
    return f"maxSkew {each.max_skew} over {each.topology_key}: {value} has {there} of the pods with {each.pods.labels}"


class TaintAdvisor:
    def suggest_remedies(self, case: AdvisorInput, reasons: Reasons) -> list[Remedy]:
        """Return a remedy for each set of taints, the set with the most nodes first."""
        by_taints: dict[tuple[Taint, ...], list[int]] = {}
        for row in refused_rows(reasons):
            by_taints.setdefault(_untolerated_taints(case, row), []).append(row)
        most_first = sorted(by_taints.items(), key=lambda item: (-len(item[1]), item[0]))
        return [Remedy(_toleration_remedy(taints), node_names(case, rows)) for taints, rows in most_first]

    def describe_node_problems(self, case: AdvisorInput, row: int, reasons: Sequence[str]) -> list[str]:
        return [f"it does not tolerate the taint {_taint_text(taint)}" for taint in _untolerated_taints(case, row)]


class CordonAdvisor:
    def suggest_remedies(self, case: AdvisorInput, reasons: Reasons) -> list[Remedy]:
        names = node_names(case, refused_rows(reasons))
        return [Remedy(f"uncordon {format_list(names)}", names)]

    def describe_node_problems(self, case: AdvisorInput, row: int, reasons: Sequence[str]) -> list[str]:
        return [f"the node is cordoned: run `kubectl uncordon {case.nodes.names[row]}` to allow new pods"]


def _untolerated_taints(case: AdvisorInput, row: int) -> tuple[Taint, ...]:
    """Return the taints that the pod does not tolerate.

    The taint of a cordoned node is omitted, because NodeUnschedulable reports the cordon. It counts if it is the only taint,
    because the profile then lacks that plugin.
    """
    result = untolerated_taints(case.nodes.taints.at(row), case.pod, HARD_EFFECTS)
    others = [taint for taint in result if taint != CORDON_TAINT] if case.nodes.unschedulable[row] else result
    return tuple(others or result)


def _toleration_remedy(taints: Sequence[Taint]) -> str:
    these = " and ".join(map(_taint_text, taints))
    if all(key.startswith(_CONDITION) for key, _, _ in taints):
        return f"repair the nodes, which removes {these}, or tolerate it"
    return f"tolerate {these}"


def _taint_text(taint: Taint) -> str:
    key, value, effect = taint
    return f"{key}={value}:{effect}" if value else f"{key}:{effect}"


_ADVISORS: Mapping[str, Advisor] = {
    NodeUnschedulable.name: CordonAdvisor(),
    TaintToleration.name: TaintAdvisor(),
    NodeAffinity.name: NodeAffinityAdvisor(),
    NodePorts.name: PortAdvisor(),
    NodeResourcesFit.name: ResourceAdvisor(),
    PodTopologySpread.name: SpreadAdvisor(),
    **{plugin.name: VolumeClaimAdvisor(plugin.name) for plugin in (VolumeRestrictions, VolumeBinding, VolumeZone)},
    InterPodAffinity.name: PodAffinityAdvisor(),
}


def advisor_of(plugin: str) -> Advisor:
    """Return the advisor of the plugin, or one that repeats the plugin's reasons."""
    return _ADVISORS.get(plugin) or GenericAdvisor(plugin)
