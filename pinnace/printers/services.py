"""The tables of services and endpoint slices.

Source: Kubernetes, pkg/printers/internalversion/printers.go.
"""

from collections.abc import Sequence

from pinnace.api.core_v1_pb2 import Service, ServicePort
from pinnace.api.discovery_v1_pb2 import EndpointSlice
from pinnace.printers.columns import NONE, Columns, format_labels, since


def service_row(service: Service, now: float) -> tuple[str, ...]:
    spec = service.spec
    return (
        service.metadata.name,
        spec.type,
        spec.clusterIP or NONE,
        external(service),
        ",".join(map(_port, spec.ports)) or NONE,
        since(service.metadata.creationTimestamp, now),
        format_labels(spec.selector) or NONE,
    )


SERVICES = Columns(
    headers=("NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "AGE"),
    wide=("SELECTOR",),
    row=service_row,
)


def external(service: Service) -> str:
    """How the service is reached from outside."""
    spec = service.spec
    match spec.type:
        case "ExternalName":
            return spec.externalName
        case "LoadBalancer":
            balanced = [ingress.ip or ingress.hostname for ingress in service.status.loadBalancer.ingress]
            return ",".join((*balanced, *spec.externalIPs)) or "<pending>"
        case _:
            return ",".join(spec.externalIPs) or NONE


def _port(port: ServicePort) -> str:
    """ "80/TCP", "80:30080/TCP"."""
    return f"{port.port}{f':{port.nodePort}' if port.nodePort else ''}/{port.protocol}"


_SHOWN = 3
UNSET = "<unset>"


def endpoint_slice_row(endpoint_slice: EndpointSlice, now: float) -> tuple[str, ...]:
    addresses = [address for endpoint in endpoint_slice.endpoints for address in endpoint.addresses]
    ports = [str(port.port) if port.HasField("port") else "*" for port in endpoint_slice.ports]
    return (
        endpoint_slice.metadata.name,
        endpoint_slice.addressType,
        some(ports),
        some(addresses),
        since(endpoint_slice.metadata.creationTimestamp, now),
    )


ENDPOINT_SLICES = Columns(
    headers=("NAME", "ADDRESSTYPE", "PORTS", "ENDPOINTS", "AGE"),
    wide=(),
    row=endpoint_slice_row,
)


def some(texts: Sequence[str]) -> str:
    """ "a,b,c + 2 more..."."""
    shown, more = ",".join(texts[:_SHOWN]) or UNSET, len(texts) - _SHOWN
    return f"{shown} + {more} more..." if more > 0 else shown
