"""Rules about pods, nodes and volumes that several components apply: finished pods, quality of service, tolerations, and
storage classes.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from decimal import Decimal
from functools import lru_cache

from pinnace.api.core_v1_pb2 import (
    Container,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodSpec,
    ResourceRequirements,
    Taint,
    Toleration,
)
from pinnace.api.quantity import QuantityError, parse
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.api.wellknown import CLASS_ANNOTATION

ENDED = ("Succeeded", "Failed")
"""The phases that nothing leaves."""
EVICTED = "Evicted"
"""The reason of a pod that its node ended for want of room."""


def ended(pod: Pod) -> bool:
    """No container of it runs any more, nor will: it uses nothing."""
    return pod.status.phase in ENDED


def status_of(pod: Pod) -> Pod:
    """A copy of its status, with which pod it is and the version that it must still have. The API looks at no more."""
    source = pod.metadata
    copy = Pod(status=pod.status)
    target = copy.metadata
    target.name, target.namespace = source.name, source.namespace
    target.uid, target.resourceVersion = source.uid, source.resourceVersion
    return copy


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


EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
"""Of taints."""


def tolerates(toleration: Toleration, key: str, value: str, effect: str) -> bool:
    """The last three are the taint's. For how long does not matter here."""
    if toleration.effect not in ("", effect) or toleration.key not in ("", key):
        return False
    return toleration.operator == "Exists" or (toleration.operator in ("", "Equal") and toleration.value == value)


class Tolerations:
    """Many of them, to be asked about many taints: an answer does not cost more because there are more tolerations."""

    def __init__(self, tolerations: Iterable[Toleration]) -> None:
        self._any_value: set[tuple[str, str]] = set()
        """(key, effect); an empty one stands for all."""
        self._one_value: set[tuple[str, str, str]] = set()
        """(key, effect, value)."""
        for each in tolerations:
            if each.operator == "Exists":
                self._any_value.add((each.key, each.effect))
            elif each.operator in ("", "Equal"):
                self._one_value.add((each.key, each.effect, each.value))

    def tolerate(self, key: str, value: str, effect: str) -> bool:
        """As `tolerates`, of any of them."""
        places = ((key, effect), (key, ""), ("", effect), ("", ""))
        if self._any_value and not self._any_value.isdisjoint(places):
            return True
        return bool(self._one_value) and any((*place, value) in self._one_value for place in places)


def evicting(node: Node) -> list[Taint]:
    """Those of its taints that pods must tolerate to stay, not only to be placed."""
    return [taint for taint in node.spec.taints if taint.effect == "NoExecute"]


def class_of(obj: PersistentVolumeClaim | PersistentVolume) -> str:
    """The name of its storage class; empty for none. The annotation counts before the field, also when it is empty."""
    return obj.metadata.annotations.get(CLASS_ANNOTATION, obj.spec.storageClassName)
