"""The tables of `pinnace top`."""

from collections.abc import Mapping

from pinnace.api.core_v1_pb2 import Node
from pinnace.api.metrics_v1beta1_pb2 import NodeMetrics, PodMetrics
from pinnace.cli.verbs.top import of_nodes, of_pods
from tests.builders import make_node


def node(name: str) -> Node:
    built = make_node(name).capacity(cpu=4, memory="8Gi").build()
    built.status.capacity["cpu"].string = "8"
    return built


def node_uses(name: str, cpu: str, memory: str) -> NodeMetrics:
    metrics = NodeMetrics()
    metrics.metadata.name = name
    metrics.usage["cpu"].string, metrics.usage["memory"].string = cpu, memory
    return metrics


def pod_uses(name: str, namespace: str = "default", **containers: tuple[str, str]) -> PodMetrics:
    metrics = PodMetrics()
    metrics.metadata.namespace, metrics.metadata.name = namespace, name
    for container, (cpu, memory) in containers.items():
        usage = metrics.containers.add(name=container).usage
        usage["cpu"].string, usage["memory"].string = cpu, memory
    return metrics


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_nodes_with_their_shares_and_those_that_are_not_measured_last() -> None:
    measured = [node_uses("b", "1500m", "2Gi"), node_uses("c", "1234567n", "100Mi")]
    text = of_nodes([node("a"), node("b"), node("c")], measured, "", capacity=False, headers=True)
    assert text.splitlines()[0] == "NAME   CPU(cores)   CPU(%)      MEMORY(bytes)   MEMORY(%)"
    assert rows(text)[1:] == [
        ["b", "1500m", "37%", "2048Mi", "25%"],
        ["c", "2m", "0%", "100Mi", "1%"],
        ["a"] + ["<unknown>"] * 4,
    ]


def test_usage_percentage_of_node_capacity() -> None:
    text = of_nodes([node("b")], [node_uses("b", "2", "4Gi")], "", capacity=True, headers=False)
    assert rows(text) == [["b", "2000m", "25%", "4096Mi", "50%"]]


def test_the_most_first() -> None:
    measured = [node_uses("a", "1", "3Gi"), node_uses("b", "2", "1Gi")]
    orders: Mapping[str, list[str]] = {
        by: [row[0] for row in rows(of_nodes([node("a"), node("b")], measured, by, capacity=False, headers=False))]
        for by in ("", "cpu", "memory")
    }
    assert orders == {"": ["a", "b"], "cpu": ["b", "a"], "memory": ["a", "b"]}


def test_sums_are_of_what_is_used_and_not_of_what_is_shown() -> None:
    idle = [pod_uses(name, main=("100000n", "900Ki"), side=("100000n", "900Ki")) for name in "abcdefghij"]
    text = of_pods(idle, "", namespaces=False, containers=False, summed=True, headers=False)
    assert rows(text)[0] == ["a", "1m", "1Mi"] and rows(text)[-1] == ["2m", "17Mi"]


def test_pods_by_container_and_all_together() -> None:
    pods = [pod_uses("a", main=("250m", "64Mi"), side=("50m", "32Mi")), pod_uses("b", "other", main=("1", "1Gi"))]
    text = of_pods(pods, "", namespaces=True, containers=False, summed=True, headers=True)
    assert rows(text) == [
        ["NAMESPACE", "NAME", "CPU(cores)", "MEMORY(bytes)"],
        ["default", "a", "300m", "96Mi"],
        ["other", "b", "1000m", "1024Mi"],
        ["________", "________"],
        ["1300m", "1120Mi"],
    ]
    text = of_pods(pods[:1], "cpu", namespaces=False, containers=True, summed=False, headers=True)
    assert rows(text) == [
        ["POD", "NAME", "CPU(cores)", "MEMORY(bytes)"],
        ["a", "main", "250m", "64Mi"],
        ["a", "side", "50m", "32Mi"],
    ]


def test_the_containers_of_a_pod_stay_together_below_the_pods_that_use_more() -> None:
    pods = [pod_uses("a", x=("1", "1Mi"), y=("3", "1Mi")), pod_uses("b", x=("2", "1Mi"), y=("4", "1Mi"))]
    text = of_pods(pods, "cpu", namespaces=False, containers=True, summed=True, headers=False)
    assert [line[:2] for line in rows(text)[:4]] == [["b", "y"], ["b", "x"], ["a", "y"], ["a", "x"]]
    assert rows(text)[-1] == ["10000m", "4Mi"]
