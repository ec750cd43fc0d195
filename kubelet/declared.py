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


def declares_usage(pod: Pod, resource: str = "") -> bool:
    """`resource`: of that one; else of any."""
    begin, end = f"{_PREFIX}{resource}", f"{resource}{_USAGE}"
    return any(
        key.startswith(begin) and key.partition(".io/")[2].partition(".")[0].endswith(end) for key in pod.metadata.annotations
    )


def lasting(pod: Pod) -> Sequence[Container]:
    """The containers that run as long as the pod does: its sidecars and the main ones. Other init containers are gone soon."""
    sidecars = [each for each in pod.spec.initContainers if each.restartPolicy == "Always"]
    return [*sidecars, *pod.spec.containers]


def usage(pod: Pod, container: Container, resource: str) -> int:
    """What the container uses: millicores of cpu, bytes of the others."""
    annotations = pod.metadata.annotations
    common = f"{_PREFIX}{resource}{_USAGE}"
    text = annotations.get(f"{common}.{container.name}", annotations.get(common, ""))
    try:
        declared = amount(resource, text) if text else -1
    except QuantityError:
        declared = -1
    return declared if declared >= 0 else stated(container.resources.requests, resource)


def stated(amounts: Mapping[str, Quantity], resource: str) -> int:
    """Of a resource list; 0 where it says nothing."""
    return amount(resource, amounts[resource].string) if resource in amounts else 0
