"""Decisions about silent nodes: conditions, taints, zones and evictions."""

import math

import pytest

from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.core_v1_pb2 import Node, Taint, Toleration
from pinnace.controllers.nodelifecycle import (
    RECOVERY,
    EvictionRates,
    LeaseMonitor,
    Zones,
    ZoneState,
    compute_zone_state,
    counts_for_zone,
    lease_key,
    not_ready_status,
    seconds_until_unreachable,
    with_correct_taints,
    with_unknown_conditions,
    zone_of,
)
from pinnace.controllers.tainteviction import toleration_seconds
from tests.builders import NodeBuilder, make_node, make_pod

NOW = 1_000.0


def conditions(node: Node) -> dict[str, tuple[str, str]]:
    return {condition.type: (condition.status, condition.reason) for condition in node.status.conditions}


def taints(node: Node | None) -> set[tuple[str, str]] | None:
    """Taints without their common prefix."""
    if node is None:
        return None
    return {(taint.key.removeprefix("node.kubernetes.io/"), taint.effect) for taint in node.spec.taints}


# --- silence


def test_node_is_silent_while_its_lease_is_missing() -> None:
    leases = {lease_key("n"): Lease()}
    silences = LeaseMonitor(leases)
    silences.update_lease("n", 1.0)
    assert silences.seconds_without_lease("n", 5.0) is None
    del leases[lease_key("n")]
    silences.update_lease("n", 5.0)
    silences.update_lease("n", 6.0)
    assert silences.seconds_without_lease("n", 7.5) == 2.5
    leases[lease_key("n")] = Lease()
    silences.update_lease("n", 8.0)
    assert silences.seconds_without_lease("n", 9.0) is None


@pytest.mark.parametrize(
    ("status", "silent", "expected"),
    [("True", None, None), ("True", 0.2, 0.3), ("True", 0.5, 0.0), ("Unknown", 9.0, 0.0), ("", 0.5, 59.5), ("", 70.0, 0.0)],
)
def test_node_that_never_reported_gets_the_startup_grace_period(
    status: str, silent: float | None, expected: float | None
) -> None:
    node = make_node("n").condition("Ready", status).build() if status else Node()
    assert seconds_until_unreachable(node, silent, 0.5, 60.0) == (expected if expected is None else pytest.approx(expected))


# --- conditions


def test_silent_node_has_unknown_conditions() -> None:
    node = make_node("n").condition("Ready", "True").condition("DiskPressure", "False").condition("Mine", "True").build()
    marked = with_unknown_conditions(node, NOW)
    assert marked is not None
    unknown = ("Unknown", "NodeStatusUnknown")
    assert conditions(marked) == {"Ready": unknown, "DiskPressure": unknown, "Mine": ("True", "")}
    assert marked.status.conditions[0].message == "Kubelet stopped posting node status."
    assert marked.status.conditions[0].lastTransitionTime.seconds == NOW
    assert conditions(node)["Ready"][0] == "True"  # the object of the informer is unchanged
    assert with_unknown_conditions(marked, NOW + 1) is None


def test_condition_reports_a_node_that_never_reported() -> None:
    node = Node()
    marked = with_unknown_conditions(node, NOW)
    assert marked is not None and conditions(marked) == {"Ready": ("Unknown", "NodeStatusNeverUpdated")}
    assert with_unknown_conditions(marked, NOW + 1) is None


def test_pods_of_an_unreachable_node_are_not_ready() -> None:
    pod = make_pod("p").condition("Ready", "True").condition("ContainersReady", "True").build()
    marked = not_ready_status(pod, NOW)
    assert marked is not None
    assert {condition.type: condition.status for condition in marked.status.conditions} == {
        "Ready": "False",
        "ContainersReady": "True",
    }
    assert not_ready_status(marked, NOW) is None


# --- taints


def ready(status: str) -> NodeBuilder:
    return make_node("n").condition("Ready", status)


UNREACHABLE, NOT_READY = "node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"


@pytest.mark.parametrize(
    ("node", "evict", "expected"),
    [
        (ready("True"), True, None),
        (ready("Unknown"), False, {("unreachable", "NoSchedule")}),
        (ready("Unknown"), True, {("unreachable", "NoSchedule"), ("unreachable", "NoExecute")}),
        (ready("False"), True, {("not-ready", "NoSchedule"), ("not-ready", "NoExecute")}),
        (ready("True").taint(UNREACHABLE).taint(UNREACHABLE, effect="NoExecute").taint("mine"), True, {("mine", "NoSchedule")}),
        (
            ready("Unknown").taint(NOT_READY, effect="NoExecute"),
            True,
            {("unreachable", "NoSchedule"), ("unreachable", "NoExecute")},
        ),
        (ready("Unknown").taint(UNREACHABLE).taint(UNREACHABLE, effect="NoExecute"), True, None),
        (
            ready("Unknown").taint(UNREACHABLE).taint(UNREACHABLE, effect="NoExecute"),
            False,
            {("unreachable", "NoSchedule")},
        ),
        (ready("True").condition("MemoryPressure", "True"), True, {("memory-pressure", "NoSchedule")}),
        (ready("True").condition("PIDPressure", "True"), True, {("pid-pressure", "NoSchedule")}),
        (ready("True").condition("DiskPressure", "False").taint("node.kubernetes.io/disk-pressure"), True, set()),
        (ready("True").unschedulable(), True, {("unschedulable", "NoSchedule")}),
        (ready("True").taint("node.kubernetes.io/unschedulable"), True, set()),
        (ready("True").taint("gpu", "true", "NoExecute"), True, None),
    ],
)
def test_taints_follow_conditions(node: NodeBuilder, evict: bool, expected: set[tuple[str, str]] | None) -> None:
    assert taints(with_correct_taints(node.build(), evict, NOW)) == expected


def test_node_that_never_reported_keeps_its_initial_taint() -> None:
    node = Node()
    node.spec.taints.add(key=NOT_READY, effect="NoSchedule")
    assert with_correct_taints(node, True, NOW) is None


def test_taint_keeps_the_time_at_which_it_was_added() -> None:
    first = with_correct_taints(ready("Unknown").build(), False, NOW)
    assert first is not None
    second = with_correct_taints(first, True, NOW + 5)
    assert second is not None
    assert {taint.effect: taint.timeAdded.seconds for taint in second.spec.taints} == {"NoSchedule": NOW, "NoExecute": NOW + 5}


# --- zones


@pytest.mark.parametrize(
    ("healthy", "unhealthy", "expected"),
    [
        (10, 0, ZoneState.NORMAL), (0, 0, ZoneState.NORMAL), (0, 1, ZoneState.FULL), (0, 9, ZoneState.FULL),
        (1, 2, ZoneState.NORMAL), (1, 3, ZoneState.PARTIAL), (45, 55, ZoneState.PARTIAL), (46, 54, ZoneState.NORMAL),
    ],
)  # fmt: skip
def test_zone_state_depends_on_the_share_of_unhealthy_nodes(healthy: int, unhealthy: int, expected: ZoneState) -> None:
    assert compute_zone_state(healthy, unhealthy, 0.55) is expected


def zones(rates: EvictionRates = EvictionRates(), **healthy: bool) -> Zones:  # noqa: B008 (immutable)
    """Zones with these nodes. The name of a node begins with its zone, a letter."""
    made = Zones(rates)
    for name, well in healthy.items():
        made.update_node(name, name[0], well, NOW)
    return made


def many(zone: str, well: int, ill: int) -> dict[str, bool]:
    return {f"{zone}{i}": i < well for i in range(well + ill)}


def turns(found: Zones, names: list[str], now: float = NOW) -> list[float | None]:
    return [None if (turn := found.seconds_until_eviction(name, now)) is None else round(turn, 6) for name in names]


def test_nodes_of_a_zone_get_stable_turns() -> None:
    result = zones(EvictionRates(eviction=0.1), **many("a", 3, 3))
    assert turns(result, ["a3", "a4", "a5", "a4"]) == [0.0, 10.0, 20.0, 10.0]
    assert turns(result, ["a4", "a5"], NOW + 15) == [0.0, 5.0]


def test_zones_do_not_wait_for_each_other() -> None:
    result = zones(EvictionRates(eviction=0.1), **many("a", 3, 1), **many("b", 3, 1))
    assert turns(result, ["a3", "b3"]) == [0.0, 0.0]


def test_partly_disrupted_zone_is_evicted_slowly_if_large_and_not_if_small() -> None:
    assert turns(zones(**many("a", 1, 5)), ["a1"]) == [None]
    result = zones(EvictionRates(secondary=0.01, large=5), **many("a", 1, 5))
    assert turns(result, ["a1", "a2"]) == [0.0, 100.0]


def test_fully_disrupted_zone_is_evicted_while_another_is_healthy() -> None:
    result = zones(**many("b", 1, 0), **many("a", 0, 3))
    assert result.states() == {"a": ZoneState.FULL, "b": ZoneState.NORMAL}
    assert turns(result, ["a0"]) == [0.0]


def test_evictions_stop_while_all_zones_are_down_and_during_recovery() -> None:
    result = zones(**many("a", 0, 3), **many("b", 0, 3))
    assert result.is_fully_disrupted and turns(result, ["a0"]) == [None]
    for name in ("b0", "b1", "b2"):
        result.update_node(name, "b", True, NOW + 1)
    assert not result.is_fully_disrupted and turns(result, ["a0"], NOW + 1) == [RECOVERY]


def test_zone_state_change_reassigns_turns() -> None:
    result = zones(EvictionRates(eviction=0.1), **many("a", 4, 4))
    assert turns(result, ["a4", "a5", "a6"]) == [0.0, 10.0, 20.0]
    result.update_node("a0", "a", False, NOW)
    assert turns(result, ["a6"]) == [None]
    result.update_node("a0", "a", True, NOW)
    assert turns(result, ["a6"], NOW + 1) == [0.0]


def test_released_turn_goes_to_the_node_with_the_last_turn() -> None:
    result = zones(EvictionRates(eviction=0.1), **many("a", 6, 4))
    assert turns(result, ["a6", "a7", "a8", "a9"]) == [0.0, 10.0, 20.0, 30.0]
    result.pop_changed_nodes()
    result.update_node("a7", "a", True, NOW)
    assert result.pop_changed_nodes() == {"a9"}
    assert turns(result, ["a6", "a8", "a9"]) == [0.0, 20.0, 10.0]
    result.remove_node("a8", NOW)
    assert result.pop_changed_nodes() == set(), "the node had the last turn"
    result.update_node("a7", "a", False, NOW)
    assert turns(result, ["a9", "a7"]) == [10.0, 20.0]


def test_turn_that_has_started_is_not_released() -> None:
    result = zones(EvictionRates(eviction=0.1), **many("a", 6, 4))
    assert turns(result, ["a6", "a7"]) == [0.0, 10.0]
    result.update_node("a6", "a", True, NOW + 1)
    assert turns(result, ["a7", "a8"], NOW + 1) == [9.0, 19.0]


def test_node_that_fails_after_a_recovery_is_not_delayed() -> None:
    result = zones(EvictionRates(eviction=0.1), **many("a", 100, 100))
    silent = [f"a{i}" for i in range(100, 200)]
    assert turns(result, silent)[-1] == 990.0
    for name in silent:
        result.update_node(name, "a", True, NOW + 4)
    result.update_node("a0", "a", False, NOW + 100)
    assert turns(result, ["a0"], NOW + 100) == [0.0]


def test_moved_or_deleted_node_leaves_its_zone() -> None:
    result = zones(**many("a", 1, 1))
    result.update_node("a1", "b", False, NOW)
    assert result.states() == {"a": ZoneState.NORMAL, "b": ZoneState.FULL}
    result.remove_node("a1", NOW)
    assert result.states() == {"a": ZoneState.NORMAL}


def test_excluded_nodes_do_not_count_for_the_zone_state_and_get_turns() -> None:
    result = zones(EvictionRates(eviction=0.1), **many("a", 2, 2))
    for name in ("x", "y", "z"):
        result.update_node(name, "a", False, NOW, counts=False)
    assert result.states() == {"a": ZoneState.NORMAL}
    assert turns(result, ["a2", "x", "y"]) == [0.0, 10.0, 20.0]
    result.update_node("x", "a", False, NOW)  # the label is removed
    assert result.states() == {"a": ZoneState.PARTIAL}
    result.update_node("x", "a", True, NOW, counts=False)
    result.remove_node("y", NOW)
    assert result.states() == {"a": ZoneState.NORMAL}


def test_excluded_node_does_not_end_a_full_disruption() -> None:
    result = zones(**many("a", 0, 2), **many("b", 1, 0))
    result.update_node("b0", "b", True, NOW, counts=False)
    assert result.is_fully_disrupted
    result.remove_node("a0", NOW)
    result.remove_node("a1", NOW)
    assert not result.is_fully_disrupted, "no node counts"


@pytest.mark.parametrize(("label", "expected"), [("node.kubernetes.io/exclude-disruption", False), ("other", True)])
def test_label_excludes_a_node_from_the_zone_state(label: str, expected: bool) -> None:
    assert counts_for_zone(make_node("n").label(label, "").build()) is expected


def test_zone_key_has_region_and_zone() -> None:
    node = make_node("n").label("topology.kubernetes.io/region", "r").label("topology.kubernetes.io/zone", "z").build()
    assert zone_of(node) == "r:z" and zone_of(make_node("n").build()) == ""


# --- evictions


def toleration(seconds: int | None = None, **fields: str) -> Toleration:
    made = Toleration(key=UNREACHABLE, **({"operator": "Exists"} | fields))
    if seconds is not None:
        made.tolerationSeconds = seconds
    return made


@pytest.mark.parametrize(
    ("tolerations", "expected"),
    [
        ([], 0.0),
        ([toleration()], math.inf),
        ([toleration(300)], 300.0),
        ([toleration(0)], 0.0),
        ([toleration(-5)], 0.0),
        ([toleration(300), toleration()], 300.0),
        ([toleration(), toleration(300)], math.inf),
        ([toleration(300, effect="NoSchedule")], 0.0),
    ],
)
def test_toleration_time_of_a_taint(tolerations: list[Toleration], expected: float) -> None:
    pod = make_pod("p").build()
    pod.spec.tolerations.extend(tolerations)
    assert toleration_seconds(pod, Taint(key=UNREACHABLE, effect="NoExecute")) == expected
