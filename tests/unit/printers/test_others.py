"""The tables of all kinds except pods."""

import pytest

from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.core_v1_pb2 import Event, Namespace, Node
from pinnace.api.resources import ALL
from pinnace.api.scheduling_v1_pb2 import PriorityClass
from pinnace.printers import COLUMNS, cluster
from tests.builders import make_node

NOW = 10_000.0


def test_rows_of_every_resource_match_its_columns() -> None:
    assert set(COLUMNS) == {resource.plural for resource in ALL}
    for resource in ALL:
        columns = COLUMNS[resource.plural]
        assert len(columns.row(resource.message(), NOW)) == len(columns.headers + columns.wide)


@pytest.mark.parametrize(
    ("node", "word"),
    [
        (make_node("n").build(), "Unknown"),
        (make_node("n").condition("Ready", "True").build(), "Ready"),
        (make_node("n").condition("Ready", "False").build(), "NotReady"),
        (make_node("n").condition("Ready", "Unknown").build(), "NotReady"),
        (make_node("n").condition("Ready", "True").unschedulable().build(), "Ready,SchedulingDisabled"),
    ],
)
def test_status_of_a_node(node: Node, word: str) -> None:
    assert cluster.node_status(node) == word


def test_roles_of_a_node() -> None:
    node = make_node("n").label("node-role.kubernetes.io/worker", "").label("kubernetes.io/role", "edge").build()
    assert cluster.node_roles(node) == ["edge", "worker"]
    assert cluster.node_row(make_node("n").build(), NOW)[2] == "<none>"


def event(name: str, last: int, *, first: int = 0, count: int = 1) -> Event:
    made = Event(
        reason="Scheduled", type="Normal", message=" Assigned\n", count=count, reportingComponent="s", reportingInstance="s-0"
    )
    made.metadata.name = name
    made.involvedObject.kind, made.involvedObject.name = "Pod", "a"
    made.lastTimestamp.seconds, made.firstTimestamp.seconds = last, first or last
    return made


def test_event_row() -> None:
    row = cluster.event_row(event("a", 9_000, first=8_000, count=3), NOW)
    assert list(row[:5]) == ["16m (x3 over 33m)", "Normal", "Scheduled", "pod/a", "Assigned"]


def test_events_within_a_second_have_an_order() -> None:
    """By microseconds where they are known, then by revision."""
    moments = {"d": (500, "7"), "c": (500, "6"), "b": (200, "9"), "a": (None, "8")}
    made = []
    for name, (millis, revision) in moments.items():
        each = event(name, 9_990)
        each.metadata.resourceVersion = revision
        if millis is None:  # the first occurrence was earlier
            each.eventTime.seconds = 9_900
        else:
            each.eventTime.seconds, each.eventTime.nanos = 9_990, millis * 1_000_000
        made.append(each)
    assert [item.metadata.name for item in sorted(made, key=cluster.event_time)] == ["a", "b", "c", "d"]


def test_event_row_contains_the_reporter() -> None:
    assert cluster.event_row(event("a", 9_990), NOW)[5] == "s, s-0"
    assert cluster.event_reporter(Event()) == "<none>"


def test_rows_of_namespaces_priority_classes_and_leases() -> None:
    space = Namespace()
    space.metadata.name, space.status.phase, space.metadata.creationTimestamp.seconds = "x", "Active", 9_995
    assert cluster.namespace_row(space, NOW) == ("x", "Active", "5s")
    high = PriorityClass(value=1000, globalDefault=True)
    high.metadata.name = "high"
    assert cluster.priority_class_row(high, NOW) == ("high", "1000", "true", "<unknown>", "PreemptLowerPriority")
    lease = Lease()
    lease.metadata.name, lease.spec.holderIdentity = "node-0", "fleet-0"
    assert cluster.lease_row(lease, NOW) == ("node-0", "fleet-0", "<unknown>")
