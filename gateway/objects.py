"""Verbs of objects: get, list, create, update, patch, delete and deletecollection. Each verb is one call to an API server.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from google.protobuf.message import Message

from pinnace.api.json_codec import JsonCache
from pinnace.api.meta_v1_pb2 import ListMeta, ListOptions
from pinnace.api.ownership import decode_shown
from pinnace.api.resources import Resource
from pinnace.api.verbs_pb2 import BatchResponse, DeleteCollectionRequest, DeleteRequest, GetRequest, ListRequest, PatchRequest
from pinnace.api.wire import field
from pinnace.client.errors import ApiError
from pinnace.gateway import tables
from pinnace.gateway.api_resources import ApiResource
from pinnace.gateway.backend import Backend
from pinnace.gateway.bodies import (
    decode_configuration,
    decode_object,
    is_large,
    read_configuration,
    read_delete_options,
    read_object,
    read_patch_options,
    set_write_options,
)
from pinnace.gateway.connection import PIECE
from pinnace.gateway.errors import convert_error
from pinnace.gateway.flow import ChunkTurns
from pinnace.gateway.http import JSON, ApiStatus, Request, Response, bad_request, dump_json, not_found, success_status_object
from pinnace.gateway.list_options import check_list_options
from pinnace.gateway.media_types import (
    METADATA_LIST,
    PROTOBUF,
    TABLE,
    YAML,
    ResponseFormat,
    envelope,
    json_to_yaml,
    negotiate_for,
    to_yaml,
    unsupported_media_type,
    unsupported_patch_type,
)
from pinnace.gateway.routes import Route
from pinnace.gateway.status import status_response
from pinnace.gateway.wire import split_list
from pinnace.gateway.workers import ConversionWorker, is_large_json

PATCH_TYPES = {
    "application/json-patch+json": PatchRequest.JSON,
    "application/merge-patch+json": PatchRequest.MERGE,
    "application/strategic-merge-patch+json": PatchRequest.STRATEGIC_MERGE,
}
_UPDATES = {
    "": "Update",
    "status": "UpdateStatus",
    "resize": "UpdateResize",
    "ephemeralcontainers": "UpdateEphemeralContainers",
    "finalize": "Finalize",
}
"""The method of an update by subresource."""
APPLY_TYPE = "application/apply-patch+yaml"
_RETURNED = (
    "pods", "services", "persistentvolumes", "persistentvolumeclaims", "resourcequotas", "serviceaccounts", "storageclasses",
    "csinodes",
)  # fmt: skip
"""Plurals whose delete returns the object even if it has been removed. Others return a Status, as in Kubernetes."""
SLICE = 0.001
"""Seconds of a turn in which the parts of a large list are made."""
Groups: TypeAlias = AsyncIterator[tuple[list[bytes], bool]]
"""Groups of encoded values, and whether it is the last group."""
_VERSION_LISTS = 1
"""The number of items of a list that is only read for its resourceVersion."""


class ObjectHandlers:
    def __init__(self, backend: Backend, cache: JsonCache, workers: ConversionWorker, turns: ChunkTurns) -> None:
        self._backend = backend
        self._cache = cache
        self._workers = workers
        self._turns = turns

    async def get(self, request: Request, route: Route) -> Response:
        form = negotiate_for(request, route.resource)
        if route.resource.resource is None:
            raise not_found(route.resource.qualified_name, route.name)
        message = GetRequest(namespace=route.namespace, name=route.name)
        message.options.resourceVersion = request.param("resourceVersion")
        return await self.render_response(
            request, route, await self.call_api_server(request, route, "Get", message, retry=True), form
        )

    async def list(self, request: Request, route: Route) -> Response:
        form = negotiate_for(request, route.resource)
        check_list_options(request)
        resource = route.resource
        if resource.resource is None:
            return await self._render_list(request, resource, await self._read_version(request), form)
        message = ListRequest(namespace=route.namespace, options=self._list_options(request))
        data = await self.call_api_server(request, route, "List", message, retry=True)
        return await self._render_list(request, resource, data, form)

    async def create(self, request: Request, route: Route) -> Response:
        form = negotiate_for(request, route.resource)
        obj = await self._read_object(request, route)
        set_namespace_from_path(route, obj)
        message: Any = route.resource.resource.request("Create")(object=obj)  # type: ignore[union-attr]  # custom kinds have handlers of their own
        set_write_options(request, message.options)
        data = await self.call_api_server(request, route, "Create", message, name=obj.metadata.name)
        return await self.render_response(request, route, data, form, code=201)

    async def update(self, request: Request, route: Route) -> Response:
        form = negotiate_for(request, route.resource)
        obj = await self._read_object(request, route)
        set_namespace_from_path(route, obj)
        check_name(route, obj)
        update: Any = route.resource.resource.request("Update")(object=obj)  # type: ignore[union-attr]  # custom kinds have handlers of their own
        set_write_options(request, update.options)
        verb = _UPDATES[route.subresource]
        return await self.render_response(request, route, await self.call_api_server(request, route, verb, update), form)

    async def patch(self, request: Request, route: Route) -> Response:
        form = negotiate_for(request, route.resource)
        message = await self.patch_request(request, route, PATCH_TYPES | {APPLY_TYPE: PatchRequest.APPLY})
        message.subresource = route.subresource
        data = await self.call_api_server(request, route, "Patch", message)
        return await self.render_response(request, route, data, form, code=201 if request.created else 200)

    async def delete(self, request: Request, route: Route) -> Response:
        form = negotiate_for(request, route.resource, ())
        message = DeleteRequest(namespace=route.namespace, name=route.name, options=read_delete_options(request))
        data = await self.call_api_server(request, route, "Delete", message)
        obj: Any = route.resource.resource.message.FromString(data)  # type: ignore[union-attr]  # custom kinds have handlers of their own
        waits = obj.metadata.deletionGracePeriodSeconds or obj.metadata.finalizers or route.resource.plural == "namespaces"
        if route.resource.plural in _RETURNED or (obj.metadata.HasField("deletionTimestamp") and waits):
            return await self.render_response(request, route, data, form)
        group = {"group": route.resource.group} if route.resource.group else {}
        details = {"name": route.name} | group | {"kind": route.resource.plural, "uid": obj.metadata.uid}
        return status_response(success_status_object(details), form)

    async def delete_collection(self, request: Request, route: Route) -> Response:
        form = negotiate_for(request, route.resource, ())
        check_list_options(request)
        message = DeleteCollectionRequest(
            namespace=route.namespace, options=self._list_options(request), deleteOptions=read_delete_options(request)
        )
        listed = b""
        if route.resource.custom is not None:  # Kubernetes returns the deleted objects
            listing = ListRequest(namespace=route.namespace, options=message.options)
            listed = await self.call_api_server(request, route, "List", listing, retry=True)
        while True:
            answer = BatchResponse.FromString(await self.call_api_server(request, route, "DeleteCollection", message))
            failed = next((item for item in answer.items if item.HasField("error") and item.error.code != 5), None)
            if failed is not None:
                raise ApiStatus(500, "InternalError", f'{route.resource.plural} "{failed.name}": {failed.error.message}')
            token = getattr(answer, "continue")
            if not token:
                break
            setattr(message.options, "continue", token)
        if listed:
            return await self._render_list(request, route.resource, listed, form)
        return status_response(success_status_object({"kind": route.resource.plural}), form)

    async def call_api_server(
        self, request: Request, route: Route, verb: str, message: Message, *, name: str = "", retry: bool = False
    ) -> bytes:
        """Call the API server and return the encoded response. Raises ApiStatus."""
        resource = route.resource.resource
        assert resource is not None
        try:
            return await self._backend.call(request, f"/{resource.service}/{verb}", message, retry=retry)
        except ApiError as error:
            raise convert_error(error, route.resource, name or route.name) from None

    async def patch_request(self, request: Request, route: Route, types: Mapping[str, PatchRequest.Type]) -> PatchRequest:
        """Read a patch. `types`: the accepted media types. Raises ApiStatus."""
        kind = types.get(request.headers.get("content-type", "").partition(";")[0].strip().lower())
        if route.resource.custom is not None and kind in (None, PatchRequest.STRATEGIC_MERGE):
            raise unsupported_media_type(name for name, kind in types.items() if kind != PatchRequest.STRATEGIC_MERGE)
        if kind is None:
            raise unsupported_patch_type()
        applies = kind == PatchRequest.APPLY
        patch = await self._read_configuration(request) if applies else request.body
        message = PatchRequest(namespace=route.namespace, name=route.name, type=kind, patch=patch)
        message.options.CopyFrom(read_patch_options(request, applies=applies))
        return message

    async def _read_object(self, request: Request, route: Route) -> Any:
        """Decode the object in the body. Raises ApiStatus."""
        resource = route.resource
        if not is_large(request):
            return read_object(request, resource, route.subresource)
        if resource.custom is not None:
            return await asyncio.to_thread(read_object, request, resource, route.subresource)
        assert resource.resource is not None
        key = (resource.group, resource.version, resource.plural)
        data, request.warnings = await self._workers.convert(request.user.name, decode_object, request, key, route.subresource)
        return resource.resource.message.FromString(data)

    async def _read_configuration(self, request: Request) -> bytes:
        """Return the configuration of an apply as JSON. Raises ApiStatus."""
        if not is_large(request):
            return read_configuration(request)
        data, request.warnings = await self._workers.convert(request.user.name, decode_configuration, request)
        return data

    async def render_response(
        self, request: Request, route: Route, data: bytes, form: ResponseFormat, *, code: int = 200
    ) -> Response:
        """Render an encoded object."""
        resource = route.resource
        assert resource.resource is not None
        if form.transform:
            obj: Any = decode_shown(resource.resource, data)
            if form.transform == TABLE:
                result = self._render_table(request, resource, [obj], {"resourceVersion": obj.metadata.resourceVersion}, form)
            else:
                result = tables.partial_metadata(obj, form.version)
            return respond_document(result, form, code)
        if form.media_type == PROTOBUF:
            shown = self._cache.protobuf(resource.resource, data)
            return Response(code, envelope(resource.api_version, resource.kind, shown), PROTOBUF)
        text = self._cache.typed_json(resource.resource, data)
        if form.media_type == YAML:
            return Response(code, await self._to_yaml(request, text), YAML)
        return Response(code, text + b"\n", JSON)

    async def _to_yaml(self, request: Request, text: bytes) -> bytes:
        if not is_large_json(text):
            return json_to_yaml(text)
        return await self._workers.convert(request.user.name, json_to_yaml, text)

    async def _render_list(self, request: Request, resource: ApiResource, data: bytes, form: ResponseFormat) -> Response:
        encoded_meta, items = split_list(data)
        if form.media_type == PROTOBUF and not form.transform:
            if resource.resource is not None:
                data = await self._protobuf_list(resource.resource, encoded_meta, items)
            return Response(200, envelope(resource.api_version, resource.list_kind, data), PROTOBUF)
        list_meta = _list_meta(ListMeta.FromString(encoded_meta))
        if resource.custom is not None and not form.transform:
            list_meta = {"continue": "", **list_meta}
        if form.transform == TABLE:
            head, parts = self._table_parts(request, resource, items, list_meta, form)
        elif form.transform:
            head = {"kind": METADATA_LIST, "apiVersion": f"meta.k8s.io/{form.version}", "metadata": list_meta, "items": []}
            parts = (
                tables.with_owners(tables.partial_metadata(obj, form.version), owners, tables.METADATA_END)
                for obj, owners in _split_objects(resource, items, "Metadata")
            )
        else:
            head = {"kind": resource.list_kind, "apiVersion": resource.api_version, "metadata": list_meta, "items": []}
            parts = (self._cache.json(resource.resource, item) for item in items) if resource.resource is not None else iter(())
        groups = group_chunks(parts, self._turns)
        chunks = (
            self._yaml_chunks(request, head, groups) if form.media_type == YAML else json_chunks(dump_json(head)[:-3], groups)
        )
        first, second = await anext(chunks), await anext(chunks, None)
        body = first if second is None else _chain_chunks(first, second, chunks)
        return Response(200, body, YAML if form.media_type == YAML else JSON)

    async def _protobuf_list(self, resource: Resource[Any], encoded_meta: bytes, items: Iterable[bytes]) -> bytes:
        parts = [field(1, encoded_meta)]
        async for group, _ in group_chunks((field(2, self._cache.protobuf(resource, item)) for item in items), self._turns):
            parts += group
        return b"".join(parts)

    async def _yaml_chunks(self, request: Request, head: dict[str, Any], groups: Groups) -> AsyncIterator[bytes]:
        """The chunks of a YAML document: the fields of `head`, and the values of its last field, a list, which are encoded in
        JSON. The conversion of a text with all of them would need a hundred times its size."""
        *others, last = head
        start = to_yaml({key: head[key] for key in others}) + last.encode()
        async for group, _ in groups:
            if not (group or start):
                return
            text = await self._to_yaml(request, b"[%b]" % b",".join(group))
            yield (b"%b:\n%b" if group else b"%b: %b") % (start, text) if start else text
            start = b""

    def _table_parts(
        self, request: Request, resource: ApiResource, items: Iterable[bytes], meta: dict[str, Any], form: ResponseFormat
    ) -> tuple[dict[str, Any], Iterator[bytes]]:
        """Return the head of a Table, whose last value are the rows, and the rows as JSON."""
        include, now = tables.read_include_object(request), time.time()
        head = tables.render_table(resource, (), meta, now, version=form.version, include=include)
        return head, (
            tables.with_owners(tables.render_row(resource, obj, now, form.version, include), owners, tables.ROW_END)
            for obj, owners in _split_objects(resource, items, include)
        )

    def _render_table(
        self, request: Request, resource: ApiResource, objects: Sequence[Any], meta: dict[str, Any], form: ResponseFormat
    ) -> dict[str, Any]:
        include = tables.read_include_object(request)
        return tables.render_table(resource, objects, meta, time.time(), version=form.version, include=include)

    async def _read_version(self, request: Request) -> bytes:
        """Return an encoded empty list at the requested revision."""
        options = ListOptions(
            limit=_VERSION_LISTS,
            fieldSelector="metadata.name=kube-system",
            resourceVersion=request.param("resourceVersion"),
            resourceVersionMatch=request.param("resourceVersionMatch"),
        )
        message = ListRequest(options=options)
        try:
            data = await self._backend.call(request, "/pinnace.v1.Namespaces/List", message, retry=True)
        except ApiError as error:
            raise convert_error(error) from None
        meta = ListMeta(resourceVersion=ListMeta.FromString(split_list(data)[0]).resourceVersion)
        return field(1, meta.SerializeToString())

    @staticmethod
    def _list_options(request: Request) -> ListOptions:
        options = ListOptions(
            labelSelector=request.param("labelSelector"),
            fieldSelector=request.param("fieldSelector"),
            resourceVersion=request.param("resourceVersion"),
            resourceVersionMatch=request.param("resourceVersionMatch"),
        )
        limit, token = request.number("limit"), request.param("continue")
        if token:
            setattr(options, "continue", token)
            if options.resourceVersion == "0":
                options.resourceVersion = ""
        if limit and options.resourceVersion != "0":  # Kubernetes serves resourceVersion 0 from its cache, in one page
            options.limit = limit
        return options


def set_namespace_from_path(route: Route, obj: Any) -> None:
    """Set the object's namespace to that of the path. Raises ApiStatus (400) if the object has a different namespace."""
    if route.resource.namespaced:
        if obj.metadata.namespace and obj.metadata.namespace != route.namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        obj.metadata.namespace = route.namespace


def check_name(route: Route, obj: Any) -> None:
    """Raise ApiStatus (400) if the name of the object is not that of the path."""
    name = obj.metadata.name
    if not name:
        raise bad_request(f"the name of the object ({route.name} based on URL) was undeterminable: name must be provided")
    if name != route.name:
        raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({route.name})")


def _split_objects(resource: ApiResource, items: Iterable[bytes], include: str) -> Iterator[tuple[Any, str]]:
    of = resource.resource
    return (tables.decode_for(of, item, include) for item in items) if of is not None else iter(())


async def group_chunks(parts: Iterator[bytes], turns: ChunkTurns) -> Groups:
    """Collect parts in groups of at least PIECE bytes. The last one is smaller, and may be empty. Making the parts takes
    turns."""
    group, size, turn_ends = list[bytes](), 0, time.monotonic() + SLICE
    for part in parts:
        group.append(part)
        size += len(part)
        if size >= PIECE:
            yield group, False
            group, size = [], 0
        if time.monotonic() >= turn_ends:
            await turns.take_turn()
            turn_ends = time.monotonic() + SLICE
    yield group, True


async def json_chunks(head: bytes, groups: Groups) -> AsyncIterator[bytes]:
    """The chunks of a JSON document: `head` up to the opening bracket of its last value, a list, and the encoded values of that
    list."""
    begin = head
    async for group, is_last in groups:
        yield b"%b%b%b" % (begin if group or begin is head else b"", b",".join(group), b"]}\n" if is_last else b"")
        begin = b","


async def _chain_chunks(first: bytes, second: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    yield second
    async for chunk in rest:
        yield chunk


def respond_document(found: dict[str, Any], form: ResponseFormat, code: int = 200) -> Response:
    """Return a response with a document that is not a stored object, as JSON or YAML."""
    if form.media_type == YAML:
        return Response(code, to_yaml(found), YAML)
    return Response(code, dump_json(found), JSON)


def _list_meta(meta: ListMeta) -> dict[str, Any]:
    result: dict[str, Any] = {"resourceVersion": meta.resourceVersion}
    if token := getattr(meta, "continue"):
        result["continue"] = token
    if meta.HasField("remainingItemCount"):
        result["remainingItemCount"] = meta.remainingItemCount
    return result
