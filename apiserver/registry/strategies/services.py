"""Services: names for sets of pods. Addresses are kept as they come: none are allocated."""

from collections.abc import Sequence
from typing import Literal

from apiserver.registry.strategy import StatusStrategy, carry_over
from apiserver.registry.validation.services import validate_service, validate_service_status, validate_service_update
from pinnace.api.core_v1_pb2 import Service, ServiceSpec
from pinnace.api.intstr_v1_pb2 import IntOrString
from pinnace.api.status import Violation

AFFINITY_SECONDS = 10800
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
    (_WITH_NODE_PORTS, ("externalTrafficPolicy",)),
    (("LoadBalancer",), ("allocateLoadBalancerNodePorts", "loadBalancerClass")),
)
"""What only services of these types may say."""


class ServiceStrategy(StatusStrategy[Service]):
    def prepare_create(self, obj: Service) -> None:
        _set_defaults(obj)
        obj.ClearField("status")
        obj.status.loadBalancer.SetInParent()

    def validate(self, obj: Service) -> list[Violation]:
        return validate_service(obj)

    def prepare_update(self, obj: Service, old: Service) -> None:
        _set_defaults(obj)
        _drop_what_was_of_the_type(obj.spec, old.spec)
        _keep_address(obj.spec, old.spec)
        _keep_node_ports(obj.spec, old.spec)
        carry_over(obj, old, "status")

    def validate_update(self, obj: Service, old: Service) -> list[Violation]:
        return validate_service_update(obj, old)

    def prepare_status_update(self, obj: Service, old: Service) -> None:
        carry_over(obj, old, "metadata", "spec")

    def validate_status_update(self, obj: Service, old: Service) -> list[Violation]:
        return validate_service_status(obj)


def _drop_what_was_of_the_type(spec: ServiceSpec, old: ServiceSpec) -> None:
    """What the old type needed, and the new one must not say: who changes only the type need not take it away, as in Kubernetes
    (pkg/registry/core/service, dropTypeDependentFields)."""
    dropped = [field for kind, fields in _OF_TYPES if old.type in kind and spec.type not in kind for field in fields]
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


def _set_defaults(service: Service) -> None:
    spec = service.spec
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
    if spec.type in _WITH_NODE_PORTS and not spec.externalTrafficPolicy:
        spec.externalTrafficPolicy = "Cluster"
    if spec.type != "ExternalName" and not spec.HasField("internalTrafficPolicy"):
        spec.internalTrafficPolicy = "Cluster"
    if spec.type == "LoadBalancer" and not spec.HasField("allocateLoadBalancerNodePorts"):
        spec.allocateLoadBalancerNodePorts = True
