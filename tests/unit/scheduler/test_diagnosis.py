"""The sentence that people read, to the letter."""

import pytest

from pinnace.scheduler.framework.results import Diagnosis
from tests.builders import NodeBuilder, PodBuilder, make_node, make_pod
from tests.unit.scheduler.pods import cache_of, framework, info


def small(name: str) -> NodeBuilder:
    return make_node(name).capacity(cpu=1, memory="1Gi", pods=10)


def gpu(name: str) -> NodeBuilder:
    return make_node(name).taint("gpu", "true")


def diagnose(pod: PodBuilder, *nodes: NodeBuilder) -> Diagnosis:
    return framework().run_filters({}, info(pod), cache_of(*nodes).nodes)


@pytest.mark.parametrize(
    ("pod", "nodes", "message"),
    [
        (
            make_pod("a").req(cpu=2),
            [small("a"), small("b"), small("c"), gpu("d"), gpu("e")],
            "0/5 nodes are available: 2 node(s) had untolerated taint {gpu: true}, 3 Insufficient cpu.",
        ),
        (
            make_pod("a").req(cpu=2, memory="2Gi"),
            [small("a"), small("b")],
            "0/2 nodes are available: 2 Insufficient cpu, 2 Insufficient memory.",
        ),
        (
            make_pod("a").req(cpu=2),
            [*(small(f"s{i}") for i in range(10)), *(gpu(f"g{i}") for i in range(9))],
            "0/19 nodes are available: 10 Insufficient cpu, 9 node(s) had untolerated taint {gpu: true}.",
        ),
        (
            make_pod("a").req(cpu=9),
            [gpu("a").unschedulable(), gpu("b").capacity(cpu=1)],
            "0/2 nodes are available: 1 node(s) had untolerated taint {gpu: true}, 1 node(s) were unschedulable.",
        ),
        (make_pod("a"), [], "no nodes available to schedule pods"),
    ],
)
def test_message(pod: PodBuilder, nodes: list[NodeBuilder], message: str) -> None:
    assert diagnose(pod, *nodes).message == message


def test_only_plugins_whose_verdict_counts_are_waited_for() -> None:
    result = diagnose(make_pod("a").req(cpu=2), small("a"), gpu("b"), gpu("c").capacity(cpu=1))
    assert result.plugins == {"NodeResourcesFit", "TaintToleration"}
    assert diagnose(make_pod("a").req(cpu=2), gpu("b").capacity(cpu=1)).plugins == {"TaintToleration"}


FULL = make_pod("full").req(cpu=1).host_port(80).label("app", "web").node("n")


@pytest.mark.parametrize(
    ("pod", "nodes", "may_preempt", "may_not"),
    [
        (make_pod("a").req(cpu=1), [gpu("n").capacity(cpu=1)], {"TaintToleration"}, {"TaintToleration"}),
        (make_pod("a").req(cpu=1).host_port(80), [small("n")], {"NodePorts", "NodeResourcesFit"}, {"NodePorts"}),
        (
            make_pod("a").req(cpu=1).anti_affinity("app=web", "zone"),
            [small("n").label("zone", "z")],
            {"NodeResourcesFit", "InterPodAffinity"},
            {"NodeResourcesFit"},
        ),
        (
            make_pod("a").req(cpu=1).affinity("app=db", "zone"),
            [small("n").label("zone", "z")],
            {"InterPodAffinity"},
            {"NodeResourcesFit"},
        ),
        (
            make_pod("a").req(cpu=1).affinity("app=web", "zone"),
            [small("n").label("zone", "z")],
            {"InterPodAffinity", "NodeResourcesFit"},
            {"NodeResourcesFit"},
        ),
        (
            make_pod("a").req(cpu=1).host_port(80),
            [small("n"), gpu("m").capacity(cpu=0).unschedulable()],
            {"NodePorts", "NodeResourcesFit", "NodeUnschedulable"},
            {"NodePorts", "NodeUnschedulable"},
        ),
    ],
    ids=["a taint", "pods", "pods of other kinds", "nobody to be near", "near who may have to go", "several nodes"],
)
def test_unresolvable_plugins_are_waited_for_first(
    pod: PodBuilder, nodes: list[NodeBuilder], may_preempt: set[str], may_not: set[str]
) -> None:
    """Where it might overcome the first that refuses a node, all others that do are waited for, too."""
    plugins = framework()
    result = plugins.run_filters({}, info(pod), cache_of(*nodes, placed=[FULL]).nodes)
    assert plugins.awaited_plugins(info(pod), result) == may_preempt
    assert plugins.awaited_plugins(info(pod.preemption_policy("Never")), result) == may_not


def test_all_verdicts_are_kept() -> None:
    found = diagnose(make_pod("a").req(cpu=2), gpu("b").capacity(cpu=1, pods=10))
    assert [plugin for plugin, result in found.refusals if not result.passed[0]] == ["TaintToleration", "NodeResourcesFit"]


def test_pre_filter_refusal_is_reported_once() -> None:
    diagnosis = Diagnosis(5, pre_filter=("Quota", "the quota of team red is used up"))
    assert diagnosis.message == "0/5 nodes are available: the quota of team red is used up."
    assert diagnosis.plugins == {"Quota"}
