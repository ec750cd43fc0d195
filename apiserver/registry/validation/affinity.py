"""Affinity of pods, to nodes and to one another."""

from collections.abc import Sequence

from apiserver.registry.validation.labels import validate_key, validate_selector, validate_values
from apiserver.registry.validation.violations import forbidden, invalid, required
from pinnace.api import names
from pinnace.api.core_v1_pb2 import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    PodAntiAffinity,
)
from pinnace.api.meta_v1_pb2 import LabelSelector
from pinnace.api.status import Violation

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_NO_OPERATOR = "not a valid selector operator"


def validate_affinity(affinity: Affinity, path: str, out: list[Violation]) -> None:
    if affinity.HasField("nodeAffinity"):
        _validate_node_affinity(affinity.nodeAffinity, f"{path}.nodeAffinity", out)
    if affinity.HasField("podAffinity"):
        _validate_pod_affinity(affinity.podAffinity, f"{path}.podAffinity", out)
    if affinity.HasField("podAntiAffinity"):
        _validate_pod_affinity(affinity.podAntiAffinity, f"{path}.podAntiAffinity", out)


def _validate_node_affinity(affinity: NodeAffinity, path: str, out: list[Violation]) -> None:
    if affinity.HasField(_REQUIRED):
        validate_node_selector(affinity.requiredDuringSchedulingIgnoredDuringExecution, f"{path}.{_REQUIRED}", out)
    for index, preferred in enumerate(affinity.preferredDuringSchedulingIgnoredDuringExecution):
        where = f"{path}.{_PREFERRED}[{index}]"
        _validate_weight(preferred.weight, where, out)
        _validate_node_term(preferred.preference, f"{where}.preference", out)


def validate_node_selector(selector: NodeSelector, path: str, out: list[Violation]) -> None:
    """Terms of which one must match: of a pod, or of a volume that can be reached from some nodes only."""
    where = f"{path}.nodeSelectorTerms"
    if not selector.nodeSelectorTerms:
        out.append(required(where, "must have at least one node selector term"))
    for index, term in enumerate(selector.nodeSelectorTerms):
        _validate_node_term(term, f"{where}[{index}]", out)


def _validate_node_term(term: NodeSelectorTerm, path: str, out: list[Violation]) -> None:
    for index, requirement in enumerate(term.matchExpressions):
        _validate_expression(requirement, f"{path}.matchExpressions[{index}]", out)
    for index, requirement in enumerate(term.matchFields):
        _validate_field(requirement, f"{path}.matchFields[{index}]", out)


def _validate_expression(requirement: NodeSelectorRequirement, path: str, out: list[Violation]) -> None:
    operator, values = requirement.operator, requirement.values
    match operator:
        case "In" | "NotIn":
            if not values:
                out.append(required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
        case "Exists" | "DoesNotExist":
            if values:
                out.append(forbidden(f"{path}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"))
        case "Gt" | "Lt":
            if len(values) != 1:
                out.append(required(f"{path}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'"))
        case _:
            out.append(invalid(f"{path}.operator", operator, _NO_OPERATOR))
    validate_key(requirement.key, f"{path}.key", out)
    validate_values(values, f"{path}.values", out)


def _validate_field(requirement: NodeSelectorRequirement, path: str, out: list[Violation]) -> None:
    if requirement.operator not in ("In", "NotIn"):
        out.append(invalid(f"{path}.operator", requirement.operator, _NO_OPERATOR))
    elif len(requirement.values) != 1:
        detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        out.append(required(f"{path}.values", detail))
    if requirement.key != "metadata.name":
        out.append(invalid(f"{path}.key", requirement.key, "not a valid field selector key"))
        return
    for index, value in enumerate(requirement.values):
        out.extend(invalid(f"{path}.values[{index}]", value, problem) for problem in names.dns_subdomain(value))


def _validate_pod_affinity(affinity: PodAffinity | PodAntiAffinity, path: str, out: list[Violation]) -> None:
    for index, term in enumerate(affinity.requiredDuringSchedulingIgnoredDuringExecution):
        _validate_pod_term(term, f"{path}.{_REQUIRED}[{index}]", out)
    for index, weighted in enumerate(affinity.preferredDuringSchedulingIgnoredDuringExecution):
        where = f"{path}.{_PREFERRED}[{index}]"
        _validate_weight(weighted.weight, where, out)
        _validate_pod_term(weighted.podAffinityTerm, f"{where}.podAffinityTerm", out)


def _validate_pod_term(term: PodAffinityTerm, path: str, out: list[Violation]) -> None:
    validate_selector(term.labelSelector, f"{path}.labelSelector", out)
    validate_selector(term.namespaceSelector, f"{path}.namespaceSelector", out)
    for index, namespace in enumerate(term.namespaces):
        out.extend(invalid(f"{path}.namespaces[{index}]", namespace, problem) for problem in names.dns_label(namespace))
    has_selector = term.HasField("labelSelector")
    validate_label_keys(term.matchLabelKeys, has_selector, f"{path}.matchLabelKeys", out)
    validate_label_keys(term.mismatchLabelKeys, has_selector, f"{path}.mismatchLabelKeys", out)
    validate_said_once(term.matchLabelKeys, term.labelSelector, f"{path}.matchLabelKeys", out)
    mismatched = set(term.mismatchLabelKeys)
    for index, key in enumerate(term.matchLabelKeys):
        if key in mismatched:
            detail = "exists in both matchLabelKeys and mismatchLabelKeys"
            out.append(invalid(f"{path}.matchLabelKeys[{index}]", key, detail))
    if not term.topologyKey:
        out.append(required(f"{path}.topologyKey", "can not be empty"))
    else:
        validate_key(term.topologyKey, f"{path}.topologyKey", out)


def validate_label_keys(keys: Sequence[str], has_selector: bool, path: str, out: list[Violation]) -> None:
    """Keys whose values are taken from the pod's own labels, to narrow its selector down."""
    if keys and not has_selector:
        out.append(forbidden(path, "must not be specified when labelSelector is not set"))
    for index, key in enumerate(keys):
        validate_key(key, f"{path}[{index}]", out)


def validate_said_once(keys: Sequence[str], selector: LabelSelector, path: str, out: list[Violation]) -> None:
    """Of a key whose value is the pod's own the selector says nothing: together they might match nothing."""
    if not keys:
        return
    selected = {*selector.matchLabels, *(requirement.key for requirement in selector.matchExpressions)}
    for index, key in enumerate(keys):
        if key in selected:
            out.append(invalid(f"{path}[{index}]", key, "exists in both matchLabelKeys and labelSelector"))


def _validate_weight(weight: int, path: str, out: list[Violation]) -> None:
    if not 1 <= weight <= 100:
        out.append(invalid(f"{path}.weight", weight, "must be in the range 1-100"))
