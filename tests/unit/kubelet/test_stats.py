"""The reported resource usage of nodes and pods."""

from collections.abc import Mapping, Sequence

import pytest

from pinnace.api.kubelet_pb2 import StatsRequest, StatsResponse
from pinnace.api.metrics_v1beta1_pb2 import NodeMetrics, PodMetrics
from pinnace.api.quantity import amounts
from pinnace.kubelet.stats import DeclaredUsageMeter, ResourceUsage, RunningPod, Stats
from tests.builders import PodBuilder, make_node, make_pod
from tests.unit.kubelet.fakeapi import FakeApi

MI = 1 << 20


def web(name: str = "web") -> PodBuilder:
    return make_pod(name).req(cpu="250m", memory="64Mi").req(cpu="50m", memory="32Mi")


async def ask(api: FakeApi, *pods: str, nodes: Sequence[str] = (), beside: int = 0) -> StatsResponse:
    stats = Stats(api.nodes, api.fleet.running_pod, lambda node: beside, DeclaredUsageMeter(api.clock), api.clock)
    return await stats.answer_stats_request(StatsRequest(nodes=nodes, pods=[api.pod(name).metadata.uid for name in pods]))


def used(metrics: PodMetrics) -> dict[str, Mapping[str, int]]:
    return {container.name: amounts(container.usage) for container in metrics.containers}


async def test_usage_of_fake_containers_is_declared_or_equals_the_request(api: FakeApi) -> None:
    api.create(web().annotation("pinnace.io/cpu-usage", "300m").annotation("pinnace.io/memory-usage.c1", "1Gi"))
    await api.clock.advance(0.0)
    (pod,) = (await ask(api, "web")).pods
    assert used(pod) == {"c0": {"cpu": 300, "memory": 64 * MI}, "c1": {"cpu": 300, "memory": 1024 * MI}}
    assert pod.metadata.uid == api.pod("web").metadata.uid
    assert pod.timestamp.seconds == int(api.clock.time()) and pod.window.ToNanoseconds() == 0


async def test_invalid_usage_annotations_are_ignored(api: FakeApi) -> None:
    api.create(web().annotation("pinnace.io/cpu-usage", "-5").annotation("pinnace.io/memory-usage", "much"))
    await api.clock.advance(0.0)
    (pod,) = (await ask(api, "web")).pods
    assert used(pod)["c0"] == {"cpu": 250, "memory": 64 * MI}


async def test_changed_usage_annotation_applies_at_once(api: FakeApi) -> None:
    api.create(web())
    await api.clock.advance(0.0)
    api.annotate("web", "pinnace.io/cpu-usage", "1")
    (pod,) = (await ask(api, "web")).pods
    assert used(pod)["c0"]["cpu"] == 1000


async def test_node_usage_includes_pods_and_other_usage(api: FakeApi) -> None:
    for name in "ab":
        api.create(web(name))
    await api.clock.advance(0.0)
    response = await ask(api, nodes=["n"], beside=1024 * MI)
    (node,) = response.nodes
    assert (node.metadata.name, amounts(node.usage)) == ("n", {"cpu": 600, "memory": (2 * 96 + 1024) * MI})
    assert not response.pods


async def test_only_running_pods_are_reported(api: FakeApi) -> None:
    api.create(web("starting").declare(start_seconds="5"))
    api.create(web("done").restart_policy("Never").declare(run_seconds="1"))
    await api.clock.advance(2.0)
    assert not (await ask(api, "starting", "done")).pods
    await api.clock.advance(4.0)
    assert [pod.metadata.uid for pod in (await ask(api, "starting", "done")).pods] == [api.pod("starting").metadata.uid]


async def test_unknown_nodes_and_pods_are_left_out(api: FakeApi) -> None:
    stats = Stats(api.nodes, api.fleet.running_pod, lambda node: 0, DeclaredUsageMeter(api.clock), api.clock)
    response = await stats.answer_stats_request(StatsRequest(nodes=["other"], pods=["nobody"]))
    assert (list(response.nodes), list(response.pods)) == ([], [])


async def test_frozen_node_reports_no_usage(api: FakeApi) -> None:
    api.create(web())
    await api.clock.advance(0.0)
    api.nodes.freeze_nodes(["n"])
    response = await ask(api, "web", nodes=["n"])
    assert (list(response.nodes), list(response.pods)) == ([], [])
    api.fleet.set_node(make_node("n").build())
    assert len((await ask(api, "web", nodes=["n"])).nodes) == 1


class Measured:
    """A meter that measures only one of the containers, as if the other had just ended."""

    async def measure(self, running: Sequence[RunningPod]) -> Sequence[Mapping[str, ResourceUsage]]:
        return [{"c0": ResourceUsage(cpu=1_234_567, memory=3000, window=2.5)} for _ in running]


async def test_usage_is_reported_exactly_with_its_window(api: FakeApi) -> None:
    api.create(web())
    await api.clock.advance(0.0)
    stats = Stats(api.nodes, api.fleet.running_pod, lambda node: 0, Measured(), api.clock)
    response = await stats.answer_stats_request(StatsRequest(nodes=["n"], pods=[api.pod("web").metadata.uid]))
    (node,), (pod,) = response.nodes, response.pods
    assert [
        (container.name, container.usage["cpu"].string, container.usage["memory"].string) for container in pod.containers
    ] == [("c0", "1234567n", "3k")]
    windows = [_seconds(item) for item in (node, pod)]
    assert windows == [pytest.approx(2.5), pytest.approx(2.5)]


def _seconds(metrics: NodeMetrics | PodMetrics) -> float:
    return metrics.window.ToNanoseconds() / 1e9
