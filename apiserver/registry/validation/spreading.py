"""Topology spread constraints and scheduling gates."""

from collections.abc import Sequence

from apiserver.registry.validation.affinity import validate_label_keys, validate_said_once
from apiserver.registry.validation.labels import validate_key, validate_selector
from apiserver.registry.validation.violations import NOT_POSITIVE, duplicate, invalid, required, unsupported
from pinnace.api.core_v1_pb2 import PodSchedulingGate, TopologySpreadConstraint
from pinnace.api.status import Violation

_ACTIONS = ("DoNotSchedule", "ScheduleAnyway")
_POLICIES = ("Honor", "Ignore")


def validate_spreading(constraints: Sequence[TopologySpreadConstraint], path: str, out: list[Violation]) -> None:
    seen: set[tuple[str, str]] = set()
    for index, constraint in enumerate(constraints):
        where = f"{path}[{index}]"
        _validate_constraint(constraint, where, out)
        pair = (constraint.topologyKey, constraint.whenUnsatisfiable)
        if pair in seen:
            out.append(duplicate(f"{where}.{{topologyKey, whenUnsatisfiable}}", f"{{{pair[0]}, {pair[1]}}}"))
        seen.add(pair)


def _validate_constraint(constraint: TopologySpreadConstraint, path: str, out: list[Violation]) -> None:
    action = constraint.whenUnsatisfiable
    if constraint.maxSkew <= 0:
        out.append(invalid(f"{path}.maxSkew", constraint.maxSkew, NOT_POSITIVE))
    if not constraint.topologyKey:
        out.append(required(f"{path}.topologyKey", "can not be empty"))
    if action not in _ACTIONS:
        out.append(unsupported(f"{path}.whenUnsatisfiable", action, _ACTIONS))
    if constraint.HasField("minDomains"):
        if constraint.minDomains <= 0:
            out.append(invalid(f"{path}.minDomains", constraint.minDomains, NOT_POSITIVE))
        if action != "DoNotSchedule":
            detail = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
            out.append(invalid(f"{path}.minDomains", constraint.minDomains, detail))
    if constraint.HasField("nodeAffinityPolicy") and constraint.nodeAffinityPolicy not in _POLICIES:
        out.append(unsupported(f"{path}.nodeAffinityPolicy", constraint.nodeAffinityPolicy, _POLICIES))
    if constraint.HasField("nodeTaintsPolicy") and constraint.nodeTaintsPolicy not in _POLICIES:
        out.append(unsupported(f"{path}.nodeTaintsPolicy", constraint.nodeTaintsPolicy, _POLICIES))
    selector = constraint.labelSelector
    validate_label_keys(constraint.matchLabelKeys, constraint.HasField("labelSelector"), f"{path}.matchLabelKeys", out)
    validate_said_once(constraint.matchLabelKeys, selector, f"{path}.matchLabelKeys", out)
    validate_selector(selector, f"{path}.labelSelector", out)


def validate_gates(gates: Sequence[PodSchedulingGate], path: str, out: list[Violation]) -> None:
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        validate_key(gate.name, f"{path}[{index}]", out)
        if gate.name in seen:
            out.append(duplicate(f"{path}[{index}]", gate.name))
        seen.add(gate.name)
