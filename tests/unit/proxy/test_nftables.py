"""The commands for nft. tests/integration/test_nftables.py runs them."""

from collections import Counter

from pinnace.proxy.nftables import ServiceObjects, base_commands, build_service_objects, build_transaction
from pinnace.proxy.plan import NODE_ADDRESS, Endpoint, Frontend, Rule, ServiceRules

WEB = Frontend("10.96.0.1", 80, "TCP")
ENDPOINTS = tuple(Endpoint(f"10.0.0.{item}", 8080) for item in (1, 2, 3))


def of(*endpoints: Endpoint, affinity: int | None = None, frontend: Frontend = WEB) -> ServiceObjects:
    return build_service_objects("default/web", ServiceRules({frontend: Rule("default/web", endpoints, affinity)}), 4)


def test_unchanged_rules_need_no_command() -> None:
    assert build_transaction(4, [(of(*ENDPOINTS), of(*ENDPOINTS))], Counter(of(*ENDPOINTS).hairpins)) == []


def test_changed_endpoint_replaces_the_rule_and_keeps_the_element() -> None:
    old, new = of(*ENDPOINTS[:2]), of(*ENDPOINTS[1:])
    commands = build_transaction(4, [(old, new)], Counter(old.hairpins))
    assert [command.split()[0:2] for command in commands] == [
        ["flush", "chain"],
        ["add", "rule"],
        ["delete", "element"],
        ["add", "element"],
    ]
    assert "mod 2 map { 0 : 10.0.0.2 . 8080, 1 : 10.0.0.3 . 8080 }" in commands[1]
    assert "hairpin { 10.0.0.1 . 10.0.0.1 }" in commands[2]


def test_hairpin_elements_of_two_services_stay_until_both_are_gone() -> None:
    counts: Counter[str] = Counter()
    one, nothing = of(ENDPOINTS[0]), ServiceObjects()
    other = build_service_objects("default/b", ServiceRules({Frontend("10.96.0.2", 80, "TCP"): Rule("b", ENDPOINTS[:1])}), 4)
    build_transaction(4, [(nothing, one), (nothing, other)], counts)
    assert not any("hairpin" in item for item in build_transaction(4, [(one, nothing)], counts))
    assert any("delete element ip pinnace-proxy hairpin" in item for item in build_transaction(4, [(other, nothing)], counts))


def test_frontends_without_endpoints_are_rejected() -> None:
    assert of().elements == {("no-endpoint-services", "10.96.0.1 . tcp . 80"): "goto reject-packet"}
    port = Frontend(NODE_ADDRESS, 30080, "UDP")
    assert of(frontend=port).elements == {("no-endpoint-nodeports", "udp . 30080"): "goto reject-packet"}


def test_affinity_remembers_clients_in_a_set_for_each_endpoint() -> None:
    result = of(*ENDPOINTS, affinity=60)
    assert len(result.sets) == 3 and all("timeout 60s" in elements for elements in result.sets.values())
    assert of(*ENDPOINTS, affinity=90).sets.keys().isdisjoint(result.sets)


def test_addresses_of_the_other_ip_version_are_left_out() -> None:
    assert (
        build_service_objects("default/web", ServiceRules({Frontend("fd00::1", 80, "TCP"): Rule("web", ENDPOINTS)}), 4)
        == ServiceObjects()
    )


def test_node_ports_are_limited_to_given_addresses() -> None:
    assert any("ip daddr { 192.0.2.1 } meta l4proto" in item for item in base_commands(4, ["192.0.2.1"]))
    assert not any("service-nodeports" in item for item in base_commands(6, ["192.0.2.1"]) if item.startswith("add rule"))
    assert any("fib daddr type local ip daddr != 127.0.0.0/8" in item for item in base_commands(4, []))
