"""Slices of endpoints: addresses of one type, ports with names of their own.

Source: pkg/apis/discovery/validation of Kubernetes 1.36.
"""

from collections.abc import Sequence

from apiserver.registry.strategy import Strategy
from apiserver.registry.validation.addresses import validate_ip, validate_port
from apiserver.registry.validation.labels import validate_key
from apiserver.registry.validation.violations import IMMUTABLE, duplicate, invalid, required, too_many, unsupported
from pinnace.api import names
from pinnace.api.discovery_v1_pb2 import Endpoint, EndpointPort, EndpointSlice
from pinnace.api.status import Violation

_TYPES = ("FQDN", "IPv4", "IPv6")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_MAX_ENDPOINTS, _MAX_ADDRESSES, _MAX_PORTS = 1000, 100, 20_000


class EndpointSliceStrategy(Strategy[EndpointSlice]):
    def set_defaults(self, obj: EndpointSlice) -> None:
        for port in obj.ports:
            port.protocol = port.protocol or "TCP"
            if not port.HasField("name"):
                port.name = ""

    def is_new_generation(self, new: EndpointSlice, old: EndpointSlice) -> bool:
        """There is no spec: all of it but its metadata is one, and its labels say whose endpoints these are. As in Kubernetes
        (pkg/registry/discovery/endpointslice)."""
        before, after = ((each.endpoints, each.ports, each.metadata.labels) for each in (old, new))
        return before != after

    def check(self, obj: EndpointSlice, out: list[Violation]) -> None:
        if not obj.addressType:
            out.append(required("addressType"))
        elif obj.addressType not in _TYPES:
            out.append(unsupported("addressType", obj.addressType, _TYPES))
        if len(obj.endpoints) > _MAX_ENDPOINTS:
            out.append(too_many("endpoints", len(obj.endpoints), _MAX_ENDPOINTS))
            return
        for index, endpoint in enumerate(obj.endpoints):
            _validate_endpoint(endpoint, obj.addressType, f"endpoints[{index}]", out)
        _validate_ports(obj.ports, out)

    def check_change(self, new: EndpointSlice, old: EndpointSlice, out: list[Violation]) -> None:
        if new.addressType != old.addressType:
            out.append(invalid("addressType", new.addressType, IMMUTABLE))


def _validate_endpoint(endpoint: Endpoint, kind: str, path: str, out: list[Violation]) -> None:
    if not endpoint.addresses:
        out.append(required(f"{path}.addresses", "must contain at least 1 address"))
    elif len(endpoint.addresses) > _MAX_ADDRESSES:
        out.append(too_many(f"{path}.addresses", len(endpoint.addresses), _MAX_ADDRESSES))
        return
    for index, address in enumerate(endpoint.addresses):
        _validate_address(address, kind, f"{path}.addresses[{index}]", out)
    if endpoint.HasField("nodeName"):
        problems = names.dns_subdomain(endpoint.nodeName)
        out.extend(invalid(f"{path}.nodeName", endpoint.nodeName, problem) for problem in problems)
    if endpoint.HasField("hostname"):
        problems = names.dns_label(endpoint.hostname)
        out.extend(invalid(f"{path}.hostname", endpoint.hostname, problem) for problem in problems)


def _validate_address(address: str, kind: str, path: str, out: list[Violation]) -> None:
    if kind == "FQDN":
        out.extend(invalid(path, address, problem) for problem in names.domain(address))
        return
    found: list[Violation] = []
    validate_ip(address, path, found)
    out.extend(found)
    if not found and kind in _TYPES and (":" in address) != (kind == "IPv6"):
        out.append(invalid(path, address, f"must be an {kind} address"))


def _validate_ports(ports: Sequence[EndpointPort], out: list[Violation]) -> None:
    if len(ports) > _MAX_PORTS:
        out.append(too_many("ports", len(ports), _MAX_PORTS))
        return
    taken: set[str] = set()
    for index, port in enumerate(ports):
        path = f"ports[{index}]"
        if port.name:
            out.extend(invalid(f"{path}.name", port.name, problem) for problem in names.dns_label(port.name))
        if port.name in taken:
            out.append(duplicate(f"{path}.name", port.name))
        taken.add(port.name)
        if port.protocol not in _PROTOCOLS:
            out.append(unsupported(f"{path}.protocol", port.protocol, _PROTOCOLS))
        if port.HasField("port"):
            validate_port(port.port, f"{path}.port", out)
        if port.appProtocol:
            validate_key(port.appProtocol, f"{path}.appProtocol", out)
