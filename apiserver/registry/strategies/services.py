"""Strategies of services, endpoint slices, IP addresses and service CIDRs.

Cluster IPs and node ports are allocated in apiserver.registry.allocation, which also checks requested ones.

Source: pkg/apis/core/validation (ValidateService) and pkg/apis/discovery/validation of Kubernetes 1.36.
"""

from collections.abc import Sequence
from ipaddress import ip_address
from typing import Literal

from pinnace.api import names
from pinnace.api.core_v1_pb2 import Service, ServicePort, ServiceSpec
from pinnace.api.discovery_v1_pb2 import Endpoint, EndpointPort, EndpointSlice
from pinnace.api.intstr_v1_pb2 import IntOrString
from pinnace.api.networking_v1_pb2 import IPAddress, ServiceCIDR
from pinnace.api.selectors import MAX_REQUIREMENTS
from pinnace.api.status import Violation
from pinnace.apiserver.registry.strategy import StatusStrategy, Strategy
from pinnace.apiserver.registry.validation.fields import (
    IMMUTABLE,
    duplicate,
    forbidden,
    invalid,
    is_ip,
    range_message,
    required,
    too_many,
    unsupported,
    validate_external_ip,
    validate_ip,
    validate_key,
    validate_labels,
    validate_network,
    validate_port,
    validate_port_or_name,
)

HEADLESS = "None"
_SERVICE_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_AFFINITIES = ("ClientIP", "None")
_PORT_PROTOCOLS = ("SCTP", "TCP", "UDP")
AFFINITY_SECONDS = 10800
_MAX_AFFINITY_SECONDS = 86400
_MAX_ADDRESSES = 2
"""Maximum number of cluster IPs: one per IP family."""
_ServiceField = Literal[
    "externalTrafficPolicy",
    "allocateLoadBalancerNodePorts",
    "loadBalancerClass",
    "clusterIP",
    "clusterIPs",
    "ipFamilies",
    "ipFamilyPolicy",
]
_TYPES_WITH_ADDRESS = ("ClusterIP", "NodePort", "LoadBalancer")
"""Types with a cluster IP, which may be "None"."""
_TYPES_WITH_NODE_PORTS = ("NodePort", "LoadBalancer")
_FIELDS_OF_TYPES: Sequence[tuple[Sequence[str], Sequence[_ServiceField]]] = (
    (_TYPES_WITH_ADDRESS, ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")),
    (("LoadBalancer",), ("allocateLoadBalancerNodePorts", "loadBalancerClass")),
)
"""Fields by the service types that support them."""

_TRAFFIC_POLICIES = ("Cluster", "Local")
_IP_FAMILIES = ("IPv4", "IPv6")
_FAMILY_POLICIES = ("PreferDualStack", "RequireDualStack", "SingleStack")
_TRAFFIC_DISTRIBUTIONS = ("PreferClose", "PreferSameNode", "PreferSameZone")
_LOAD_BALANCER_ONLY = "may only be used when `type` is 'LoadBalancer'"

_ADDRESS_TYPES = ("FQDN", "IPv4", "IPv6")
_MAX_ENDPOINTS, _MAX_ADDRESSES_PER_ENDPOINT, _MAX_PORTS, _MAX_HINTS = 1000, 100, 20_000, 8

_CONDITION_STATUSES = ("False", "True", "Unknown")


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
        _clear_fields_of_old_type(obj.spec, old.spec)
        _keep_address(obj.spec, old.spec)
        _complete_addresses(obj.spec)
        _keep_node_ports(obj.spec, old.spec)
        if obj.spec.type != "LoadBalancer" and obj.status.loadBalancer.ingress:
            obj.status.loadBalancer.Clear()

    def check_fields(self, obj: Service, out: list[Violation]) -> None:
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
                out.append(invalid(path, seconds, range_message(1, _MAX_AFFINITY_SECONDS)))
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
        """Check the status. Only services of type LoadBalancer have one, because updates of other services clear it."""
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


def _clear_fields_of_old_type(spec: ServiceSpec, old: ServiceSpec) -> None:
    """Clear unchanged fields that the new type does not support, so that a client can change the type alone. As in Kubernetes
    (pkg/registry/core/service, dropTypeDependentFields)."""
    dropped = [field for kind, fields in _FIELDS_OF_TYPES if old.type in kind and spec.type not in kind for field in fields]
    if externally_accessible(old) and not externally_accessible(spec):
        dropped.append("externalTrafficPolicy")
    for field in dropped:
        if getattr(spec, field) == getattr(old, field):
            spec.ClearField(field)
    if old.type in _TYPES_WITH_NODE_PORTS and spec.type not in _TYPES_WITH_NODE_PORTS:
        before = {port.nodePort for port in old.ports}
        for port in spec.ports:
            if port.nodePort in before:
                port.nodePort = 0
    if _has_health_check(old) and not _has_health_check(spec) and spec.healthCheckNodePort == old.healthCheckNodePort:
        spec.healthCheckNodePort = 0


def _keep_address(spec: ServiceSpec, old: ServiceSpec) -> None:
    """Keep the cluster IPs if the update omits them, as in Kubernetes (patchAllocatedValues)."""
    if spec.type not in _TYPES_WITH_ADDRESS or old.type not in _TYPES_WITH_ADDRESS:
        return
    spec.clusterIP = spec.clusterIP or old.clusterIP
    if not spec.clusterIPs and spec.clusterIP == old.clusterIP:
        spec.clusterIPs.extend(old.clusterIPs)


def _complete_addresses(spec: ServiceSpec) -> None:
    """Set missing clusterIPs to the clusterIP."""
    if spec.clusterIP and not spec.clusterIPs and spec.type in _TYPES_WITH_ADDRESS:
        spec.clusterIPs.append(spec.clusterIP)


def _keep_node_ports(spec: ServiceSpec, old: ServiceSpec) -> None:
    """Keep node ports that the update omits, by port name, if no other port uses the number. Keep healthCheckNodePort too."""
    if spec.type in _TYPES_WITH_NODE_PORTS and old.type in _TYPES_WITH_NODE_PORTS:
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
    if kind not in _SERVICE_TYPES:
        out.append(unsupported("spec.type", kind, _SERVICE_TYPES))
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
    if kind in _TYPES_WITH_ADDRESS and spec.clusterIPs:
        _validate_addresses(address, spec.clusterIPs, "spec.clusterIPs", out)


def _validate_addresses(first: str, addresses: Sequence[str], path: str, out: list[Violation]) -> None:
    """Validate clusterIPs. The caller validates the first address itself."""
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
        if port.protocol not in _PORT_PROTOCOLS:
            out.append(unsupported(f"{path}.protocol", port.protocol, _PORT_PROTOCOLS))
        validate_port_or_name(port.targetPort, f"{path}.targetPort", out)
        if (port.protocol, port.port) in seen:
            out.append(duplicate(path, f"{port.protocol}/{port.port}"))
        seen.add((port.protocol, port.port))


def externally_accessible(spec: ServiceSpec) -> bool:
    """Return whether the service accepts traffic from outside the cluster."""
    return spec.type in ("NodePort", "LoadBalancer") or (spec.type == "ClusterIP" and bool(spec.externalIPs))


def validate_traffic(spec: ServiceSpec, out: list[Violation]) -> None:
    _validate_node_ports(spec.type, spec.ports, out)
    _validate_balancer(spec, out)
    _validate_policies(spec, out)
    _validate_families(spec, out)


def _validate_node_ports(kind: str, ports: Sequence[ServicePort], out: list[Violation]) -> None:
    seen: set[tuple[str, int]] = set()
    for index, port in enumerate(ports):
        path = f"spec.ports[{index}]"
        if port.HasField("appProtocol"):
            validate_key(port.appProtocol, f"{path}.appProtocol", out)
        if not port.nodePort:
            continue
        if kind == "ClusterIP":
            out.append(forbidden(f"{path}.nodePort", "may not be used when `type` is 'ClusterIP'"))
        validate_port(port.nodePort, f"{path}.nodePort", out)
        if (port.protocol, port.nodePort) in seen:
            out.append(duplicate(f"{path}.nodePort", port.nodePort))
        seen.add((port.protocol, port.nodePort))


def _validate_balancer(spec: ServiceSpec, out: list[Violation]) -> None:
    balanced = spec.type == "LoadBalancer"
    if spec.loadBalancerSourceRanges and not balanced:
        out.append(forbidden("spec.loadBalancerSourceRanges", _LOAD_BALANCER_ONLY))
    for index, network in enumerate(spec.loadBalancerSourceRanges):
        validate_network(network.strip(), f"spec.loadBalancerSourceRanges[{index}]", out)
    if spec.HasField("allocateLoadBalancerNodePorts") and not balanced:
        out.append(forbidden("spec.allocateLoadBalancerNodePorts", _LOAD_BALANCER_ONLY))
    if spec.HasField("loadBalancerClass"):
        if not balanced:
            out.append(forbidden("spec.loadBalancerClass", _LOAD_BALANCER_ONLY))
        validate_key(spec.loadBalancerClass, "spec.loadBalancerClass", out)
    if spec.healthCheckNodePort:
        validate_port(spec.healthCheckNodePort, "spec.healthCheckNodePort", out)
    if spec.healthCheckNodePort and not (balanced and spec.externalTrafficPolicy == "Local"):
        detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        out.append(invalid("spec.healthCheckNodePort", spec.healthCheckNodePort, detail))


def _validate_policies(spec: ServiceSpec, out: list[Violation]) -> None:
    if spec.HasField("internalTrafficPolicy") and spec.internalTrafficPolicy not in _TRAFFIC_POLICIES:
        out.append(unsupported("spec.internalTrafficPolicy", spec.internalTrafficPolicy, _TRAFFIC_POLICIES))
    if external := spec.externalTrafficPolicy:
        if not externally_accessible(spec):
            out.append(invalid("spec.externalTrafficPolicy", external, "may only be set for externally-accessible services"))
        elif external not in _TRAFFIC_POLICIES:
            out.append(unsupported("spec.externalTrafficPolicy", external, _TRAFFIC_POLICIES))
    if spec.HasField("trafficDistribution") and spec.trafficDistribution not in _TRAFFIC_DISTRIBUTIONS:
        out.append(unsupported("spec.trafficDistribution", spec.trafficDistribution, _TRAFFIC_DISTRIBUTIONS))


def _validate_families(spec: ServiceSpec, out: list[Violation]) -> None:
    if spec.type == "ExternalName":
        given = [field for field in ("clusterIPs", "ipFamilies", "ipFamilyPolicy") if getattr(spec, field)]
        out.extend(forbidden(f"spec.{field}", "may not be set for ExternalName services") for field in given)
        return
    if spec.HasField("ipFamilyPolicy") and spec.ipFamilyPolicy not in _FAMILY_POLICIES:
        out.append(unsupported("spec.ipFamilyPolicy", spec.ipFamilyPolicy, _FAMILY_POLICIES))
    seen: set[str] = set()
    for index, family in enumerate(spec.ipFamilies):
        if family not in _IP_FAMILIES:
            out.append(unsupported(f"spec.ipFamilies[{index}]", family, _IP_FAMILIES))
        elif family in seen:
            out.append(duplicate(f"spec.ipFamilies[{index}]", family))
        seen.add(family)


class EndpointSliceStrategy(Strategy[EndpointSlice]):
    has_generation = True

    def set_defaults(self, obj: EndpointSlice) -> None:
        for port in obj.ports:
            port.protocol = port.protocol or "TCP"
            if not port.HasField("name"):
                port.name = ""

    def is_new_generation(self, new: EndpointSlice, old: EndpointSlice) -> bool:
        """Return whether endpoints, ports or labels have changed. The kind has no spec. As in Kubernetes
        (pkg/registry/discovery/endpointslice)."""
        before, after = (
            (endpoint_slice.endpoints, endpoint_slice.ports, endpoint_slice.metadata.labels) for endpoint_slice in (old, new)
        )
        return before != after

    def check_fields(self, obj: EndpointSlice, out: list[Violation]) -> None:
        if not obj.addressType:
            out.append(required("addressType"))
        elif obj.addressType not in _ADDRESS_TYPES:
            out.append(unsupported("addressType", obj.addressType, _ADDRESS_TYPES))
        if len(obj.endpoints) > _MAX_ENDPOINTS:
            out.append(too_many("endpoints", len(obj.endpoints), _MAX_ENDPOINTS))
            return
        for index, endpoint in enumerate(obj.endpoints):
            _validate_endpoint(endpoint, obj.addressType, f"endpoints[{index}]", out)
        _validate_endpoint_ports(obj.ports, out)

    def check_change(self, new: EndpointSlice, old: EndpointSlice, out: list[Violation]) -> None:
        if new.addressType != old.addressType:
            out.append(invalid("addressType", new.addressType, IMMUTABLE))


def _validate_endpoint(endpoint: Endpoint, kind: str, path: str, out: list[Violation]) -> None:
    if not endpoint.addresses:
        out.append(required(f"{path}.addresses", "must contain at least 1 address"))
    elif len(endpoint.addresses) > _MAX_ADDRESSES_PER_ENDPOINT:
        out.append(too_many(f"{path}.addresses", len(endpoint.addresses), _MAX_ADDRESSES_PER_ENDPOINT))
        return
    for index, address in enumerate(endpoint.addresses):
        _validate_address(address, kind, f"{path}.addresses[{index}]", out)
    if endpoint.HasField("nodeName"):
        problems = names.dns_subdomain(endpoint.nodeName)
        out.extend(invalid(f"{path}.nodeName", endpoint.nodeName, problem) for problem in problems)
    _validate_hints([zone.name for zone in endpoint.hints.forZones], f"{path}.hints.forZones", out)
    _validate_hints([node.name for node in endpoint.hints.forNodes], f"{path}.hints.forNodes", out)
    if endpoint.HasField("hostname"):
        problems = names.dns_label(endpoint.hostname)
        out.extend(invalid(f"{path}.hostname", endpoint.hostname, problem) for problem in problems)


def _validate_hints(hinted: Sequence[str], path: str, out: list[Violation]) -> None:
    if len(hinted) > _MAX_HINTS:
        out.append(too_many(path, len(hinted), _MAX_HINTS))
        return
    for index, name in enumerate(hinted):
        if not name:
            out.append(required(f"{path}[{index}].name"))
        elif name in hinted[:index]:
            out.append(duplicate(f"{path}[{index}].name", name))


def _validate_address(address: str, kind: str, path: str, out: list[Violation]) -> None:
    if kind == "FQDN":
        out.extend(invalid(path, address, problem) for problem in names.domain(address))
        return
    endpoint_violations: list[Violation] = []
    validate_ip(address, path, endpoint_violations)
    out.extend(endpoint_violations)
    if not endpoint_violations and kind in _ADDRESS_TYPES and (":" in address) != (kind == "IPv6"):
        out.append(invalid(path, address, f"must be an {kind} address"))


def _validate_endpoint_ports(ports: Sequence[EndpointPort], out: list[Violation]) -> None:
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
        if port.protocol not in _PORT_PROTOCOLS:
            out.append(unsupported(f"{path}.protocol", port.protocol, _PORT_PROTOCOLS))
        if port.HasField("port"):
            validate_port(port.port, f"{path}.port", out)
        if port.appProtocol:
            validate_key(port.appProtocol, f"{path}.appProtocol", out)


class IPAddressStrategy(Strategy[IPAddress]):
    """The API server itself writes the addresses of services (pinnace.apiserver.registry.allocation). A client can reserve
    others."""

    @staticmethod
    def check_name(name: str) -> Sequence[str]:  # type: ignore[override]  # the base has a replaceable attribute
        if not is_ip(name):
            return ("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",)
        return () if (canonical := str(ip_address(name))) == name else (f'must be in canonical form ("{canonical}")',)

    def check_fields(self, obj: IPAddress, out: list[Violation]) -> None:
        parent = obj.spec.parentRef
        if not obj.spec.HasField("parentRef"):
            out.append(required("spec.parentRef"))
            return
        if not parent.resource:
            out.append(required("spec.parentRef.resource"))
        if not parent.name:
            out.append(required("spec.parentRef.name"))
        for field in ("group", "resource", "namespace", "name"):
            if value := getattr(parent, field):
                problems = names.dns_subdomain(value)
                out.extend(invalid(f"spec.parentRef.{field}", value, problem) for problem in problems)

    def check_change(self, new: IPAddress, old: IPAddress, out: list[Violation]) -> None:
        if new.spec.parentRef != old.spec.parentRef:
            out.append(invalid("spec.parentRef", new.spec.parentRef.name, IMMUTABLE))


class ServiceCIDRStrategy(StatusStrategy[ServiceCIDR]):
    def check_fields(self, obj: ServiceCIDR, out: list[Violation]) -> None:
        networks = obj.spec.cidrs
        if not networks:
            out.append(required("spec.cidrs", "at least one CIDR required"))
        elif len(networks) > _MAX_ADDRESSES:
            out.append(invalid("spec.cidrs", list(networks), "may only hold up to 2 values"))
            return
        families = [validate_network(each, f"spec.cidrs[{index}]", out) for index, each in enumerate(networks)]
        if len(families) == _MAX_ADDRESSES and families[0] == families[1]:
            out.append(invalid("spec.cidrs", list(networks), "may specify no more than one IP for each IP family"))

    def check_change(self, new: ServiceCIDR, old: ServiceCIDR, out: list[Violation]) -> None:
        if new.spec.cidrs != old.spec.cidrs:
            out.append(invalid("spec.cidrs", list(new.spec.cidrs), IMMUTABLE))

    def check_status(self, obj: ServiceCIDR, out: list[Violation]) -> None:
        for index, condition in enumerate(obj.status.conditions):
            if not condition.type:
                out.append(required(f"status.conditions[{index}].type"))
            if condition.status not in _CONDITION_STATUSES:
                out.append(unsupported(f"status.conditions[{index}].status", condition.status, _CONDITION_STATUSES))
