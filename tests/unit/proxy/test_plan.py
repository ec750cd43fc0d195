from typing import Any

import pytest

from pinnace.proxy.plan import NO_RULES, NODE_ADDRESS, Endpoint, Frontend, HealthCheck, NodeInfo, plan_rules, plan_service
from tests.unit.proxy.objects import make_service, make_slice

READY = {"ready": True, "serving": True}
UNREADY = {"ready": False, "serving": False}
LEAVING = {"ready": False, "serving": True, "terminating": True}
NODE = NodeInfo("n1", "a")


CLUSTER_IP = Frontend("127.250.0.1", 80, "TCP")


def addresses(service: Any, *slices: Any, node: NodeInfo = NODE, at: Frontend = CLUSTER_IP) -> list[str]:
    rule = plan_service(service, slices, node).rules[at]
    return [endpoint.address for endpoint in rule.endpoints]


@pytest.mark.parametrize(
    ("endpoints", "expected"),
    [
        ([], []),
        ([{"ip": "1"}], ["1"]),  # absent conditions mean ready
        ([{"ip": "1", **READY}, {"ip": "2", **UNREADY}], ["1"]),
        ([{"ip": "1", **READY}, {"ip": "2", **LEAVING}], ["1"]),
        ([{"ip": "1", **UNREADY}, {"ip": "2", **LEAVING}], ["2"]),
        ([{"ip": "1", "ready": False, "serving": False, "terminating": True}], []),
        ([{"ip": "1", **UNREADY}], []),
    ],
)
def test_serving_terminating_endpoints_are_used_without_ready_ones(
    endpoints: list[dict[str, Any]], expected: list[str]
) -> None:
    assert addresses(make_service(), make_slice(*endpoints)) == expected


def test_endpoint_in_two_slices_is_used_once_and_ready_wins() -> None:
    one, two = make_slice({"ip": "1", **UNREADY}), make_slice({"ip": "1", **READY}, name="web-2")
    assert addresses(make_service(), one, two) == addresses(make_service(), two, one) == ["1"]


@pytest.mark.parametrize(
    "service",
    [
        make_service(clusterIP="None"),
        make_service(clusterIP=""),
        make_service(type="ExternalName", externalName="example.org"),
    ],
)
def test_services_without_address_have_no_rules(service: Any) -> None:
    assert plan_service(service, [make_slice({"ip": "1"})], NODE) == NO_RULES
    assert plan_rules([service], [make_slice({"ip": "1"})], NODE) == {}


def test_other_proxy_handles_labelled_services_and_slices() -> None:
    service, of_slice = make_service(), make_slice({"ip": "1"})
    of_slice.metadata.labels["service.kubernetes.io/service-proxy-name"] = "other"
    assert plan_rules([service], [of_slice], NODE)["default/web"].rules[CLUSTER_IP].endpoints == ()
    service.metadata.labels["service.kubernetes.io/service-proxy-name"] = "other"
    assert plan_rules([service], [make_slice({"ip": "1"})], NODE) == {}


def test_ports_match_by_name_and_protocol() -> None:
    service = make_service(
        ports=[
            {"name": "web", "port": 80},
            {"name": "dns", "port": 53, "protocol": "UDP"},
            {"name": "s", "port": 1, "protocol": "SCTP"},
        ]
    )
    slices = [
        make_slice({"ip": "1"}, ports=[{"name": "web", "port": 8080, "protocol": "TCP"}]),
        make_slice({"ip": "2"}, name="b", ports=[{"name": "dns", "port": 5353, "protocol": "UDP"}]),
        make_slice({"ip": "3"}, name="c", ports=[{"name": "dns", "port": 5353, "protocol": "TCP"}]),
    ]
    rules = plan_service(service, slices, NODE).rules
    assert rules[CLUSTER_IP].endpoints == (Endpoint("1", 8080),)
    assert rules[Frontend("127.250.0.1", 53, "UDP")].endpoints == (Endpoint("2", 5353),)
    assert len(rules) == 2
    assert rules[CLUSTER_IP].service == "default/web:web"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, None),
        ({"sessionAffinity": "None"}, None),
        ({"sessionAffinity": "ClientIP"}, 10_800),
        ({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}}, 60),
    ],
)
def test_session_affinity_has_its_timeout(spec: dict[str, Any], expected: int | None) -> None:
    rules = plan_service(make_service(**spec), [make_slice({"ip": "1"})], NODE).rules
    assert rules[CLUSTER_IP].affinity == expected


LOCAL_AND_REMOTE = make_slice({"ip": "1", "nodeName": "n1", **READY}, {"ip": "2", "nodeName": "n2", **READY})
NODE_PORT = Frontend(NODE_ADDRESS, 30080, "TCP")


def test_internal_policy_local_affects_the_cluster_ip_only() -> None:
    service = make_service(type="NodePort", internalTrafficPolicy="Local", ports=[{"port": 80, "nodePort": 30080}])
    assert addresses(service, LOCAL_AND_REMOTE) == ["1"]
    assert addresses(service, LOCAL_AND_REMOTE, at=NODE_PORT) == ["1", "2"]


def test_external_policy_local_affects_node_ports_only() -> None:
    service = make_service(type="NodePort", externalTrafficPolicy="Local", ports=[{"port": 80, "nodePort": 30080}])
    assert addresses(service, LOCAL_AND_REMOTE) == ["1", "2"]
    assert addresses(service, LOCAL_AND_REMOTE, at=NODE_PORT) == ["1"]
    assert addresses(service, LOCAL_AND_REMOTE, at=NODE_PORT, node=NodeInfo("n3")) == []
    assert addresses(service, LOCAL_AND_REMOTE, at=NODE_PORT, node=NodeInfo()) == ["1", "2"]


@pytest.mark.parametrize(("policy", "masquerade"), [("Cluster", True), ("Local", False)])
def test_external_policy_local_preserves_the_client_address(policy: str, masquerade: bool) -> None:
    service = make_service(type="NodePort", externalTrafficPolicy=policy, ports=[{"port": 80, "nodePort": 30080}])
    rules = plan_service(service, [LOCAL_AND_REMOTE], NODE).rules
    assert rules[NODE_PORT].masquerade is masquerade
    assert not rules[CLUSTER_IP].masquerade


def test_policy_local_uses_local_terminating_endpoints_before_remote_ready_ones() -> None:
    service = make_service(internalTrafficPolicy="Local")
    slices = make_slice({"ip": "1", "nodeName": "n1", **LEAVING}, {"ip": "2", "nodeName": "n2", **READY})
    assert addresses(service, slices) == ["1"]


def test_cluster_ip_services_ignore_node_ports() -> None:
    service = make_service(ports=[{"port": 80, "nodePort": 30080}])
    assert NODE_PORT not in plan_service(service, [LOCAL_AND_REMOTE], NODE).rules


def test_external_addresses_and_load_balancers_have_rules() -> None:
    service = make_service(type="LoadBalancer", externalIPs=["192.0.2.1"], clusterIPs=["127.250.0.1", "fd00::1"])
    service.status.loadBalancer.ingress.add(ip="192.0.2.2")
    result = {rule.address for rule in plan_service(service, [LOCAL_AND_REMOTE], NODE).rules}
    assert result == {"127.250.0.1", "fd00::1", "192.0.2.1", "192.0.2.2"}


@pytest.mark.parametrize(("policy", "expected"), [("Local", HealthCheck(32000, 1)), ("Cluster", None)])
def test_health_check_node_port_counts_local_endpoints(policy: str, expected: HealthCheck | None) -> None:
    service = make_service(type="LoadBalancer", externalTrafficPolicy=policy, healthCheckNodePort=32000)
    assert plan_service(service, [LOCAL_AND_REMOTE], NODE).health_check == expected


def hinted(ip: str, *zones: str, nodes: tuple[str, ...] = (), **conditions: bool) -> dict[str, Any]:
    hints = {"forZones": [{"name": zone} for zone in zones], "forNodes": [{"name": node} for node in nodes]}
    return {"ip": ip, "hints": hints, **(conditions or READY)}


@pytest.mark.parametrize(
    ("endpoints", "node", "expected"),
    [
        ([hinted("1", "a"), hinted("2", "b")], NODE, ["1"]),
        ([hinted("1", "a"), hinted("2", "b")], NodeInfo("n1", "c"), ["1", "2"]),  # no endpoint for the zone
        ([hinted("1", "a"), hinted("2", "b")], NodeInfo("n1"), ["1", "2"]),  # the zone is unknown
        ([hinted("1", "a"), {"ip": "2", **READY}], NODE, ["1", "2"]),  # an endpoint has no hints
        ([hinted("1", "a"), {"ip": "2", **UNREADY}], NODE, ["1"]),
        ([hinted("1", "a", nodes=("n2",)), hinted("2", "b", nodes=("n1",))], NODE, ["2"]),  # nodes take precedence
    ],
)
def test_topology_hints_restrict_endpoints_to_the_zone_or_node(
    endpoints: list[dict[str, Any]], node: NodeInfo, expected: list[str]
) -> None:
    assert addresses(make_service(), make_slice(*endpoints), node=node) == expected
