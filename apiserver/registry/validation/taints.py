"""Taints of nodes and tolerations of pods."""

from collections.abc import Sequence

from apiserver.registry.validation.labels import validate_key
from apiserver.registry.validation.violations import duplicate, invalid, required, too_many, unsupported
from pinnace.api import names
from pinnace.api.core_v1_pb2 import Taint, Toleration
from pinnace.api.pods import EFFECTS
from pinnace.api.status import Violation

_OPERATORS = ("Equal", "Exists")
MAX_TAINTS = 100
"""Of a node. Each taint is compared for each pod that is scheduled: 9,990 of one node cost every decision 8 ms. Kubernetes has
no such bound."""
_OF_CONTROLLERS = frozenset(
    f"node.kubernetes.io/{name}"
    for name in (
        "disk-pressure",
        "memory-pressure",
        "network-unavailable",
        "not-ready",
        "out-of-service",
        "pid-pressure",
        "unreachable",
        "unschedulable",
    )
)
"""These keys do not count: a node that is full of taints must still be taken out of service."""


def validate_number(taints: Sequence[Taint], before: Sequence[Taint], path: str, out: list[Violation]) -> None:
    """A node that has more, from a version without the bound, may keep them. `before`: of the node as it is."""
    number, had = (sum(taint.key not in _OF_CONTROLLERS for taint in each) for each in (taints, before))
    if number > max(MAX_TAINTS, had):
        out.append(too_many(path, number, MAX_TAINTS))


def validate_taints(taints: Sequence[Taint], path: str, out: list[Violation]) -> None:
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        where = f"{path}[{index}]"
        key, value, effect = taint.key, taint.value, taint.effect
        validate_key(key, f"{where}.key", out)
        if problems := names.label_value(value):
            out.append(invalid(f"{where}.value", value, ";".join(problems)))
        if not effect:
            out.append(required(f"{where}.effect"))
        elif effect not in EFFECTS:
            out.append(unsupported(f"{where}.effect", effect, EFFECTS))
        if (key, effect) in seen:
            out.append(duplicate(where, f"{key}:{effect}", "taints must be unique by key and effect pair"))
        seen.add((key, effect))


def validate_tolerations(tolerations: Sequence[Toleration], path: str, out: list[Violation]) -> None:
    for index, toleration in enumerate(tolerations):
        key, operator, value, effect = toleration.key, toleration.operator, toleration.value, toleration.effect
        if operator == "Exists":
            if value:
                out.append(invalid(f"{path}[{index}].operator", value, "value must be empty when `operator` is 'Exists'"))
        elif operator not in ("Equal", ""):
            out.append(unsupported(f"{path}[{index}].operator", operator, _OPERATORS))
        elif problems := names.label_value(value):
            out.append(invalid(f"{path}[{index}].operator", value, ";".join(problems)))
        if key:
            if problems := names.label_key(key):
                out.extend(invalid(f"{path}[{index}].key", key, problem) for problem in problems)
        elif operator != "Exists":
            detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            out.append(invalid(f"{path}[{index}].operator", operator, detail))
        if effect and effect not in EFFECTS:
            out.append(unsupported(f"{path}[{index}].effect", effect, EFFECTS))
        if effect != "NoExecute" and toleration.HasField("tolerationSeconds"):
            detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            out.append(invalid(f"{path}[{index}].effect", effect, detail))
