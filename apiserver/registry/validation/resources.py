"""Resource lists: names and quantities, requests against limits.

What is wrong with a container's resources depends on nothing else, and thousands of pods ask for the same: so the judgement is
remembered, by the bytes of the message.
"""

from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache

from apiserver.registry.validation.resource_names import COUNTED, HUGE_PAGES, of_container, overcommits
from apiserver.registry.validation.violations import NEGATIVE, forbidden, invalid, required, unsupported
from pinnace.api import names, quantity
from pinnace.api.core_v1_pb2 import PodSpec, ResourceRequirements
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.api.status import Violation
from pinnace.fit.requests import combine, is_pod_level, pod_level

MAX_REMEMBERED = 512
"""Bytes of a message that is remembered."""


def validate_requirements(resources: ResourceRequirements, path: str, out: list[Violation]) -> None:
    """What a container asks for."""
    encoded = resources.SerializeToString()
    judged = _remembered(encoded) if len(encoded) <= MAX_REMEMBERED else _judge(encoded)
    if judged:
        out.extend(Violation(path + violation.field, violation.message) for violation in judged)


@lru_cache(maxsize=4096)
def _remembered(encoded: bytes) -> tuple[Violation, ...]:
    return _judge(encoded)


def _judge(encoded: bytes) -> tuple[Violation, ...]:
    """What is wrong with an encoded ResourceRequirements; fields are relative to it."""
    out: list[Violation] = []
    resources = ResourceRequirements.FromString(encoded)
    limits = _validate_amounts(resources.limits, ".limits", out)
    requests = _validate_amounts(resources.requests, ".requests", out)
    for name, request in requests.items():
        limit = limits.get(name)
        if limit is None:
            if not overcommits(name) and name not in resources.limits:
                out.append(required(".limits", "Limit must be set for non overcommitable resources"))
        elif request != limit and not overcommits(name):
            detail = f"must be equal to {name} limit of {resources.limits[name].string}"
            out.append(invalid(".requests", resources.requests[name].string, detail))
        elif request > limit:
            detail = f"must be less than or equal to {name} limit of {resources.limits[name].string}"
            out.append(invalid(".requests", resources.requests[name].string, detail))
    asked = {*resources.limits, *resources.requests}
    if asked.isdisjoint(("cpu", "memory")) and any(name.startswith(HUGE_PAGES) for name in asked):
        out.append(forbidden("", "HugePages require cpu or memory"))
    return tuple(out)


_POD_LEVEL = ("cpu", "hugepages-*", "memory")


def validate_pod_requirements(spec: PodSpec, out: list[Violation]) -> None:
    """What a pod as a whole asks for, against what its containers ask for."""
    path, resources = "spec.resources", spec.resources
    for field, quantities in (("limits", resources.limits), ("requests", resources.requests)):
        wrong = [name for name in sorted(quantities) if not is_pod_level(name)]
        out.extend(unsupported(f"{path}.{field}[{name[: names.MAX_KEY]}]", name, _POD_LEVEL) for name in wrong)
    validate_requirements(resources, path, out)
    try:
        of_containers = combine(spec, lambda container: quantity.amounts(container.resources.requests))
        limits, requests = pod_level(resources.limits), pod_level(resources.requests)
        of_each = [(index, quantity.amounts(each.resources.limits)) for index, each in enumerate(spec.containers)]
    except quantity.QuantityError:  # reported where it is
        return
    for name, requested in requests.items():
        if requested < of_containers[name]:
            total = quantity.format_amount(name, of_containers[name])
            detail = f"must be greater than or equal to aggregate container requests of {total}"
            out.append(invalid(f"{path}.requests[{name}]", resources.requests[name].string, detail))
    for index, own in of_each:
        for name in sorted(own.keys() & limits.keys()):
            if own[name] > limits[name]:
                detail = f"must be less than or equal to pod limits of {resources.limits[name].string}"
                text = spec.containers[index].resources.limits[name].string
                out.append(invalid(f"spec.containers[{index}].resources.limits[{name}]", text, detail))


def validate_overhead(overhead: Mapping[str, Quantity], path: str, out: list[Violation]) -> None:
    """What a pod costs beyond its containers."""
    _validate_amounts(overhead, path, out)


def validate_capacity(amounts: Mapping[str, Quantity], path: str, out: list[Violation]) -> None:
    """What a node has: resources of any name."""
    for name, amount in amounts.items():
        validate_amount(name, amount.string, f"{path}[{name[: names.MAX_KEY]}]", out)


def _validate_amounts(amounts: Mapping[str, Quantity], path: str, out: list[Violation]) -> dict[str, Decimal]:
    """Of resources that a pod may ask for. The values of those that have one."""
    values = {}
    for name, amount in sorted(amounts.items()):
        where = f"{path}[{name[: names.MAX_KEY]}]"
        out.extend(invalid(where, name, problem) for problem in of_container(name))
        value = validate_amount(name, amount.string, where, out)
        if value is not None:
            values[name] = value
            if name.startswith(HUGE_PAGES) and not _in_whole_pages(name, amount.string):
                size = name.removeprefix(HUGE_PAGES)[: names.MAX_KEY]
                detail = f"must be a positive integer multiple of the page size {size}"
                out.append(invalid(where, amount.string, detail))
    return values


def _in_whole_pages(name: str, text: str) -> bool:
    """Of huge pages, whose size is in their name: nothing comes in pages of a size that is none."""
    try:
        size = quantity.parse(name.removeprefix(HUGE_PAGES))
    except quantity.QuantityError:
        return False
    return size > 0 and size == size.to_integral_value() and quantity.amount(name, text) % size == 0


def validate_amount(name: str, text: str, path: str, out: list[Violation]) -> Decimal | None:
    """The value of the amount of a resource, if it has one."""
    try:
        value = quantity.parse(text)
    except quantity.QuantityError as error:
        out.append(invalid(path, text, str(error)))
        return None
    if value < 0:
        out.append(invalid(path, text, NEGATIVE))
    if (name in COUNTED or names.is_extended_resource(name)) and value != value.to_integral_value():
        out.append(invalid(path, text, "must be an integer"))
    return value
