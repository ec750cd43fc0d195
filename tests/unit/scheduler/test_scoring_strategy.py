"""Strategies of the resource scores: Kubernetes' documented semantics in tables, and all nodes at once as one by one."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinnace import fit
from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.scheduler.config import Configuration, parse_configuration, write_configuration
from pinnace.scheduler.framework import FloatArray
from pinnace.scheduler.plugins.node_resources import NodeResourcesBalancedAllocation, NodeResourcesFit
from tests.builders import NodeBuilder, PodBuilder, make_node, make_pod
from tests.unit.scheduler.pods import cache_of, info

GPU = "example.com/gpu"
NODE = make_node("n").capacity(cpu=4, memory="4000Mi", pods=10).extended(GPU, 4)
POD = make_pod("new").req(cpu=1, memory="2000Mi")
SHAPE = [{"utilization": 0, "score": 0}, {"utilization": 50, "score": 10}, {"utilization": 100, "score": 2}]
Args = Mapping[str, Any]


def strategy(kind: str, *resources: tuple[str, int], **more: Any) -> Args:
    return {"scoringStrategy": {"type": kind, "resources": [{"name": n, "weight": w} for n, w in resources], **more}}


def ratio(*resources: tuple[str, int]) -> Args:
    return strategy("RequestedToCapacityRatio", *resources, requestedToCapacityRatio={"shape": SHAPE})


def score(args: Args, pod: PodBuilder, *nodes: NodeBuilder, placed: tuple[PodBuilder, ...] = ()) -> FloatArray:
    everywhere = np.ones(len(nodes), np.bool_)
    return NodeResourcesFit(args).score({}, info(pod), cache_of(*nodes, placed=placed).nodes, everywhere)


def test_overcommitted_node_scores_zero() -> None:
    """Pods that request nothing count as small ones: a hundred are more than four cores. Equal weights are equal weights."""
    crowd = tuple(make_pod(f"p{i}").req().node("n") for i in range(100))
    twice = strategy("LeastAllocated", ("cpu", 2), ("memory", 2))
    usual, same = (score(args, make_pod("new").req(), NODE, placed=crowd) for args in ({}, twice))
    assert usual == same and usual >= 0
    everywhere = np.ones(1, np.bool_)
    table = cache_of(NODE, placed=crowd).nodes
    assert 0 <= NodeResourcesBalancedAllocation().score({}, info(POD), table, everywhere)[0] <= 100


@pytest.mark.parametrize(
    ("args", "pod", "expected"),
    [
        ({}, POD, (75 + 50) / 2),
        (strategy("LeastAllocated", ("cpu", 3), ("memory", 1)), POD, (3 * 75 + 50) / 4),
        (strategy("LeastAllocated", ("cpu", 1), (GPU, 1)), POD, 75),
        (strategy("LeastAllocated", ("cpu", 1), (GPU, 1)), make_pod("g").container({"cpu": 1, GPU: 1}), 75),
        (strategy("MostAllocated", ("cpu", 1), ("memory", 1)), POD, (25 + 50) / 2),
        (strategy("MostAllocated", ("cpu", 1), ("memory", 3)), POD, (25 + 150) / 4),
        (strategy("MostAllocated", (GPU, 1)), make_pod("g").container({GPU: 3}), 75),
        (strategy("MostAllocated", (GPU, 1)), POD, 0),
        (strategy("MostAllocated", ("cpu", 1)), make_pod("big").req(cpu=9), 100),
        (strategy("LeastAllocated", ("cpu", 1)), make_pod("big").req(cpu=9), 0),
        (strategy("LeastAllocated", ("cpu", 1)), make_pod("nothing").req(), 97),
        (
            strategy("LeastAllocated", ("cpu", 1), ("none.io/such", 5)),
            make_pod("s").container({"cpu": 1, "none.io/such": 1}),
            75,
        ),
        (ratio(("memory", 1)), POD, 100),
        (ratio(("cpu", 1), ("memory", 3)), POD, 88),
        (ratio((GPU, 1)), make_pod("g").container({GPU: 3}), 60),
        (ratio((GPU, 1)), make_pod("g").container({GPU: 9}), 20),
    ],
)
def test_strategies(args: Args, pod: PodBuilder, expected: float) -> None:
    assert score(args, pod, NODE)[0] == pytest.approx(expected)


def test_resource_that_scores_nothing_is_not_counted_in_a_ratio() -> None:
    flat = [{"utilization": 30, "score": 0}, {"utilization": 50, "score": 10}]
    args = strategy("RequestedToCapacityRatio", ("cpu", 1), ("memory", 1), requestedToCapacityRatio={"shape": flat})
    assert score(args, POD, NODE)[0] == pytest.approx(100)


@pytest.mark.parametrize(
    ("args", "expected"),
    [({}, 75), (strategy("LeastAllocated", ("cpu", 1), ("memory", 2)), 75), (ratio(("cpu", 1), ("memory", 1)), 50)],
)
def test_resource_that_a_node_lacks_does_not_count(args: Args, expected: float) -> None:
    without = make_node("n").capacity(cpu=4, pods=9)
    assert score(args, make_pod("new").req(cpu=1, memory=0), without)[0] == pytest.approx(expected)


def test_packing_and_spreading_choose_differently() -> None:
    nodes, placed = (make_node("full"), make_node("empty")), (make_pod("there").req(cpu=2, memory="1Gi").node("full"),)
    most, least = (score(strategy(kind), POD, *nodes, placed=placed) for kind in ("MostAllocated", "LeastAllocated"))
    assert most[0] > most[1] and least[0] < least[1]


@pytest.mark.parametrize(
    ("args", "passes"),
    [
        ({}, False),
        ({"ignoredResources": [GPU]}, True),
        ({"ignoredResourceGroups": ["example.com"]}, True),
        ({"ignoredResourceGroups": ["example.org"], "ignoredResources": ["cpu"]}, False),
    ],
)
def test_ignored_resources(args: Args, passes: bool) -> None:
    pod = info(make_pod("g").container({"cpu": 1, GPU: 9}))
    plugin, nodes = NodeResourcesFit(args), cache_of(NODE).nodes
    result = plugin.filter({}, pod, nodes)
    assert bool(result.passed[0]) is passes
    if not passes:
        assert result.explain().reasons(int(result.explain().codes[0])) == [f"Insufficient {GPU}"]


def test_cpu_cannot_be_ignored() -> None:
    plugin = NodeResourcesFit({"ignoredResources": ["cpu"]})
    assert not plugin.filter({}, info(make_pod("big").req(cpu=9)), cache_of(NODE).nodes).passed[0]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"strategy": 1}, "strategy: unknown field"),
        ({"ignoredResources": "gpu"}, "ignoredResources: expected a list of names"),
        (
            {"ignoredResources": [GPU, "example.com/"]},
            r"ignoredResources\[1\]: name part must be non-empty, got 'example.com/'",
        ),
        ({"ignoredResources": ["example.com/a/b"]}, r"ignoredResources\[0\]: a valid label key"),
        (
            {"ignoredResourceGroups": [GPU]},
            r"ignoredResourceGroups\[0\]: expected only the part before the '/', got 'example.com/gpu'",
        ),
        ({"ignoredResourceGroups": ["a" * 64]}, r"ignoredResourceGroups\[0\]: name part must be no more than 63 bytes"),
        ({"scoringStrategy": []}, "scoringStrategy: expected fields"),
        (strategy("Best"), "scoringStrategy.type: expected LeastAllocated, MostAllocated or Requested"),
        (
            strategy("MostAllocated", ("cpu", 101)),
            r"scoringStrategy.resources\[0\].weight: expected a whole number from 1 to 100",
        ),
        (
            strategy("MostAllocated", ("cpu", 1), ("cpu", 1)),
            r"resources\[1\].name: expected a resource name without duplicates",
        ),
        (strategy("RequestedToCapacityRatio"), "requestedToCapacityRatio.shape: expected a list"),
        (strategy("MostAllocated", requestedToCapacityRatio={}), "requires the type RequestedToCapacityRatio"),
        (
            strategy("RequestedToCapacityRatio", requestedToCapacityRatio={"shape": [SHAPE[1], SHAPE[0]]}),
            r"shape\[1\].utilization: expected more than 50, got 0",
        ),
    ],
)
def test_mistakes_are_named(args: Args, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NodeResourcesFit(args)


def test_balance_of_any_resources() -> None:
    args = {"resources": [{"name": name} for name in ("cpu", "memory", GPU)]}
    plugin, nodes = (
        NodeResourcesBalancedAllocation(args),
        cache_of(NODE, make_node("without").capacity(cpu=4, memory="4000Mi")).nodes,
    )
    pod = make_pod("g").container({"cpu": 1, "memory": "2000Mi", GPU: 3})
    scores = plugin.score({}, info(pod), nodes, np.ones(2, np.bool_))
    assert scores.tolist() == [50 + (50 + 79 - 100) // 2, 50 + (50 + 87 - 100) // 2]


@pytest.mark.parametrize(
    ("free", "kind", "expected"),
    [(1, "LeastAllocated", 49), (1, "MostAllocated", 50), (-1, "LeastAllocated", 50), (-1, "MostAllocated", 49)],
)
def test_percentages_are_exact_to_the_byte(free: int, kind: str, expected: int) -> None:
    """One byte in 32 TiB is less than the error of a quotient that is a product with the inverse."""
    half = 1 << 44
    node = make_node("n").capacity(cpu=4, memory=2 * half, pods=10)
    new = make_pod("new").req(cpu=2, memory=half + free)
    for args in (strategy(kind, ("memory", 1)), strategy(kind, ("memory", 2))):
        assert score(args, new, node)[0] == expected
    if kind == "LeastAllocated":
        assert score({}, new, node)[0] == (50 + expected) / 2


def test_ratio_truncates_differences_and_rounds_halves_up() -> None:
    """A falling line is truncated towards its start, and 62.5 becomes 63."""
    fall = [{"utilization": 0, "score": 10}, {"utilization": 30, "score": 0}]
    args = strategy("RequestedToCapacityRatio", ("cpu", 1), requestedToCapacityRatio={"shape": fall})
    assert score(args, make_pod("p").req(cpu="400m", memory=0), NODE)[0] == 67
    rise = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
    args = strategy("RequestedToCapacityRatio", ("cpu", 1), ("memory", 1), requestedToCapacityRatio={"shape": rise})
    assert score(args, make_pod("p").req(cpu=3, memory="2000Mi"), NODE)[0] == 63


@pytest.mark.parametrize("args", [{}, strategy("LeastAllocated", ("cpu", 2), ("memory", 2))])
def test_pod_level_requests_do_not_count_for_the_pod_itself(args: Args) -> None:
    """kube-scheduler 1.36 scores NodeResourcesFit by the containers of the pod, and counts pods on nodes as a whole."""
    whole = make_pod("whole").container({"cpu": "400m", "memory": "400Mi"}).pod_level(cpu=3, memory="1000Mi")
    assert score(args, whole, NODE)[0] == 90
    new = make_pod("new").req(cpu="400m", memory="400Mi")
    assert score(args, new, NODE, placed=(whole.node("n"),))[0] == (15 + 65) / 2
    balance = NodeResourcesBalancedAllocation().score({}, info(whole), cache_of(NODE).nodes, np.ones(1, np.bool_))
    assert balance[0] == 50 + (50 + 75 - 100) // 2


def test_balance_knows_no_weights() -> None:
    with pytest.raises(ValueError, match=r"resources\[1\].weight: expected 1, got 2: all resources count equally"):
        NodeResourcesBalancedAllocation({"resources": [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 2}]})


def test_written_arguments_contain_defaults() -> None:
    args = parse_configuration(write_configuration(Configuration())).profiles[0].args
    assert args["NodeResourcesFit"]["scoringStrategy"] == {
        "type": "LeastAllocated",
        "resources": [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}],
    }


def plain(args: Args, pod: Pod, node: Node, pods: list[Pod]) -> float:
    """The same, about one node and as plainly as can be."""
    wanted, has = args["scoringStrategy"], fit.allocatable_amounts(node)
    total = weights = 0.0
    for item in wanted["resources"]:
        name, capacity = item["name"], has.get(item["name"], 0)
        if name in ("cpu", "memory"):
            used = sum(fit.pod_requests(other).scored[("cpu", "memory").index(name)] for other in (pod, *pods))
        else:
            used = sum(dict(fit.pod_requests(other).amounts).get(name, 0) for other in (pod, *pods))
            if name not in dict(fit.pod_requests(pod).amounts):
                continue
        if not capacity:
            continue
        if wanted["type"] == "RequestedToCapacityRatio":
            liked = line(min(used, capacity) * 100 // capacity)
            if not liked:
                continue
        elif wanted["type"] == "MostAllocated":
            liked = min(used, capacity) * 100 // capacity
        else:
            liked = max(capacity - used, 0) * 100 // capacity
        total += liked * item["weight"]
        weights += item["weight"]
    mean = total / weights if weights else 0.0
    return math.floor(mean + 0.5) if wanted["type"] == "RequestedToCapacityRatio" else mean


def line(percent: int) -> int:
    """Return the score of a utilization by SHAPE. The difference to the point before is truncated."""
    return percent * 2 if percent <= 50 else 100 - (percent - 50) * 80 // 50


amounts = st.fixed_dictionaries(
    {}, optional={"cpu": st.integers(0, 3), "memory": st.integers(0, 2**28), GPU: st.integers(0, 2)}
)
weights = st.integers(1, 5)
names = st.lists(st.sampled_from(["cpu", "memory", GPU]), min_size=1, unique=True)


@given(
    st.sampled_from(["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]),
    names.flatmap(lambda found: st.tuples(*(st.tuples(st.just(name), weights) for name in found))),
    st.lists(amounts, min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(0, 7), amounts), max_size=6),
    amounts,
)
def test_all_nodes_at_once_as_one_by_one(
    kind: str,
    resources: tuple[tuple[str, int], ...],
    capacities: list[dict[str, int]],
    placed: list[tuple[int, dict[str, int]]],
    wanted: dict[str, int],
) -> None:
    args = ratio(*resources) if kind == "RequestedToCapacityRatio" else strategy(kind, *resources)
    nodes = [make_node(f"n{i}").capacity(pods=9, **has) for i, has in enumerate(capacities)]
    pods = [make_pod(f"p{i}").container(has).node(f"n{row % len(nodes)}") for i, (row, has) in enumerate(placed)]
    pod = make_pod("new").container(wanted)
    if args["scoringStrategy"] == NodeResourcesFit.complete({})["scoringStrategy"]:
        return  # the usual one has a test of its own
    native = score(args, pod, *nodes, placed=tuple(pods))
    for row, node in enumerate(nodes):
        there = [built for other in pods if (built := other.build()).spec.nodeName == node.build().metadata.name]
        assert native[row] == pytest.approx(plain(args, pod.build(), node.build(), there), abs=1e-6)
