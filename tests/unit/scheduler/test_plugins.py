"""Each built-in plugin on its own: which nodes it refuses, what it says, what it likes, what helps."""

from collections.abc import Callable, Mapping
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from pinnace.fit.room import matches
from pinnace.scheduler.cache.cache import Change, ClusterEvent
from pinnace.scheduler.framework import SKIP, CycleState, EnqueueHint, FilterPlugin, NodeTable, PreFilterPlugin
from pinnace.scheduler.plugins.node_affinity import NodeAffinity
from pinnace.scheduler.plugins.node_resources import NodeResourcesBalancedAllocation, NodeResourcesFit
from pinnace.scheduler.plugins.nodes import NodeName, NodePorts, NodeUnschedulable, TaintToleration
from pinnace.scheduler.plugins.queue_and_bind import SchedulingGates
from tests.builders import NodeBuilder, PodBuilder, make_node, make_pod
from tests.unit.scheduler.pods import cache_of, info

GPU = make_node("gpu").taint("gpu", "true")
PLAIN = make_node("plain")
AFFINITY = "node(s) didn't match Pod's node affinity/selector"
PORTS = "node(s) didn't have free ports for the requested pod ports"


def pod() -> PodBuilder:
    return make_pod("new")


def refusals(plugin: FilterPlugin, wanted: PodBuilder, *nodes: NodeBuilder, placed: tuple[PodBuilder, ...] = ()) -> list[str]:
    """For each node what the plugin says, "" where it passes."""
    table, state = cache_of(*nodes, placed=placed).nodes, CycleState()
    if isinstance(plugin, PreFilterPlugin) and plugin.pre_filter(state, info(wanted), table) is SKIP:
        return [""] * len(nodes)
    told = plugin.filter(state, info(wanted), table).explain()
    return [", ".join(told.reasons(int(code))) if code else "" for code in told.codes]


@pytest.mark.parametrize(
    ("wanted", "nodes", "expected"),
    [
        (pod().req(cpu=1), [make_node("n").capacity(cpu=1, pods=1)], [""]),
        (pod().req(cpu=2), [make_node("n").capacity(cpu=1, pods=1)], ["Insufficient cpu"]),
        (
            pod().req(cpu=2, memory="1Gi"),
            [make_node("n").capacity(cpu=1), make_node("m").capacity(cpu=2, pods=1, memory="1Gi")],
            ["Too many pods, Insufficient cpu, Insufficient memory", ""],
        ),
        (pod().container({"example.com/gpu": 1}), [PLAIN], ["Insufficient example.com/gpu"]),
        (pod(), [make_node("n").capacity(cpu=1)], ["Too many pods"]),
        (pod().container({f"example.com/r{i}": 1 for i in range(9)}), [PLAIN.extended("example.com/r8", 1)], [
            ", ".join(f"Insufficient example.com/r{i}" for i in range(8))
        ]),
    ],
)  # fmt: skip
def test_node_resources_fit(wanted: PodBuilder, nodes: list[NodeBuilder], expected: list[str]) -> None:
    assert refusals(NodeResourcesFit(), wanted, *nodes) == expected


@pytest.mark.parametrize("number", [60, 61, 62, 63, 64, 65, 200])
def test_all_insufficient_resources_are_reported(number: int) -> None:
    """However many of them there are, and whichever it is."""
    resources = [f"example.com/r{i:03d}" for i in range(number)]
    wanted = pod().container(dict.fromkeys(resources, 1))

    def node(name: str, *without: str) -> NodeBuilder:
        made = make_node(name)
        for resource in set(resources) - set(without):
            made.extended(resource, 1)
        return made

    first, last = resources[0], resources[-1]
    nodes = [node("none", *resources), node("a", last), node("b", first, last), node("c", last), node("all"), node("d", first)]
    told = [f"Insufficient {resource}" for resource in resources]
    both = f"{told[0]}, {told[-1]}"
    assert refusals(NodeResourcesFit(), wanted, *nodes) == [", ".join(told), told[-1], both, told[-1], "", told[0]]
    assert refusals(NodeResourcesFit(), wanted, *nodes[1:]) == [told[-1], both, told[-1], "", told[0]]
    assert refusals(NodeResourcesFit(), wanted, nodes[4]) == [""]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (pod(), ["node(s) had untolerated taint {gpu: true}", ""]),
        (pod().tolerate("gpu", "true"), ["", ""]),
        (pod().tolerate("gpu", "true", effect="NoExecute"), ["node(s) had untolerated taint {gpu: true}", ""]),
    ],
)
def test_taint_toleration(wanted: PodBuilder, expected: list[str]) -> None:
    assert refusals(TaintToleration(), wanted, GPU, PLAIN) == expected


def test_first_untolerated_taint_is_named() -> None:
    node = make_node("n").taint("a", effect="PreferNoSchedule").taint("b", "1").taint("c", "2", "NoExecute")
    assert refusals(TaintToleration(), pod().tolerate("b", "1"), node) == ["node(s) had untolerated taint {c: 2}"]


def test_taints_that_are_only_disliked() -> None:
    plugin, state = TaintToleration(), CycleState()
    soft = "PreferNoSchedule"
    table = cache_of(
        make_node("none"),
        make_node("one").taint("a", effect=soft),
        make_node("two").taint("a", effect=soft).taint("b", effect=soft),
    ).nodes
    feasible = np.array([True, True, True])
    assert plugin.pre_score(state, info(pod()), table, feasible) is None
    scores = plugin.score(state, info(pod()), table, feasible)
    assert plugin.normalize(state, scores, feasible).tolist() == [100, 50, 0]
    assert plugin.normalize(state, scores, np.array([True, True, False])).tolist()[:2] == [100, 0]
    tolerating = pod().tolerate(operator="Exists")
    assert plugin.pre_score(state, info(tolerating), table, feasible) is SKIP


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (pod(), ["node(s) were unschedulable", ""]),
        (pod().tolerate("node.kubernetes.io/unschedulable", operator="Exists"), ["", ""]),
        (pod().tolerate("node.kubernetes.io/unschedulable", operator="Exists", effect="NoExecute"), [
            "node(s) were unschedulable", "",
        ]),
    ],
)  # fmt: skip
def test_node_unschedulable(wanted: PodBuilder, expected: list[str]) -> None:
    assert refusals(NodeUnschedulable(), wanted, make_node("n").unschedulable(), make_node("m")) == expected


def test_node_name() -> None:
    assert refusals(NodeName(), pod().node("m"), make_node("n"), make_node("m")) == [
        "node(s) didn't match the requested node name",
        "",
    ]
    assert refusals(NodeName(), pod().node("nowhere"), make_node("n")) == ["node(s) didn't match the requested node name"]


def test_node_ports() -> None:
    placed = (make_pod("there").host_port(80).node("n"),)
    nodes = make_node("n"), make_node("m")
    assert refusals(NodePorts(), pod().host_port(80), *nodes, placed=placed) == [PORTS, ""]
    assert refusals(NodePorts(), pod().host_port(80, "UDP"), *nodes, placed=placed) == ["", ""]
    assert refusals(NodePorts(), pod(), *nodes, placed=placed) == ["", ""]


ZONES = [make_node("east").label("zone", "east").label("size", "4"), make_node("west").label("zone", "west"), PLAIN]


@pytest.mark.parametrize(
    ("wanted", "matching"),
    [
        (pod(), "east west plain"),
        (pod().node_selector("zone", "east"), "east"),
        (pod().node_selector("zone", "east").node_selector("size", "5"), ""),
        (pod().node_affinity(("zone", "In", ["east", "west"])), "east west"),
        (pod().node_affinity(("zone", "NotIn", ["east"])), "west plain"),
        (pod().node_affinity(("zone", "Exists", [])), "east west"),
        (pod().node_affinity(("zone", "DoesNotExist", [])), "plain"),
        (pod().node_affinity(("size", "Gt", ["3"])), "east"),
        (pod().node_affinity(("size", "Lt", ["4"])), ""),
        (pod().node_affinity(("size", "Gt", ["many"])), ""),
        (pod().node_affinity(("size", "Around", ["4"])), ""),
        (pod().node_affinity(("zone", "Exists", []), ("size", "Exists", [])), "east"),
        (pod().node_affinity(("zone", "In", ["west"])).node_affinity(("size", "Exists", [])), "east west"),
        (pod().node_affinity(), ""),
        (pod().node_selector("zone", "east").node_affinity(("zone", "In", ["west"])), ""),
    ],
)
def test_node_affinity(wanted: PodBuilder, matching: str) -> None:
    expected = ["" if name in matching.split() else AFFINITY for name in ("east", "west", "plain")]
    assert refusals(NodeAffinity(), wanted, *ZONES) == expected


@pytest.mark.parametrize(
    ("operator", "names", "expected"),
    [("In", ["west"], [AFFINITY, "", AFFINITY]), ("NotIn", ["west"], ["", AFFINITY, ""]), ("Gt", ["1"], [AFFINITY] * 3)],
)
def test_node_affinity_to_a_name(operator: str, names: list[str], expected: list[str]) -> None:
    assert refusals(NodeAffinity(), pod().node_fields(operator, names), *ZONES) == expected


@pytest.mark.parametrize("size", ["1_000", "9" * 20, "٣"])
def test_node_label_that_is_no_number_does_not_match(size: str) -> None:
    wanted, node = pod().node_affinity(("size", "Gt", ["1"])), make_node("n").label("size", size)
    assert refusals(NodeAffinity(), wanted, node) == [AFFINITY]
    assert not matches(wanted.build().spec, node.build())


def test_emptier_node_is_liked() -> None:
    table = cache_of(make_node("full"), make_node("empty"), placed=[make_pod("a").req(cpu=3).node("full")]).nodes
    full, empty = NodeResourcesFit().score({}, info(pod().req(cpu=1)), table, np.ones(2, np.bool_))
    assert 0 <= full < empty <= 100


def test_node_that_stays_balanced_is_preferred() -> None:
    nodes = (
        make_node("half").capacity(cpu=4, memory="4Gi", pods=9),
        make_node("lopsided").capacity(cpu=4, memory="32Gi", pods=9),
    )
    wanted = info(pod().req(cpu=2, memory="2Gi"))
    half, lopsided = NodeResourcesBalancedAllocation().score({}, wanted, cache_of(*nodes).nodes, np.ones(2, np.bool_))
    assert half == 75 and lopsided < 75


def test_pod_that_balances_a_node_is_preferred_there() -> None:
    """kubernetes#129733: only the balance with the pod counted, and not what the pod changes."""
    nodes = [make_node(name).capacity(cpu=4, memory="4Gi", pods=9) for name in ("lopsided", "balanced")]
    there = make_pod("there").req(memory="3Gi").node("lopsided")
    table = cache_of(*nodes, placed=[there]).nodes
    lopsided, balanced = NodeResourcesBalancedAllocation().score({}, info(pod().req(cpu=1)), table, np.ones(2, np.bool_))
    assert (lopsided, balanced) == (81, 68)


@pytest.mark.parametrize("args", [{}, {"resources": [{"name": name} for name in ("cpu", "memory", "example.com/gpu")]}])
def test_balance_is_of_what_is_requested(args: Mapping[str, Any]) -> None:
    """Nothing is made up for a container that requests no memory, and nothing for pods that request nothing at all."""
    nodes = [make_node(name).capacity(cpu=4, memory="4Gi", pods=99) for name in ("crowded", "used", "empty")]
    crowd = [make_pod(f"idle{number}").req().node("crowded") for number in range(30)]
    table = cache_of(*nodes, placed=[*crowd, make_pod("there").req(memory="2Gi").node("used")]).nodes
    scores = NodeResourcesBalancedAllocation(args).score({}, info(pod().req(cpu=2)), table, np.ones(3, np.bool_))
    assert scores.tolist() == [62, 87, 62]


def test_node_without_memory_is_balanced() -> None:
    table = cache_of(make_node("n").capacity(cpu=4, pods=9)).nodes
    assert NodeResourcesBalancedAllocation().score({}, info(pod().req(cpu=1)), table, np.ones(1, np.bool_)) == 75


@pytest.mark.parametrize(
    ("used", "expected"), [({"cpu": "100m", "memory": "1792Mi"}, 77), ({"cpu": "500m", "memory": "128Mi"}, 73)]
)
@pytest.mark.parametrize("args", [{}, {"resources": [{"name": name} for name in ("cpu", "memory", "example.com/gpu")]}])
def test_balances_are_truncated_before_they_are_compared(
    args: Mapping[str, Any], used: Mapping[str, str], expected: int
) -> None:
    """Scores of kube-scheduler 1.36.2. Without the inner truncation they are 76 and 72."""
    node = make_node("n").capacity(cpu=4, memory="8Gi", pods=9)
    table = cache_of(node, placed=[make_pod("there").req(**used).node("n")]).nodes
    pod_ = info(pod().req(cpu="800m", memory="960Mi"))
    assert NodeResourcesBalancedAllocation(args).score({}, pod_, table, np.ones(1, np.bool_)) == expected


def test_balance_does_not_matter_to_a_pod_that_requests_nothing() -> None:
    plugin, table = NodeResourcesBalancedAllocation(), cache_of(PLAIN).nodes
    assert plugin.pre_score({}, info(pod()), table, np.ones(1, np.bool_)) is SKIP
    assert plugin.pre_score({}, info(pod().req(memory=1)), table, np.ones(1, np.bool_)) is None


def test_gates() -> None:
    assert SchedulingGates().pre_enqueue(info(pod()))
    assert not SchedulingGates().pre_enqueue(info(pod().gate("wait")))


@pytest.mark.parametrize(
    ("plugin", "wanted", "node", "change", "expected"),
    [
        (NodeResourcesFit, pod().req(cpu=4), make_node("n"), Change.POD_FREED, True),
        (NodeResourcesFit, pod().req(cpu=5), make_node("n"), Change.POD_FREED, False),
        (NodeResourcesFit, pod().req(cpu=4), make_node("n"), Change.NODE_TAINTS, False),
        (TaintToleration, pod(), make_node("n"), Change.NODE_TAINTS, True),
        (TaintToleration, pod(), GPU, Change.NODE_ADDED, False),
        (TaintToleration, pod(), make_node("n"), Change.POD_FREED, False),
        (NodeAffinity, pod().node_selector("a", "b"), make_node("n").label("a", "b"), Change.NODE_LABELS, True),
        (NodeAffinity, pod().node_selector("a", "b"), make_node("n"), Change.NODE_LABELS, False),
        (NodeUnschedulable, pod(), make_node("n"), Change.NODE_TAINTS, True),
        (NodeUnschedulable, pod(), make_node("n").unschedulable(), Change.NODE_ADDED, False),
        (NodeName, pod().node("n"), make_node("n"), Change.NODE_ADDED, True),
        (NodeName, pod().node("n"), make_node("m"), Change.NODE_ADDED, False),
        (NodePorts, pod().host_port(80), make_node("n"), Change.POD_FREED, True),
    ],
)
def test_hints(
    plugin: Callable[[], EnqueueHint], wanted: PodBuilder, node: NodeBuilder, change: Change, expected: bool
) -> None:
    hint, table = plugin(), cache_of(node).nodes
    event = ClusterEvent(change, node.build().metadata.name)
    assert (bool(change & hint.helped_by) and hint.helps(event, info(wanted), table)) is expected


@pytest.mark.parametrize(
    "required", [None, {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}]
)
def test_hint_of_a_node_event_examines_only_this_node(required: dict[str, Any] | None) -> None:
    """And not all of them: many pods may wait for a node each, and many nodes come."""
    added = {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}} if required is not None else {}
    wanted = info(pod().node_selector("a", "b").node_affinity(("a", "In", ["b"])))
    table = cache_of(make_node("n"), make_node("m").label("a", "b")).nodes
    with patch.object(NodeTable, "label", side_effect=AssertionError("a column was made")):
        helped = [NodeAffinity(added).helps(ClusterEvent(Change.NODE_ADDED, name), wanted, table) for name in "nm"]
    assert helped == [False, True]


def test_ports_that_are_still_taken_do_not_help() -> None:
    table = cache_of(make_node("n"), placed=[make_pod("there").host_port(80).node("n")]).nodes
    assert not NodePorts().helps(ClusterEvent(Change.POD_FREED, "n"), info(pod().host_port(80)), table)
