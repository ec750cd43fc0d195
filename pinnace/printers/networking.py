"""The tables of services, endpoints and their slices, IP addresses, service CIDRs, ingresses and classes, network policies.

Source: Kubernetes, pkg/printers/internalversion/printers.go.
"""

from collections.abc import Sequence

from pinnace.api.core_v1_pb2 import Endpoints, Service, ServicePort
from pinnace.api.discovery_v1_pb2 import EndpointSlice
from pinnace.api.networking_v1_pb2 import Ingress, IngressClass, IPAddress, NetworkPolicy, ServiceCIDR
from pinnace.api.selectors import from_message
from pinnace.api.wellknown import DEFAULT_INGRESS_CLASS_ANNOTATION
from pinnace.printers.columns import NONE, Columns, format_age, format_labels

_SHOWN = 3
UNSET = "<unset>"


def service_row(service: Service, now: float) -> tuple[str, ...]:
    spec = service.spec
    return (
        service.metadata.name,
        spec.type,
        spec.clusterIP or NONE,
        external_addresses(service),
        ",".join(map(_format_port, spec.ports)) or NONE,
        format_age(service.metadata.creationTimestamp, now),
        format_labels(spec.selector) or NONE,
    )


SERVICES = Columns(
    headers=("NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "AGE"),
    wide=("SELECTOR",),
    row=service_row,
)


def external_addresses(service: Service) -> str:
    """The external addresses of the service."""
    spec = service.spec
    match spec.type:
        case "ExternalName":
            return spec.externalName
        case "LoadBalancer":
            balanced = [ingress.ip or ingress.hostname for ingress in service.status.loadBalancer.ingress]
            return ",".join((*balanced, *spec.externalIPs)) or "<pending>"
        case _:
            return ",".join(spec.externalIPs) or NONE


def _format_port(port: ServicePort) -> str:
    """ "80/TCP", "80:30080/TCP"."""
    return f"{port.port}{f':{port.nodePort}' if port.nodePort else ''}/{port.protocol}"


def ip_address_row(address: IPAddress, now: float) -> tuple[str, ...]:
    parent = address.spec.parentRef
    kind = f"{parent.group}.{parent.resource}" if parent.group else parent.resource
    reference = "/".join(filter(None, (kind, parent.namespace, parent.name)))
    return (address.metadata.name, reference or NONE, format_age(address.metadata.creationTimestamp, now))


IP_ADDRESSES = Columns(headers=("NAME", "PARENTREF", "AGE"), wide=(), row=ip_address_row)


def service_cidr_row(cidr: ServiceCIDR, now: float) -> tuple[str, ...]:
    return (cidr.metadata.name, ",".join(cidr.spec.cidrs), format_age(cidr.metadata.creationTimestamp, now))


SERVICE_CIDRS = Columns(headers=("NAME", "CIDRS", "AGE"), wide=(), row=service_cidr_row)


def endpoint_slice_row(endpoint_slice: EndpointSlice, now: float) -> tuple[str, ...]:
    addresses = [address for endpoint in endpoint_slice.endpoints for address in endpoint.addresses]
    ports = [str(port.port) if port.HasField("port") else "*" for port in endpoint_slice.ports]
    return (
        endpoint_slice.metadata.name,
        endpoint_slice.addressType,
        join_first(ports),
        join_first(addresses),
        format_age(endpoint_slice.metadata.creationTimestamp, now),
    )


ENDPOINT_SLICES = Columns(
    headers=("NAME", "ADDRESSTYPE", "PORTS", "ENDPOINTS", "AGE"),
    wide=(),
    row=endpoint_slice_row,
)


def endpoints_row(endpoints: Endpoints, now: float) -> tuple[str, ...]:
    texts = []
    for subset in endpoints.subsets:
        ports = [f":{port.port}" for port in subset.ports] or [""]
        texts += [
            f"[{address.ip}]{port}" if port and ":" in address.ip else f"{address.ip}{port}"
            for port in ports
            for address in subset.addresses
        ]
    metadata = endpoints.metadata
    return metadata.name, join_first(texts, "" if endpoints.subsets else NONE), format_age(metadata.creationTimestamp, now)


ENDPOINTS = Columns(headers=("NAME", "ENDPOINTS", "AGE"), wide=(), row=endpoints_row)


def join_first(texts: Sequence[str], empty: str = UNSET) -> str:
    """ "a,b,c + 2 more..."."""
    shown, more = ",".join(texts[:_SHOWN]) or empty, len(texts) - _SHOWN
    return f"{shown} + {more} more..." if more > 0 else shown


def ingress_row(ingress: Ingress, now: float) -> tuple[str, ...]:
    spec = ingress.spec
    hosts = list(dict.fromkeys(rule.host for rule in spec.rules if rule.host))
    addresses = [address.ip or address.hostname for address in ingress.status.loadBalancer.ingress]
    return (
        ingress.metadata.name,
        spec.ingressClassName if spec.HasField("ingressClassName") else NONE,
        join_first(hosts, "*"),
        ",".join(addresses),
        "80, 443" if spec.tls else "80",
        format_age(ingress.metadata.creationTimestamp, now),
    )


INGRESSES = Columns(headers=("NAME", "CLASS", "HOSTS", "ADDRESS", "PORTS", "AGE"), wide=(), row=ingress_row)


def ingress_class_row(ingress_class: IngressClass, now: float) -> tuple[str, ...]:
    metadata, spec = ingress_class.metadata, ingress_class.spec
    default = metadata.annotations.get(DEFAULT_INGRESS_CLASS_ANNOTATION) == "true"
    parameters = spec.parameters
    kind = f"{parameters.kind}.{parameters.apiGroup}" if parameters.apiGroup else parameters.kind
    return (
        f"{metadata.name} (default)" if default else metadata.name,
        spec.controller,
        f"{kind}/{parameters.name}" if spec.HasField("parameters") else NONE,
        format_age(metadata.creationTimestamp, now),
    )


INGRESS_CLASSES = Columns(headers=("NAME", "CONTROLLER", "PARAMETERS", "AGE"), wide=(), row=ingress_class_row)


def network_policy_row(policy: NetworkPolicy, now: float) -> tuple[str, ...]:
    metadata = policy.metadata
    return metadata.name, str(from_message(policy.spec.podSelector)) or NONE, format_age(metadata.creationTimestamp, now)


NETWORK_POLICIES = Columns(headers=("NAME", "POD-SELECTOR", "AGE"), wide=(), row=network_policy_row)
