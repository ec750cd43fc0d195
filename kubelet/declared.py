"""What pretended containers use. Pure.

It is declared on their pod, as what they do is (kubelet.behaviour). Where nothing is declared that makes sense it is what they
request:

    pinnace.io/cpu-usage[.CONTAINER], pinnace.io/memory-usage[.CONTAINER], pinnace.io/ephemeral-storage-usage[.CONTAINER]
"""

from collections.abc import Mapping, Sequence

from pinnace.api.core_v1_pb2 import Container, Pod
from pinnace.api.quantity import QuantityError, amount
from pinnace.api.resource_v1_pb2 import Quantity

_USAGE = "-usage"
_PREFIX = "pinnace.io/"


def declares_usage(pod: Pod) -> bool:
    """Of any resource; whether it makes sense is not looked at."""
    return any(
        key.startswith(_PREFIX) and key.removeprefix(_PREFIX).partition(".")[0].endswith(_USAGE)
        for key in pod.metadata.annotations
    )


def lasting(pod: Pod) -> Sequence[Container]:
    """The containers that run as long as the pod does: its sidecars and the main ones. Other init containers are gone soon."""
    sidecars = [each for each in pod.spec.initContainers if each.restartPolicy == "Always"]
    return [*sidecars, *pod.spec.containers]


def usage(pod: Pod, container: Container, resource: str) -> int:
    """What the container uses: millicores of cpu, bytes of the others."""
    used = declared(pod, container, resource)
    return stated(container.resources.requests, resource) if used is None else used


def declared(pod: Pod, container: Container, resource: str) -> int | None:
    """What its pod says that the container uses; None: nothing, or nothing that makes sense."""
    annotations = pod.metadata.annotations
    common = f"{_PREFIX}{resource}{_USAGE}"
    text = annotations.get(f"{common}.{container.name}", annotations.get(common, ""))
    try:
        used = amount(resource, text) if text else -1
    except QuantityError:
        return None
    return used if used >= 0 else None


def stated(amounts: Mapping[str, Quantity], resource: str) -> int:
    """Of a resource list; 0 where it says nothing."""
    return amount(resource, amounts[resource].string) if resource in amounts else 0
