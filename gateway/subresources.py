"""Subresources that are not part of the stored object: scale, binding, eviction and log.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-uris
"""

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from gateway.api_resources import ApiResource
from gateway.backend import Backend
from gateway.bodies import BodyType, dry_run, field_manager, field_validation, read_message, validate_delete_options
from gateway.errors import invalid, to_status
from gateway.http import ApiStatus, Request, Response, bad_request, success
from gateway.json_codec import to_json
from gateway.media_types import PROTOBUF, negotiate, parse_body, unsupported, unwrap
from gateway.objects import PATCH_TYPES, Objects, document, settle_namespace
from gateway.routes import Route
from gateway.wire import WireError, fields, last_bytes
from pinnace.api.core_v1_pb2 import Binding
from pinnace.api.meta_v1_pb2 import Time
from pinnace.api.patch import PatchError, parse, patched
from pinnace.api.pods_pb2 import BindRequest, EvictRequest, LogOptions, LogsRequest, LogsResponse
from pinnace.api.policy_v1_pb2 import Eviction
from pinnace.api.scalars import parse_rfc3339
from pinnace.api.selectors import from_message
from pinnace.api.status import Violation
from pinnace.api.verbs_pb2 import BatchItem, GetRequest, PatchRequest
from pinnace.client.errors import ApiError, error_of

_SCALE = ApiResource("autoscaling", "v1", "scales", "Scale", True, ())
_BINDING = BodyType("Binding", ("v1",))
_EVICTION = BodyType("Eviction", ("policy/v1", "policy/v1beta1"))
_SCALE_PARTS = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
LOG_SILENCE = None
"""No timeout: a container can run without output."""


class Subresources:
    def __init__(self, backend: Backend, objects: Objects) -> None:
        self._backend = backend
        self._objects = objects

    async def scale(self, request: Request, route: Route) -> Response:
        """Read or write `spec.replicas` as a Scale of autoscaling/v1. Raises ApiStatus."""
        form = negotiate(request.headers.get("accept", ""), ())
        obj = await self._read(request, route)
        if route.verb == "get":
            return document(_scale_of(obj), form)
        wanted = _patched_scale(request, _scale_of(obj)) if route.verb == "patch" else _read_scale(request)
        version = (wanted.get("metadata") or {}).get("resourceVersion") if route.verb == "update" else None
        replicas = (wanted.get("spec") or {}).get("replicas", 0)
        if replicas < 0:
            violation = Violation("spec.replicas", f"Invalid value: {replicas}: must be greater than or equal to 0")
            raise invalid(_SCALE, route.name, (violation,))
        change: dict[str, Any] = {"spec": {"replicas": replicas}}
        if version:
            change["metadata"] = {"resourceVersion": version}
        message = PatchRequest(
            namespace=route.namespace, name=route.name, type=PatchRequest.MERGE, patch=json.dumps(change).encode()
        )
        message.options.dryRun.extend(dry_run(request))
        message.options.fieldManager = field_manager(request)
        data = await self._objects.call(request, route, "Patch", message)
        return document(_scale_of(_message(route.resource, data)), form)

    async def bind(self, request: Request, route: Route) -> Response:
        """Bind a pod to a node. Used by external schedulers. Raises ApiStatus."""
        binding = read_message(request, Binding, _BINDING, field_validation(request))
        settle_namespace(route, binding)
        if binding.metadata.name != route.name:
            raise bad_request("name in URL does not match name in Binding object")
        try:
            item = BatchItem.FromString(await self._objects.call(request, route, "Bind", BindRequest(binding=binding)))
            return self._outcome(request, route, item)
        except ApiStatus as status:
            if status.code != 409:
                raise
            why = status.message.partition(": ")[2].replace(f'pod "{route.name}"', f"pod {route.name}")
            text = f'Operation cannot be fulfilled on pods/binding "{route.name}": {why}'
            raise ApiStatus(409, "Conflict", text, {"name": route.name, "kind": "pods/binding"}) from None

    async def evict(self, request: Request, route: Route) -> Response:
        """Delete a pod if its disruption budget permits it. Raises ApiStatus."""
        eviction = read_message(request, Eviction, _EVICTION, field_validation(request))
        settle_namespace(route, eviction)
        if eviction.metadata.name != route.name:
            raise bad_request("name in URL does not match name in Eviction object")
        eviction.deleteOptions.dryRun.extend(dry_run(request))
        validate_delete_options(eviction.deleteOptions)
        data = await self._objects.call(request, route, "Evict", EvictRequest(eviction=eviction))
        return self._outcome(request, route, BatchItem.FromString(data))

    async def log(self, request: Request, route: Route) -> Response:
        """Return the logs of a container as text. Raises ApiStatus."""
        message = LogsRequest(namespace=route.namespace, name=route.name, options=_log_options(request))
        try:
            stream = await self._backend.stream(request, "/pinnace.v1.Pods/Logs", message)
            first = await stream.read(LOG_SILENCE)
        except ApiError as error:
            raise to_status(error, route.resource, route.name) from None

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

        return Response(200, chunks(), "text/plain")

    async def _read(self, request: Request, route: Route) -> Any:
        message = GetRequest(namespace=route.namespace, name=route.name)
        return _message(route.resource, await self._objects.call(request, route, "Get", message, retry=True))

    def _outcome(self, request: Request, route: Route, item: BatchItem) -> Response:
        error = error_of(item)
        if error is not None:
            raise to_status(error, route.resource, route.name)
        return document(success(code=201), negotiate(request.headers.get("accept", ""), ()), 201)


def _message(resource: ApiResource, data: bytes) -> Any:
    assert resource.resource is not None
    return resource.resource.message.FromString(data)


def _scale_of(obj: Any) -> dict[str, Any]:
    """Return the Scale of an object. Zeros are omitted, as in Kubernetes."""
    metadata = json.loads(to_json(obj.metadata))
    status: dict[str, Any] = {"replicas": obj.status.replicas}
    if selector := str(from_message(obj.spec.selector)):
        status["selector"] = selector
    replicas = obj.spec.replicas
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in _SCALE_PARTS if name in metadata},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def _read_scale(request: Request) -> Mapping[str, Any]:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip()
    if media_type == PROTOBUF:
        try:
            return _decoded_scale(unwrap(request.body).data)
        except WireError as error:
            raise bad_request(f"unable to decode the Scale: {error}") from None
    data = parse_body(request.body, media_type)
    return _checked(data)


def _decoded_scale(data: bytes) -> Mapping[str, Any]:
    metadata, spec = last_bytes(data, 1), last_bytes(data, 2)
    replicas = next((value for number, value in fields(spec) if number == 1), 0)
    version = last_bytes(metadata, 6).decode(errors="replace")
    return {"metadata": {"resourceVersion": version}, "spec": {"replicas": replicas}}


def _patched_scale(request: Request, scale: dict[str, Any]) -> Mapping[str, Any]:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in PATCH_TYPES:
        raise unsupported(media_type, PATCH_TYPES)
    try:
        kind = PATCH_TYPES[media_type]
        return _checked(patched(scale, kind, parse(request.body, kind)))
    except PatchError as error:
        raise bad_request(str(error)) from None


def _checked(data: Any) -> Mapping[str, Any]:
    """Return a Scale whose fields have the correct types. Raises ApiStatus (400)."""
    if isinstance(data, Mapping) and all(isinstance(data.get(part) or {}, Mapping) for part in ("metadata", "spec")):
        replicas = (data.get("spec") or {}).get("replicas", 0)
        if isinstance(replicas, int) and not isinstance(replicas, bool):
            return data
    raise bad_request("the body is not a Scale of autoscaling/v1")


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
