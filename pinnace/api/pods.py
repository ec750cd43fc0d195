"""Rules for pods, nodes and volumes that several components apply: terminal phases, QoS classes, tolerations, and storage
classes.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from functools import lru_cache

from pinnace.api.core_v1_pb2 import (
    Container,
    EphemeralContainer,
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
"""The terminal phases of a pod."""
EVICTED = "Evicted"
"""The reason of a pod that the kubelet evicted under resource pressure."""
_COUNTED = ("cpu", "memory")
_MAX_REMEMBERED = 512
"""The maximum encoded size of a cached message in bytes."""
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
"""The effects of taints."""


def container_of_ephemeral(ephemeral: EphemeralContainer) -> Container:
    """Return the ephemeral container as a container. Both have the same fields."""
    return Container.FromString(ephemeral.ephemeralContainerCommon.SerializeToString())


def all_containers(spec: PodSpec) -> Iterator[Container]:
    """Yield the init, main and ephemeral containers."""
    yield from spec.initContainers
    yield from spec.containers
    yield from map(container_of_ephemeral, spec.ephemeralContainers)


def ended(pod: Pod) -> bool:
    """Return whether the pod is in a terminal phase. Its containers do not run, and it uses no resources."""
    return pod.status.phase in ENDED


def status_of(pod: Pod) -> Pod:
    """Return a pod with only the status, identity and resourceVersion, for a status update."""
    source = pod.metadata
    copy = Pod(status=pod.status)
    target = copy.metadata
    target.name, target.namespace = source.name, source.namespace
    target.uid, target.resourceVersion = source.uid, source.resourceVersion
    return copy


def qos_class(spec: PodSpec) -> str:
    """Return the QoS class of a pod after defaulting, which sets missing requests to the limits. Pod-level resources replace
    the resources of the containers."""
    if spec.HasField("resources") and (spec.resources.requests or spec.resources.limits):
        return _compute_class(spec.resources.SerializeToString())
    classes = [_container_class(container) for container in spec.containers]
    if init_containers := spec.initContainers:
        classes += [_container_class(container) for container in init_containers]
    return classes[0] if len(set(classes)) == 1 else "Burstable"


def _container_class(container: Container) -> str:
    if not container.HasField("resources"):
        return "BestEffort"
    encoded = container.resources.SerializeToString()
    return _cached_class(encoded) if len(encoded) <= _MAX_REMEMBERED else _compute_class(encoded)


@lru_cache(maxsize=4096)
def _cached_class(encoded: bytes) -> str:
    return _compute_class(encoded)


def _compute_class(encoded: bytes) -> str:
    """Return the QoS class of an encoded ResourceRequirements."""
    resources = ResourceRequirements.FromString(encoded)
    requests, limits = _nonzero_amounts(resources.requests), _nonzero_amounts(resources.limits)
    if len(limits) == len(_COUNTED) and limits == requests:
        return "Guaranteed"
    return "Burstable" if requests or limits else "BestEffort"


def _nonzero_amounts(amounts: Mapping[str, Quantity]) -> dict[str, Decimal]:
    """Return the nonzero amounts of CPU and memory. Invalid quantities are skipped, because validation runs later."""
    decimals = {}
    for name in _COUNTED:
        if name in amounts:
            with suppress(QuantityError):
                decimals[name] = parse(amounts[name].string)
    return {name: value for name, value in decimals.items() if value}


def tolerates(toleration: Toleration, key: str, value: str, effect: str) -> bool:
    """Return whether the toleration matches a taint with this key, value and effect. tolerationSeconds is ignored."""
    if toleration.effect not in ("", effect) or toleration.key not in ("", key):
        return False
    return toleration.operator == "Exists" or (toleration.operator in ("", "Equal") and toleration.value == value)


class Tolerations:
    """An index over many tolerations. The duration of a lookup does not depend on their number."""

    def __init__(self, tolerations: Iterable[Toleration]) -> None:
        self._any_value: set[tuple[str, str]] = set()
        """Pairs of key and effect. "" matches all keys or effects."""
        self._one_value: set[tuple[str, str, str]] = set()
        """Tuples of key, effect and value."""
        for toleration in tolerations:
            if toleration.operator == "Exists":
                self._any_value.add((toleration.key, toleration.effect))
            elif toleration.operator in ("", "Equal"):
                self._one_value.add((toleration.key, toleration.effect, toleration.value))

    def tolerate(self, key: str, value: str, effect: str) -> bool:
        """Return whether any toleration matches; see `tolerates`."""
        places = ((key, effect), (key, ""), ("", effect), ("", ""))
        if self._any_value and not self._any_value.isdisjoint(places):
            return True
        return bool(self._one_value) and any((*place, value) in self._one_value for place in places)


def evicting_taints(node: Node) -> list[Taint]:
    """Return the NoExecute taints of a node, which running pods must tolerate."""
    return [taint for taint in node.spec.taints if taint.effect == "NoExecute"]


def class_of(obj: PersistentVolumeClaim | PersistentVolume) -> str:
    """Return the name of the storage class, or "" if there is none. The annotation takes precedence over the field, even if it
    is empty."""
    return obj.metadata.annotations.get(CLASS_ANNOTATION, obj.spec.storageClassName)
