from ipaddress import IPv4Address, IPv4Network

from kubelet.addresses import Addresses, host_ip, pod_cidr
from kubelet.eviction import Kind
from kubelet.lifecycle.plan import template_of
from kubelet.node import VirtualNode
from kubelet.registration import Endpoint, Machine, needs_spec, needs_status, new_node, with_spec, with_status
from pinnace.api.core_v1_pb2 import Node
from pinnace.api.machines import MachineShape
from pinnace.api.wellknown import FLEET_LABEL, NOT_READY_TAINT
from tests.builders import make_node, make_pod

MACHINE = Machine(MachineShape({"cpu": "4", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"}))
LABELS = {
    "pinnace.io/fleet": "fleet",
    "kubernetes.io/hostname": "node-7",
    "kubernetes.io/os": "linux",
    "kubernetes.io/arch": "amd64",
    "node.kubernetes.io/instance-type": "virtual-4cpu-32Gi",
    "topology.kubernetes.io/zone": "zone-b",
    "topology.kubernetes.io/region": "region-1",
}


def foreign() -> Node:
    """As `pinnace node add` makes one."""
    node = make_node("node-7").taint(NOT_READY_TAINT).taint("gpu", "true").label(FLEET_LABEL, "fleet").build()
    node.status.Clear()
    return node


def test_a_new_node_needs_nothing_more() -> None:
    node = new_node("node-7", "fleet", MACHINE, 5_000.0)
    assert not needs_status(node, MACHINE)
    assert not needs_spec(node, "fleet", MACHINE)
    assert {name: amount.string for name, amount in node.status.allocatable.items()} == {
        "cpu": "4", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi",
    }  # fmt: skip
    assert node.metadata.labels == LABELS
    assert (node.spec.podCIDR, list(node.spec.podCIDRs)) == (pod_cidr("node-7"), [pod_cidr("node-7")])
    assert {each.type: each.address for each in node.status.addresses} == {
        "InternalIP": host_ip("node-7"), "Hostname": "node-7",
    }  # fmt: skip


def test_an_adopted_node_becomes_ready_and_is_then_freed_of_its_taint() -> None:
    node = foreign()
    assert needs_status(node, MACHINE)
    ready = with_status(node, MACHINE, 5_000.0)
    assert not needs_status(ready, MACHINE)
    assert needs_spec(ready, "fleet", MACHINE)
    free = with_spec(ready, "fleet", MACHINE)
    assert not needs_spec(free, "fleet", MACHINE)
    assert [taint.key for taint in free.spec.taints] == ["gpu"]
    assert needs_status(node, MACHINE), "the original is left alone"


def test_existing_node_fields_are_kept() -> None:
    node = (
        make_node("node-7").capacity(cpu="64", pods=5).allocatable(cpu="60").annotation("pinnace.io/reserved", "cpu=4").build()
    )
    status = with_status(node, MACHINE, 5_000.0).status
    assert status.capacity["cpu"].string == "64"
    assert status.allocatable["cpu"].string == "60"
    assert status.allocatable["pods"].string == "5"
    assert status.allocatable["memory"].string == "32Gi", "a kubelet reports all that a machine has"

    node.spec.podCIDR = "10.99.0.0/24"
    assert with_spec(node, "fleet", MACHINE).spec.podCIDR == "10.99.0.0/24"


def test_a_node_that_takes_many_pods_has_an_address_for_each() -> None:
    """Its own, and those of one from `pinnace node add`."""
    many = MACHINE._replace(shape=MachineShape({**MACHINE.shape.resources, "pods": "500"}))
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
    assert needs_spec(new_node("node-7", "other", MACHINE, 5_000.0), "fleet", MACHINE)


def test_a_kubelet_that_is_found_elsewhere_is_published_anew() -> None:
    before = MACHINE._replace(endpoint=Endpoint("10.0.0.5", 10250))
    node = new_node("node-7", "fleet", before, 5_000.0)
    assert node.status.daemonEndpoints.kubeletEndpoint.Port == 10250
    assert ("ExternalIP", "10.0.0.5") in {(each.type, each.address) for each in node.status.addresses}
    assert not needs_status(node, before)
    after = MACHINE._replace(endpoint=Endpoint("kubelet-5", 10251))
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
    node = new_node("node-7", "fleet", MACHINE._replace(runtime="process", local=True), 5_000.0)
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


def played() -> Node:
    """As a fleet wants it."""
    return new_node("node-7", "fleet", MACHINE, 5_000.0)


def reconciled(node: Node) -> Node:
    """After the one write that its status needs."""
    assert needs_status(node, MACHINE)
    found = with_status(node, MACHINE, 6_000.0)
    assert not needs_status(found, MACHINE)
    return found


def allocatable_of(node: Node) -> dict[str, str]:
    return {name: amount.string for name, amount in node.status.allocatable.items()}


def test_kubernetes_47044_a_node_whose_taint_others_have_removed_gets_its_labels() -> None:
    """Nodes stayed without their labels for good when something else had written them first:
    https://github.com/kubernetes/kubernetes/issues/47044 and https://github.com/kubernetes-sigs/kwok/issues/1009

    Here the fleet took the taint not-ready for the sign that labels and podCIDR were due. The node lifecycle controller may
    remove it first. Kept by: the labels themselves are compared."""
    node = with_status(foreign(), MACHINE, 5_000.0)
    del node.spec.taints[:]
    assert needs_spec(node, "fleet", MACHINE)
    told = with_spec(node, "fleet", MACHINE)
    assert told.metadata.labels == LABELS | {"kubernetes.io/hostname": "node-7"}
    assert told.spec.podCIDR == pod_cidr("node-7")
    assert not needs_spec(told, "fleet", MACHINE)


def test_each_label_that_is_missing_is_put_back() -> None:
    for label in LABELS:
        node = played()
        del node.metadata.labels[label]
        assert needs_spec(node, "fleet", MACHINE), label
        assert with_spec(node, "fleet", MACHINE).metadata.labels == LABELS


def test_a_node_without_a_pod_cidr_gets_one() -> None:
    node = played()
    node.spec.ClearField("podCIDR")
    assert needs_spec(node, "fleet", MACHINE)
    assert with_spec(node, "fleet", MACHINE).spec.podCIDR == pod_cidr("node-7")


def test_a_nodes_own_zone_architecture_and_type_are_kept() -> None:
    own = {
        "kubernetes.io/arch": "arm64",
        "topology.kubernetes.io/zone": "moon-1",
        "node.kubernetes.io/instance-type": "m5.large",
    }
    node = make_node("node-7").build()
    node.metadata.labels.update(own)
    told = with_spec(with_status(node, MACHINE, 5_000.0), "fleet", MACHINE)
    assert own.items() <= told.metadata.labels.items()
    assert "topology.kubernetes.io/region" not in told.metadata.labels, "the zone is not one of the fleet's"
    assert told.status.nodeInfo.architecture == "arm64"
    assert not needs_spec(told, "fleet", MACHINE) and not needs_status(told, MACHINE)


def test_kubernetes_115190_allocatable_follows_capacity() -> None:
    """A resource that was added to a node's capacity did not become allocatable:
    https://github.com/kubernetes/kubernetes/issues/115190 and
    https://kubernetes.io/docs/tasks/administer-cluster/extended-resource-node/"""
    node = played()
    node.status.capacity["example.com/dongle"].string = "4"
    node = reconciled(node)
    assert node.status.allocatable["example.com/dongle"].string == "4"
    node.status.capacity["example.com/dongle"].string = "2"
    node = reconciled(node)
    assert node.status.allocatable["example.com/dongle"].string == "2"
    del node.status.capacity["example.com/dongle"]
    assert "example.com/dongle" not in reconciled(node).status.allocatable


def test_allocatable_that_is_overwritten_or_removed_is_put_right() -> None:
    expected = allocatable_of(played())
    for change in ("1", "400", ""):
        node = played()
        if change:
            node.status.allocatable["cpu"].string = change
        else:
            del node.status.allocatable["cpu"]
        assert allocatable_of(reconciled(node)) == expected


def test_a_quantity_that_is_spelt_otherwise_is_no_difference() -> None:
    node = played()
    node.status.allocatable["cpu"].string = "4000m"
    assert not needs_status(node, MACHINE)


def test_reserved_resources_are_not_allocatable() -> None:
    node = played()
    node.metadata.annotations["pinnace.io/reserved"] = "cpu=500m, memory=1Gi,nonsense,pods=x"
    found = allocatable_of(reconciled(node))
    assert (found["cpu"], found["memory"], found["pods"]) == ("3500m", "31Gi", "110")
    node.status.capacity["cpu"].string = "400m"
    assert reconciled(node).status.allocatable["cpu"].string == "0"


def test_kubernetes_63190_a_node_of_an_earlier_version_gets_ephemeral_storage() -> None:
    """Nodes without it never ran a pod that requested 1Mi: https://github.com/kubernetes/kubernetes/issues/63190"""
    node = played()
    del node.status.capacity["ephemeral-storage"]
    del node.status.allocatable["ephemeral-storage"]
    assert reconciled(node).status.allocatable["ephemeral-storage"].string == "100Gi"


def test_overwritten_node_status_is_corrected() -> None:
    expected = played().status

    def addresses(node: Node) -> None:
        node.status.addresses[0].address = "192.0.2.1"

    def ready(node: Node) -> None:
        node.status.conditions[0].reason = "Because"

    def conditions(node: Node) -> None:
        node.status.ClearField("conditions")

    def info(node: Node) -> None:
        node.status.nodeInfo.osImage = "Debian"

    def images(node: Node) -> None:
        node.status.ClearField("images")

    for change in (addresses, ready, conditions, info, images):
        node = played()
        change(node)
        found = reconciled(node).status
        for condition in (*found.conditions, *expected.conditions):
            condition.ClearField("lastHeartbeatTime")
            condition.ClearField("lastTransitionTime")
        assert found == expected, change.__name__


def test_images_that_a_node_is_said_to_have_are_kept() -> None:
    node = played()
    node.status.images[0].names[:] = ["registry.example/large:1"]
    assert not needs_status(node, MACHINE)
