"""What nodes and pods use, asked of kubelets that do as they are told."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import Node
from pinnace.api.kubelet_pb2 import StatsRequest, StatsResponse
from pinnace.api.meta_v1_pb2 import ListOptions
from pinnace.api.metrics_v1beta1_pb2 import ContainerMetrics, NodeMetricsList, PodMetricsList
from pinnace.api.nodes_pb2 import CreateNodeRequest
from pinnace.api.pods_pb2 import CreatePodRequest
from pinnace.api.status import Code, Refusal
from pinnace.api.verbs_pb2 import ListRequest
from pinnace.apiserver.assembly import Assembly, ServerSettings
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.services import methods, resource, resource_metrics
from pinnace.apiserver.services.kubelets import KubeletEndpoint, NoKubelets
from pinnace.apiserver.services.resource_metrics import StatsCollector, StatsQueries
from tests.builders import make_node, make_pod
from tests.storage.memory import MemoryStorage
from tests.unit.auth.matrix import PATIENCE, PEOPLE, Caller


class Kubelets(NoKubelets):
    """They say that everything uses one core; `down` are the ports of those that do not answer, `silent` of those that say
    nothing at all, and `lying` of those that also speak of what is another's."""

    def __init__(self) -> None:
        self.asked: list[tuple[KubeletEndpoint, list[str]]] = []
        self.down: set[int] = set()
        self.silent: set[int] = set()
        self.lying: dict[int, StatsResponse] = {}

    async def stats(self, at: KubeletEndpoint, request: StatsRequest, timeout: float) -> StatsResponse:
        self.asked.append((at, [*request.nodes, *request.pods]))
        if at.port in self.down:
            raise Rejected(Refusal(Code.UNAVAILABLE, "KubeletUnavailable", f"the kubelet at {at.port} does not answer"))
        if at.port in self.silent:
            await asyncio.Event().wait()
        response = StatsResponse()
        response.CopyFrom(self.lying.get(at.port, response))
        for name in request.nodes:
            node = response.nodes.add()
            node.metadata.name = name
            node.usage["cpu"].string = "1"
        for uid in reversed(request.pods):
            pod = response.pods.add()
            pod.metadata.uid = pod.metadata.name = uid
            pod.containers.add(name="c0").usage["cpu"].string = "1"
        return response


@pytest.fixture
def kubelets() -> Kubelets:
    return Kubelets()


@pytest.fixture
async def assembly(kubelets: Kubelets) -> AsyncIterator[Assembly]:
    """With nodes a0 and a1 of one fleet, b0 of another, and c0, whose kubelet serves nothing; a pod on each, one that is over
    and one that is nowhere."""
    async with _serving(kubelets) as assembly:
        for name, port in (("a0", 1), ("a1", 1), ("b0", 2), ("c0", 0)):
            await _call(assembly, "Nodes/Create", CreateNodeRequest(object=_node(name, port)))
            pod = make_pod(f"on-{name}").label("fleet", name[0]).req(cpu="1").node(name).new()
            await _call(assembly, "Pods/Create", CreatePodRequest(object=pod))
        await _call(assembly, "Pods/Create", CreatePodRequest(object=make_pod("nowhere").req(cpu="1").new()))
        yield assembly


@asynccontextmanager
async def _serving(kubelets: Kubelets) -> AsyncIterator[Assembly]:
    assembly = Assembly(MemoryStorage(), ServerSettings(kubelets=kubelets))
    running = asyncio.ensure_future(assembly.run())
    try:
        async with asyncio.timeout(PATIENCE):
            await assembly.opening.bootstrapped.wait()
        yield assembly
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def _node(name: str, port: int) -> Node:
    node = make_node(name).label("fleet", name[0]).new()
    node.status.addresses.add(type="InternalIP", address="127.0.0.1")
    node.status.daemonEndpoints.kubeletEndpoint.Port = port
    return node


async def _call(assembly: Assembly, method: str, request: Any) -> bytes:
    return await assembly.methods[f"/pinnace.v1.{method}"].call(request, Caller(PEOPLE["admin"]))


async def nodes(assembly: Assembly, **options: Any) -> NodeMetricsList:
    request = ListRequest(options=ListOptions(**options))
    return NodeMetricsList.FromString(await _call(assembly, "NodeMetrics/List", request))


async def pods(assembly: Assembly, **options: Any) -> PodMetricsList:
    request = ListRequest(options=ListOptions(**options))
    return PodMetricsList.FromString(await _call(assembly, "PodMetrics/List", request))


async def test_each_kubelet_is_asked_once_about_all_of_its_nodes(assembly: Assembly, kubelets: Kubelets) -> None:
    result = await nodes(assembly)
    assert [(item.metadata.name, dict(item.metadata.labels)["fleet"]) for item in result.items] == [
        ("a0", "a"), ("a1", "a"), ("b0", "b")
    ]  # fmt: skip
    assert sorted((at.port, names) for at, names in kubelets.asked) == [(1, ["a0", "a1"]), (2, ["b0"])]
    assert list(result.warnings) == ['no metrics of node "c0": start the kubelet with --listen']


async def test_pods_come_in_the_order_of_their_list_with_their_labels(assembly: Assembly) -> None:
    result = await pods(assembly)
    assert [(item.metadata.name, item.metadata.labels["fleet"]) for item in result.items] == [
        ("on-a0", "a"), ("on-a1", "a"), ("on-b0", "b")
    ]  # fmt: skip
    assert [item.containers[0].usage["cpu"].string for item in result.items] == ["1", "1", "1"]


async def test_selectors_and_pages_are_those_of_lists(
    assembly: Assembly, kubelets: Kubelets, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [item.metadata.name for item in (await nodes(assembly, labelSelector="fleet=b")).items] == ["b0"]
    assert len((await pods(assembly, fieldSelector="metadata.name in (on-a1,on-b0)")).items) == 2
    monkeypatch.setattr(resource, "MAX_BATCH", 1)
    first = await nodes(assembly)
    second = await nodes(assembly, **{"continue": getattr(first.metadata, "continue")})
    assert [item.metadata.name for page in (first, second) for item in page.items] == ["a0", "a1"]


async def test_kubelet_has_no_say_about_what_is_anothers(assembly: Assembly, kubelets: Kubelets) -> None:
    kubelets.lying[2] = lie = StatsResponse()
    for name in ("a0", "c0"):
        node = lie.nodes.add()
        node.metadata.name, node.usage["cpu"].string = name, "64"
    result = {item.metadata.name: item.usage["cpu"].string for item in (await nodes(assembly)).items}
    assert result == {"a0": "1", "a1": "1", "b0": "1"}
    on_a0 = (await pods(assembly, fieldSelector="metadata.name=on-a0")).items[0].metadata
    own = lie.pods.add(containers=[ContainerMetrics(name="c0")])
    own.metadata.uid, own.containers[0].usage["cpu"].string = on_a0.uid, "64"
    assert {item.containers[0].usage["cpu"].string for item in (await pods(assembly)).items} == {"1"}


async def test_however_many_are_silent_the_answer_comes_in_time(kubelets: Kubelets, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_metrics, "AT_ONCE", 2)
    kubelets.silent.update(range(1, 20))
    survey = StatsQueries()
    for port in kubelets.silent:
        assert survey.query_for_node(_node(f"a{port}", port)) is not None
    async with asyncio.timeout(5):
        answers, warnings = await StatsCollector(kubelets).query_kubelets(survey, 1.0)
    assert answers == [] and len(warnings) == 19


async def test_kubelet_that_is_known_to_be_silent_is_not_asked(kubelets: Kubelets) -> None:
    silent = [make_node(name).condition("Ready", "Unknown").build() for name in ("b", "a")]
    survey = StatsQueries()
    assert [survey.query_for_node(item) for item in (*silent, _node("c", 1))][:2] == [None, None]
    answers, warnings = await StatsCollector(kubelets).query_kubelets(survey, 1.0)
    assert len(answers) == 1 and list(warnings) == ['no metrics of node "a" and 1 more: the node is unreachable']


@pytest.mark.parametrize("how", ["down", "silent"])
async def test_kubelet_that_does_not_answer_costs_its_own_figures(
    how: str, assembly: Assembly, kubelets: Kubelets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(methods, "READ_TIMEOUT", 0.2)
    getattr(kubelets, how).add(1)
    for result in (await nodes(assembly, labelSelector="fleet in (a,b)"), await pods(assembly, labelSelector="fleet in (a,b)")):
        assert [item.metadata.labels["fleet"] for item in result.items] == ["b"]
        (warning,) = result.warnings
        assert warning.startswith("the kubelet of node")
