"""The native plugins say what the plain ones say, whatever the cluster and the pod."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinnace.scheduler.cache.pod_info import PodInfo
from pinnace.scheduler.framework import FilterPlugin, NodeTable, ResourceFilterPlugin
from pinnace.scheduler.plugins.node_resources import NodeResourcesBalancedAllocation, NodeResourcesFit
from pinnace.verification.plugins.world import run_filter_plugin
from tests.builders import NodeBuilder, PodBuilder, make_node, make_pod
from tests.examples import examples
from tests.unit.scheduler import reference
from tests.unit.scheduler.pods import cache_of, default_plugins, framework

pytestmark = pytest.mark.slow

PLUGINS = [enabled.plugin for enabled in default_plugins()]
FRAMEWORK = framework()
EFFECTS = ["NoSchedule", "NoExecute", "PreferNoSchedule"]
RESOURCES = ["cpu", "memory", "example.com/gpu"]
OPERATORS = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
keys = st.sampled_from(["a", "b"])
values = st.sampled_from(["", "1", "2"])
numbers = st.sampled_from(["1", "2"])


@st.composite
def nodes(draw: st.DrawFn, name: str) -> NodeBuilder:
    node = make_node(name).capacity(cpu=draw(st.integers(0, 4)), memory=draw(st.integers(0, 4)), pods=draw(st.integers(0, 4)))
    for key, value in draw(st.dictionaries(keys, values)).items():
        node.label(key, value)
    for key, value, effect in draw(st.lists(st.tuples(keys, values, st.sampled_from(EFFECTS)), max_size=2)):
        node.taint(key, value, effect)
    if draw(st.booleans()):
        node.extended("example.com/gpu", 1)
    return node.unschedulable(draw(st.integers(0, 5)) == 0)


@st.composite
def pods(draw: st.DrawFn, name: str) -> PodBuilder:
    pod = make_pod(name)
    for requests in draw(st.lists(st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 3)), max_size=2)):
        pod.container(requests=dict(requests))
    for port in draw(st.lists(st.integers(80, 82), max_size=1)):
        pod.host_port(port, ip=draw(st.sampled_from(["", "10.0.0.1"])))
    for key, value in draw(st.dictionaries(keys, values, max_size=1)).items():
        pod.node_selector(key, value)
    for key, value in draw(st.lists(st.tuples(st.sampled_from(["", "a", "b"]), values), max_size=2)):
        operator = "Exists" if not key else draw(st.sampled_from(["", "Equal", "Exists"]))
        pod.tolerate(key, value, draw(st.sampled_from(["", *EFFECTS])), operator)
    for key, operator in draw(st.lists(st.tuples(keys, st.sampled_from(OPERATORS)), max_size=2)):
        pod.node_affinity((key, operator, [draw(numbers)] if operator in ("In", "NotIn", "Gt", "Lt") else []))
    return pod


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[NodeBuilder], list[PodBuilder]]:
    names = [f"n{i}" for i in range(draw(st.integers(1, 5)))]
    placed = [draw(pods(f"p{i}")).node(draw(st.sampled_from(names))) for i in range(draw(st.integers(0, 4)))]
    return [draw(nodes(name)) for name in names], placed


@settings(max_examples=examples(50))
@given(clusters(), pods("new"))
def test_filters(cluster: tuple[list[NodeBuilder], list[PodBuilder]], wanted: PodBuilder) -> None:
    builders, placed = cluster
    cache, pod = cache_of(*builders, placed=placed), wanted.build()
    expected = []
    for builder in builders:
        node = builder.build()
        on_node = [each for other in placed if (each := other.build()).spec.nodeName == node.metadata.name]
        expected.append(reference.reasons(pod, node, on_node))

    assert verdicts(PodInfo(pod), cache.nodes) == expected

    judged = FRAMEWORK.run_filters({}, PodInfo(pod), cache.nodes)
    assert judged.feasible.tolist() == [not reasons for reasons in expected]


@settings(max_examples=examples(50))
@given(clusters(), pods("new"))
def test_filter_says_of_a_single_node_what_it_says_of_all(
    cluster: tuple[list[NodeBuilder], list[PodBuilder]], wanted: PodBuilder
) -> None:
    builders, placed = cluster
    cache, pod = cache_of(*builders, placed=placed), PodInfo(wanted.build())
    for plugin in PLUGINS:
        if isinstance(plugin, ResourceFilterPlugin):
            told = plugin.filter({}, pod, cache.nodes).explain()
            for row, code in enumerate(told.codes.tolist()):
                lacking = plugin.lacking(pod, partial(cache.nodes.free_at, row))
                assert sorted(lacking) == sorted(told.reasons(code) if code else [])


def verdicts(pod: PodInfo, table: NodeTable) -> list[list[str]]:
    """For each node, the reasons of the first filter that refuses it."""
    found: list[list[str]] = [[] for _ in table.names]
    for plugin in PLUGINS:
        if isinstance(plugin, FilterPlugin):
            reasons = run_filter_plugin(plugin, {}, pod, table)
            found = [first or list(refused) for first, refused in zip(found, reasons, strict=True)]
    return found


QUANTITIES = {"cpu": st.integers(1, 4000).map(lambda cpu: f"{cpu}m"), "memory": st.integers(1, 8 << 30)}
requests = st.fixed_dictionaries({}, optional=QUANTITIES | {"example.com/gpu": st.integers(1, 4)})


@settings(max_examples=examples(50))
@given(requests, st.lists(requests, min_size=1, max_size=8))
def test_balance_is_that_of_a_single_node_for_any_amounts(new: dict[str, Any], used: list[dict[str, Any]]) -> None:
    """Amounts with remainders, for which each truncation counts."""
    capacity = {"cpu": 4, "memory": "8Gi", "pods": 9}
    nodes = [make_node(f"n{number}").capacity(**capacity).extended("example.com/gpu", 4) for number in range(len(used))]
    placed = [make_pod(f"p{number}").container(requests=each).node(f"n{number}") for number, each in enumerate(used)]
    pod, table = make_pod("new").container(requests=new).build(), cache_of(*nodes, placed=placed).nodes
    for resources in (["cpu", "memory"], ["cpu", "memory", "example.com/gpu"]):
        plugin = NodeResourcesBalancedAllocation({"resources": [{"name": name} for name in resources]})
        scores = plugin.score({}, PodInfo(pod), table, np.ones(len(nodes), np.bool_))
        assert scores.tolist() == [
            reference.balanced(pod, node.build(), [there.build()], resources) for node, there in zip(nodes, placed, strict=True)
        ]


@given(clusters(), pods("new"))
def test_scores(cluster: tuple[list[NodeBuilder], list[PodBuilder]], wanted: PodBuilder) -> None:
    builders, placed = cluster
    cache, pod = cache_of(*builders, placed=placed), wanted.build()
    everywhere = np.ones(len(builders), np.bool_)
    for plugin, plain in (
        (NodeResourcesFit(), reference.least_allocated),
        (NodeResourcesBalancedAllocation(), reference.balanced),
    ):
        native = plugin.score({}, PodInfo(pod), cache.nodes, everywhere)
        for row, builder in enumerate(builders):
            node = builder.build()
            on_node = [each for other in placed if (each := other.build()).spec.nodeName == node.metadata.name]
            assert native[row] == plain(pod, node, on_node)
