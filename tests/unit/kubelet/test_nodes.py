from ipaddress import IPv4Address, IPv4Network

from pinnace.api.core_v1_pb2 import Node
from pinnace.api.machines import MachineShape
from pinnace.api.wellknown import FLEET_LABEL, NOT_READY_TAINT
from pinnace.kubelet.addresses import PodAddresses, host_ip, pod_cidr
from pinnace.kubelet.eviction import PressureKind
from pinnace.kubelet.lifecycle.plan import get_template
from pinnace.kubelet.node import VirtualNode
from pinnace.kubelet.registration import (
    FleetMachine,
    KubeletEndpoint,
    build_node,
    needs_spec_update,
    needs_status_update,
    with_fleet_spec,
    with_ready_status,
)
from tests.builders import make_node, make_pod

MACHINE = FleetMachine(MachineShape({"cpu": "4", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"}))
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
    """A node as `pinnace node add` creates it."""
    node = make_node("node-7").taint(NOT_READY_TAINT).taint("gpu", "true").label(FLEET_LABEL, "fleet").build()
    node.status.Clear()
    return node


def test_new_node_needs_no_update() -> None:
    node = build_node("node-7", "fleet", MACHINE, 5_000.0)
    assert not needs_status_update(node, MACHINE)
    assert not needs_spec_update(node, "fleet", MACHINE)
    assert {name: amount.string for name, amount in node.status.allocatable.items()} == {
        "cpu": "4", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi",
    }  # fmt: skip
    assert node.metadata.labels == LABELS
    assert (node.spec.podCIDR, list(node.spec.podCIDRs)) == (pod_cidr("node-7"), [pod_cidr("node-7")])
    assert {address.type: address.address for address in node.status.addresses} == {
        "InternalIP": host_ip("node-7"), "Hostname": "node-7",
    }  # fmt: skip


def test_adopted_node_becomes_ready_and_then_loses_its_taint() -> None:
    node = foreign()
    assert needs_status_update(node, MACHINE)
    ready = with_ready_status(node, MACHINE, 5_000.0)
    assert not needs_status_update(ready, MACHINE)
    assert needs_spec_update(ready, "fleet", MACHINE)
    free = with_fleet_spec(ready, "fleet", MACHINE)
    assert not needs_spec_update(free, "fleet", MACHINE)
    assert [taint.key for taint in free.spec.taints] == ["gpu"]
    assert needs_status_update(node, MACHINE), "the original is unchanged"


def test_existing_node_fields_are_kept() -> None:
    node = (
        make_node("node-7").capacity(cpu="64", pods=5).allocatable(cpu="60").annotation("pinnace.io/reserved", "cpu=4").build()
    )
    status = with_ready_status(node, MACHINE, 5_000.0).status
    assert status.capacity["cpu"].string == "64"
    assert status.allocatable["cpu"].string == "60"
    assert status.allocatable["pods"].string == "5"
    assert status.allocatable["memory"].string == "32Gi", "missing resources are reported"

    node.spec.podCIDR = "10.99.0.0/24"
    assert with_fleet_spec(node, "fleet", MACHINE).spec.podCIDR == "10.99.0.0/24"


def test_pod_network_has_an_address_for_each_pod() -> None:
    """This holds for a node of the fleet and for one from `pinnace node add`."""
    many = MACHINE._replace(shape=MachineShape({**MACHINE.shape.resources, "pods": "500"}))
    added = with_fleet_spec(
        with_ready_status(make_node("node-7").capacity(cpu=4, pods=500).build(), MACHINE, 5_000.0), "fleet", MACHINE
    )
    for node in (build_node("node-7", "fleet", many, 5_000.0), added):
        assert IPv4Network(node.spec.podCIDR).num_addresses == 512
        fleet_node = VirtualNode(node)
        admitted = [
            fleet_node.admit_pod(str(number), get_template(make_pod("a").req(cpu="1m").build())) for number in range(500)
        ]
        assert len({item.pod for item in admitted if isinstance(item, PodAddresses)}) == 500


def test_transition_time_changes_only_with_the_condition() -> None:
    node = with_ready_status(make_node("node-7").condition("Ready", "False").build(), MACHINE, 5_000.0)
    again = with_ready_status(node, MACHINE, 6_000.0)
    (ready,) = again.status.conditions
    assert (ready.lastTransitionTime.seconds, ready.lastHeartbeatTime.seconds) == (5_000, 6_000)


def test_node_of_another_fleet_needs_the_fleet_label() -> None:
    assert needs_spec_update(build_node("node-7", "other", MACHINE, 5_000.0), "fleet", MACHINE)


def test_changed_kubelet_endpoint_is_published() -> None:
    before = MACHINE._replace(endpoint=KubeletEndpoint("10.0.0.5", 10250))
    node = build_node("node-7", "fleet", before, 5_000.0)
    assert node.status.daemonEndpoints.kubeletEndpoint.Port == 10250
    assert ("ExternalIP", "10.0.0.5") in {(address.type, address.address) for address in node.status.addresses}
    assert not needs_status_update(node, before)
    after = MACHINE._replace(endpoint=KubeletEndpoint("kubelet-5", 10251))
    assert needs_status_update(node, after)
    moved = with_ready_status(node, after, 6_000.0)
    assert {address.type: address.address for address in moved.status.addresses}["ExternalDNS"] == "kubelet-5"
    assert not needs_status_update(moved, after)


def test_changed_version_or_runtime_is_published() -> None:
    node = build_node("node-7", "fleet", MACHINE, 5_000.0)
    assert needs_status_update(node, MACHINE._replace(runtime="process"))
    version, node.status.nodeInfo.kubeletVersion = node.status.nodeInfo.kubeletVersion, "v0.0.1"
    assert needs_status_update(node, MACHINE)
    reported = with_ready_status(node, MACHINE, 6_000.0)
    assert reported.status.nodeInfo.kubeletVersion == version
    assert not needs_status_update(reported, MACHINE)


def test_local_nodes_have_loopback_addresses() -> None:
    node = build_node("node-7", "fleet", MACHINE._replace(runtime="process", local=True), 5_000.0)
    assert IPv4Network(node.spec.podCIDR).subnet_of(IPv4Network("127.0.0.0/8"))
    internal = {address.type: address.address for address in node.status.addresses}["InternalIP"]
    assert IPv4Address(internal) in IPv4Network(node.spec.podCIDR)
    assert node.status.nodeInfo.containerRuntimeVersion == "process://1"


def test_pressure_condition_is_set_and_cleared() -> None:
    node = build_node("node-7", "fleet", MACHINE, 5_000.0)
    assert len(node.status.conditions) == 1, "a node that was never under pressure has no pressure condition"
    assert needs_status_update(node, MACHINE, [PressureKind.MEMORY])
    pressed = with_ready_status(node, MACHINE, 6_000.0, [PressureKind.MEMORY])
    assert not needs_status_update(pressed, MACHINE, [PressureKind.MEMORY])
    reported = {condition.type: (condition.status, condition.reason) for condition in pressed.status.conditions}
    assert reported["MemoryPressure"] == ("True", "KubeletHasInsufficientMemory")
    assert set(reported) == {"Ready", "MemoryPressure"}

    assert needs_status_update(pressed, MACHINE)
    eased = with_ready_status(pressed, MACHINE, 7_000.0)
    reported = {condition.type: (condition.status, condition.reason) for condition in eased.status.conditions}
    assert reported["MemoryPressure"] == ("False", "KubeletHasSufficientMemory")


def test_unknown_conditions_are_replaced_with_the_current_pressure() -> None:
    node = with_ready_status(build_node("node-7", "fleet", MACHINE, 5_000.0), MACHINE, 6_000.0, [PressureKind.DISK])
    for condition in node.status.conditions:
        condition.status = "Unknown"
    for pressures, status in (([], "False"), ([PressureKind.DISK], "True")):
        again = with_ready_status(node, MACHINE, 7_000.0, pressures)
        reported = {item.type: (item.status, item.lastTransitionTime.seconds) for item in again.status.conditions}
        assert reported == {"Ready": ("True", 7_000), "DiskPressure": (status, 7_000)}


def fleet_node() -> Node:
    """A node as the fleet creates it."""
    return build_node("node-7", "fleet", MACHINE, 5_000.0)


def reconciled(node: Node) -> Node:
    """The node after the one status write that it needs."""
    assert needs_status_update(node, MACHINE)
    result = with_ready_status(node, MACHINE, 6_000.0)
    assert not needs_status_update(result, MACHINE)
    return result


def allocatable_of(node: Node) -> dict[str, str]:
    return {name: amount.string for name, amount in node.status.allocatable.items()}


def test_node_without_the_not_ready_taint_gets_its_labels() -> None:
    """Regression: https://github.com/kubernetes/kubernetes/issues/47044 and
    https://github.com/kubernetes-sigs/kwok/issues/1009

    Nodes stayed without their labels if another writer was first. The fleet took the taint not-ready as the sign that
    labels and podCIDR were missing, and the node lifecycle controller may remove it first. The fleet now compares the
    labels themselves.
    """
    node = with_ready_status(foreign(), MACHINE, 5_000.0)
    del node.spec.taints[:]
    assert needs_spec_update(node, "fleet", MACHINE)
    reported = with_fleet_spec(node, "fleet", MACHINE)
    assert reported.metadata.labels == LABELS | {"kubernetes.io/hostname": "node-7"}
    assert reported.spec.podCIDR == pod_cidr("node-7")
    assert not needs_spec_update(reported, "fleet", MACHINE)


def test_missing_labels_are_restored() -> None:
    for label in LABELS:
        node = fleet_node()
        del node.metadata.labels[label]
        assert needs_spec_update(node, "fleet", MACHINE), label
        assert with_fleet_spec(node, "fleet", MACHINE).metadata.labels == LABELS


def test_node_without_a_pod_cidr_gets_one() -> None:
    node = fleet_node()
    node.spec.ClearField("podCIDR")
    assert needs_spec_update(node, "fleet", MACHINE)
    assert with_fleet_spec(node, "fleet", MACHINE).spec.podCIDR == pod_cidr("node-7")


def test_existing_zone_architecture_and_type_are_kept() -> None:
    own = {
        "kubernetes.io/arch": "arm64",
        "topology.kubernetes.io/zone": "moon-1",
        "node.kubernetes.io/instance-type": "m5.large",
    }
    node = make_node("node-7").build()
    node.metadata.labels.update(own)
    reported = with_fleet_spec(with_ready_status(node, MACHINE, 5_000.0), "fleet", MACHINE)
    assert own.items() <= reported.metadata.labels.items()
    assert "topology.kubernetes.io/region" not in reported.metadata.labels, "the zone does not belong to the fleet"
    assert reported.status.nodeInfo.architecture == "arm64"
    assert not needs_spec_update(reported, "fleet", MACHINE) and not needs_status_update(reported, MACHINE)


def test_allocatable_follows_capacity() -> None:
    """Regression: a resource that was added to a node's capacity did not become allocatable:
    https://github.com/kubernetes/kubernetes/issues/115190 and
    https://kubernetes.io/docs/tasks/administer-cluster/extended-resource-node/"""
    node = fleet_node()
    node.status.capacity["example.com/dongle"].string = "4"
    node = reconciled(node)
    assert node.status.allocatable["example.com/dongle"].string == "4"
    node.status.capacity["example.com/dongle"].string = "2"
    node = reconciled(node)
    assert node.status.allocatable["example.com/dongle"].string == "2"
    del node.status.capacity["example.com/dongle"]
    assert "example.com/dongle" not in reconciled(node).status.allocatable


def test_overwritten_or_removed_allocatable_is_restored() -> None:
    expected = allocatable_of(fleet_node())
    for change in ("1", "400", ""):
        node = fleet_node()
        if change:
            node.status.allocatable["cpu"].string = change
        else:
            del node.status.allocatable["cpu"]
        assert allocatable_of(reconciled(node)) == expected


def test_equal_quantity_in_another_notation_needs_no_update() -> None:
    node = fleet_node()
    node.status.allocatable["cpu"].string = "4000m"
    assert not needs_status_update(node, MACHINE)


def test_reserved_resources_are_not_allocatable() -> None:
    node = fleet_node()
    node.metadata.annotations["pinnace.io/reserved"] = "cpu=500m, memory=1Gi,nonsense,pods=x"
    result = allocatable_of(reconciled(node))
    assert (result["cpu"], result["memory"], result["pods"]) == ("3500m", "31Gi", "110")
    node.status.capacity["cpu"].string = "400m"
    assert reconciled(node).status.allocatable["cpu"].string == "0"


def test_node_of_an_earlier_version_gets_ephemeral_storage() -> None:
    """Regression: nodes without it never ran a pod that requests 1Mi: https://github.com/kubernetes/kubernetes/issues/63190"""
    node = fleet_node()
    del node.status.capacity["ephemeral-storage"]
    del node.status.allocatable["ephemeral-storage"]
    assert reconciled(node).status.allocatable["ephemeral-storage"].string == "100Gi"


def test_overwritten_node_status_is_corrected() -> None:
    expected = fleet_node().status

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
        node = fleet_node()
        change(node)
        result = reconciled(node).status
        for condition in (*result.conditions, *expected.conditions):
            condition.ClearField("lastHeartbeatTime")
            condition.ClearField("lastTransitionTime")
        assert result == expected, change.__name__


def test_existing_images_of_a_node_are_kept() -> None:
    node = fleet_node()
    node.status.images[0].names[:] = ["registry.example/large:1"]
    assert not needs_status_update(node, MACHINE)
