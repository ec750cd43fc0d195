"""Labels, annotations, and selectors of labels."""

from collections.abc import Mapping, Sequence

from apiserver.registry.validation.violations import forbidden, invalid, required, too_long, too_many
from pinnace.api import names
from pinnace.api.meta_v1_pb2 import LabelSelector
from pinnace.api.scalars import int32
from pinnace.api.selectors import MAX_REQUIREMENTS
from pinnace.api.status import Violation
from pinnace.api.wellknown import COST_ANNOTATION

MAX_ANNOTATIONS = 256 << 10
"""Bytes of all keys and values."""
MAX_VALUES = 1000
"""Of a selector's requirements, together."""


def validate_labels(labels: Mapping[str, str], path: str, out: list[Violation]) -> None:
    for key, value in labels.items():
        if problems := names.label_key(key):
            out.extend(invalid(path, key, problem) for problem in problems)
        if problems := names.label_value(value):
            out.extend(invalid(path, value, problem) for problem in problems)


def validate_annotations(annotations: Mapping[str, str], path: str, out: list[Violation]) -> None:
    size = 0
    for key, value in annotations.items():
        size += len(key.encode()) + (len(value) if value.isascii() else len(value.encode()))
        if problems := names.label_key(key.lower()):
            out.extend(invalid(path, key, problem) for problem in problems)
    if size > MAX_ANNOTATIONS:
        out.append(too_long(path, MAX_ANNOTATIONS))


def validate_pod_annotations(annotations: Mapping[str, str], path: str, out: list[Violation]) -> None:
    """Those that mean something on a pod."""
    cost = annotations.get(COST_ANNOTATION)
    if cost is not None and int32(cost) is None:
        out.append(invalid(f"{path}[{COST_ANNOTATION}]", cost, "must be a 32bit integer"))


def validate_selector(selector: LabelSelector, path: str, out: list[Violation]) -> None:
    requirements = len(selector.matchLabels) + len(selector.matchExpressions)
    number = sum(len(each.values) for each in selector.matchExpressions)
    if requirements > MAX_REQUIREMENTS:
        out.append(too_many(path, requirements, MAX_REQUIREMENTS))
    if number > MAX_VALUES:
        out.append(too_many(f"{path}.matchExpressions.values", number, MAX_VALUES))
    validate_labels(selector.matchLabels, f"{path}.matchLabels", out)
    for index, requirement in enumerate(selector.matchExpressions):
        where = f"{path}.matchExpressions[{index}]"
        values = requirement.values
        match requirement.operator:
            case "In" | "NotIn":
                if not values:
                    out.append(required(f"{where}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
            case "Exists" | "DoesNotExist":
                if values:
                    detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                    out.append(forbidden(f"{where}.values", detail))
            case operator:
                out.append(invalid(f"{where}.operator", operator, "not a valid selector operator"))
        validate_key(requirement.key, f"{where}.key", out)
        validate_values(values, f"{where}.values", out)


def validate_key(key: str, path: str, out: list[Violation]) -> None:
    """A label's key, a taint's, a condition's type: a "qualified name"."""
    out.extend(invalid(path, key, problem) for problem in names.label_key(key))


def validate_values(values: Sequence[str], path: str, out: list[Violation]) -> None:
    for index, value in enumerate(values):
        out.extend(invalid(f"{path}[{index}]", value, problem) for problem in names.label_value(value))
