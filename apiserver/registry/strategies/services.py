"""Services: names for sets of pods; their ports, types and addresses. These are kept as they come: none are allocated.

Source: pkg/apis/core/validation of Kubernetes 1.36.
"""

from collections.abc import Sequence
from typing import Literal

from apiserver.registry.strategy import StatusStrategy
from apiserver.registry.validation.addresses import (
    is_ip,
    validate_external_ip,
    validate_ip,
    validate_port,
    validate_port_or_name,
)
from apiserver.registry.validation.labels import validate_labels
from apiserver.registry.validation.service_traffic import externally_accessible, validate_traffic
from apiserver.registry.validation.violations import (
    IMMUTABLE,
    between,
    duplicate,
    forbidden,
    invalid,
    required,
    too_many,
    unsupported,
)
from pinnace.api import names
from pinnace.api.core_v1_pb2 import Service, ServicePort, ServiceSpec
from pinnace.api.intstr_v1_pb2 import IntOrString
from pinnace.api.selectors import MAX_REQUIREMENTS
from pinnace.api.status import Violation

HEADLESS = "None"
_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_AFFINITIES = ("ClientIP", "None")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
AFFINITY_SECONDS = 10800
_MAX_AFFINITY_SECONDS = 86400
_MAX_ADDRESSES = 2
"""Of a service: one for each family."""
_Field = Literal[
    "externalTrafficPolicy",
    "allocateLoadBalancerNodePorts",
    "loadBalancerClass",
    "clusterIP",
    "clusterIPs",
    "ipFamilies",
    "ipFamilyPolicy",
]
_WITH_ADDRESS = ("ClusterIP", "NodePort", "LoadBalancer")
"""Be it the address "None"."""
_WITH_NODE_PORTS = ("NodePort", "LoadBalancer")
_OF_TYPES: Sequence[tuple[Sequence[str], Sequence[_Field]]] = (
    (_WITH_ADDRESS, ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")),
    (("LoadBalancer",), ("allocateLoadBalancerNodePorts", "loadBalancerClass")),
)
"""What only services of these types may say."""


class ServiceStrategy(StatusStrategy[Service]):
    check_name = staticmethod(names.dns_label)

    def set_defaults(self, obj: Service) -> None:
        spec = obj.spec
        spec.type = spec.type or "ClusterIP"
        spec.sessionAffinity = spec.sessionAffinity or "None"
        if spec.sessionAffinity == "None":
            spec.ClearField("sessionAffinityConfig")
        if spec.sessionAffinity == "ClientIP" and not spec.sessionAffinityConfig.clientIP.HasField("timeoutSeconds"):
            spec.sessionAffinityConfig.clientIP.timeoutSeconds = AFFINITY_SECONDS
        for port in spec.ports:
            port.protocol = port.protocol or "TCP"
            if not port.HasField("targetPort") or port.targetPort == IntOrString():
                port.targetPort.intVal = port.port
                port.targetPort.SetInParent()
        if externally_accessible(spec) and not spec.externalTrafficPolicy:
            spec.externalTrafficPolicy = "Cluster"
        if spec.type != "ExternalName" and not spec.HasField("internalTrafficPolicy"):
            spec.internalTrafficPolicy = "Cluster"
        if spec.type == "LoadBalancer" and not spec.HasField("allocateLoadBalancerNodePorts"):
            spec.allocateLoadBalancerNodePorts = True

    def prepare_create(self, obj: Service) -> None:
        super().prepare_create(obj)
        _complete_addresses(obj.spec)
        obj.status.loadBalancer.SetInParent()

    def prepare_update(self, obj: Service, old: Service) -> None:
        super().prepare_update(obj, old)
        _drop_what_was_of_the_type(obj.spec, old.spec)
        _keep_address(obj.spec, old.spec)
        _complete_addresses(obj.spec)
        _keep_node_ports(obj.spec, old.spec)
        if obj.spec.type != "LoadBalancer" and obj.status.loadBalancer.ingress:
            obj.status.loadBalancer.Clear()

    def check(self, obj: Service, out: list[Violation]) -> None:
        spec = obj.spec
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
            validate_external_ip(address, f"spec.externalIPs[{index}]", out)
        validate_traffic(spec, out)

    def check_change(self, new: Service, old: Service, out: list[Violation]) -> None:
        kept = old.spec.clusterIP and "ExternalName" not in (new.spec.type, old.spec.type)
        if kept and new.spec.clusterIP != old.spec.clusterIP:
            out.append(invalid("spec.clusterIP", new.spec.clusterIP, "may not change once set"))
        balanced = new.spec.type == old.spec.type == "LoadBalancer"
        if balanced and new.spec.loadBalancerClass != old.spec.loadBalancerClass:
            out.append(invalid("spec.loadBalancerClass", new.spec.loadBalancerClass, "may not change once set"))
        checked = old.spec.healthCheckNodePort and _has_health_check(old.spec) and _has_health_check(new.spec)
        if checked and new.spec.healthCheckNodePort != old.spec.healthCheckNodePort:
            out.append(forbidden("spec.healthCheckNodePort", IMMUTABLE))

    def check_status(self, obj: Service, out: list[Violation]) -> None:
        """Of one that is no load balancer the next update of its spec would clear what is said here."""
        path, ingresses = "status.loadBalancer.ingress", obj.status.loadBalancer.ingress
        if ingresses and obj.spec.type != "LoadBalancer":
            out.append(forbidden(path, "may only be used when `spec.type` is 'LoadBalancer'"))
            return
        for index, ingress in enumerate(ingresses):
            if ingress.ip:
                validate_ip(ingress.ip, f"{path}[{index}].ip", out)
            if name := ingress.hostname:
                problems = names.dns_subdomain(name)
                if is_ip(name):
                    problems = (*problems, "must be a DNS name, not an IP address")
                out.extend(invalid(f"{path}[{index}].hostname", name, problem) for problem in problems)


def _drop_what_was_of_the_type(spec: ServiceSpec, old: ServiceSpec) -> None:
    """What the old type needed, and the new one must not say: who changes only the type need not take it away, as in Kubernetes
    (pkg/registry/core/service, dropTypeDependentFields)."""
    dropped = [field for kind, fields in _OF_TYPES if old.type in kind and spec.type not in kind for field in fields]
    if externally_accessible(old) and not externally_accessible(spec):
        dropped.append("externalTrafficPolicy")
    for field in dropped:
        if getattr(spec, field) == getattr(old, field):
            spec.ClearField(field)
    if old.type in _WITH_NODE_PORTS and spec.type not in _WITH_NODE_PORTS:
        before = {port.nodePort for port in old.ports}
        for port in spec.ports:
            if port.nodePort in before:
                port.nodePort = 0
    if _has_health_check(old) and not _has_health_check(spec) and spec.healthCheckNodePort == old.healthCheckNodePort:
        spec.healthCheckNodePort = 0


def _keep_address(spec: ServiceSpec, old: ServiceSpec) -> None:
    """Who does not name the address keeps it, while the service may have one: as in Kubernetes (patchAllocatedValues)."""
    if spec.type not in _WITH_ADDRESS or old.type not in _WITH_ADDRESS:
        return
    spec.clusterIP = spec.clusterIP or old.clusterIP
    if not spec.clusterIPs and spec.clusterIP == old.clusterIP:
        spec.clusterIPs.extend(old.clusterIPs)


def _complete_addresses(spec: ServiceSpec) -> None:
    """Who names the one address need not list it."""
    if spec.clusterIP and not spec.clusterIPs and spec.type in _WITH_ADDRESS:
        spec.clusterIPs.append(spec.clusterIP)


def _keep_node_ports(spec: ServiceSpec, old: ServiceSpec) -> None:
    """The same of each port, by its name, unless another port has taken the number over; and of the health check."""
    if spec.type in _WITH_NODE_PORTS and old.type in _WITH_NODE_PORTS:
        before = {port.name: port.nodePort for port in old.ports}
        taken = {port.nodePort for port in spec.ports}
        for port in spec.ports:
            if not port.nodePort and (kept := before.get(port.name, 0)) not in taken:
                port.nodePort = kept
    if _has_health_check(spec) and _has_health_check(old):
        spec.healthCheckNodePort = spec.healthCheckNodePort or old.healthCheckNodePort


def _has_health_check(spec: ServiceSpec) -> bool:
    return spec.type == "LoadBalancer" and spec.externalTrafficPolicy == "Local"


def _validate_type(spec: ServiceSpec, out: list[Violation]) -> None:
    kind, address = spec.type, spec.clusterIP
    if kind not in _TYPES:
        out.append(unsupported("spec.type", kind, _TYPES))
    if kind == "ExternalName":
        if address:
            out.append(forbidden("spec.clusterIP", "may not be set when `type` is 'ExternalName'"))
        if spec.externalName:
            problems = names.dns_subdomain(spec.externalName.removesuffix("."))
            out.extend(invalid("spec.externalName", spec.externalName, problem) for problem in problems)
        else:
            out.append(required("spec.externalName"))
    elif address == HEADLESS:
        if kind in ("NodePort", "LoadBalancer"):
            out.append(invalid("spec.clusterIP", address, f"may not be set to 'None' for {kind} services"))
    elif address:
        validate_ip(address, "spec.clusterIP", out)
    if kind in _WITH_ADDRESS and spec.clusterIPs:
        _validate_addresses(address, spec.clusterIPs, "spec.clusterIPs", out)


def _validate_addresses(first: str, addresses: Sequence[str], path: str, out: list[Violation]) -> None:
    """The first of them is judged by itself."""
    if not first:
        out.append(invalid(path, addresses, "must be empty when `clusterIP` is not specified"))
    elif addresses[0] != first:
        out.append(invalid(path, addresses, "first value must match `clusterIP`"))
    if HEADLESS in addresses and len(addresses) > 1:
        out.append(invalid(path, addresses, "'None' must be the first and only value"))
        return
    for index, address in enumerate(addresses[1:_MAX_ADDRESSES], 1):
        validate_ip(address, f"{path}[{index}]", out)
    if len(addresses) > _MAX_ADDRESSES:
        out.append(invalid(path, addresses, f"may only hold up to {_MAX_ADDRESSES} values"))


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
