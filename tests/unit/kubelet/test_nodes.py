from ipaddress import IPv4Address, IPv4Network

from kubelet.addresses import Addresses, host_ip, pod_cidr
from kubelet.eviction import Kind
from kubelet.nodes import Endpoint, Machine, needs_spec, needs_status, new_node, with_spec, with_status
from kubelet.template import template_of
from kubelet.virtualnode import VirtualNode
from pinnace.api.core_v1_pb2 import Node
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.api.wellknown import FLEET_LABEL, NOT_READY_TAINT
from tests.builders import make_node, make_pod

MACHINE = Machine({"cpu": Quantity(string="4"), "memory": Quantity(string="32Gi"), "pods": Quantity(string="110")})


def foreign() -> Node:
    """As `pinnace node add` makes one."""
    node = make_node("node-7").taint(NOT_READY_TAINT).taint("gpu", "true").label(FLEET_LABEL, "fleet").build()
    node.status.Clear()
    return node


def test_a_new_node_needs_nothing_more() -> None:
    node = new_node("node-7", "fleet", MACHINE, 5_000.0)
    assert not needs_status(node, MACHINE)
    assert not needs_spec(node, "fleet")
    assert {name: amount.string for name, amount in node.status.allocatable.items()} == {
        "cpu": "4", "memory": "32Gi", "pods": "110",
    }  # fmt: skip
    assert node.metadata.labels["kubernetes.io/hostname"] == "node-7"
    assert (node.spec.podCIDR, list(node.spec.podCIDRs)) == (pod_cidr("node-7"), [pod_cidr("node-7")])
    assert {each.type: each.address for each in node.status.addresses} == {
        "InternalIP": host_ip("node-7"), "Hostname": "node-7",
    }  # fmt: skip


def test_an_adopted_node_becomes_ready_and_is_then_freed_of_its_taint() -> None:
    node = foreign()
    assert needs_status(node, MACHINE)
    ready = with_status(node, MACHINE, 5_000.0)
    assert not needs_status(ready, MACHINE)
    assert needs_spec(ready, "fleet")
    free = with_spec(ready, "fleet", MACHINE)
    assert not needs_spec(free, "fleet")
    assert [taint.key for taint in free.spec.taints] == ["gpu"]
    assert needs_status(node, MACHINE), "the original is left alone"


def test_what_a_node_has_already_is_kept() -> None:
    node = make_node("node-7").capacity(cpu="64", pods=5).allocatable(cpu="60").build()
    status = with_status(node, MACHINE, 5_000.0).status
    assert status.capacity["cpu"].string == "64"
    assert status.allocatable["cpu"].string == "60"
    assert "memory" not in status.capacity

    node.spec.podCIDR = "10.99.0.0/24"
    assert with_spec(node, "fleet", MACHINE).spec.podCIDR == "10.99.0.0/24"


def test_a_node_that_takes_many_pods_has_an_address_for_each() -> None:
    """Its own, and those of one from `pinnace node add`."""
    many = MACHINE._replace(capacity=MACHINE.capacity | {"pods": Quantity(string="500")})
    added = with_spec(with_status(make_node("node-7").capacity(cpu=4, pods=500).build(), MACHINE, 5_000.0), "fleet", MACHINE)
    for node in (new_node("node-7", "fleet", many, 5_000.0), added):
        assert IPv4Network(node.spec.podCIDR).num_addresses == 512
        played = VirtualNode(node)
        admitted = [played.admit(str(number), template_of(make_pod("a").req(cpu="1m").build())) for number in range(500)]
        assert len({each.pod for each in admitted if isinstance(each, Addresses)}) == 500


def test_the_stamp_of_the_condition_moves_only_when_it_changes() -> None:
    node = with_status(make_node("node-7").condition("Ready", "False").build(), MACHINE, 5_000.0)
    again = with_status(node, MACHINE, 6_000.0)
    (ready,) = again.status.conditions
    assert (ready.lastTransitionTime.seconds, ready.lastHeartbeatTime.seconds) == (5_000, 6_000)


def test_a_node_of_another_fleet_needs_our_label() -> None:
    assert needs_spec(new_node("node-7", "other", MACHINE, 5_000.0), "fleet")


def test_a_kubelet_that_is_found_elsewhere_is_published_anew() -> None:
    before = Machine(MACHINE.capacity, endpoint=Endpoint("10.0.0.5", 10250))
    node = new_node("node-7", "fleet", before, 5_000.0)
    assert node.status.daemonEndpoints.kubeletEndpoint.Port == 10250
    assert ("ExternalIP", "10.0.0.5") in {(each.type, each.address) for each in node.status.addresses}
    assert not needs_status(node, before)
    after = Machine(MACHINE.capacity, endpoint=Endpoint("kubelet-5", 10251))
    assert needs_status(node, after)
    moved = with_status(node, after, 6_000.0)
    assert {each.type: each.address for each in moved.status.addresses}["ExternalDNS"] == "kubelet-5"
    assert not needs_status(moved, after)


def test_a_kubelet_of_another_version_or_runtime_says_so() -> None:
    node = new_node("node-7", "fleet", MACHINE, 5_000.0)
    assert needs_status(node, MACHINE._replace(runtime="process"))
    version, node.status.nodeInfo.kubeletVersion = node.status.nodeInfo.kubeletVersion, "v0.0.1"
    assert needs_status(node, MACHINE)
    told = with_status(node, MACHINE, 6_000.0)
    assert told.status.nodeInfo.kubeletVersion == version
    assert not needs_status(told, MACHINE)


def test_the_addresses_of_local_nodes_are_this_machines() -> None:
    node = new_node("node-7", "fleet", Machine(MACHINE.capacity, "process", local=True), 5_000.0)
    assert IPv4Network(node.spec.podCIDR).subnet_of(IPv4Network("127.0.0.0/8"))
    internal = {each.type: each.address for each in node.status.addresses}["InternalIP"]
    assert IPv4Address(internal) in IPv4Network(node.spec.podCIDR)
    assert node.status.nodeInfo.containerRuntimeVersion == "process://1"


def test_pressure_is_reported_while_it_lasts_and_taken_back_then() -> None:
    node = new_node("node-7", "fleet", MACHINE, 5_000.0)
    assert len(node.status.conditions) == 1, "a node that never was under pressure says nothing of it"
    assert needs_status(node, MACHINE, [Kind.MEMORY])
    pressed = with_status(node, MACHINE, 6_000.0, [Kind.MEMORY])
    assert not needs_status(pressed, MACHINE, [Kind.MEMORY])
    told = {each.type: (each.status, each.reason) for each in pressed.status.conditions}
    assert told["MemoryPressure"] == ("True", "KubeletHasInsufficientMemory")
    assert set(told) == {"Ready", "MemoryPressure"}

    assert needs_status(pressed, MACHINE)
    eased = with_status(pressed, MACHINE, 7_000.0)
    told = {each.type: (each.status, each.reason) for each in eased.status.conditions}
    assert told["MemoryPressure"] == ("False", "KubeletHasSufficientMemory")


def test_a_node_that_was_silent_reports_its_pressure_again() -> None:
    node = with_status(new_node("node-7", "fleet", MACHINE, 5_000.0), MACHINE, 6_000.0, [Kind.DISK])
    for condition in node.status.conditions:
        condition.status = "Unknown"
    for pressures, status in (([], "False"), ([Kind.DISK], "True")):
        again = with_status(node, MACHINE, 7_000.0, pressures)
        told = {each.type: (each.status, each.lastTransitionTime.seconds) for each in again.status.conditions}
        assert told == {"Ready": ("True", 7_000), "DiskPressure": (status, 7_000)}
