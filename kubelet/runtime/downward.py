"""Fields of the pod and resources of its containers as text: Kubernetes' downward API.

`where` describes the place of the selector in messages.
Source: https://kubernetes.io/docs/concepts/workloads/pods/downward-api/
"""

import math
import re

from pinnace.api.core_v1_pb2 import ObjectFieldSelector, Pod, ResourceFieldSelector
from pinnace.api.quantity import QuantityError, parse
from pinnace.kubelet.addresses import PodAddresses
from pinnace.kubelet.runtime.interface import UnsupportedPod

_KEYED = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")


def field_value(pod: Pod, selector: ObjectFieldSelector, addresses: PodAddresses, where: str) -> str:
    """Raises UnsupportedPod."""
    path = selector.fieldPath
    if keyed := _KEYED.fullmatch(path):
        result: str = getattr(pod.metadata, keyed[1]).get(keyed[2], "")
        return result
    simple = {
        "metadata.name": pod.metadata.name,
        "metadata.namespace": pod.metadata.namespace,
        "metadata.uid": pod.metadata.uid,
        "spec.nodeName": pod.spec.nodeName,
        "spec.serviceAccountName": pod.spec.serviceAccountName,
        "status.hostIP": addresses.host,
        "status.hostIPs": addresses.host,
        "status.podIP": addresses.pod,
        "status.podIPs": addresses.pod,
    }
    if path not in simple:
        raise UnsupportedPod(f'{where}: fieldPath "{path}" is not supported')
    return simple[path]


def resource_value(pod: Pod, container: str, selector: ResourceFieldSelector, where: str) -> str:
    """A limit or request in units of the divisor, rounded up. A missing limit is 0, because a container has no share of the
    node. `container`: the container if the selector names none. Raises UnsupportedPod.
    """
    named = selector.containerName or container
    containers = (*pod.spec.containers, *pod.spec.initContainers)
    owner = next((item for item in containers if item.name == named), None)
    kind, _, resource = selector.resource.partition(".")
    if owner is None or kind not in ("limits", "requests") or not resource:
        raise UnsupportedPod(f'{where}: resource "{selector.resource}" of container "{named}" does not exist')
    try:
        result = getattr(owner.resources, kind).get(resource)
        amount = parse(result.string if result is not None else "0")
        divisor = parse(selector.divisor.string or "1") or parse("1")
    except QuantityError as error:
        raise UnsupportedPod(f"{where}: {error}") from None
    return str(math.ceil(amount / divisor))
