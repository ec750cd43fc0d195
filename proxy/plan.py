"""Computes which endpoints receive the traffic of each address of a service. Pure.

    Service + its EndpointSlices + Node --> ServiceRules: {Frontend: Rule}, health check

A service without a cluster IP, or of type ExternalName, has no rules. A frontend whose rule has no endpoints refuses
connections. A rule with the external traffic policy Local and no local endpoints also refuses them; kube-proxy drops them.

Not implemented: SCTP, loadBalancerSourceRanges.

Source: https://kubernetes.io/docs/reference/networking/virtual-ips/ and CategorizeEndpoints in
https://github.com/kubernetes/kubernetes/blob/master/pkg/proxy/topology.go
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pinnace.api.core_v1_pb2 import Service, ServicePort
from pinnace.api.discovery_v1_pb2 import Endpoint as EndpointMessage
from pinnace.api.discovery_v1_pb2 import EndpointSlice

PROXY_NAME_LABEL = "service.kubernetes.io/service-proxy-name"
"""On a Service or EndpointSlice: another proxy handles it."""
DEFAULT_AFFINITY_TIMEOUT = 10_800
"""Seconds: the default timeoutSeconds of session affinity."""
PROTOCOLS = ("TCP", "UDP")
NODE_ADDRESS = ""
"""The address of a frontend that is a node port: each address of the node that the backend selects."""


class Frontend(NamedTuple):
    """Where clients connect: an address of a service, or a node port."""

    address: str
    port: int
    protocol: str


class Endpoint(NamedTuple):
    address: str
    port: int


@dataclass(frozen=True, slots=True)
class Rule:
    """How connections to one frontend are forwarded. All endpoints have the same weight."""

    service: str
    """namespace/name:port, for logs."""
    endpoints: tuple[Endpoint, ...]
    """Sorted, without duplicates."""
    affinity: int | None = None
    """Seconds for which a client IP keeps its endpoint after its last connection. None: no session affinity."""
    masquerade: bool = False
    """The endpoint sees the address of the node instead of the client's, so that its answers return through the node. Backends
    that open a connection of their own ignore this."""


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """A health check node port: load balancers send traffic to nodes with local endpoints."""

    port: int
    local_endpoints: int


@dataclass(frozen=True, slots=True)
class ServiceRules:
    """All rules of one service."""

    rules: Mapping[Frontend, Rule] = field(default_factory=dict)
    health_check: HealthCheck | None = None


NO_RULES = ServiceRules()


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """The node of the proxy. `name` is None if the proxy serves all nodes, as on a local cluster, where one machine runs all
    of them. Then all endpoints are local. `zone` is empty if it is unknown."""

    name: str | None = None
    zone: str = ""

    def is_local(self, endpoint: "_EndpointCandidate") -> bool:
        return self.name is None or endpoint.node == self.name


def plan_rules(services: Iterable[Service], slices: Iterable[EndpointSlice], node: NodeInfo) -> dict[str, ServiceRules]:
    """Return the rules by "namespace/name" of the service. Services without rules are omitted. If two services have the same
    frontend, which the API server prevents except for externalIPs, both are returned; the backend uses the first."""
    grouped: dict[str, list[EndpointSlice]] = {}
    for slice_ in slices:
        grouped.setdefault(service_key_of_slice(slice_), []).append(slice_)
    rules_by_service = {
        service_key(service): plan_service(service, grouped.get(service_key(service), ()), node) for service in services
    }
    return {name: rules for name, rules in rules_by_service.items() if rules != NO_RULES}


def service_key(service: Service) -> str:
    return f"{service.metadata.namespace}/{service.metadata.name}"


def service_key_of_slice(each: EndpointSlice) -> str:
    """Return the "namespace/name" of the slice's service, or an empty string if it has none or another proxy handles it."""
    labels = each.metadata.labels
    name = labels.get("kubernetes.io/service-name", "")
    return f"{each.metadata.namespace}/{name}" if name and PROXY_NAME_LABEL not in labels else ""


def plan_service(service: Service, slices: Iterable[EndpointSlice], node: NodeInfo) -> ServiceRules:
    """Return the rules of one service. `slices` are its slices."""
    spec = service.spec
    if spec.clusterIP in ("", "None") or spec.type == "ExternalName" or PROXY_NAME_LABEL in service.metadata.labels:
        return NO_RULES
    slices = list(slices)
    internal_local = spec.internalTrafficPolicy == "Local"
    external_local = spec.externalTrafficPolicy == "Local" and spec.type in ("NodePort", "LoadBalancer")
    affinity = _affinity_timeout(service)
    rules: dict[Frontend, Rule] = {}
    local_endpoints = 0
    for port in spec.ports:
        protocol = port.protocol or "TCP"
        if protocol not in PROTOCOLS:
            continue
        candidates = _endpoint_candidates(slices, port)
        local = _select_endpoints(candidates, node.is_local)
        local_endpoints = max(
            local_endpoints, sum(1 for candidate in candidates if candidate.ready and node.is_local(candidate))
        )
        everywhere = _select_endpoints(candidates, _topology_filter(candidates, node))
        name = f"{service_key(service)}:{port.name}" if port.name else service_key(service)
        inside = Rule(name, local if internal_local else everywhere, affinity)
        outside = Rule(name, local if external_local else everywhere, affinity, masquerade=not external_local)
        for address in dict.fromkeys((spec.clusterIP, *spec.clusterIPs)):
            rules[Frontend(address, port.port, protocol)] = inside
        for address in (
            *spec.externalIPs,
            *(balancer_ingress.ip for balancer_ingress in service.status.loadBalancer.ingress if balancer_ingress.ip),
        ):
            rules.setdefault(Frontend(address, port.port, protocol), outside)
        if port.nodePort and spec.type in ("NodePort", "LoadBalancer"):
            rules[Frontend(NODE_ADDRESS, port.nodePort, protocol)] = outside
    check = None
    if spec.healthCheckNodePort and external_local and spec.type == "LoadBalancer":
        check = HealthCheck(spec.healthCheckNodePort, local_endpoints)
    return ServiceRules(rules, check)


def _affinity_timeout(service: Service) -> int | None:
    if service.spec.sessionAffinity != "ClientIP":
        return None
    config = service.spec.sessionAffinityConfig.clientIP
    return config.timeoutSeconds if config.HasField("timeoutSeconds") else DEFAULT_AFFINITY_TIMEOUT


@dataclass(frozen=True, slots=True)
class _EndpointCandidate:
    endpoint: Endpoint
    ready: bool
    serving: bool
    terminating: bool
    node: str
    zones: frozenset[str]
    """The zones in the hints."""
    nodes: frozenset[str]
    """The nodes in the hints."""

    @property
    def rank(self) -> tuple[bool, bool]:
        return self.ready, self.serving


def _endpoint_candidates(slices: Sequence[EndpointSlice], port: ServicePort) -> list[_EndpointCandidate]:
    """Return the endpoints of a port. An endpoint that is in two slices, as while it moves, is ready if one of them says so."""
    candidates: dict[Endpoint, _EndpointCandidate] = {}
    for slice_ in slices:
        if slice_.addressType == "FQDN":
            continue
        number = next(
            (
                one.port
                for one in slice_.ports
                if one.name == port.name and (one.protocol or "TCP") == (port.protocol or "TCP") and one.port
            ),
            None,
        )
        if number is None:
            continue
        for message in slice_.endpoints:
            if message.addresses:
                made = _build_candidate(message, number)
                if (known := candidates.get(made.endpoint)) is None or known.rank < made.rank:
                    candidates[made.endpoint] = made
    return list(candidates.values())


def _build_candidate(message: EndpointMessage, port: int) -> _EndpointCandidate:
    """An absent ready condition means ready. An absent serving condition means the value of ready."""
    conditions = message.conditions
    ready = conditions.ready if conditions.HasField("ready") else True
    return _EndpointCandidate(
        Endpoint(message.addresses[0], port),  # the addresses are interchangeable; kube-proxy uses the first, too
        ready,
        conditions.serving if conditions.HasField("serving") else ready,
        conditions.terminating,
        message.nodeName,
        frozenset(zone.name for zone in message.hints.forZones),
        frozenset(node.name for node in message.hints.forNodes),
    )


def _select_endpoints(
    candidates: Sequence[_EndpointCandidate], allowed: Callable[[_EndpointCandidate], bool]
) -> tuple[Endpoint, ...]:
    """Return the ready endpoints that are allowed. If there are none, return the serving endpoints that are terminating."""
    ready = sorted(candidate.endpoint for candidate in candidates if candidate.ready and allowed(candidate))
    if ready:
        return tuple(ready)
    return tuple(
        sorted(
            candidate.endpoint for candidate in candidates if candidate.serving and candidate.terminating and allowed(candidate)
        )
    )


def _topology_filter(candidates: Sequence[_EndpointCandidate], node: NodeInfo) -> Callable[[_EndpointCandidate], bool]:
    """Return the filter of topology hints. Hints are used only if each ready endpoint has them and one names this node or
    zone. Hints for nodes take precedence."""
    ready = [candidate for candidate in candidates if candidate.ready]
    name, zone = node.name, node.zone
    if name and all(candidate.nodes for candidate in ready) and any(name in candidate.nodes for candidate in ready):
        return lambda candidate: name in candidate.nodes or not candidate.ready
    if zone and all(candidate.zones for candidate in ready) and any(zone in candidate.zones for candidate in ready):
        return lambda candidate: zone in candidate.zones or not candidate.ready
    return lambda item: True
