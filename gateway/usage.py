"""The API group metrics.k8s.io: the resource usage of nodes and containers, for `kubectl top`.

Source: https://github.com/kubernetes/metrics/tree/master/pkg/apis/metrics/v1beta1
"""

from typing import Any

from pinnace.api.codec import to_dict
from pinnace.api.meta_v1_pb2 import ListOptions
from pinnace.api.metrics_v1beta1_pb2 import NodeMetricsList, PodMetricsList
from pinnace.api.verbs_pb2 import ListRequest
from pinnace.client.errors import ApiError
from pinnace.gateway.api_resources import METRICS_GROUP, ApiResource
from pinnace.gateway.backend import Backend
from pinnace.gateway.errors import convert_error
from pinnace.gateway.http import Request, Response, not_found
from pinnace.gateway.media_types import negotiate
from pinnace.gateway.objects import respond_document
from pinnace.gateway.routes import Route

_SERVICES: dict[str, tuple[str, type[Any]]] = {
    "nodes": ("NodeMetrics", NodeMetricsList),
    "pods": ("PodMetrics", PodMetricsList),
}


class UsageHandlers:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def list(self, request: Request, route: Route) -> Response:
        form = negotiate(request.headers.get("accept", ""), ())
        result = await self._fetch_usage(request, route, request.param("fieldSelector"))
        request.warnings += result.warnings
        head = {"kind": route.resource.list_kind, "apiVersion": route.resource.api_version, "metadata": {}}
        return respond_document(head | {"items": [_usage_object(route.resource, item) for item in result.items]}, form)

    async def get(self, request: Request, route: Route) -> Response:
        form = negotiate(request.headers.get("accept", ""), ())
        result = await self._fetch_usage(request, route, f"metadata.name={route.name}")
        if not result.items:
            raise not_found(f"{route.resource.plural}.{METRICS_GROUP}", route.name)
        return respond_document(_usage_object(route.resource, result.items[0]), form)

    async def _fetch_usage(self, request: Request, route: Route, fields: str) -> Any:
        service, message = _SERVICES[route.resource.plural]
        options = ListOptions(labelSelector=request.param("labelSelector"), fieldSelector=fields)
        asked = ListRequest(namespace=route.namespace, options=options)
        try:
            return message.FromString(await self._backend.call(request, f"/pinnace.v1.{service}/List", asked, retry=True))
        except ApiError as error:
            raise convert_error(error, route.resource, route.name) from None


def _usage_object(resource: ApiResource, found: Any) -> dict[str, Any]:
    data = to_dict(found)
    window = found.window.seconds + found.window.nanos / 1e9
    return {"kind": resource.kind, "apiVersion": resource.api_version} | data | {"window": f"{window:g}s"}
