"""Services."""

from typing import Any

import pytest

from pinnace.api.codec import from_dict
from pinnace.api.names import _NO_LABEL, label_key
from pinnace.api.resources import SERVICES
from pinnace.apiserver.registry.strategies import STRATEGIES
from tests.unit.registry.objects import Data, changed, created, labels, status_changed

PORTS: list[Data] = [{"port": 80}]


def service(name: str = "web", **spec: Any) -> Any:
    data = {"metadata": {"name": name, "namespace": "default"}, "spec": {"ports": PORTS, "selector": {"app": "web"}} | spec}
    return from_dict(SERVICES, data)


class TestServices:
    def test_defaults(self) -> None:
        obj = service()
        assert created(SERVICES, obj) == []
        spec = obj.spec
        assert (spec.type, spec.sessionAffinity, spec.internalTrafficPolicy) == ("ClusterIP", "None", "Cluster")
        assert (spec.ports[0].protocol, spec.ports[0].targetPort.intVal) == ("TCP", 80)

    def test_client_affinity_lasts_three_hours(self) -> None:
        obj = service(sessionAffinity="ClientIP")
        assert created(SERVICES, obj) == []
        assert obj.spec.sessionAffinityConfig.clientIP.timeoutSeconds == 10800

    @pytest.mark.parametrize(
        ("spec", "expected"),
        [
            ({"ports": []}, ["spec.ports: Required value"]),
            ({"selector": labels(100)}, []),
            ({"selector": labels(101)}, ["spec.selector: Too many: 101: must have at most 100 items"]),
            ({"ports": [], "clusterIP": "None"}, []),
            ({"ports": [], "type": "ExternalName", "externalName": "db.example.com"}, []),
            ({"ports": [], "type": "ExternalName", "externalName": "db.example.com."}, []),
            ({"type": "ExternalName"}, ["spec.externalName: Required value"]),
            (
                {"type": "x"},
                [
                    'spec.type: Unsupported value: "x": supported values: "ClusterIP", "ExternalName", '
                    '"LoadBalancer", "NodePort"'
                ],
            ),
            (
                {"type": "NodePort", "clusterIP": "None"},
                ["spec.clusterIP: Invalid value: \"None\": may not be set to 'None' for NodePort services"],
            ),
            (
                {"clusterIP": "x"},
                ['spec.clusterIP: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)'],
            ),
            (
                {"sessionAffinity": "x"},
                ['spec.sessionAffinity: Unsupported value: "x": supported values: "ClientIP", "None"'],
            ),
            ({"ports": [{"port": 80}, {"port": 81, "name": "b"}]}, ["spec.ports[0].name: Required value"]),
            (
                {"ports": [{"port": 80, "name": "a"}, {"port": 80, "name": "a"}]},
                ['spec.ports[1].name: Duplicate value: "a"', 'spec.ports[1]: Duplicate value: "TCP/80"'],
            ),
            (
                {"ports": [{"port": 0, "protocol": "x", "targetPort": "web"}]},
                [
                    "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
                    'spec.ports[0].protocol: Unsupported value: "x": supported values: "SCTP", "TCP", "UDP"',
                ],
            ),
            ({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}], "externalTrafficPolicy": "Local"}, []),
            (
                {"ports": [{"port": 80, "nodePort": 30080, "appProtocol": "a b"}]},
                [
                    f'spec.ports[0].appProtocol: Invalid value: "a b": {label_key("a b")[0]}',
                    "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
                ],
            ),
            (
                {
                    "type": "NodePort",
                    "ports": [{"port": 1, "name": "a", "nodePort": 3}, {"port": 2, "name": "b", "nodePort": 3}],
                },
                ["spec.ports[1].nodePort: Duplicate value: 3"],
            ),
            (
                {"loadBalancerSourceRanges": ["x"], "loadBalancerClass": "a/b", "healthCheckNodePort": 3000},
                [
                    "spec.loadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'",
                    'spec.loadBalancerSourceRanges[0]: Invalid value: "x": must be a valid CIDR value, '
                    "(e.g. 10.9.8.0/24 or 2001:db8::/64)",
                    "spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'",
                    "spec.healthCheckNodePort: Invalid value: 3000: may only be set when `type` is 'LoadBalancer' and "
                    "`externalTrafficPolicy` is 'Local'",
                ],
            ),
            (
                {"externalTrafficPolicy": "Local", "internalTrafficPolicy": "x", "trafficDistribution": "y"},
                [
                    'spec.internalTrafficPolicy: Unsupported value: "x": supported values: "Cluster", "Local"',
                    'spec.externalTrafficPolicy: Invalid value: "Local": may only be set for externally-accessible services',
                    'spec.trafficDistribution: Unsupported value: "y": supported values: "PreferClose", "PreferSameNode", '
                    '"PreferSameZone"',
                ],
            ),
            (
                {"ipFamilies": ["IPv4", "IPv5", "IPv4"], "ipFamilyPolicy": "Both"},
                [
                    'spec.ipFamilyPolicy: Unsupported value: "Both": supported values: "PreferDualStack", '
                    '"RequireDualStack", "SingleStack"',
                    'spec.ipFamilies[1]: Unsupported value: "IPv5": supported values: "IPv4", "IPv6"',
                    'spec.ipFamilies[2]: Duplicate value: "IPv4"',
                ],
            ),
        ],
    )
    def test_spec(self, spec: Data, expected: list[str]) -> None:
        assert created(SERVICES, service(**spec)) == expected

    @pytest.mark.parametrize(
        ("first", "addresses", "expected"),
        [
            ("10.0.0.1", ["10.0.0.1", "2001:db8::1"], []),
            ("None", ["None"], []),
            ("", ["None"], ["must be empty when `clusterIP` is not specified"]),
            ("10.0.0.1", ["10.0.0.2"], ["first value must match `clusterIP`"]),
            ("None", ["None", "10.0.0.1"], ["'None' must be the first and only value"]),
            ("10.0.0.1", ["10.0.0.1", "x"], ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"]),
            ("10.0.0.1", ["10.0.0.1", "2001:db8::1", "10.0.0.2"], ["may only hold up to 2 values"]),
        ],
    )
    def test_list_of_addresses_begins_with_the_address(self, first: str, addresses: list[str], expected: list[str]) -> None:
        result = created(SERVICES, service(clusterIP=first, clusterIPs=addresses))
        assert [item.rpartition("]: ")[2].rpartition('": ')[2] for item in result] == expected

    def test_cluster_ip_sets_cluster_ips(self) -> None:
        """Whoever reads the list, as newer clients do, finds it there."""
        old = service()
        assert created(SERVICES, old) == []
        assert not old.spec.clusterIPs
        new = service(clusterIP="10.0.0.1")
        assert changed(SERVICES, new, old) == []
        headless = service(clusterIP="None")
        assert created(SERVICES, headless) == []
        assert (list(new.spec.clusterIPs), list(headless.spec.clusterIPs)) == (["10.0.0.1"], ["None"])

    @pytest.mark.parametrize(("name", "expected"), [("1a", []), ("a-", [_NO_LABEL[0]]), ("a.b", ["must not contain dots"])])
    def test_names_are_labels_which_may_begin_with_a_digit(self, name: str, expected: list[str]) -> None:
        assert created(SERVICES, service(name)) == [f'metadata.name: Invalid value: "{name}": {item}' for item in expected]

    def test_address_stays(self) -> None:
        strategy = STRATEGIES[SERVICES.plural]
        old, silent, other = service(clusterIP="10.0.0.1"), service(), service(clusterIP="10.0.0.2")
        assert created(SERVICES, old) == []
        strategy.prepare_update(silent, old)
        assert strategy.validate_update(silent, old) == []
        assert silent.spec == old.spec
        strategy.prepare_update(other, old)
        assert [str(item) for item in strategy.validate_update(other, old)] == [
            'spec.clusterIP: Invalid value: "10.0.0.2": may not change once set'
        ]

    def test_type_change_clears_fields_of_the_old_type(self) -> None:
        strategy = STRATEGIES[SERVICES.plural]
        ports: list[Data] = [{"port": 80, "nodePort": 30080}]
        old = service(type="LoadBalancer", ports=ports, externalTrafficPolicy="Local", healthCheckNodePort=3000)
        assert created(SERVICES, old) == []
        new = service()
        new.CopyFrom(old)
        new.spec.type = "ClusterIP"
        strategy.prepare_update(new, old)
        assert strategy.validate_update(new, old) == []
        plain = service()
        assert created(SERVICES, plain) == []
        assert new.spec == plain.spec

    def test_load_balancer_class_is_kept(self) -> None:
        """Another one would know nothing of what the first has set up."""
        strategy = STRATEGIES[SERVICES.plural]
        old, new = (service(type="LoadBalancer", loadBalancerClass=name) for name in ("example.com/a", "example.com/b"))
        assert created(SERVICES, old) == []
        strategy.prepare_update(new, old)
        assert [str(item) for item in strategy.validate_update(new, old)] == [
            'spec.loadBalancerClass: Invalid value: "example.com/b": may not change once set'
        ]
        new.spec.type = "NodePort"
        new.spec.ClearField("loadBalancerClass")
        strategy.prepare_update(new, old)
        assert strategy.validate_update(new, old) == []

    @pytest.mark.parametrize(
        "address", ["0.0.0.0", "::", "127.0.0.1", "::ffff:127.0.0.1", "::1", "169.254.1.1", "fe80::1", "224.0.0.1", "ff02::1"]
    )
    def test_service_cannot_claim_a_loopback_address(self, address: str) -> None:
        (result,) = created(SERVICES, service(externalIPs=["192.0.2.1", "2001:db8::1", address]))
        assert result.startswith(f'spec.externalIPs[2]: Invalid value: "{address}": may not be ')

    @pytest.mark.parametrize("number", [-1, 65536])
    def test_ports_of_nodes_are_ports(self, number: int) -> None:
        balanced: Data = {"type": "LoadBalancer", "externalTrafficPolicy": "Local"}
        assert created(SERVICES, service(**balanced, ports=[{"port": 80, "nodePort": number}], healthCheckNodePort=number)) == [
            f"spec.{field}: Invalid value: {number}: must be between 1 and 65535, inclusive"
            for field in ("ports[0].nodePort", "healthCheckNodePort")
        ]

    def test_traffic_to_external_addresses_has_a_policy_as_long_as_there_are_some(self) -> None:
        old = service(type="NodePort", externalIPs=["192.0.2.1"], externalTrafficPolicy="Local")
        assert created(SERVICES, old) == []
        inside = service(externalIPs=["192.0.2.1"], externalTrafficPolicy="Local")
        assert changed(SERVICES, inside, old) == []
        assert inside.spec.externalTrafficPolicy == "Local"
        silent = service(externalIPs=["192.0.2.1"])
        assert changed(SERVICES, silent, old) == []
        assert silent.spec.externalTrafficPolicy == "Cluster"
        alone = service(externalTrafficPolicy="Cluster")
        assert changed(SERVICES, alone, silent) == []
        assert not alone.spec.externalTrafficPolicy

    @pytest.mark.parametrize("address", ["None", "10.0.0.1"])
    def test_change_to_external_name_clears_the_cluster_ip(self, address: str) -> None:
        old = service(clusterIP=address, clusterIPs=[address], ipFamilies=["IPv4"], ipFamilyPolicy="SingleStack")
        assert created(SERVICES, old) == []
        new = service()
        new.CopyFrom(old)
        new.spec.type, new.spec.externalName = "ExternalName", "db.example.com"
        assert changed(SERVICES, new, old) == []
        assert not (new.spec.clusterIP or new.spec.clusterIPs or new.spec.ipFamilies or new.spec.ipFamilyPolicy)

    def test_alias_gets_no_address(self) -> None:
        old = service(clusterIP="10.0.0.1", clusterIPs=["10.0.0.1"])
        assert created(SERVICES, old) == []
        new = service(
            type="ExternalName",
            externalName="db.example.com",
            clusterIP="10.0.0.2",
            clusterIPs=["10.0.0.2"],
        )
        assert changed(SERVICES, new, old) == [
            "spec.clusterIP: Forbidden: may not be set when `type` is 'ExternalName'",
            "spec.clusterIPs: Forbidden: may not be set for ExternalName services",
        ]

    @pytest.mark.parametrize(("before", "after"), [("ClusterIP", "NodePort"), ("LoadBalancer", "ClusterIP")])
    def test_address_stays_with_another_type(self, before: str, after: str) -> None:
        old = service(type=before, clusterIP="10.0.0.1", clusterIPs=["10.0.0.1"])
        assert created(SERVICES, old) == []
        new = service(type=after)
        assert changed(SERVICES, new, old) == []
        assert (new.spec.clusterIP, list(new.spec.clusterIPs)) == ("10.0.0.1", ["10.0.0.1"])

    @pytest.mark.parametrize(
        ("ports", "expected"),
        [
            ([{"port": 81, "name": "a"}, {"port": 53, "name": "b", "protocol": "UDP"}], [30080, 30053]),
            ([{"port": 53, "name": "b", "protocol": "UDP"}, {"port": 80, "name": "a"}], [30053, 30080]),
            ([{"port": 80, "name": "a"}, {"port": 81, "name": "c"}], [30080, 0]),
            ([{"port": 80, "name": "a"}, {"port": 81, "name": "c", "nodePort": 30080}], [0, 30080]),
            ([{"port": 80, "name": "a", "nodePort": 30081}], [30081]),
        ],
    )
    @pytest.mark.parametrize("after", ["NodePort", "LoadBalancer"])
    def test_ports_of_nodes_stay_with_the_names_of_ports(self, after: str, ports: list[Data], expected: list[int]) -> None:
        """What a manifest does not repeat is kept, unless it gives the number to another port."""
        before: list[Data] = [
            {"port": 80, "name": "a", "nodePort": 30080},
            {"port": 53, "name": "b", "protocol": "UDP", "nodePort": 30053},
        ]
        old = service(type="NodePort", ports=before)
        assert created(SERVICES, old) == []
        new = service(type=after, ports=ports)
        assert changed(SERVICES, new, old) == []
        assert [port.nodePort for port in new.spec.ports] == expected

    def test_port_that_two_protocols_share_stays_with_both(self) -> None:
        ports: list[Data] = [{"port": 53, "name": "a"}, {"port": 53, "name": "b", "protocol": "UDP"}]
        old = service(type="NodePort", ports=[port | {"nodePort": 30053} for port in ports])
        assert created(SERVICES, old) == []
        new = service(type="NodePort", ports=ports)
        assert changed(SERVICES, new, old) == []
        assert [port.nodePort for port in new.spec.ports] == [30053, 30053]

    @pytest.mark.parametrize(
        ("policy", "asked", "expected", "violations"),
        [
            ("Local", 0, 31000, []),
            ("Local", 31000, 31000, []),
            ("Local", 31001, 31001, ["healthCheckNodePort"]),
            ("Cluster", 31000, 0, []),
            ("Cluster", 31001, 31001, ["healthCheckNodePort"]),
        ],
    )
    def test_port_of_the_health_check_goes_and_stays_with_local_traffic(
        self, policy: str, asked: int, expected: int, violations: list[str]
    ) -> None:
        old = service(type="LoadBalancer", externalTrafficPolicy="Local", healthCheckNodePort=31000)
        assert created(SERVICES, old) == []
        new = service(type="LoadBalancer", externalTrafficPolicy=policy, healthCheckNodePort=asked)
        result = changed(SERVICES, new, old)
        assert new.spec.healthCheckNodePort == expected
        assert [item.partition(":")[0] for item in result] == [f"spec.{field}" for field in violations]

    def test_health_check_without_a_port_can_get_one(self) -> None:
        """None is allocated here."""
        old = service(type="LoadBalancer", externalTrafficPolicy="Local")
        assert created(SERVICES, old) == []
        new = service(type="LoadBalancer", externalTrafficPolicy="Local", healthCheckNodePort=31000)
        assert changed(SERVICES, new, old) == []

    def test_without_affinity_there_is_nothing_to_configure(self) -> None:
        old = service(sessionAffinity="ClientIP")
        assert created(SERVICES, old) == []
        new = service()
        new.CopyFrom(old)
        new.spec.sessionAffinity = "None"
        assert changed(SERVICES, new, old) == []
        assert not new.spec.HasField("sessionAffinityConfig")

    @pytest.mark.parametrize(
        ("kind", "ingress", "expected"),
        [
            ("LoadBalancer", {"ip": "192.0.2.1"}, []),
            ("LoadBalancer", {"hostname": "lb.example.com"}, []),
            ("LoadBalancer", {"ip": "x"}, ["[0].ip"]),
            ("LoadBalancer", {"hostname": "192.0.2.1"}, ["[0].hostname"]),
            ("ClusterIP", {"ip": "192.0.2.1"}, [""]),
        ],
    )
    def test_where_a_load_balancer_is_reached(self, kind: str, ingress: Data, expected: list[str]) -> None:
        old, new = service(type=kind), service(type=kind)
        new.status.loadBalancer.ingress.add(**ingress)
        result = [item.partition(":")[0] for item in status_changed(SERVICES, new, old)]
        assert result == [f"status.loadBalancer.ingress{field}" for field in expected]

    def test_type_change_clears_load_balancer_status(self) -> None:
        old = service(type="LoadBalancer")
        assert created(SERVICES, old) == []
        old.status.loadBalancer.ingress.add(ip="192.0.2.1")
        stays, ends = service(type="LoadBalancer"), service(type="NodePort")
        assert changed(SERVICES, stays, old) == changed(SERVICES, ends, old) == []
        assert stays.status == old.status
        assert ends.status.HasField("loadBalancer") and not ends.status.loadBalancer.ingress
