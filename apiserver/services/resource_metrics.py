"""Resource metrics of nodes and pods: Kubernetes' metrics.k8s.io. The API server stores none.

    page of a list --by endpoint--> one request to each kubelet, concurrently --> metrics, in the order of the page

A kubelet may run many nodes. It receives one request for all of its nodes on the page. If a kubelet is unavailable, its metrics
are missing, and the client receives a warning.

Source: https://kubernetes.io/docs/tasks/debug/debug-cluster/resource-metrics-pipeline/
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pinnace.api import conditions
from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.kubelet_pb2 import StatsRequest, StatsResponse
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.metrics_v1beta1_pb2 import NodeMetricsList, PodMetricsList
from pinnace.api.pods import ended
from pinnace.api.resources import NODES
from pinnace.api.verbs_pb2 import ListRequest
from pinnace.apiserver.cacher.cacher import ResourceCache
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.flow.control import release_current_seat
from pinnace.apiserver.services.kubelets import KubeletEndpoint, Kubelets, kubelet_endpoint_of
from pinnace.apiserver.services.methods import Context, read_timeout
from pinnace.apiserver.services.resource import ResourceService

AT_ONCE = 32
"""Maximum number of concurrent requests of a server to kubelets, for all clients."""
SHARE = 0.8
"""Fraction of the remaining time for the requests to kubelets. Afterwards, the metrics of the other kubelets are returned."""


class StatsQuery(NamedTuple):
    """A request to one kubelet."""

    at: KubeletEndpoint
    request: StatsRequest

    @property
    def describe_kubelet(self) -> str:
        return f'the kubelet of node "{self.at.node}" at {self.at.host}:{self.at.port}'


class StatsQueries:
    """Requests to several kubelets: one for each."""

    def __init__(self) -> None:
        self._questions: dict[tuple[str, int], StatsQuery] = {}
        self._unserved: dict[str, None] = {}
        self._silent: dict[str, None] = {}

    def query_for_node(self, node: Node) -> StatsRequest | None:
        """Return the request to the kubelet of a node; None if the kubelet cannot be reached."""
        if _is_unreachable(node):  # a request would only time out
            self._silent[node.metadata.name] = None
            return None
        try:
            at = kubelet_endpoint_of(node)
        except Rejected:
            self._unserved[node.metadata.name] = None
            return None
        return self._questions.setdefault((at.host, at.port), StatsQuery(at, StatsRequest())).request

    @property
    def queries(self) -> Collection[StatsQuery]:
        return self._questions.values()

    @property
    def warnings(self) -> Iterator[str]:
        """Yield warnings about nodes whose kubelets receive no request."""
        for names, why in ((self._silent, "the node is unreachable"), (self._unserved, "start the kubelet with --listen")):
            if names:
                others = f" and {len(names) - 1} more" if len(names) > 1 else ""
                yield f'no metrics of node "{min(names)}"{others}: {why}'


class StatsCollector:
    """Sends the requests of all calls of a server."""

    def __init__(self, kubelets: Kubelets) -> None:
        self._kubelets = kubelets
        self._limit = asyncio.Semaphore(AT_ONCE)

    async def query_kubelets(self, survey: StatsQueries, seconds: float) -> tuple[Sequence[StatsResponse], Sequence[str]]:
        """Return the responses that arrive in time, and warnings about missing ones."""
        release_current_seat()
        deadline = asyncio.get_running_loop().time() + seconds * SHARE
        async with asyncio.TaskGroup() as group:
            asking = [group.create_task(self._query_kubelet(question, deadline)) for question in survey.queries]
        outcomes = [task.result() for task in asking]
        answers = [outcome for outcome in outcomes if isinstance(outcome, StatsResponse)]
        return answers, [*(outcome for outcome in outcomes if isinstance(outcome, str)), *survey.warnings]

    async def _query_kubelet(self, question: StatsQuery, deadline: float) -> StatsResponse | str:
        """Return the response, or the reason for its absence."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(deadline), self._limit:
                left = max(0.001, deadline - loop.time())
                return _keep_requested(question.request, await self._kubelets.stats(question.at, question.request, left))
        except Rejected as rejected:
            message = rejected.refusal.message
            return message if question.describe_kubelet in message else f"{question.describe_kubelet}: {message}"
        except TimeoutError:
            return f"{question.describe_kubelet} did not respond in time"


def _is_unreachable(node: Node) -> bool:
    said = conditions.find_condition(node.status.conditions, "Ready")
    return said is not None and said.status == "Unknown"


def _keep_requested(request: StatsRequest, response: StatsResponse) -> StatsResponse:
    """Return the response without nodes and pods that were not requested, because other kubelets run them."""
    nodes, pods = set(request.nodes), set(request.pods)
    return StatsResponse(
        nodes=[node for node in response.nodes if node.metadata.name in nodes],
        pods=[pod for pod in response.pods if pod.metadata.uid in pods],
    )


class NodeMetricsService:
    def __init__(self, nodes: ResourceService[Node], surveyor: StatsCollector) -> None:
        self._nodes = nodes
        self._surveyor = surveyor

    async def list(self, request: ListRequest, context: Context) -> NodeMetricsList:
        page = await self._nodes.list_page(request, context)
        survey = StatsQueries()
        for node in page.items:
            if (asked := survey.query_for_node(node)) is not None:
                asked.nodes.append(node.metadata.name)
        answers, warnings = await self._surveyor.query_kubelets(survey, read_timeout(context))
        by_name = {node_metrics.metadata.name: node_metrics for answer in answers for node_metrics in answer.nodes}
        return NodeMetricsList(
            metadata=page.metadata, items=_match_metrics(page.items, by_name, _object_name), warnings=warnings
        )


class PodMetricsService:
    def __init__(self, pods: ResourceService[Pod], nodes: ResourceCache[Node], surveyor: StatsCollector) -> None:
        self._pods = pods
        self._nodes = nodes
        self._surveyor = surveyor

    async def list(self, request: ListRequest, context: Context) -> PodMetricsList:
        page = await self._pods.list_page(request, context)
        survey = StatsQueries()
        for pod in page.items:
            entry = self._nodes.get(NODES.key("", pod.spec.nodeName)) if not ended(pod) else None
            if entry is not None and (asked := survey.query_for_node(entry.obj)) is not None:
                asked.pods.append(pod.metadata.uid)
        answers, warnings = await self._surveyor.query_kubelets(survey, read_timeout(context))
        by_uid = {pod_metrics.metadata.uid: pod_metrics for answer in answers for pod_metrics in answer.pods}
        return PodMetricsList(metadata=page.metadata, items=_match_metrics(page.items, by_uid, _object_uid), warnings=warnings)


def _match_metrics(objs: Iterable[Any], metrics: Mapping[str, Any], key: Callable[[Any], str]) -> Iterable[Any]:
    """Yield the metrics of the objects, in their order, with the objects' names and labels."""
    for obj in objs:
        if (each := metrics.get(key(obj))) is not None:
            own = obj.metadata
            each.metadata.CopyFrom(ObjectMeta(namespace=own.namespace, name=own.name, uid=own.uid, labels=own.labels))
            yield each


def _object_name(obj: Any) -> str:
    return str(obj.metadata.name)


def _object_uid(obj: Any) -> str:
    return str(obj.metadata.uid)
