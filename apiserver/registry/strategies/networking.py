"""Strategies of ingresses, ingress classes and network policies.

Nothing in the cluster enforces these objects. They are validated and stored as in Kubernetes, so that charts install and
controllers of users find them (pinnace.controllers.unenforced tells users once).

Source: pkg/apis/networking/validation and pkg/apis/networking/v1/defaults.go of Kubernetes 1.36.
"""

import ipaddress
from collections.abc import Iterable, Sequence
from itertools import chain

from pinnace.api import names
from pinnace.api.core_v1_pb2 import TypedLocalObjectReference
from pinnace.api.networking_v1_pb2 import (
    HTTPIngressPath,
    Ingress,
    IngressBackend,
    IngressClass,
    IngressClassParametersReference,
    IngressServiceBackend,
    IPBlock,
    NetworkPolicy,
    NetworkPolicyPeer,
    NetworkPolicyPort,
)
from pinnace.api.scalars import STRING
from pinnace.api.status import Violation
from pinnace.api.wellknown import INGRESS_CLASS_ANNOTATION
from pinnace.apiserver.registry.strategy import StatusStrategy, Strategy
from pinnace.apiserver.registry.validation.fields import (
    IMMUTABLE,
    forbidden,
    invalid,
    is_ip,
    required,
    too_long,
    unsupported,
    validate_domain_prefixed_path,
    validate_ip,
    validate_network,
    validate_port,
    validate_port_or_name,
    validate_selector,
)

_PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")
_FORBIDDEN_IN_PATHS = ("//", "/./", "/../", "%2f", "%2F")
_FORBIDDEN_AT_END_OF_PATHS = ("/..", "/.")
MAX_CONTROLLER_NAME = 250
_PARAMETER_SCOPES = ("Cluster", "Namespace")
_PROTOCOLS = ("TCP", "UDP", "SCTP")
_POLICY_TYPES = ("Ingress", "Egress")
_HOST_IS_IP = "must be a DNS name, not an IP address"


class IngressStrategy(StatusStrategy[Ingress]):
    has_generation = True

    def prepare_create(self, obj: Ingress) -> None:
        super().prepare_create(obj)
        obj.status.loadBalancer.SetInParent()

    def check_fields(self, obj: Ingress, out: list[Violation]) -> None:
        spec = obj.spec
        if not spec.rules and not spec.HasField("defaultBackend"):
            out.append(invalid("spec", None, "either `defaultBackend` or `rules` must be specified"))
        if spec.HasField("defaultBackend"):
            _validate_backend(spec.defaultBackend, "spec.defaultBackend", out)
        for index, rule in enumerate(spec.rules):
            path = f"spec.rules[{index}]"
            if rule.host:
                if is_ip(rule.host):
                    out.append(invalid(f"{path}.host", rule.host, _HOST_IS_IP))
                _validate_host(rule.host, f"{path}.host", out)
            if rule.ingressRuleValue.HasField("http"):
                paths = rule.ingressRuleValue.http.paths
                if not paths:
                    out.append(required(f"{path}.http.paths"))
                for number, http_path in enumerate(paths):
                    _validate_http_path(http_path, f"{path}.http.paths[{number}]", out)
        for index, tls in enumerate(spec.tls):
            for number, host in enumerate(tls.hosts):
                _validate_host(host, f"spec.tls[{index}].hosts[{number}]", out)
            if tls.secretName:
                problems = names.dns_subdomain(tls.secretName)
                out.extend(invalid(f"spec.tls[{index}].secretName", tls.secretName, problem) for problem in problems)
        if spec.HasField("ingressClassName"):
            problems = names.dns_subdomain(spec.ingressClassName)
            out.extend(invalid("spec.ingressClassName", spec.ingressClassName, problem) for problem in problems)

    def check_new(self, obj: Ingress, out: list[Violation]) -> None:
        super().check_new(obj, out)
        annotation = obj.metadata.annotations.get(INGRESS_CLASS_ANNOTATION)
        if annotation is not None and obj.spec.HasField("ingressClassName") and annotation != obj.spec.ingressClassName:
            detail = "must match `ingressClassName` when both are specified"
            out.append(invalid(f"annotations.{INGRESS_CLASS_ANNOTATION}", annotation, detail))

    def warnings(self, obj: Ingress) -> Iterable[str]:
        if INGRESS_CLASS_ANNOTATION in obj.metadata.annotations and not obj.spec.HasField("ingressClassName"):
            yield f"annotation \"{INGRESS_CLASS_ANNOTATION}\" is deprecated, please use 'spec.ingressClassName' instead"

    def check_status(self, obj: Ingress, out: list[Violation]) -> None:
        for index, address in enumerate(obj.status.loadBalancer.ingress):
            path = f"status.loadBalancer.ingress[{index}]"
            if address.ip:
                validate_ip(address.ip, f"{path}.ip", out)
            if address.hostname:
                problems = names.dns_subdomain(address.hostname)
                out.extend(invalid(f"{path}.hostname", address.hostname, problem) for problem in problems)
                if is_ip(address.hostname):
                    out.append(invalid(f"{path}.hostname", address.hostname, _HOST_IS_IP))


def _validate_host(host: str, path: str, out: list[Violation]) -> None:
    problems = names.wildcard_dns_subdomain(host) if "*" in host else names.dns_subdomain(host)
    out.extend(invalid(path, host, problem) for problem in problems)


def _validate_http_path(http_path: HTTPIngressPath, path: str, out: list[Violation]) -> None:
    text, path_type = http_path.path, http_path.pathType
    if not http_path.HasField("pathType"):
        out.append(required(f"{path}.pathType", "pathType must be specified"))
        return
    if path_type not in _PATH_TYPES:
        out.append(unsupported(f"{path}.pathType", path_type, _PATH_TYPES))
    elif not text.startswith("/") and (text or path_type != "ImplementationSpecific"):
        out.append(invalid(f"{path}.path", text, "must be an absolute path"))
    if path_type in ("Exact", "Prefix"):
        present = (sequence for sequence in _FORBIDDEN_IN_PATHS if sequence in text)
        out.extend(invalid(f"{path}.path", text, f"must not contain '{sequence}'") for sequence in present)
        ends = (suffix for suffix in _FORBIDDEN_AT_END_OF_PATHS if text.endswith(suffix))
        out.extend(invalid(f"{path}.path", text, f"cannot end with '{suffix}'") for suffix in ends)
    _validate_backend(http_path.backend, f"{path}.backend", out)


def _validate_backend(backend: IngressBackend, path: str, out: list[Violation]) -> None:
    match backend.HasField("resource"), backend.HasField("service"):
        case True, True:
            out.append(invalid(path, "", "cannot set both resource and service backends"))
        case True, False:
            _validate_reference(backend.resource, f"{path}.resource", out)
        case False, True:
            _validate_service_backend(backend.service, path, out)
        case _:
            out.append(invalid(path, "", "resource or service backend is required"))


def _validate_service_backend(service: IngressServiceBackend, path: str, out: list[Violation]) -> None:
    if not service.name:
        out.append(required(f"{path}.service.name"))
    else:
        out.extend(invalid(f"{path}.service.name", service.name, problem) for problem in names.dns_label(service.name))
    port = service.port
    if port.name and port.number:
        out.append(invalid(path, "", "cannot set both port name & port number"))
    elif port.name:
        out.extend(invalid(f"{path}.service.port.name", port.name, problem) for problem in names.port_name(port.name))
    elif port.number:
        validate_port(port.number, f"{path}.service.port.number", out)
    else:
        out.append(required(path, "port name or number is required"))


def _validate_reference(
    reference: TypedLocalObjectReference | IngressClassParametersReference, path: str, out: list[Violation]
) -> None:
    if reference.HasField("apiGroup"):
        problems = names.dns_subdomain(reference.apiGroup)
        out.extend(invalid(f"{path}.apiGroup", reference.apiGroup, problem) for problem in problems)
    for field, value in (("kind", reference.kind), ("name", reference.name)):
        if not value:
            out.append(required(f"{path}.{field}"))
        else:
            out.extend(invalid(f"{path}.{field}", value, problem) for problem in names.path_segment(value))


class IngressClassStrategy(Strategy[IngressClass]):
    has_generation = True

    def set_defaults(self, obj: IngressClass) -> None:
        if obj.spec.HasField("parameters") and not obj.spec.parameters.HasField("scope"):
            obj.spec.parameters.scope = "Cluster"

    def check_fields(self, obj: IngressClass, out: list[Violation]) -> None:
        if len(obj.spec.controller.encode()) > MAX_CONTROLLER_NAME:
            out.append(too_long("spec.controller", MAX_CONTROLLER_NAME))
        validate_domain_prefixed_path(obj.spec.controller, "spec.controller", out)
        if obj.spec.HasField("parameters"):
            _validate_parameters(obj.spec.parameters, "spec.parameters", out)

    def check_change(self, new: IngressClass, old: IngressClass, out: list[Violation]) -> None:
        if new.spec.controller != old.spec.controller:
            out.append(invalid("spec.controller", new.spec.controller, IMMUTABLE))


def _validate_parameters(parameters: IngressClassParametersReference, path: str, out: list[Violation]) -> None:
    _validate_reference(parameters, path, out)
    match parameters.scope:
        case "Namespace" if not parameters.HasField("namespace"):
            out.append(required(f"{path}.namespace", "`parameters.scope` is set to 'Namespace'"))
        case "Namespace":
            problems = names.dns_label(parameters.namespace)
            out.extend(invalid(f"{path}.namespace", parameters.namespace, problem) for problem in problems)
        case "Cluster":
            if parameters.HasField("namespace"):
                out.append(forbidden(f"{path}.namespace", "`parameters.scope` is set to 'Cluster'"))
        case scope:
            out.append(unsupported(f"{path}.scope", scope, _PARAMETER_SCOPES))


class NetworkPolicyStrategy(Strategy[NetworkPolicy]):
    has_generation = True

    def set_defaults(self, obj: NetworkPolicy) -> None:
        spec = obj.spec
        spec.podSelector.SetInParent()
        ports = [*(rule.ports for rule in spec.ingress), *(rule.ports for rule in spec.egress)]
        for port in chain.from_iterable(ports):
            if not port.HasField("protocol"):
                port.protocol = "TCP"
        if not spec.policyTypes:
            spec.policyTypes.extend(_POLICY_TYPES if spec.egress else _POLICY_TYPES[:1])

    def check_fields(self, obj: NetworkPolicy, out: list[Violation]) -> None:
        spec = obj.spec
        validate_selector(spec.podSelector, "spec.podSelector", out)
        for index, ingress in enumerate(spec.ingress):
            _validate_rule(ingress.ports, getattr(ingress, "from"), f"spec.ingress[{index}]", "from", out)
        for index, egress in enumerate(spec.egress):
            _validate_rule(egress.ports, egress.to, f"spec.egress[{index}]", "to", out)
        if len(spec.policyTypes) > len(_POLICY_TYPES):
            out.append(invalid("spec.policyTypes", list(spec.policyTypes), "may not specify more than two policyTypes"))
            return
        for index, policy_type in enumerate(spec.policyTypes):
            if policy_type not in _POLICY_TYPES:
                out.append(unsupported(f"spec.policyTypes[{index}]", policy_type, _POLICY_TYPES))


def _validate_rule(
    ports: Sequence[NetworkPolicyPort], peers: Sequence[NetworkPolicyPeer], path: str, field: str, out: list[Violation]
) -> None:
    for index, port in enumerate(ports):
        _validate_policy_port(port, f"{path}.ports[{index}]", out)
    for index, peer in enumerate(peers):
        _validate_peer(peer, f"{path}.{field}[{index}]", out)


def _validate_policy_port(port: NetworkPolicyPort, path: str, out: list[Violation]) -> None:
    if port.HasField("protocol") and port.protocol not in _PROTOCOLS:
        out.append(unsupported(f"{path}.protocol", port.protocol, _PROTOCOLS))
    ranged, end = port.HasField("endPort"), f"{path}.endPort"
    if not port.HasField("port"):
        if ranged:
            out.append(invalid(end, port.endPort, "may not be specified when `port` is not specified"))
        return
    if port.port.type == STRING and ranged:
        out.append(invalid(end, port.endPort, "may not be specified when `port` is non-numeric"))
    validate_port_or_name(port.port, f"{path}.port", out)
    if port.port.type != STRING and ranged:
        if port.endPort < port.port.intVal:
            out.append(invalid(end, port.endPort, "must be greater than or equal to `port`"))
        validate_port(port.endPort, end, out)


def _validate_peer(peer: NetworkPolicyPeer, path: str, out: list[Violation]) -> None:
    if not peer.ListFields():
        out.append(required(path, "must specify a peer"))
    if peer.HasField("podSelector"):
        validate_selector(peer.podSelector, f"{path}.podSelector", out)
    if peer.HasField("namespaceSelector"):
        validate_selector(peer.namespaceSelector, f"{path}.namespaceSelector", out)
    if peer.HasField("ipBlock"):
        _validate_block(peer.ipBlock, f"{path}.ipBlock", out)
        if peer.HasField("podSelector") or peer.HasField("namespaceSelector"):
            out.append(forbidden(path, "may not specify both ipBlock and another peer"))


def _validate_block(block: IPBlock, path: str, out: list[Violation]) -> None:
    if not block.cidr:
        out.append(required(f"{path}.cidr"))
        return
    if not validate_network(block.cidr, f"{path}.cidr", out):
        return
    network = ipaddress.ip_network(block.cidr, strict=False)
    for index, text in enumerate(getattr(block, "except")):
        where = f"{path}.except[{index}]"
        if not validate_network(text, where, out):
            continue
        part = ipaddress.ip_network(text, strict=False)
        inside = part.version == network.version and part.network_address in network
        if not inside or network.prefixlen >= part.prefixlen:
            out.append(invalid(where, text, "must be a strict subset of `cidr`"))
