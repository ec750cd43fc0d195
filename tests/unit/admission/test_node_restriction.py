"""What may a fleet change about its nodes, and which pods may it write?"""

from collections.abc import Callable
from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import Event, Node, Taint
from pinnace.api.names import NodeNames
from pinnace.api.scalars import to_time
from pinnace.api.wellknown import FLEET_LABEL, NOT_READY_TAINT
from pinnace.apiserver.admission.authorization import NodeRestriction
from pinnace.apiserver.auth.authentication import MASTERS, NODES_GROUP, User
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry.admission import AdmissionOperation, WriteRequest
from tests.builders import make_node, make_pod

FLEET = User("system:node:edge", (NODES_GROUP,), NodeNames.parse(["edge-*"]))
ADMIN = User("admin", (MASTERS,))
Change = Callable[[Node], None]


def owns(user: User, node: str) -> bool:
    return node in user.nodes


class Places(dict[tuple[str, str], str]):
    def of(self, namespace: str, name: str) -> str | None:
        return self.get((namespace, name))


PLACES = Places({("default", "own"): "edge-1", ("default", "other"): "core-1", ("default", "waiting"): ""})


def refused(operation: AdmissionOperation, obj: object, old: object, user: User = FLEET) -> str:
    """What is said of it; empty: it is let through."""
    try:
        NodeRestriction(owns, PLACES.of).validate(WriteRequest(user), operation, obj, old)
    except Rejected as rejected:
        return rejected.refusal.message
    return ""


def label(key: str, value: str = "x") -> Change:
    return lambda node: node.metadata.labels.update({key: value})


def taint(node: Node) -> None:
    node.spec.taints.add(key="gpu", effect="NoSchedule")


def cordon(node: Node) -> None:
    node.spec.unschedulable = True


def adopt(node: Node) -> None:
    node.metadata.ownerReferences.add(name="somebody")


def hold(node: Node) -> None:
    node.metadata.finalizers.append("example.com/hold")


def grow(node: Node) -> None:
    node.status.capacity["cpu"].string = "400"


def allot(node: Node) -> None:
    node.status.allocatable["cpu"].string = "400"


def ready(node: Node) -> None:
    node.status.conditions.add(type="Ready", status="True")


def changed(change: Change) -> tuple[Node, Node]:
    """A node of the fleet, as it is to be and as it is."""
    old = make_node("edge-0").label(FLEET_LABEL, "edge").new()
    new = Node()
    new.CopyFrom(old)
    change(new)
    return new, old


@pytest.mark.parametrize(
    "change",
    [
        label("node-restriction.kubernetes.io/tier"),
        label("a.node-restriction.kubernetes.io/tier"),
        label("node-role.kubernetes.io/control-plane"),
        label("k8s.io/anything"),
        label(FLEET_LABEL, "core"),
        label(FLEET_LABEL, "edgewise"),
        taint,
        cordon,
        adopt,
        hold,
    ],
)
def test_fleet_cannot_change_scheduling_labels_or_taints(change: Change) -> None:
    new, old = changed(change)
    assert 'nodes "edge-0" is forbidden' in refused(AdmissionOperation.UPDATE, new, old)
    assert not refused(AdmissionOperation.UPDATE, new, old, ADMIN)


@pytest.mark.parametrize(
    "change",
    [
        label("disk", "ssd"),
        label("example.com/rack"),
        label("kubernetes.io/hostname"),
        label("topology.kubernetes.io/zone"),
        label("node.kubernetes.io/anything"),
        label("kubelet.kubernetes.io/anything"),
        label(FLEET_LABEL, "edge-2"),
    ],
)
def test_other_labels_are(change: Change) -> None:
    assert not refused(AdmissionOperation.UPDATE, *changed(change))


def test_restricted_label_cannot_be_taken_off_either() -> None:
    new, old = changed(label("disk"))
    old.metadata.labels["node-restriction.kubernetes.io/tier"] = "gold"
    assert "node-restriction.kubernetes.io/tier" in refused(AdmissionOperation.UPDATE, new, old)


def test_node_may_be_born_with_taints_but_not_with_restricted_labels() -> None:
    born, _ = changed(taint)
    assert not refused(AdmissionOperation.CREATE, born, None)
    label("node-restriction.kubernetes.io/tier")(born)
    label("node-role.kubernetes.io/control-plane")(born)
    assert refused(AdmissionOperation.CREATE, born, None).endswith(
        "is not allowed to set the following labels: node-restriction.kubernetes.io/tier, node-role.kubernetes.io/control-plane"
    )


def test_node_is_not_given_to_another_fleet_at_birth() -> None:
    born, _ = changed(label(FLEET_LABEL, "core"))
    assert FLEET_LABEL in refused(AdmissionOperation.CREATE, born, None)


def test_taint_of_a_new_node_may_be_taken_off_and_no_other() -> None:
    new, old = changed(lambda node: None)
    old.spec.taints.add(key=NOT_READY_TAINT, effect="NoSchedule")
    assert not refused(AdmissionOperation.UPDATE, new, old)
    old.spec.taints.add(key="gpu", effect="NoSchedule")
    assert "taints" in refused(AdmissionOperation.UPDATE, new, old)


@pytest.mark.parametrize(
    "taint",
    [
        {"key": NOT_READY_TAINT, "effect": "NoExecute"},  # would evict its pods
        {"key": NOT_READY_TAINT, "value": "x", "effect": "NoSchedule"},
        {"key": NOT_READY_TAINT, "effect": "NoSchedule", "timeAdded": to_time(1)},
    ],
)
def test_restricted_label_cannot_be_added_or_changed(taint: dict[str, Any]) -> None:
    new, old = changed(lambda node: node.spec.taints.append(Taint(**taint)))
    assert "is not allowed to modify taints" in refused(AdmissionOperation.UPDATE, new, old)
    old.spec.taints.add(key=NOT_READY_TAINT, effect="NoSchedule")
    assert "is not allowed to modify taints" in refused(AdmissionOperation.UPDATE, new, old)


@pytest.mark.parametrize(("change", "why"), [(grow, "has been admitted"), (allot, "above the node's capacity")])
def test_node_does_not_grow(change: Change, why: str) -> None:
    assert why in refused(AdmissionOperation.UPDATE_STATUS, *changed(change))


def test_kubelet_reports_a_native_resource_once() -> None:
    for resource, allowed in (("ephemeral-storage", True), ("example.com/gpu", False)):
        new, old = changed(lambda node, added=resource: node.status.capacity[added].__setattr__("string", "8"))
        assert bool(refused(AdmissionOperation.UPDATE_STATUS, new, old)) is not allowed


def test_kubelet_makes_allocatable_follow_capacity() -> None:
    """An administrator has added a resource, removed it, or overwritten allocatable."""
    _, old = changed(ready)
    old.status.capacity["example.com/dongle"].string = "4"
    for amount, allowed in (("4", True), ("5", False), ("not a number", True)):
        new = Node()
        new.CopyFrom(old)
        new.status.allocatable["example.com/dongle"].string = amount
        assert bool(refused(AdmissionOperation.UPDATE_STATUS, new, old)) is not allowed
    new.status.allocatable.pop("example.com/dongle")
    new.status.allocatable["cpu"].string = "1"
    assert not refused(AdmissionOperation.UPDATE_STATUS, new, old)
    assert not refused(AdmissionOperation.UPDATE_STATUS, old, new)


def test_node_says_once_what_there_is_and_always_how_it_is() -> None:
    new, old = changed(ready)
    assert not refused(AdmissionOperation.UPDATE_STATUS, new, old)
    old.status.ClearField("capacity")
    old.status.ClearField("allocatable")
    assert not refused(AdmissionOperation.UPDATE_STATUS, new, old)


@pytest.mark.parametrize("operation", [AdmissionOperation.UPDATE_STATUS, AdmissionOperation.DELETE])
def test_pods_of_its_nodes_are_a_fleets_and_no_others(operation: AdmissionOperation) -> None:
    own, other, waiting = make_pod("a").node("edge-1").new(), make_pod("b").node("core-1").new(), make_pod("c").new()
    assert not refused(operation, own, own)
    assert 'bound to node "core-1"' in refused(operation, other, other)
    assert "not bound to a node" in refused(operation, waiting, waiting)
    assert not refused(operation, other, other, ADMIN)


@pytest.mark.parametrize(("change", "field"), [(adopt, "ownerReferences"), (hold, "finalizers")])
def test_new_node_has_neither_owners_nor_finalizers(change: Change, field: str) -> None:
    """Kubernetes lets a kubelet create a node with an owner that does not exist: the garbage collector deletes it
    (CVE-2025-5187)."""
    born, _ = changed(change)
    assert refused(AdmissionOperation.CREATE, born, None).endswith(f"is not allowed to set {field}")
    assert not refused(AdmissionOperation.CREATE, born, None, ADMIN)


def test_finalizer_of_an_administrator_stays() -> None:
    new, old = changed(lambda node: None)
    hold(old)
    assert "is not allowed to modify finalizers" in refused(AdmissionOperation.UPDATE, new, old)


def event(kind: str, name: str) -> Event:
    made = Event()
    made.metadata.name = "e"
    made.involvedObject.kind, made.involvedObject.namespace, made.involvedObject.name = kind, "default", name
    return made


@pytest.mark.parametrize(
    ("about", "allowed"),
    [
        (event("Node", "edge-7"), True),
        (event("Node", "core-1"), False),
        (event("Pod", "own"), True),
        (event("Pod", "gone"), True),
        (event("Pod", "other"), False),
        (event("Pod", "waiting"), False),
        (event("Deployment", "web"), False),
        (event("", ""), False),
    ],
    ids=lambda value: f"{value.involvedObject.kind} {value.involvedObject.name}" if isinstance(value, Event) else "",
)
def test_kubelet_records_events_of_its_own_nodes_and_pods_only(about: Event, allowed: bool) -> None:
    assert bool(refused(AdmissionOperation.CREATE, about, None)) is not allowed
    assert not refused(AdmissionOperation.CREATE, about, None, ADMIN)


def test_kubelet_does_not_add_to_an_event_of_others() -> None:
    """The name of an event is free, and a later record replaces its message."""
    own, other = event("Node", "edge-7"), event("Node", "core-1")
    assert "forbidden" in refused(AdmissionOperation.UPDATE, own, other)
    assert not refused(AdmissionOperation.UPDATE, own, own)
