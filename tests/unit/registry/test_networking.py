"""Ingresses, ingress classes and network policies."""

from typing import Any

import pytest

from pinnace.api.codec import from_dict
from pinnace.api.resources import INGRESS_CLASSES, INGRESSES, NETWORK_POLICIES
from tests.unit.registry.objects import Data, changed, created, status_changed

BACKEND: Data = {"service": {"name": "s", "port": {"number": 80}}}
PATH: Data = {"path": "/", "pathType": "Prefix", "backend": BACKEND}
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
WILDCARD = (
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case "
    "alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for "
    "validation is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


def ingress(*, annotations: dict[str, str] | None = None, **spec: Any) -> Any:
    return from_dict(INGRESSES, {"metadata": {"name": "i", "namespace": "n", "annotations": annotations or {}}, "spec": spec})


def with_path(**path: Any) -> Any:
    return ingress(rules=[{"http": {"paths": [PATH | path]}}])


def ingress_class(**spec: Any) -> Any:
    return from_dict(INGRESS_CLASSES, {"metadata": {"name": "c"}, "spec": {"controller": "acme.io/foo"} | spec})


def policy(**spec: Any) -> Any:
    return from_dict(NETWORK_POLICIES, {"metadata": {"name": "p", "namespace": "n"}, "spec": spec})


class TestIngresses:
    @pytest.mark.parametrize(
        ("obj", "expected"),
        [
            (ingress(defaultBackend=BACKEND), []),
            (ingress(), ["spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"]),
            (ingress(rules=[{"host": "*.a.example"}]), []),
            (ingress(rules=[{"host": "a.*"}]), [f'spec.rules[0].host: Invalid value: "a.*": {WILDCARD}']),
            (
                ingress(rules=[{"host": "1.2.3.4"}]),
                ['spec.rules[0].host: Invalid value: "1.2.3.4": must be a DNS name, not an IP address'],
            ),
            (ingress(rules=[{"http": {}}]), ["spec.rules[0].http.paths: Required value"]),
            (
                ingress(defaultBackend=BACKEND, tls=[{"hosts": ["A"], "secretName": "B"}], ingressClassName="C"),
                [
                    f'spec.tls[0].hosts[0]: Invalid value: "A": {SUBDOMAIN}',
                    f'spec.tls[0].secretName: Invalid value: "B": {SUBDOMAIN}',
                    f'spec.ingressClassName: Invalid value: "C": {SUBDOMAIN}',
                ],
            ),
            (
                ingress(defaultBackend=BACKEND, ingressClassName="a", annotations={"kubernetes.io/ingress.class": "b"}),
                [
                    'annotations.kubernetes.io/ingress.class: Invalid value: "b": '
                    "must match `ingressClassName` when both are specified"
                ],
            ),
        ],
    )
    def test_fields(self, obj: Any, expected: list[str]) -> None:
        assert created(INGRESSES, obj) == expected

    @pytest.mark.parametrize(
        ("path", "expected"),
        [
            ({"path": "", "pathType": "ImplementationSpecific"}, []),
            ({"path": "a", "pathType": "ImplementationSpecific"}, ['path: Invalid value: "a": must be an absolute path']),
            ({"path": "", "pathType": "Exact"}, ['path: Invalid value: "": must be an absolute path']),
            (
                {"path": "/a//b/.."},
                [
                    "path: Invalid value: \"/a//b/..\": must not contain '//'",
                    "path: Invalid value: \"/a//b/..\": cannot end with '/..'",
                ],
            ),
            (
                {"pathType": "Glob"},
                [
                    'pathType: Unsupported value: "Glob": supported values: "Exact", "ImplementationSpecific", "Prefix"',
                ],
            ),
            ({"pathType": None}, ["pathType: Required value: pathType must be specified"]),
            ({"backend": {}}, ['backend: Invalid value: "": resource or service backend is required']),
            (
                {"backend": {"service": {"name": "s"}}},
                ["backend: Required value: port name or number is required"],
            ),
            (
                {"backend": BACKEND | {"resource": {"kind": "K", "name": "n"}}},
                ['backend: Invalid value: "": cannot set both resource and service backends'],
            ),
            ({"backend": {"resource": {"kind": "K"}}}, ["backend.resource.name: Required value"]),
        ],
    )
    def test_paths(self, path: Data, expected: list[str]) -> None:
        assert created(INGRESSES, with_path(**path)) == [f"spec.rules[0].http.paths[0].{violation}" for violation in expected]

    def test_status_addresses_are_validated(self) -> None:
        old, new = with_path(), with_path()
        new.status.loadBalancer.ingress.add(ip="spoilt")
        message = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
        assert status_changed(INGRESSES, new, old) == [f'status.loadBalancer.ingress[0].ip: Invalid value: "spoilt": {message}']


class TestIngressClasses:
    @pytest.mark.parametrize(
        ("spec", "expected"),
        [
            ({}, []),
            ({"controller": ""}, ["spec.controller: Required value"]),
            (
                {"controller": "foo"},
                ['spec.controller: Invalid value: "foo": must be a domain-prefixed path (such as "acme.io/foo")'],
            ),
            ({"parameters": {"kind": "K", "name": "n"}}, []),
            (
                {"parameters": {"kind": "K", "name": "n", "scope": "Namespace"}},
                ["spec.parameters.namespace: Required value: `parameters.scope` is set to 'Namespace'"],
            ),
            (
                {"parameters": {"kind": "K", "name": "n", "namespace": "n"}},
                ["spec.parameters.namespace: Forbidden: `parameters.scope` is set to 'Cluster'"],
            ),
        ],
    )
    def test_fields(self, spec: Data, expected: list[str]) -> None:
        assert created(INGRESS_CLASSES, ingress_class(**spec)) == expected

    def test_scope_of_parameters_defaults_to_the_cluster(self) -> None:
        obj = ingress_class(parameters={"kind": "K", "name": "n"})
        created(INGRESS_CLASSES, obj)
        assert obj.spec.parameters.scope == "Cluster"

    def test_controller_is_immutable(self) -> None:
        assert changed(INGRESS_CLASSES, ingress_class(controller="acme.io/bar"), ingress_class()) == [
            'spec.controller: Invalid value: "acme.io/bar": field is immutable'
        ]


class TestNetworkPolicies:
    @pytest.mark.parametrize(
        ("spec", "types"),
        [
            ({}, ["Ingress"]),
            ({"egress": [{}]}, ["Ingress", "Egress"]),
            ({"egress": [{}], "policyTypes": ["Egress"]}, ["Egress"]),
        ],
    )
    def test_policy_types_default_to_the_rules(self, spec: Data, types: list[str]) -> None:
        obj = policy(**spec)
        assert created(NETWORK_POLICIES, obj) == []
        assert list(obj.spec.policyTypes) == types and obj.spec.HasField("podSelector")

    def test_protocol_defaults_to_tcp(self) -> None:
        obj = policy(ingress=[{"ports": [{"port": 80}]}], egress=[{"ports": [{"port": "dns"}]}])
        assert created(NETWORK_POLICIES, obj) == []
        assert obj.spec.ingress[0].ports[0].protocol == obj.spec.egress[0].ports[0].protocol == "TCP"

    @pytest.mark.parametrize(
        ("rule", "expected"),
        [
            ({"from": [{}]}, ["from[0]: Required value: must specify a peer"]),
            (
                {"from": [{"podSelector": {}, "ipBlock": {"cidr": "10.0.0.0/8"}}]},
                ["from[0]: Forbidden: may not specify both ipBlock and another peer"],
            ),
            (
                {"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.0.0/8", "11.0.0.0/16"]}}]},
                [
                    'from[0].ipBlock.except[0]: Invalid value: "10.0.0.0/8": must be a strict subset of `cidr`',
                    'from[0].ipBlock.except[1]: Invalid value: "11.0.0.0/16": must be a strict subset of `cidr`',
                ],
            ),
            (
                {"ports": [{"port": 80, "endPort": 70}]},
                ["ports[0].endPort: Invalid value: 70: must be greater than or equal to `port`"],
            ),
            (
                {"ports": [{"port": "http", "endPort": 70}]},
                ["ports[0].endPort: Invalid value: 70: may not be specified when `port` is non-numeric"],
            ),
            (
                {"ports": [{"endPort": 70}]},
                ["ports[0].endPort: Invalid value: 70: may not be specified when `port` is not specified"],
            ),
            (
                {"ports": [{"protocol": "ICMP"}]},
                ['ports[0].protocol: Unsupported value: "ICMP": supported values: "TCP", "UDP", "SCTP"'],
            ),
        ],
    )
    def test_rules(self, rule: Data, expected: list[str]) -> None:
        assert created(NETWORK_POLICIES, policy(ingress=[rule])) == [f"spec.ingress[0].{violation}" for violation in expected]
