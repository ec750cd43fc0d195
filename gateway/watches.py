"""Watches: the stream of an API server as JSON lines or as length-delimited protobuf.

Headers are sent immediately, because clients wait for them. An error within OPENING seconds is the status of the response. A
later error is an event of type ERROR. If the API server becomes unavailable, the watch ends without an error and the client
resumes it.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

import time
from collections import deque
from collections.abc import Sequence
from typing import Self

from pinnace.api.json_codec import JsonCache
from pinnace.api.meta_v1_pb2 import ListOptions
from pinnace.api.resources import NAMESPACES
from pinnace.api.verbs_pb2 import WatchRequest
from pinnace.client.errors import ApiError, Expired, Forbidden, HistoryChanged, Invalid, Unauthenticated
from pinnace.gateway import tables
from pinnace.gateway.api_resources import ApiResource
from pinnace.gateway.backend import Backend
from pinnace.gateway.errors import convert_error
from pinnace.gateway.http import JSON, Request, Response
from pinnace.gateway.list_options import check_watch_options
from pinnace.gateway.media_types import PROTOBUF, YAML, ResponseFormat, negotiate_for, unsupported_media_type
from pinnace.gateway.routes import Route
from pinnace.gateway.shared_watches import SharedWatch, SharedWatches
from pinnace.gateway.watch_events import (
    Encoder,
    EventCache,
    JsonEncoder,
    ProtobufEncoder,
    TransformedEncoder,
    join_small_chunks,
)

BOOKMARK_INTERVAL = 60.0
"""The minimum number of seconds between two bookmarks without events."""
STREAM_PROTOBUF = f"{PROTOBUF};stream=watch"
_ERRORS_SHOWN = (Expired, HistoryChanged, Forbidden, Invalid, Unauthenticated)
"""Errors that end a watch with an ERROR event. After other errors, the client can resume the watch."""


class Watches:
    def __init__(self, backend: Backend, cache: JsonCache) -> None:
        self._shared = SharedWatches(backend)
        self._cache = cache
        self._events = EventCache()

    async def watch(self, request: Request, route: Route) -> Response:
        """Start a watch. Raises ApiStatus if it cannot be started."""
        form = _negotiate_format(request, route.resource)
        resource = route.resource.resource or NAMESPACES
        message = WatchRequest(
            namespace=route.namespace if resource.namespaced else "", options=_read_list_options(request, route)
        )
        try:
            watch = await self._shared.watch(request, resource.service, message)
        except ApiError as error:
            raise convert_error(error, route.resource, route.name) from None
        encoder = self._encoder(request, route.resource, form)
        content_type = STREAM_PROTOBUF if form.media_type == PROTOBUF else JSON
        return Response(200, _WatchChunks(watch, encoder, message.options, self._events), content_type, is_live=True)

    def _encoder(self, request: Request, resource: ApiResource, form: ResponseFormat) -> Encoder:
        if form.media_type == PROTOBUF:
            return ProtobufEncoder(resource)
        if form.transform:
            return TransformedEncoder(resource, form, tables.read_include_object(request))
        return JsonEncoder(resource, self._cache)


def _negotiate_format(request: Request, resource: ApiResource) -> ResponseFormat:
    form = negotiate_for(request, resource)
    if form.media_type == YAML:
        raise unsupported_media_type((JSON, PROTOBUF))
    return form


def _read_list_options(request: Request, route: Route) -> ListOptions:
    fields_wanted = request.param("fieldSelector")
    if route.name:
        fields_wanted = ",".join(filter(None, (fields_wanted, f"metadata.name={route.name}")))
    if route.resource.resource is None:
        fields_wanted = "metadata.name=kube-system,metadata.name!=kube-system"
    check_watch_options(request)
    options = ListOptions(
        labelSelector=request.param("labelSelector") if route.resource.resource is not None else "",
        fieldSelector=fields_wanted,
        resourceVersion=request.param("resourceVersion"),
        resourceVersionMatch=request.param("resourceVersionMatch"),
        allowWatchBookmarks=request.flag("allowWatchBookmarks"),
    )
    if request.param("sendInitialEvents"):
        options.sendInitialEvents = request.flag("sendInitialEvents")
    seconds = request.number("timeoutSeconds")
    if seconds:
        options.timeoutSeconds = seconds
    return options


class _WatchChunks:
    """The chunks of a watch that has started."""

    def __init__(self, watch: SharedWatch, encoder: Encoder, options: ListOptions, cache: EventCache) -> None:
        self._watch = watch
        self._encoder = encoder
        self._cache = cache
        self._bookmarks = options.allowWatchBookmarks
        self._initial = options.sendInitialEvents
        """Whether the annotated bookmark has not been sent."""
        self._bookmarked = time.monotonic()
        self._chunks = deque([b""])  # the headers
        self._ended = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while not self._chunks:
            if self._ended:
                raise StopAsyncIteration
            await self._read_responses()
        return self._chunks.popleft()

    async def aclose(self) -> None:
        self._watch.close()

    async def _read_responses(self) -> None:
        try:
            responses = await self._watch.next()
        except ApiError as error:
            if isinstance(error, _ERRORS_SHOWN):
                self._chunks.append(self._encoder.error(convert_error(error)))
            responses = ()
        if responses:
            self._chunks.extend(join_small_chunks(part for data in responses for part in self._encode(data)))
        else:
            self._ended = True
            self._watch.close()

    def _encode(self, data: bytes) -> Sequence[bytes]:
        result = self._cache.encode(self._encoder, data)
        chunks = result.bookmarked if self._bookmarks else result.packets
        now = time.monotonic()
        if result.version and self._initial:
            self._initial, self._bookmarked = False, now
            return (*chunks, self._encoder.bookmark(result.version, True))
        if result.version and not chunks and self._bookmarks and now - self._bookmarked >= BOOKMARK_INTERVAL:
            self._bookmarked = now
            return (self._encoder.bookmark(result.version, False),)
        return chunks
