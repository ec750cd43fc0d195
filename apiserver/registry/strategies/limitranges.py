"""Limit ranges: bounds and defaults that do not contradict each other; those of containers complete each other.

Source: pkg/apis/core/validation of Kubernetes 1.36.
"""

from collections.abc import Mapping
from decimal import Decimal

from apiserver.registry.strategy import Strategy
from apiserver.registry.validation import resource_names
from apiserver.registry.validation.storage import STORAGE
from apiserver.registry.validation.violations import duplicate, forbidden, invalid, required
from pinnace.api import names, quantity
from pinnace.api.core_v1_pb2 import LimitRange, LimitRangeItem
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.api.status import Violation

_TYPES = ("Container", "Pod", "PersistentVolumeClaim")
_AMOUNTS = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
_ORDERED = (
    ("min", "max", "min", "min", "max"),
    ("min", "defaultRequest", "defaultRequest", "min", "default request"),
    ("defaultRequest", "max", "defaultRequest", "default request", "max"),
    ("defaultRequest", "default", "defaultRequest", "default request", "default limit"),
    ("min", "default", "default", "min", "default"),
    ("default", "max", "default", "default", "max"),
)
"""A field, the one that it may not exceed, the one to be blamed, and the names of the two."""

Amounts = Mapping[str, Decimal]
"""Of one resource, by field; without those that are absent or no quantities."""


class LimitRangeStrategy(Strategy[LimitRange]):
    def set_defaults(self, obj: LimitRange) -> None:
        """The default limit is the maximum; the default request is the default limit, or else the minimum."""
        for item in obj.spec.limits:
            if item.type != "Container":
                continue
            for target, source in (
                (item.default, item.max),
                (item.defaultRequest, item.default),
                (item.defaultRequest, item.min),
            ):
                for name in source.keys() - target.keys():
                    target[name].CopyFrom(source[name])

    def check(self, obj: LimitRange, out: list[Violation]) -> None:
        types: set[str] = set()
        for index, item in enumerate(obj.spec.limits):
            path = f"spec.limits[{index}]"
            _validate_type(item.type, f"{path}.type", out)
            if item.type in types:
                out.append(duplicate(f"{path}.type", item.type))
            types.add(item.type)
            _validate_item(item, path, out)


def _validate_type(name: str, path: str, out: list[Violation]) -> None:
    if problems := names.label_key(name):
        out.extend(invalid(path, name, problem) for problem in problems)
    elif "/" not in name and name not in _TYPES:
        out.append(invalid(path, name, "must be a standard limit type or fully qualified"))


def _validate_item(item: LimitRangeItem, path: str, out: list[Violation]) -> None:
    fields: dict[str, Mapping[str, Quantity]] = {field: getattr(item, field) for field in _AMOUNTS}
    if item.type == "Pod":
        detail = "may not be specified when `type` is 'Pod'"
        out.extend(forbidden(f"{path}.{field}", detail) for field in ("default", "defaultRequest") if fields.pop(field))
    if item.type == "PersistentVolumeClaim" and STORAGE not in item.min and STORAGE not in item.max:
        detail = "either minimum or maximum storage value is required, but neither was provided"
        out.append(required(f"{path}.limits", detail))
    check = resource_names.of_container if item.type in ("Pod", "Container") else resource_names.of_anything
    found: dict[str, dict[str, Decimal]] = {}
    for field, amounts in fields.items():
        for name, amount in sorted(amounts.items()):
            where = _at(path, field, name)
            out.extend(invalid(where, name, problem) for problem in check(name))
            try:
                found.setdefault(name, {})[field] = quantity.parse(amount.string)
            except quantity.QuantityError as error:
                out.append(invalid(where, amount.string, str(error)))
    for name, values in sorted(found.items()):
        _validate_amounts(item, name, values, path, out)


def _validate_amounts(item: LimitRangeItem, name: str, values: Amounts, path: str, out: list[Violation]) -> None:
    """Of one resource: the fields against each other."""

    def text(field: str) -> str:
        return str(getattr(item, field)[name].string)

    def wrong(field: str, detail: str) -> None:
        out.append(invalid(_at(path, field, name), text(field), detail))

    for low, high, blamed, low_name, high_name in _ORDERED:
        if low in values and high in values and values[low] > values[high]:
            wrong(blamed, f"{low_name} value {text(low)} is greater than {high_name} value {text(high)}")
    ratio = values.get("maxLimitRequestRatio")
    if ratio is not None:
        if ratio < 1:
            wrong("maxLimitRequestRatio", f"ratio {text('maxLimitRequestRatio')} is less than 1")
        if "max" in values and values.get("min", 0) > 0 and ratio > (widest := values["max"] / values["min"]):
            detail = f"ratio {text('maxLimitRequestRatio')} is greater than max/min = {widest:.6f}"
            wrong("maxLimitRequestRatio", detail)
    given = {values[field] for field in ("default", "defaultRequest") if field in values}
    if len(given) > 1 and not resource_names.overcommits(name):
        both = f"default value {text('default')} must equal to defaultRequest value {text('defaultRequest')}"
        wrong("defaultRequest", f"{both} in {name[: names.MAX_KEY]}")


def _at(path: str, field: str, name: str) -> str:
    return f"{path}.{field}[{name[: names.MAX_KEY]}]"
