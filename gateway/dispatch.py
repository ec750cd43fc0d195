"""The dispatcher, which selects the handler of a request."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

from gateway.access import Access
from gateway.api_resources import ELECTIONS, METRICS_GROUP
from gateway.backend import Backend
from gateway.connection import MAX_BODY, BodyBudget
from gateway.discovery import Discovery, version_info
from gateway.elections import Elections
from gateway.errors import to_status
from gateway.exec import Exec, Upgrade
from gateway.flow import FlowControl
from gateway.http import ANONYMOUS, ApiStatus, PageNotFound, Request, Response, dump, method_not_allowed, unauthorized
from gateway.json_codec import JsonCache
from gateway.objects import Objects
from gateway.openapi import OpenApi
from gateway.portforward import PortForward
from gateway.reviews import Reviews
from gateway.routes import Route, resolve
from gateway.subresources import Subresources
from gateway.usage import Usage
from gateway.watches import Watches
from gateway.why import Why
from gateway.workers import Workers
from pinnace.client.config import ClientConfig
from pinnace.client.errors import ApiError
from pinnace.runtime import build

log = logging.getLogger(__name__)

PUBLIC = ("/version", "/livez", "/readyz", "/healthz")
"""Paths that need no credentials, including all subpaths."""
_DISCOVERY_SEGMENTS = {"api": 2, "apis": 3}
"""The number of segments of the longest discovery path. Paths of objects have more."""
Handler = Callable[[Request, Route], Awaitable[Response | Upgrade]]
ReadBody = Callable[[str, BodyBudget, int], Awaitable[bytes]]
"""Reads the body of a request, for a user, within a budget and a limit in bytes. Raises ApiStatus."""
Ready = Callable[[], str]
"""A function that returns the reason why the gateway cannot serve, or "" if it can."""


LISTED_PER_SEAT = 500
"""The maximum number of listed objects for one seat."""
LIST_SEATS = 8
"""The seats of a list without a limit."""
LINKS_PATH = "/timeline/links"
Link = Callable[[Request], Awaitable[Response]]


REVIEW_VERBS = ("create",)
"""The verbs of reviews. The API server authorizes them, and every user may send reviews of itself, so bodies are small."""
MAX_REVIEW = 64 << 10
"""The maximum size of a review in bytes."""
_WITH_BODY = ("POST", "PUT", "PATCH", "DELETE")


async def no_link(request: Request) -> Response:
    raise PageNotFound


class Dispatcher:
    def __init__(self, backend: Backend, ready: Ready, servers: ClientConfig, workers: Workers, link: Link = no_link) -> None:
        """`servers`: the API servers that `backend` calls. `workers`: does large conversions. `link`: handles requests for a
        link to the timeline."""
        self._link = link
        cache = JsonCache()
        objects = Objects(backend, cache, workers)
        subresources = Subresources(backend, objects)
        commands = Exec(backend)
        self._flow = FlowControl()
        self._access = Access(backend)
        self._ready = ready
        self._discovery = Discovery()
        self._openapi = OpenApi()
        self._version = dump(version_info(build.version()))
        self._reviews = Reviews(backend)
        self._usage = Usage(backend)
        self._why = Why(servers)
        elections = Elections(backend)
        self._elections: dict[str, Handler] = {"get": elections.get, "list": elections.list, "watch": elections.watch}
        self._subresources: dict[str, Handler] = {
            "scale": subresources.scale,
            "binding": subresources.bind,
            "eviction": subresources.evict,
            "log": subresources.log,
            "exec": commands.exec,
            "attach": commands.attach,
            "portforward": PortForward(backend).port_forward,
        }
        self._verbs: dict[str, Handler] = {
            "get": objects.get,
            "list": objects.list,
            "watch": Watches(backend, cache).watch,
            "create": objects.create,
            "update": objects.update,
            "patch": objects.patch,
            "delete": objects.delete,
            "deletecollection": objects.delete_collection,
        }

    async def answer(self, request: Request, read_body: ReadBody | None = None) -> Response | Upgrade:
        """Handle a request. `read_body`: reads the body; None if the request has it. Raises ApiStatus."""
        path = request.path
        if path.startswith(PUBLIC):
            return self._public(request)
        if request.user is ANONYMOUS:
            raise unauthorized()
        if request.acting_as is not None:
            await self._reviews.check_impersonation(request, request.acting_as)
            request.user = request.acting_as
        route = resolve(request) if _is_of_objects(path) else None
        user, seats = request.user.name, _seats(request, route)
        await self._flow.enter(user, seats)
        held = True
        try:
            if route is None:
                return await self._answer_discovery(request)
            response = await self._answer_route(request, route, read_body)
            if isinstance(response, Response) and not isinstance(response.body, bytes) and not response.is_live:
                response.body, held = self._hold_seats(response.body, user, seats), False
            return response
        finally:
            if held:
                self._flow.leave(user, seats)

    async def _hold_seats(self, chunks: AsyncIterator[bytes], user: str, seats: int) -> AsyncIterator[bytes]:
        """The chunks of a large response. Its seats are released when the client has it."""
        try:
            async for chunk in chunks:
                yield chunk
        finally:
            self._flow.leave(user, seats)
            await cast(Any, chunks).aclose()

    async def _answer_discovery(self, request: Request) -> Response:
        path = request.path
        if path == LINKS_PATH and request.method == "POST":
            return await self._link(request)
        if path.startswith("/openapi/"):
            return await self._openapi.respond(request)
        if path == "/":
            return Response(200, dump({"paths": sorted((*self._discovery.paths, *self._openapi.paths, *PUBLIC))}))
        if request.method not in ("GET", "HEAD"):
            raise method_not_allowed()
        return self._discovery.respond(request)

    async def _answer_route(self, request: Request, route: Route, read_body: ReadBody | None) -> Response | Upgrade:
        handler = self._handler(route)
        try:
            if read_body is not None and request.method in _WITH_BODY:
                limit = MAX_REVIEW
                if route.resource.verbs != REVIEW_VERBS:
                    await self._access.check(request, route)
                    limit = MAX_BODY
                request.body = await read_body(request.user.name, self._flow, limit)
                if request.headers.get("content-encoding", "identity") == "gzip":
                    raise ApiStatus(415, "UnsupportedMediaType", "request bodies must not be compressed")
            return await handler(request, route)
        except ApiError as error:
            raise to_status(error, route.resource, route.name) from None

    def _handler(self, route: Route) -> Handler:
        if route.subresource == "why":
            return self._why.get
        if route.resource is ELECTIONS:
            return self._elections[route.verb]
        if route.resource.group == METRICS_GROUP:
            return self._usage.get if route.verb == "get" else self._usage.list
        if route.resource.verbs == REVIEW_VERBS:
            return self._reviews.create
        if route.subresource in self._subresources:
            return self._subresources[route.subresource]
        if route.subresource not in ("", "status", "resize", "finalize"):
            raise ApiStatus(501, "NotImplemented", f"the subresource {route.subresource} is not supported by this gateway")
        return self._verbs[route.verb]

    def _public(self, request: Request) -> Response:
        name, _, check = request.path.strip("/").partition("/")
        if name == "version":
            if check:
                raise PageNotFound
            return Response(200, self._version)
        problem = "" if name == "livez" else self._ready()
        if problem:
            return Response(500, f"[-]apiserver failed: {problem}\n{name} check failed\n".encode(), "text/plain")
        text = "[+]ping ok\n[+]apiserver ok\n" + f"{name} check passed\n" if "verbose" in request.query else "ok"
        return Response(200, text.encode(), "text/plain")


def _is_of_objects(path: str) -> bool:
    """Return whether a path is of objects, and not of discovery: /api/VERSION/RESOURCE, /apis/GROUP/VERSION/RESOURCE."""
    segments = path.strip("/").split("/")
    return len(segments) > _DISCOVERY_SEGMENTS.get(segments[0], len(segments))


def _seats(request: Request, route: Route | None) -> int:
    """Return the seats of a request by the number of objects that it can return. Raises ApiStatus (400)."""
    if route is None or route.verb not in ("list", "deletecollection"):
        return 1
    return 1 if 0 < (request.number("limit") or 0) <= LISTED_PER_SEAT else LIST_SEATS
