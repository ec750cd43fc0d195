"""What nodes and pods use: Kubernetes' metrics.k8s.io. Nothing of it is kept here.

    page of a list --by endpoint--> one question for each kubelet, all at once --> answers, in the order of the page

A kubelet plays many nodes, and is asked about all of the page together. One that cannot be asked costs its own figures, and a
warning.

Source: https://kubernetes.io/docs/tasks/debug/debug-cluster/resource-metrics-pipeline/
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from apiserver.cacher.resource import ResourceCache
from apiserver.flow.seat import stand_up
from apiserver.registry.errors import Rejected
from apiserver.services.kubelets import Endpoint, Kubelets, endpoint_of
from apiserver.services.methods import MAX_BATCH
from apiserver.services.resource import ResourceService, patience
from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.kubelet_pb2 import StatsRequest, StatsResponse
from pinnace.api.meta_v1_pb2 import ListMeta, ObjectMeta
from pinnace.api.metrics_v1beta1_pb2 import NodeMetricsList, PodMetricsList
from pinnace.api.resources import NODES
from pinnace.api.verbs_pb2 import ListRequest

AT_ONCE = 32
"""Kubelets that are asked at the same time."""
_OVER = ("Succeeded", "Failed")


class Question(NamedTuple):
    """What one kubelet is asked."""

    at: Endpoint
    request: StatsRequest


class Survey:
    """Questions to several kubelets, and what became of them."""

    def __init__(self, kubelets: Kubelets) -> None:
        self._kubelets = kubelets
        self._questions: dict[tuple[str, int], Question] = {}
        self._unserved: list[str] = []

    def about(self, node: Node) -> StatsRequest | None:
        """What the kubelet of a node is going to be asked; None: it cannot be."""
        try:
            at = endpoint_of(node)
        except Rejected:
            self._unserved.append(node.metadata.name)
            return None
        return self._questions.setdefault((at.host, at.port), Question(at, StatsRequest())).request

    async def ask(self, seconds: float) -> tuple[Sequence[StatsResponse], Sequence[str]]:
        """The answers that come in time, and warnings of what is missing."""
        stand_up()
        limit = asyncio.Semaphore(AT_ONCE)

        async def one(question: Question) -> StatsResponse | str:
            try:
                async with limit, asyncio.timeout(seconds):
                    return _asked_for(question.request, await self._kubelets.stats(question.at, question.request, seconds))
            except Rejected as rejected:
                return rejected.refusal.message
            except TimeoutError:
                at = question.at
                return f'the kubelet of node "{at.node}" at {at.host}:{at.port} does not answer within {seconds:.1f} s'

        outcomes = await asyncio.gather(*map(one, self._questions.values()))
        answers = [each for each in outcomes if isinstance(each, StatsResponse)]
        warnings = [each for each in outcomes if isinstance(each, str)]
        if names := sorted(set(self._unserved)):
            others = f" and {len(names) - 1} others" if len(names) > 1 else ""
            warnings.append(f'node "{names[0]}"{others} cannot be asked: see the --listen of kubelets')
        return answers, warnings


def _asked_for(request: StatsRequest, response: StatsResponse) -> StatsResponse:
    """A kubelet has no say about nodes and pods that are another's."""
    nodes, pods = set(request.nodes), set(request.pods)
    return StatsResponse(
        nodes=[each for each in response.nodes if each.metadata.name in nodes],
        pods=[each for each in response.pods if each.metadata.uid in pods],
    )


class NodeMetricsService:
    def __init__(self, nodes: ResourceService[Node], kubelets: Kubelets) -> None:
        self._nodes = nodes
        self._kubelets = kubelets

    async def list(self, request: ListRequest, context: Any) -> NodeMetricsList:
        nodes, metadata = await _page(self._nodes, request, context)
        survey = Survey(self._kubelets)
        for node in nodes:
            if (asked := survey.about(node)) is not None:
                asked.nodes.append(node.metadata.name)
        answers, warnings = await survey.ask(patience(context))
        by_name = {each.metadata.name: each for answer in answers for each in answer.nodes}
        return NodeMetricsList(metadata=metadata, items=_found(nodes, by_name, _name), warnings=warnings)


class PodMetricsService:
    def __init__(self, pods: ResourceService[Pod], nodes: ResourceCache[Node], kubelets: Kubelets) -> None:
        self._pods = pods
        self._nodes = nodes
        self._kubelets = kubelets

    async def list(self, request: ListRequest, context: Any) -> PodMetricsList:
        pods, metadata = await _page(self._pods, request, context)
        survey = Survey(self._kubelets)
        for pod in pods:
            entry = self._nodes.get(NODES.key("", pod.spec.nodeName)) if pod.status.phase not in _OVER else None
            if entry is not None and (asked := survey.about(entry.obj)) is not None:
                asked.pods.append(pod.metadata.uid)
        answers, warnings = await survey.ask(patience(context))
        by_uid = {each.metadata.uid: each for answer in answers for each in answer.pods}
        return PodMetricsList(metadata=metadata, items=_found(pods, by_uid, _uid), warnings=warnings)


async def _page(service: ResourceService[Any], request: ListRequest, context: Any) -> tuple[Sequence[Any], ListMeta]:
    """At most MAX_BATCH objects of a list."""
    options = request.options
    if not 0 < options.limit <= MAX_BATCH:
        options.limit = MAX_BATCH
    page: Any = service.store.resource.list_message.FromString(await service.list(request, context))
    return page.items, page.metadata


def _found(objs: Iterable[Any], metrics: Mapping[str, Any], key: Callable[[Any], str]) -> Iterable[Any]:
    """What is known of the objects, in their order, with their names and labels."""
    for obj in objs:
        if (each := metrics.get(key(obj))) is not None:
            own = obj.metadata
            each.metadata.CopyFrom(ObjectMeta(namespace=own.namespace, name=own.name, uid=own.uid, labels=own.labels))
            yield each


def _name(obj: Any) -> str:
    return str(obj.metadata.name)


def _uid(obj: Any) -> str:
    return str(obj.metadata.uid)
