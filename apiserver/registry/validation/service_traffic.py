"""Services: how traffic comes to them. Nothing here routes any; what could never work is refused all the same.

Source: ValidateService in pkg/apis/core/validation of Kubernetes 1.36. Left out are the ranges of node ports, and which
addresses and families belong together.
"""

from collections.abc import Sequence

from apiserver.registry.validation.addresses import validate_network, validate_port
from apiserver.registry.validation.labels import validate_key
from apiserver.registry.validation.violations import duplicate, forbidden, invalid, unsupported
from pinnace.api.core_v1_pb2 import ServicePort, ServiceSpec
from pinnace.api.status import Violation

_POLICIES = ("Cluster", "Local")
_FAMILIES = ("IPv4", "IPv6")
_FAMILY_POLICIES = ("PreferDualStack", "RequireDualStack", "SingleStack")
_DISTRIBUTIONS = ("PreferClose", "PreferSameNode", "PreferSameZone")
_BALANCED_ONLY = "may only be used when `type` is 'LoadBalancer'"


def externally_accessible(spec: ServiceSpec) -> bool:
    """Does traffic come to it from outside of the cluster?"""
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
        out.append(forbidden("spec.loadBalancerSourceRanges", _BALANCED_ONLY))
    for index, network in enumerate(spec.loadBalancerSourceRanges):
        validate_network(network.strip(), f"spec.loadBalancerSourceRanges[{index}]", out)
    if spec.HasField("allocateLoadBalancerNodePorts") and not balanced:
        out.append(forbidden("spec.allocateLoadBalancerNodePorts", _BALANCED_ONLY))
    if spec.HasField("loadBalancerClass"):
        if not balanced:
            out.append(forbidden("spec.loadBalancerClass", _BALANCED_ONLY))
        validate_key(spec.loadBalancerClass, "spec.loadBalancerClass", out)
    if spec.healthCheckNodePort:
        validate_port(spec.healthCheckNodePort, "spec.healthCheckNodePort", out)
    if spec.healthCheckNodePort and not (balanced and spec.externalTrafficPolicy == "Local"):
        detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        out.append(invalid("spec.healthCheckNodePort", spec.healthCheckNodePort, detail))


def _validate_policies(spec: ServiceSpec, out: list[Violation]) -> None:
    if spec.HasField("internalTrafficPolicy") and spec.internalTrafficPolicy not in _POLICIES:
        out.append(unsupported("spec.internalTrafficPolicy", spec.internalTrafficPolicy, _POLICIES))
    if external := spec.externalTrafficPolicy:
        if not externally_accessible(spec):
            out.append(invalid("spec.externalTrafficPolicy", external, "may only be set for externally-accessible services"))
        elif external not in _POLICIES:
            out.append(unsupported("spec.externalTrafficPolicy", external, _POLICIES))
    if spec.HasField("trafficDistribution") and spec.trafficDistribution not in _DISTRIBUTIONS:
        out.append(unsupported("spec.trafficDistribution", spec.trafficDistribution, _DISTRIBUTIONS))


def _validate_families(spec: ServiceSpec, out: list[Violation]) -> None:
    if spec.type == "ExternalName":
        given = [field for field in ("clusterIPs", "ipFamilies", "ipFamilyPolicy") if getattr(spec, field)]
        out.extend(forbidden(f"spec.{field}", "may not be set for ExternalName services") for field in given)
        return
    if spec.HasField("ipFamilyPolicy") and spec.ipFamilyPolicy not in _FAMILY_POLICIES:
        out.append(unsupported("spec.ipFamilyPolicy", spec.ipFamilyPolicy, _FAMILY_POLICIES))
    seen: set[str] = set()
    for index, family in enumerate(spec.ipFamilies):
        if family not in _FAMILIES:
            out.append(unsupported(f"spec.ipFamilies[{index}]", family, _FAMILIES))
        elif family in seen:
            out.append(duplicate(f"spec.ipFamilies[{index}]", family))
        seen.add(family)
