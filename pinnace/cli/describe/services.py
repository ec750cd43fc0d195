"""Descriptions of services and endpoint slices.

Source: kubectl, pkg/describe: ServiceDescriber, EndpointSliceDescriber. Ports are shown as tables.
"""

from collections.abc import Iterable, Sequence

from pinnace.api.core_v1_pb2 import Service, ServicePort
from pinnace.api.discovery_v1_pb2 import Endpoint, EndpointPort, EndpointSlice
from pinnace.api.scalars import int_or_string
from pinnace.cli.describe.text import NONE, Fields, NotShown, Rows, Value, head, joined
from pinnace.printers.storage import UNSET, some


def describe_service(service: Service, slices: Sequence[EndpointSlice] | NotShown) -> Fields:
    """Describe a service. `slices` are its endpoint slices."""
    spec = service.spec
    fields: dict[str, Value] = {**head(service.metadata), "Selector": joined(spec.selector), "Type": spec.type}
    balanced = [ingress.ip or ingress.hostname for ingress in service.status.loadBalancer.ingress]
    told = (
        ("IP Family Policy", spec.ipFamilyPolicy),
        ("IP Families", ",".join(spec.ipFamilies)),
        ("IP", spec.clusterIP or NONE),
        ("IPs", ",".join(spec.clusterIPs)),
        ("External IPs", ",".join(spec.externalIPs)),
        ("Desired LoadBalancer IP", spec.loadBalancerIP),
        ("LoadBalancer Ingress", ", ".join(balanced)),
        ("External Name", spec.externalName),
    )
    fields |= {label: text for label, text in told if text}
    fields["Ports"] = Rows(("Name", "Port", "TargetPort", "NodePort"), [_port(port) for port in spec.ports])
    fields["Endpoints"] = slices if isinstance(slices, NotShown) else _endpoints(spec.ports, slices, ready=True)
    if not isinstance(slices, NotShown) and any(not _ready(each) for part in slices for each in part.endpoints):
        fields["Not Ready Endpoints"] = _endpoints(spec.ports, slices, ready=False)
    policies = (
        ("Session Affinity", spec.sessionAffinity),
        ("External Traffic Policy", spec.externalTrafficPolicy),
        ("Internal Traffic Policy", spec.internalTrafficPolicy),
        ("Traffic Distribution", spec.trafficDistribution),
        ("LoadBalancer Source Ranges", ",".join(spec.loadBalancerSourceRanges)),
    )
    return fields | {label: text for label, text in policies if text}


def _port(port: ServicePort) -> tuple[str, ...]:
    target = int_or_string(port.targetPort) or port.port
    node = f"{port.nodePort}/{port.protocol}" if port.nodePort else NONE
    return port.name or UNSET, f"{port.port}/{port.protocol}", f"{target}/{port.protocol}", node


def _endpoints(ports: Iterable[ServicePort], slices: Sequence[EndpointSlice], *, ready: bool) -> Rows:
    return Rows(("Port", "Addresses"), [(port.name or UNSET, _addresses(port, slices, ready=ready)) for port in ports])


def _addresses(port: ServicePort, slices: Iterable[EndpointSlice], *, ready: bool) -> str:
    """Return the addresses of the endpoints that are ready, or of those that are not."""
    reached = [
        f"[{address}]:{each.port}" if ":" in address else f"{address}:{each.port}"
        for endpoint_slice in slices
        for each in endpoint_slice.ports
        if each.name == port.name
        for endpoint in endpoint_slice.endpoints
        if _ready(endpoint) is ready
        for address in endpoint.addresses
    ]
    return some(reached) if reached else NONE


def _ready(endpoint: Endpoint) -> bool:
    """An unknown condition means ready."""
    return endpoint.conditions.ready or not endpoint.conditions.HasField("ready")


def describe_endpoint_slice(endpoint_slice: EndpointSlice) -> Fields:
    return {
        **head(endpoint_slice.metadata),
        "AddressType": endpoint_slice.addressType,
        "Ports": Rows(("Name", "Port", "Protocol"), [_slice_port(port) for port in endpoint_slice.ports]),
        "Endpoints": {str(index): _endpoint(each) for index, each in enumerate(endpoint_slice.endpoints)},
    }


def _slice_port(port: EndpointPort) -> tuple[str, str, str]:
    return port.name or UNSET, str(port.port) if port.HasField("port") else UNSET, port.protocol


def _endpoint(endpoint: Endpoint) -> Fields:
    ready = str(endpoint.conditions.ready).lower() if endpoint.conditions.HasField("ready") else UNSET
    fields: dict[str, Value] = {"Addresses": ", ".join(endpoint.addresses), "Ready": ready}
    target = endpoint.targetRef
    told = (
        ("Hostname", endpoint.hostname),
        ("TargetRef", f"{target.kind}/{target.name}" if target.name else ""),
        ("NodeName", endpoint.nodeName),
        ("Zone", endpoint.zone),
    )
    return fields | {label: text for label, text in told if text}
