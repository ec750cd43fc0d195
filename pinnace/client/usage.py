"""Reads what nodes and pods use at present (Kubernetes' metrics.k8s.io)."""

from typing import TypeVar

from pinnace.api.meta_v1_pb2 import ListOptions
from pinnace.api.metrics_v1beta1_pb2 import NodeMetricsList, PodMetricsList
from pinnace.api.verbs_pb2 import ListRequest
from pinnace.client.caller import Caller

L = TypeVar("L", NodeMetricsList, PodMetricsList)

PAGE = 1000


class UsageClient:
    """Lists have all pages, and the warnings of all of them, each once."""

    def __init__(self, connection: Caller) -> None:
        self._connection = connection

    async def nodes(self, *, labels: str = "", fields: str = "") -> NodeMetricsList:
        return await self._list("NodeMetrics", NodeMetricsList, "", labels, fields)

    async def pods(self, namespace: str = "", *, labels: str = "", fields: str = "") -> PodMetricsList:
        """Without a namespace, of all."""
        return await self._list("PodMetrics", PodMetricsList, namespace, labels, fields)

    async def _list(self, service: str, response: type[L], namespace: str, labels: str, fields: str) -> L:
        options = ListOptions(labelSelector=labels, fieldSelector=fields, limit=PAGE)
        request, found, warnings = ListRequest(namespace=namespace, options=options), response(), dict[str, None]()
        while True:
            page = await self._connection.call(f"/pinnace.v1.{service}/List", request, response)
            found.items.extend(page.items)
            warnings.update(dict.fromkeys(page.warnings))
            token = getattr(page.metadata, "continue")
            if not token:
                found.warnings.extend(warnings)
                return found
            setattr(request.options, "continue", token)
