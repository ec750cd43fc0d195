"""The endpoints of a service: its pods, and the ports that they have for it. Pure."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from controllers.podstates import ready
from pinnace.api.core_v1_pb2 import Pod, Service, ServicePort
from pinnace.api.discovery_v1_pb2 import Endpoint, EndpointPort
from pinnace.api.podstatus import ended
from pinnace.api.scalars import STRING


class Group(NamedTuple):
    """What all endpoints of a slice have in common. `ports`: serialized, in order, so that groups can be told apart."""

    address_type: str
    ports: tuple[bytes, ...]


def grouped(service: Service, pods: Iterable[Pod], zone_of: Callable[[str], str]) -> dict[Group, list[Endpoint]]:
    """`pods`: those that the service selects. `zone_of`: the zone of a node; empty: unknown."""
    groups: dict[Group, list[Endpoint]] = {}
    for pod in pods:
        if ended(pod) or not pod.status.podIP:
            continue
        group = Group("IPv6" if ":" in pod.status.podIP else "IPv4", tuple(_ports(service, pod)))
        groups.setdefault(group, []).append(endpoint(service, pod, zone_of(pod.spec.nodeName)))
    return groups


def endpoint(service: Service, pod: Pod, zone: str) -> Endpoint:
    made = Endpoint(addresses=[pod.status.podIP])
    terminating = pod.metadata.HasField("deletionTimestamp")
    made.conditions.serving = ready(pod)
    made.conditions.terminating = terminating
    made.conditions.ready = service.spec.publishNotReadyAddresses or (ready(pod) and not terminating)
    target = made.targetRef
    target.kind, target.namespace, target.name, target.uid = (
        "Pod", pod.metadata.namespace, pod.metadata.name, pod.metadata.uid,
    )  # fmt: skip
    if pod.spec.hostname and pod.spec.subdomain == service.metadata.name:
        made.hostname = pod.spec.hostname
    if pod.spec.nodeName:
        made.nodeName = pod.spec.nodeName
    if zone:
        made.zone = zone
    return made


def _ports(service: Service, pod: Pod) -> Iterable[bytes]:
    for each in service.spec.ports:
        number = _number(each, pod)
        if number is not None:
            port = EndpointPort(name=each.name, protocol=each.protocol, port=number)
            if each.HasField("appProtocol"):
                port.appProtocol = each.appProtocol
            yield port.SerializeToString(deterministic=True)


def _number(port: ServicePort, pod: Pod) -> int | None:
    """Of a port that is named, the pod's own: its containers', else its sidecars'; None: it has none of that name.

    Source: FindPort in https://github.com/kubernetes/kubernetes/blob/master/staging/src/k8s.io/endpointslice/utils.go
    """
    if port.targetPort.type != STRING:
        return port.targetPort.intVal or port.port
    sidecars = (each for each in pod.spec.initContainers if each.restartPolicy == "Always")
    found = (
        each.containerPort
        for container in (*pod.spec.containers, *sidecars)
        for each in container.ports
        if (each.name, each.protocol or "TCP") == (port.targetPort.strVal, port.protocol or "TCP")
    )
    return next(found, None)
