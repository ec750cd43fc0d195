"""Subresources that are not part of the stored object: scale, binding, eviction and log.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-uris
"""

import json
from collections.abc import AsyncIterator

from google.protobuf.message import Message

from pinnace.api.autoscaling_v1_pb2 import Scale
from pinnace.api.core_v1_pb2 import Binding
from pinnace.api.json_codec import to_json, with_type
from pinnace.api.meta_v1_pb2 import Time
from pinnace.api.pods_pb2 import BindRequest, EvictRequest, LogOptions, LogsRequest, LogsResponse
from pinnace.api.policy_v1_pb2 import Eviction
from pinnace.api.scalars import parse_rfc3339
from pinnace.api.verbs_pb2 import BatchItem, GetRequest, UpdateScaleRequest
from pinnace.client.errors import ApiError, error_of
from pinnace.gateway.api_resources import ApiResource
from pinnace.gateway.backend import Backend
from pinnace.gateway.bodies import (
    BodyType,
    body_type_of,
    read_dry_run,
    read_field_validation,
    read_message,
    set_write_options,
    validate_delete_options,
)
from pinnace.gateway.errors import convert_error
from pinnace.gateway.http import ApiStatus, Request, Response, bad_request, success_status_object
from pinnace.gateway.media_types import PROTOBUF, envelope, negotiate
from pinnace.gateway.objects import PATCH_TYPES, ObjectHandlers, check_name, respond_document, set_namespace_from_path
from pinnace.gateway.routes import Route
from pinnace.gateway.status import status_response

_SCALE = ApiResource("autoscaling", "v1", "scales", "Scale", True, ())
_BINDING = BodyType("Binding", ("v1",))
_EVICTION = BodyType("Eviction", ("policy/v1", "policy/v1beta1"))
LOG_SILENCE = None
"""No timeout: a container can run without output."""


class Subresources:
    def __init__(self, backend: Backend, objects: ObjectHandlers) -> None:
        self._backend = backend
        self._objects = objects

    async def scale(self, request: Request, route: Route) -> Response:
        """Read or write the replicas as a Scale of autoscaling/v1. Raises ApiStatus."""
        form = negotiate(request.headers.get("accept", ""), ())
        method, message = await self._scale_request(request, route)
        resource = route.resource.resource
        assert resource is not None
        try:
            data = await self._backend.call(request, f"/{resource.service}/{method}", message, retry=route.verb == "get")
        except ApiError as error:
            is_about_scale = error.refusal.violations and route.resource.custom is None
            raise convert_error(error, _SCALE if is_about_scale else route.resource, route.name) from None
        if form.media_type == PROTOBUF:
            return Response(200, envelope(_SCALE.api_version, _SCALE.kind, data), PROTOBUF)
        text = with_type(_SCALE.api_version, _SCALE.kind, to_json(Scale.FromString(data)))
        return respond_document(json.loads(text), form)

    async def _scale_request(self, request: Request, route: Route) -> tuple[str, Message]:
        """Return the method and the request for a call about a Scale. Raises ApiStatus."""
        if route.verb == "get":
            return "GetScale", GetRequest(namespace=route.namespace, name=route.name)
        if route.verb == "patch":
            return "PatchScale", await self._objects.patch_request(request, route, PATCH_TYPES)
        scale = read_message(request, Scale, body_type_of(_SCALE), read_field_validation(request))
        set_namespace_from_path(route, scale)
        check_name(route, scale)
        update = UpdateScaleRequest(object=scale)
        set_write_options(request, update.options)
        return "UpdateScale", update

    async def bind(self, request: Request, route: Route) -> Response:
        """Bind a pod to a node. Used by external schedulers. Raises ApiStatus."""
        binding = read_message(request, Binding, _BINDING, read_field_validation(request))
        set_namespace_from_path(route, binding)
        if binding.metadata.name != route.name:
            raise bad_request("name in URL does not match name in Binding object")
        try:
            item = BatchItem.FromString(
                await self._objects.call_api_server(request, route, "Bind", BindRequest(binding=binding))
            )
            return self._pod_subresource_response(request, route, item)
        except ApiStatus as status:
            if status.code != 409:
                raise
            why = status.message.partition(": ")[2].replace(f'pod "{route.name}"', f"pod {route.name}")
            text = f'Operation cannot be fulfilled on pods/binding "{route.name}": {why}'
            raise ApiStatus(409, "Conflict", text, {"name": route.name, "kind": "pods/binding"}) from None

    async def evict(self, request: Request, route: Route) -> Response:
        """Delete a pod if its disruption budget permits it. Raises ApiStatus."""
        eviction = read_message(request, Eviction, _EVICTION, read_field_validation(request))
        set_namespace_from_path(route, eviction)
        if eviction.metadata.name != route.name:
            raise bad_request("name in URL does not match name in Eviction object")
        eviction.deleteOptions.dryRun.extend(read_dry_run(request))
        validate_delete_options(eviction.deleteOptions)
        data = await self._objects.call_api_server(request, route, "Evict", EvictRequest(eviction=eviction))
        return self._pod_subresource_response(request, route, BatchItem.FromString(data))

    async def log(self, request: Request, route: Route) -> Response:
        """Return the logs of a container as text. Raises ApiStatus."""
        message = LogsRequest(namespace=route.namespace, name=route.name, options=_log_options(request))
        try:
            stream = await self._backend.stream(request, "/pinnace.v1.Pods/Logs", message)
            first = await stream.read(LOG_SILENCE)
        except ApiError as error:
            raise convert_error(error, route.resource, route.name) from None

        async def chunks() -> AsyncIterator[bytes]:
            answer = first
            try:
                yield b""
                while answer is not None:
                    yield LogsResponse.FromString(answer.data).data
                    answer = await stream.read(LOG_SILENCE)
            except ApiError as error:
                yield f"\n{error.message}\n".encode()
            finally:
                stream.cancel()

        return Response(200, chunks(), "text/plain", is_live=True)

    def _pod_subresource_response(self, request: Request, route: Route, item: BatchItem) -> Response:
        error = error_of(item)
        if error is not None:
            raise convert_error(error, route.resource, route.name)
        return status_response(success_status_object(code=201), negotiate(request.headers.get("accept", ""), ()), 201)


def _log_options(request: Request) -> LogOptions:
    options = LogOptions(
        container=request.param("container"),
        follow=request.flag("follow"),
        previous=request.flag("previous"),
        timestamps=request.flag("timestamps"),
    )
    for name in ("sinceSeconds", "tailLines", "limitBytes"):
        value = request.number(name)
        if value is not None:
            setattr(options, name, value)
    if since := request.param("sinceTime"):
        try:
            instant = parse_rfc3339(since)
        except ValueError as error:
            raise bad_request(f"sinceTime: {error}") from None
        options.sinceTime.CopyFrom(Time(seconds=instant.seconds, nanos=instant.nanos))
    return options
