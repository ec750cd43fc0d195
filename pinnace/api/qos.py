"""Quality of service: which pods a node that runs out of something evicts first.

    Guaranteed   every container, or the pod as a whole, limits cpu and memory, and requests just that much
    BestEffort   no container requests or limits either
    Burstable    the others

Source: https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/
"""

from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal
from functools import lru_cache

from pinnace.api.core_v1_pb2 import Container, PodSpec, ResourceRequirements
from pinnace.api.quantity import QuantityError, parse
from pinnace.api.resource_v1_pb2 import Quantity

_COUNTED = ("cpu", "memory")
_MAX_REMEMBERED = 512
"""Bytes of a message that is remembered."""


def qos_class(spec: PodSpec) -> str:
    """Of a pod after defaults: limits without requests have become requests too. Resources of the pod as a whole count instead
    of those of its containers."""
    if spec.HasField("resources") and (spec.resources.requests or spec.resources.limits):
        return _class(spec.resources.SerializeToString())
    classes = [_container_class(container) for container in spec.containers]
    if init_containers := spec.initContainers:
        classes += [_container_class(container) for container in init_containers]
    return classes[0] if len(set(classes)) == 1 else "Burstable"


def _container_class(container: Container) -> str:
    if not container.HasField("resources"):
        return "BestEffort"
    encoded = container.resources.SerializeToString()
    return _remembered(encoded) if len(encoded) <= _MAX_REMEMBERED else _class(encoded)


@lru_cache(maxsize=4096)
def _remembered(encoded: bytes) -> str:
    return _class(encoded)


def _class(encoded: bytes) -> str:
    """Of an encoded ResourceRequirements."""
    resources = ResourceRequirements.FromString(encoded)
    requests, limits = _amounts(resources.requests), _amounts(resources.limits)
    if len(limits) == len(_COUNTED) and limits == requests:
        return "Guaranteed"
    return "Burstable" if requests or limits else "BestEffort"


def _amounts(amounts: Mapping[str, Quantity]) -> dict[str, Decimal]:
    """The amounts that make a difference: not zero, and readable (validation comes later)."""
    found = {}
    for name in _COUNTED:
        if name in amounts:
            with suppress(QuantityError):
                found[name] = parse(amounts[name].string)
    return {name: value for name, value in found.items() if value}
