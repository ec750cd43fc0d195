from itertools import islice

import pytest

from pinnace.api.machines import MachineOptions, MachineShape
from pinnace.api.wellknown import FLEET_LABEL, ZONE_LABEL
from pinnace.cli.outcomes import ExitCode, Failure
from pinnace.cli.verbs.node import build_node, find_fleet, generate_free_names
from tests.builders import make_node


def test_only_fleet_is_the_default() -> None:
    a, b = make_node("a").label(FLEET_LABEL, "f").build(), make_node("b").label(FLEET_LABEL, "g").build()
    assert find_fleet([a, a, make_node("n").build()], None) == "f"
    assert find_fleet([a, b], "h") == "h"
    with pytest.raises(Failure, match="there are 2 fleets: f, g") as several:
        find_fleet([a, b], None)
    with pytest.raises(Failure, match="no node belongs to a fleet yet") as none:
        find_fleet([make_node("n").build()], None)
    assert (several.value.report.code, none.value.report.code) == (ExitCode.USAGE, ExitCode.NOT_FOUND)


@pytest.mark.parametrize(
    ("taken", "names"),
    [([], ["node-0", "node-1"]), (["node-0", "node-7", "node-x", "other-9", "node-"], ["node-8", "node-9"])],
)
def test_names_go_on_after_the_highest(taken: list[str], names: list[str]) -> None:
    assert list(islice(generate_free_names(taken, "node-"), 2)) == names


def test_new_node_is_not_ready() -> None:
    """So that the API server keeps pods away until somebody plays it."""
    node = build_node("n", "f", MachineShape({"cpu": "4"}))
    assert node.metadata.labels[FLEET_LABEL] == "f" and node.status.allocatable["cpu"].string == "4"
    assert not node.status.conditions
    assert ZONE_LABEL not in node.metadata.labels, "the fleet knows its zones"


def test_new_nodes_are_dealt_out_to_zones_by_their_numbers() -> None:
    nodes = [build_node(f"n-{number}", "f", MachineShape(zones=("a", "b")), zoned=True) for number in (3, 4, 5)]
    assert [node.metadata.labels[ZONE_LABEL] for node in nodes] == ["b", "a", "b"]


def test_new_node_has_the_labels_and_taints_of_its_shape() -> None:
    shape = MachineOptions(labels="disk=ssd", taints="dedicated=db:NoSchedule").shape()
    node = build_node("n", "f", shape)
    assert node.metadata.labels["disk"] == "ssd"
    assert [(taint.key, taint.value, taint.effect) for taint in node.spec.taints] == [("dedicated", "db", "NoSchedule")]
