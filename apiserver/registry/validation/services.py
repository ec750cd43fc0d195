"""Services: their ports, types and addresses.

Source: pkg/apis/core/validation of Kubernetes 1.36.
"""

from collections.abc import Sequence

from apiserver.registry.validation.addresses import validate_ip, validate_port, validate_port_or_name
from apiserver.registry.validation.labels import validate_labels
from apiserver.registry.validation.metadata import validate_metadata, validate_metadata_update
from apiserver.registry.validation.service_traffic import validate_traffic
from apiserver.registry.validation.violations import between, duplicate, forbidden, invalid, required, too_many, unsupported
from pinnace.api import names
from pinnace.api.core_v1_pb2 import Service, ServicePort, ServiceSpec
from pinnace.api.selectors import MAX_REQUIREMENTS
from pinnace.api.status import Violation

HEADLESS = "None"
_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_AFFINITIES = ("ClientIP", "None")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_MAX_AFFINITY_SECONDS = 86400


def validate_service(obj: Service) -> list[Violation]:
    """Everything that is wrong with a new service, after defaults."""
    out: list[Violation] = []
    validate_metadata(obj.metadata, out, namespaced=True, name_check=names.dns_1035_label)
    _validate_spec(obj.spec, out)
    return out


def validate_service_update(new: Service, old: Service) -> list[Violation]:
    """Everything that is wrong with the change, and with the service as it would be."""
    out: list[Violation] = []
    validate_metadata_update(new.metadata, old.metadata, out, namespaced=True, name_check=names.dns_1035_label)
    _validate_spec(new.spec, out)
    kept = old.spec.clusterIP and "ExternalName" not in (new.spec.type, old.spec.type)
    if kept and new.spec.clusterIP != old.spec.clusterIP:
        out.append(invalid("spec.clusterIP", new.spec.clusterIP, "may not change once set"))
    return out


def validate_service_status(obj: Service) -> list[Violation]:
    """Everything that is wrong with a new status."""
    out: list[Violation] = []
    for index, ingress in enumerate(obj.status.loadBalancer.ingress):
        path = f"status.loadBalancer.ingress[{index}]"
        if ingress.ip:
            validate_ip(ingress.ip, f"{path}.ip", out)
        if ingress.hostname:
            out.extend(invalid(f"{path}.hostname", ingress.hostname, each) for each in names.dns_subdomain(ingress.hostname))
    return out


def _validate_spec(spec: ServiceSpec, out: list[Violation]) -> None:
    _validate_type(spec, out)
    if not spec.ports and spec.clusterIP != HEADLESS and spec.type != "ExternalName":
        out.append(required("spec.ports"))
    _validate_ports(spec.ports, out)
    if len(spec.selector) > MAX_REQUIREMENTS:
        out.append(too_many("spec.selector", len(spec.selector), MAX_REQUIREMENTS))
    validate_labels(spec.selector, "spec.selector", out)
    if spec.sessionAffinity not in _AFFINITIES:
        out.append(unsupported("spec.sessionAffinity", spec.sessionAffinity, _AFFINITIES))
    elif spec.sessionAffinity == "ClientIP":
        seconds = spec.sessionAffinityConfig.clientIP.timeoutSeconds
        if not 1 <= seconds <= _MAX_AFFINITY_SECONDS:
            path = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
            out.append(invalid(path, seconds, between(1, _MAX_AFFINITY_SECONDS)))
    for index, address in enumerate(spec.externalIPs):
        validate_ip(address, f"spec.externalIPs[{index}]", out)
    validate_traffic(spec, out)


def _validate_type(spec: ServiceSpec, out: list[Violation]) -> None:
    kind, address = spec.type, spec.clusterIP
    if kind not in _TYPES:
        out.append(unsupported("spec.type", kind, _TYPES))
    if kind == "ExternalName":
        if address:
            out.append(forbidden("spec.clusterIP", "may not be set when `type` is 'ExternalName'"))
        if spec.externalName:
            problems = names.dns_subdomain(spec.externalName)
            out.extend(invalid("spec.externalName", spec.externalName, problem) for problem in problems)
        else:
            out.append(required("spec.externalName"))
    elif address == HEADLESS:
        if kind in ("NodePort", "LoadBalancer"):
            out.append(invalid("spec.clusterIP", address, f"may not be set to 'None' for {kind} services"))
    elif address:
        validate_ip(address, "spec.clusterIP", out)


def _validate_ports(ports: Sequence[ServicePort], out: list[Violation]) -> None:
    names_seen: set[str] = set()
    seen: set[tuple[str, int]] = set()
    for index, port in enumerate(ports):
        path = f"spec.ports[{index}]"
        if not port.name:
            if len(ports) > 1:
                out.append(required(f"{path}.name"))
        elif problems := names.dns_label(port.name):
            out.extend(invalid(f"{path}.name", port.name, problem) for problem in problems)
        elif port.name in names_seen:
            out.append(duplicate(f"{path}.name", port.name))
        names_seen.add(port.name)
        validate_port(port.port, f"{path}.port", out)
        if port.protocol not in _PROTOCOLS:
            out.append(unsupported(f"{path}.protocol", port.protocol, _PROTOCOLS))
        validate_port_or_name(port.targetPort, f"{path}.targetPort", out)
        if (port.protocol, port.port) in seen:
            out.append(duplicate(path, f"{port.protocol}/{port.port}"))
        seen.add((port.protocol, port.port))
