"""The strategy of Endpoints, which list the addresses of services for clients that do not read EndpointSlices.

Source: ValidateEndpoints in pkg/apis/core/validation/validation.go of Kubernetes 1.36. Unlike there, an address may be in the
loopback range, as in EndpointSlices: processes have such addresses.
"""

from pinnace.api import names
from pinnace.api.core_v1_pb2 import EndpointAddress, EndpointPort, Endpoints
from pinnace.api.status import Violation
from pinnace.apiserver.registry.strategy import Strategy
from pinnace.apiserver.registry.validation.fields import (
    invalid,
    required,
    too_many,
    unsupported,
    validate_ip,
    validate_key,
    validate_port,
)

MAX_SUBSETS = 1000
"""Maximum number of subsets, of addresses of a subset, and of its ports. Kubernetes limits only the objects of its own
controller."""
_PROTOCOLS = ("SCTP", "TCP", "UDP")


class EndpointsStrategy(Strategy[Endpoints]):
    check_name = staticmethod(names.dns_subdomain)

    def set_defaults(self, obj: Endpoints) -> None:
        for subset in obj.subsets:
            for port in subset.ports:
                port.protocol = port.protocol or "TCP"

    def check_fields(self, obj: Endpoints, out: list[Violation]) -> None:
        if len(obj.subsets) > MAX_SUBSETS:
            out.append(too_many("subsets", len(obj.subsets), MAX_SUBSETS))
            return
        for index, subset in enumerate(obj.subsets):
            path = f"subsets[{index}]"
            if not subset.addresses and not subset.notReadyAddresses:
                out.append(required(path, "must specify `addresses` or `notReadyAddresses`"))
            for field in ("addresses", "notReadyAddresses", "ports"):
                if len(items := getattr(subset, field)) > MAX_SUBSETS:
                    out.append(too_many(f"{path}.{field}", len(items), MAX_SUBSETS))
                    return
            for field in ("addresses", "notReadyAddresses"):
                for number, address in enumerate(getattr(subset, field)):
                    _validate_address(address, f"{path}.{field}[{number}]", out)
            for number, port in enumerate(subset.ports):
                _validate_port(port, len(subset.ports) > 1, f"{path}.ports[{number}]", out)


def _validate_address(address: EndpointAddress, path: str, out: list[Violation]) -> None:
    validate_ip(address.ip, f"{path}.ip", out)
    if address.hostname:
        problems = names.dns_label(address.hostname)
        out.extend(invalid(f"{path}.hostname", address.hostname, problem) for problem in problems)
    if address.HasField("nodeName"):
        problems = names.dns_subdomain(address.nodeName)
        out.extend(invalid(f"{path}.nodeName", address.nodeName, problem) for problem in problems)


def _validate_port(port: EndpointPort, needs_name: bool, path: str, out: list[Violation]) -> None:
    if port.name:
        out.extend(invalid(f"{path}.name", port.name, problem) for problem in names.dns_label(port.name))
    elif needs_name:
        out.append(required(f"{path}.name"))
    validate_port(port.port, f"{path}.port", out)
    if not port.protocol:
        out.append(required(f"{path}.protocol"))
    elif port.protocol not in _PROTOCOLS:
        out.append(unsupported(f"{path}.protocol", port.protocol, _PROTOCOLS))
    if port.HasField("appProtocol"):
        validate_key(port.appProtocol, f"{path}.appProtocol", out)
