"""Watches: the stream of an API server as JSON lines or as length-delimited protobuf.

Headers are sent immediately, because clients wait for them. An error within OPENING seconds is the status of the response. A
later error is an event of type ERROR. If the API server becomes unavailable, the watch ends without an error and the client
resumes it.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, Protocol

from gateway import tables
from gateway.api_resources import ApiResource
from gateway.backend import Backend, opening
from gateway.errors import invalid_options, to_status
from gateway.http import JSON, ApiStatus, Request, Response, dump
from gateway.json_codec import JsonCache, with_type
from gateway.media_types import PROTOBUF, TABLE, YAML, Format, envelope, negotiate, unsupported
from gateway.routes import Route
from gateway.wire import fields
from pinnace.api.meta_v1_pb2 import ListOptions
from pinnace.api.resources import NAMESPACES
from pinnace.api.verbs_pb2 import WatchEventType, WatchRequest
from pinnace.api.wire import field
from pinnace.client.errors import ApiError, Expired, Forbidden, HistoryChanged, Unauthenticated

OPENING = 0.1
"""Seconds within which an error is the status of the response."""
SILENCE = 15.0
"""Seconds without a response or bookmark after which the stream of an API server is closed."""
BOOKMARK_INTERVAL = 60.0
"""The minimum number of seconds between two bookmarks without events."""
INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""The annotation of the bookmark after the initial events."""
STREAM_PROTOBUF = f"{PROTOBUF};stream=watch"
_ERRORS_SHOWN = (Expired, HistoryChanged, Forbidden, Unauthenticated)
"""Errors that end a watch with an ERROR event. After other errors, the client can resume the watch."""
_TYPES: dict[int, str] = {WatchEventType.ADDED: "ADDED", WatchEventType.MODIFIED: "MODIFIED", WatchEventType.DELETED: "DELETED"}
_PREFIXES = {name: f'{{"type":"{name}","object":'.encode() for name in _TYPES.values()}


class _Encoder(Protocol):
    resource: ApiResource
    shared: bool
    """Whether the encoding of an event depends only on the type of the encoder and the resource."""

    def event(self, kind: str, data: bytes) -> bytes: ...
    def bookmark(self, version: str, initial_end: bool) -> bytes: ...
    def error(self, status: ApiStatus) -> bytes: ...


class EventCache:
    """The encoded events of recent responses, because an API server sends the same bytes to all watches with the same events.
    Limited to `limit` bytes in total. Evicts the oldest entries."""

    def __init__(self, limit: int = 4 << 20) -> None:
        self._limit = limit
        self._size = 0
        self._known: dict[tuple[type, str, str, bytes], tuple[bytes, str]] = {}

    def encode(self, encoder: _Encoder, data: bytes) -> tuple[bytes, str]:
        """Return the encoded events of a response, and its resourceVersion. Raises WireError, DecodeError."""
        if not encoder.shared:
            return _encode(encoder, data)
        key = (type(encoder), encoder.resource.api_version, encoder.resource.plural, data)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = _encode(encoder, data)
            self._size += len(data) + len(found[0])
            while self._size > self._limit:
                oldest = next(iter(self._known))
                self._size -= len(oldest[3]) + len(self._known.pop(oldest)[0])
        return found


def _encode(encoder: _Encoder, data: bytes) -> tuple[bytes, str]:
    parts, version = [], ""
    for number, value in fields(data):
        if number == 1 and isinstance(value, bytes):
            parts.append(encoder.event(*_event(value)))
        elif number == 2 and isinstance(value, bytes):
            version = value.decode()
    return b"".join(parts), version


class Watches:
    def __init__(self, backend: Backend, cache: JsonCache) -> None:
        self._backend = backend
        self._cache = cache
        self._events = EventCache()

    async def watch(self, request: Request, route: Route) -> Response:
        """Start a watch. Raises ApiStatus if it cannot be started."""
        form = _form(request)
        resource = route.resource.resource or NAMESPACES
        message = WatchRequest(namespace=route.namespace if resource.namespaced else "", options=_options(request, route))
        try:
            stream = await self._backend.stream(request, f"/{resource.service}/Watch", message)
            first = await opening(stream, OPENING, SILENCE)
        except ApiError as error:
            raise to_status(error, route.resource, route.name) from None
        encoder = self._encoder(request, route.resource, form)
        events = _Events(stream, first, encoder, message.options, self._events)
        content_type = STREAM_PROTOBUF if form.media_type == PROTOBUF else JSON
        return Response(200, events.chunks(), content_type)

    def _encoder(self, request: Request, resource: ApiResource, form: Format) -> "_Encoder":
        if form.media_type == PROTOBUF:
            return ProtobufEncoder(resource)
        if form.transform:
            return _TransformedEncoder(resource, form, tables.include_object(request))
        return JsonEncoder(resource, self._cache)


def _form(request: Request) -> Format:
    form = negotiate(request.headers.get("accept", ""))
    if form.media_type == YAML:
        raise unsupported(YAML, (JSON, PROTOBUF))
    return form


def _options(request: Request, route: Route) -> ListOptions:
    fields_wanted = request.param("fieldSelector")
    if route.name:
        fields_wanted = ",".join(filter(None, (fields_wanted, f"metadata.name={route.name}")))
    if route.resource.resource is None:
        fields_wanted = "metadata.name=kube-system,metadata.name!=kube-system"
    initial = request.param("sendInitialEvents")
    match = request.param("resourceVersionMatch")
    if initial and match != "NotOlderThan":
        text = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        raise invalid_options("ListOptions", "resourceVersionMatch", text)
    options = ListOptions(
        labelSelector=request.param("labelSelector") if route.resource.resource is not None else "",
        fieldSelector=fields_wanted,
        resourceVersion=request.param("resourceVersion"),
        resourceVersionMatch=match,
        allowWatchBookmarks=request.flag("allowWatchBookmarks"),
    )
    if initial:
        options.sendInitialEvents = request.flag("sendInitialEvents")
    seconds = request.number("timeoutSeconds")
    if seconds:
        options.timeoutSeconds = seconds
    return options


class _Events:
    """A watch that has started."""

    def __init__(
        self, stream: Any, first: "asyncio.Future[Any]", encoder: _Encoder, options: ListOptions, cache: EventCache
    ) -> None:
        self._stream = stream
        self._first: asyncio.Future[Any] | None = first
        self._encoder = encoder
        self._cache = cache
        self._bookmarks = options.allowWatchBookmarks
        self._initial = options.sendInitialEvents
        """Whether the annotated bookmark has not been sent."""
        self._bookmarked = time.monotonic()

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            yield b""  # the headers
            while (data := await self._next()) is not None:
                if chunk := self._encode(data):
                    yield chunk
        except ApiError as error:
            if isinstance(error, _ERRORS_SHOWN):
                yield self._encoder.error(to_status(error))
        finally:
            self._stream.cancel()

    async def _next(self) -> bytes | None:
        """Return the next response, or None at the end."""
        first, self._first = self._first, None
        answer = await first if first is not None else await self._stream.read(SILENCE)
        return None if answer is None else answer.data

    def _encode(self, data: bytes) -> bytes:
        chunk, version = self._cache.encode(self._encoder, data)
        if version and self._initial:
            self._initial = False
            chunk += self._encoder.bookmark(version, True)
            self._bookmarked = time.monotonic()
        elif version and not chunk and self._bookmarks and time.monotonic() - self._bookmarked >= BOOKMARK_INTERVAL:
            self._bookmarked = time.monotonic()
            chunk = self._encoder.bookmark(version, False)
        return chunk


def _event(data: bytes) -> tuple[str, bytes]:
    """Decode the type and the object of an event."""
    kind, obj = "", b""
    for number, value in fields(data):
        if number == 1 and isinstance(value, int):
            kind = _TYPES[value]
        elif number == 2 and isinstance(value, bytes):
            obj = value
    return kind, obj


def _bookmark_metadata(version: str, initial_end: bool) -> dict[str, Any]:
    metadata: dict[str, Any] = {"resourceVersion": version, "creationTimestamp": None}
    return metadata | ({"annotations": {INITIAL_EVENTS_END: "true"}} if initial_end else {})


class JsonEncoder:
    shared = True

    def __init__(self, resource: ApiResource, cache: JsonCache) -> None:
        self.resource = resource
        self._cache = cache

    def event(self, kind: str, data: bytes) -> bytes:
        resource = self.resource
        assert resource.resource is not None
        text = with_type(resource.api_version, resource.kind, self._cache.json(resource.resource, data))
        return b"%b%b}\n" % (_PREFIXES[kind], text)

    def bookmark(self, version: str, initial_end: bool) -> bytes:
        metadata = _bookmark_metadata(version, initial_end)
        obj = {"kind": self.resource.kind, "apiVersion": self.resource.api_version, "metadata": metadata}
        return dump({"type": "BOOKMARK", "object": obj})

    def error(self, status: ApiStatus) -> bytes:
        return dump({"type": "ERROR", "object": status.document})


class _TransformedEncoder(JsonEncoder):
    """Encodes events as tables with one row, or as metadata only."""

    shared = False

    def __init__(self, resource: ApiResource, form: Format, include: str) -> None:
        super().__init__(resource, JsonCache())
        self._form = form
        self._include = include
        self._defined = False

    def event(self, kind: str, data: bytes) -> bytes:
        assert self.resource.resource is not None
        obj: Any = self.resource.resource.message.FromString(data)
        if self._form.transform == TABLE:
            found = self._table([obj], {"resourceVersion": obj.metadata.resourceVersion})
        else:
            found = tables.metadata_only(obj, self._form.version)
        return b"%b%b}\n" % (_PREFIXES[kind], dump(found)[:-1])

    def bookmark(self, version: str, initial_end: bool) -> bytes:
        metadata = _bookmark_metadata(version, initial_end)
        if self._form.transform == TABLE:
            found = self._table([], {"resourceVersion": version})
            if initial_end:
                bare = {
                    "kind": "PartialObjectMetadata",
                    "apiVersion": f"meta.k8s.io/{self._form.version}",
                    "metadata": metadata,
                }
                found["rows"] = [{"cells": [], "object": bare}]
        else:
            found = self._bare(metadata)
        return dump({"type": "BOOKMARK", "object": found})

    def _bare(self, metadata: dict[str, Any]) -> dict[str, Any]:
        return {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{self._form.version}", "metadata": metadata}

    def _table(self, objects: list[Any], meta: dict[str, Any]) -> dict[str, Any]:
        definitions, self._defined = not self._defined, True
        return tables.table(
            self.resource,
            objects,
            meta,
            time.time(),
            version=self._form.version,
            include=self._include,
            definitions=definitions,
        )


class ProtobufEncoder:
    """Encodes events as frames: a 4-byte big-endian length and a WatchEvent."""

    shared = True

    def __init__(self, resource: ApiResource) -> None:
        self.resource = resource

    def event(self, kind: str, data: bytes) -> bytes:
        return _frame(kind, envelope(self.resource.api_version, self.resource.kind, data))

    def bookmark(self, version: str, initial_end: bool) -> bytes:
        metadata = field(6, version.encode())
        if initial_end:
            metadata += field(12, field(1, INITIAL_EVENTS_END.encode()) + field(2, b"true"))
        return _frame("BOOKMARK", envelope(self.resource.api_version, self.resource.kind, field(1, metadata)))

    def error(self, status: ApiStatus) -> bytes:
        return _frame("ERROR", status_envelope(status))


def _frame(kind: str, obj: bytes) -> bytes:
    event = field(1, kind.encode()) + field(2, field(1, obj))
    return len(event).to_bytes(4, "big") + event


def status_envelope(status: ApiStatus) -> bytes:
    """Return a Status as protobuf with its envelope."""
    found = status.document
    data = field(1, b"") + field(2, b"Failure") + field(3, status.message.encode()) + field(4, status.reason.encode())
    details = found.get("details")
    if details:
        parts = [field(1, str(details.get("name", "")).encode()), field(3, str(details.get("kind", "")).encode())]
        for cause in details.get("causes", ()):
            inner = b"".join(
                field(number, cause[name].encode())
                for number, name in ((1, "reason"), (2, "message"), (3, "field"))
                if name in cause
            )
            parts.append(field(4, inner))
        data += field(5, b"".join(parts))
    code = status.code
    data += b"\x30" + (bytes((code & 0x7F | 0x80, code >> 7)))
    return envelope("v1", "Status", data)
