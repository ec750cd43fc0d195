"""The dispatcher, which selects the handler of a request."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from http import HTTPStatus
from typing import Any, cast

from pinnace.api.json_codec import JsonCache
from pinnace.client.config import ClientConfig
from pinnace.client.errors import ApiError
from pinnace.gateway.access import AccessChecker
from pinnace.gateway.api_resources import ELECTIONS, METRICS_GROUP
from pinnace.gateway.backend import Backend
from pinnace.gateway.connection import MAX_BODY, BodyBudget
from pinnace.gateway.custom_resources import CustomKinds, ServedResources
from pinnace.gateway.discovery import Discovery, version_info
from pinnace.gateway.elections import Elections
from pinnace.gateway.errors import convert_error
from pinnace.gateway.exec import Exec, WebSocketUpgrade
from pinnace.gateway.flow import ChunkTurns, FlowControl
from pinnace.gateway.http import (
    ANONYMOUS,
    JSON,
    ApiStatus,
    PageNotFound,
    Request,
    Response,
    User,
    dump_json,
    method_not_allowed,
    path_not_found,
    unauthorized,
)
from pinnace.gateway.media_types import SERVED_TYPES
from pinnace.gateway.objects import ObjectHandlers
from pinnace.gateway.openapi import OpenApi
from pinnace.gateway.portforward import PortForward
from pinnace.gateway.reviews import Reviews
from pinnace.gateway.routes import Route, find_custom_resource, resolve_route
from pinnace.gateway.subresources import Subresources
from pinnace.gateway.tokens import CONFIGURATION_PATH, KEYS_PATH, TokenHandlers, is_issuer_path
from pinnace.gateway.usage import UsageHandlers
from pinnace.gateway.watches import Watches
from pinnace.gateway.why import ExplainHandler
from pinnace.gateway.workers import ConversionWorker
from pinnace.runtime import build

log = logging.getLogger(__name__)

PUBLIC = ("/healthz", "/livez", "/readyz", "/version", "/version/")
"""Paths that every client can read, without credentials and even if no API server responds."""
_SERVER_CHECKS = ("apiserver", "etcd")
"""Checks that fail while the gateway cannot serve. An API server is ready only with a working watch of etcd."""
CHECKS = {"healthz": ("ping", *_SERVER_CHECKS), "livez": ("ping",), "readyz": ("ping", *_SERVER_CHECKS)}
"""The health checks by endpoint. A check has a path of its own, for example /readyz/etcd."""
_READS = ("GET", "HEAD")
_DISCOVERY_SEGMENTS = {"api": 2, "apis": 3}
"""The number of segments of the longest discovery path. Paths of objects have more."""
Handler = Callable[[Request, Route], Awaitable[Response | WebSocketUpgrade]]
ReadBody = Callable[[str, BodyBudget, int], Awaitable[bytes]]
"""Reads the body of a request, for a user, within a budget and a limit in bytes. Raises ApiStatus."""
Ready = Callable[[], str]
"""A function that returns the reason why the gateway cannot serve, or "" if it can."""


LISTED_PER_SEAT = 500
"""The maximum number of listed objects for one seat."""
LIST_SEATS = 8
"""The seats of a list without a limit."""
_TEXT = "text/plain; charset=utf-8"
LINKS_PATH = "/timeline/links"
Link = Callable[[Request], Awaitable[Response]]


REVIEW_VERBS = ("create",)
"""The verbs of reviews. The API server authorizes them, and every user may send reviews of itself, so bodies are small."""
SMALL_SUBRESOURCES = ("scale", "binding", "eviction", "token")
MAX_SMALL_BODY = 64 << 10
"""The maximum size of a review, or of the body of one of the SMALL_SUBRESOURCES, in bytes."""
_WITH_BODY = ("POST", "PUT", "PATCH", "DELETE")


async def refuse_timeline_link(request: Request) -> Response:
    raise PageNotFound


class Dispatcher:
    def __init__(
        self,
        backend: Backend,
        ready: Ready,
        servers: ClientConfig,
        workers: ConversionWorker,
        link: Link = refuse_timeline_link,
        custom: CustomKinds | None = None,
    ) -> None:
        """`servers`: the API servers that `backend` calls. `workers`: does large conversions. `link`: handles requests for a
        link to the timeline. `custom`: the kinds of definitions; None: there are none."""
        self._link = link
        self._served = ServedResources(custom or CustomKinds())
        self.turns = ChunkTurns()
        cache = JsonCache()
        objects = ObjectHandlers(backend, cache, workers, self.turns)
        subresources = Subresources(backend, objects)
        commands = Exec(backend)
        self._flow = FlowControl()
        self._access = AccessChecker(backend)
        self._ready = ready
        self._discovery = Discovery(self._served)
        self._openapi = OpenApi(self._served)
        self._version = dump_json(version_info(build.build_version()))
        self._reviews = Reviews(backend)
        self._usage = UsageHandlers(backend)
        self._why = ExplainHandler(servers)
        self._tokens = TokenHandlers(backend)
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
            "token": self._tokens.create,
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

    async def answer(self, request: Request, read_body: ReadBody | None = None) -> Response | WebSocketUpgrade:
        """Handle a request. `read_body`: reads the body; None if the request has it. Raises ApiStatus."""
        path = request.path
        if path in PUBLIC and request.method in _READS:
            return self._serve_document(request)
        if request.user is ANONYMOUS:
            raise unauthorized()
        if (other := request.impersonation) is not None:
            await self._reviews.check_impersonation(request, other)
            request.user = User(other.user, other.all_groups())
        route = await self._resolve_route(request) if _is_object_path(path) else None
        user, seats = request.user.name, _count_seats(request, route)
        await self._flow.take_seats(user, seats)
        held = True
        try:
            if route is None:
                return await self._answer_path(request)
            response = await self._answer_route(request, route, read_body)
            if isinstance(response, Response) and not isinstance(response.body, bytes) and not response.is_live:
                response.body, held = self._hold_seats(response.body, user, seats), False
            return response
        finally:
            if held:
                self._flow.release_seats(user, seats)

    async def _resolve_route(self, request: Request) -> Route:
        """Resolve a request. An unknown resource may be one of a new definition. Raises ApiStatus."""
        try:
            return resolve_route(request, self._served)
        except ApiStatus as status:
            group, plural = find_custom_resource(request)
            if status.code != HTTPStatus.NOT_FOUND or not group or not await self._served.custom.read_definition(group, plural):
                raise
        return resolve_route(request, self._served)

    async def _hold_seats(self, chunks: AsyncIterator[bytes], user: str, seats: int) -> AsyncIterator[bytes]:
        """The chunks of a large response. Its seats are released when the client has it."""
        try:
            async for chunk in chunks:
                yield chunk
        finally:
            self._flow.release_seats(user, seats)
            await cast(Any, chunks).aclose()

    async def _answer_path(self, request: Request) -> Response:
        """Answer a request whose path is not one of a resource. Raises ApiStatus."""
        path = request.path
        if path == LINKS_PATH and request.method == "POST":
            return await self._link(request)
        await self._reviews.check_path(request)
        if is_issuer_path(path) and request.method in _READS:
            return await self._tokens.respond(request)
        if path.startswith("/openapi/") and request.method in _READS:
            return await self._openapi.respond(request)
        await self._discover_group(path)
        return self._serve_document(request)

    async def _answer_route(self, request: Request, route: Route, read_body: ReadBody | None) -> Response | WebSocketUpgrade:
        handler = self._find_handler(route)
        if warning := route.resource.deprecation_warning:
            request.warnings.append(warning)
        try:
            if read_body is not None and request.method in _WITH_BODY:
                is_review = route.resource.verbs == REVIEW_VERBS
                if not is_review:
                    await self._access.check(request, route)
                limit = MAX_SMALL_BODY if is_review or route.subresource in SMALL_SUBRESOURCES else MAX_BODY
                request.body = await read_body(request.user.name, self._flow, limit)
                if request.headers.get("content-encoding", "identity") == "gzip":
                    raise ApiStatus(415, "UnsupportedMediaType", "request bodies must not be compressed")
            return await handler(request, route)
        except ApiError as error:
            raise convert_error(error, route.resource, route.name) from None

    def _find_handler(self, route: Route) -> Handler:
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
        if route.subresource not in ("", "status", "resize", "ephemeralcontainers", "finalize"):
            raise ApiStatus(501, "NotImplemented", f"the subresource {route.subresource} is not supported by this gateway")
        return self._verbs[route.verb]

    def _serve_document(self, request: Request) -> Response:
        """Return the document of a path that is not one of a resource. Raises ApiStatus: 404, 405."""
        path = request.path
        endpoint, _, check = path[1:].partition("/")
        if endpoint in CHECKS:
            return self._serve_health(request, endpoint, check)
        if request.method not in _READS:
            raise method_not_allowed()
        if path in ("/version", "/version/"):
            check_content_type(request, (JSON,))
            return Response(200, self._version)
        if path == "/":
            checks = (f"/{endpoint}/{check}" for endpoint, checks in CHECKS.items() for check in checks)
            issuer = (CONFIGURATION_PATH, KEYS_PATH)
            paths = (*self._discovery.paths, *self._openapi.paths, *issuer, *PUBLIC[:-1], *checks)
            return Response(200, dump_json({"paths": sorted(paths)}))
        check_content_type(request, SERVED_TYPES)
        return self._discovery.respond(request)

    async def _discover_group(self, path: str) -> None:
        """Read the definitions of an unknown group, which may be new."""
        group = path.removeprefix("/apis/").partition("/")[0]
        if path.startswith("/apis/") and "." in group and group not in self._served.versions_by_group():
            await self._served.custom.find_group(group)

    def _serve_health(self, request: Request, endpoint: str, check: str) -> Response:
        """Return the result of one check, or of all checks of an endpoint. Only users with permission for the path of a check
        receive the reason of its failure. Raises ApiStatus (404) for an unknown check."""
        checks, problem = CHECKS[endpoint], self._ready()
        if request.path != f"/{endpoint}":
            if check not in checks:
                raise path_not_found()
            if problem and check in _SERVER_CHECKS:
                return Response(500, f"internal server error: {problem}\n".encode(), _TEXT)
            return Response(200, b"ok", _TEXT)
        excluded = request.query.get("exclude", ())
        failed = [item for item in checks if problem and item in _SERVER_CHECKS and item not in excluded]
        lines = [
            f"[-]{item} failed: reason withheld"
            if item in failed
            else f"[+]{item} excluded: ok"
            if item in excluded
            else f"[+]{item} ok"
            for item in checks
        ]
        if failed:
            return Response(500, "\n".join((*lines, f"{endpoint} check failed", "")).encode(), _TEXT)
        text = "\n".join((*lines, f"{endpoint} check passed", "")) if "verbose" in request.query else "ok"
        return Response(200, text.encode(), _TEXT)


def check_content_type(request: Request, accepted: Collection[str]) -> None:
    """Raise ApiStatus (415) for a Content-Type that is not accepted. As in Kubernetes, reads of discovery documents and of the
    version are restricted, and reads of objects are not."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type and content_type not in accepted:
        raise ApiStatus(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})


def _is_object_path(path: str) -> bool:
    """Return whether a path is of objects, and not of discovery: /api/VERSION/RESOURCE, /apis/GROUP/VERSION/RESOURCE."""
    segments = path.strip("/").split("/")
    return len(segments) > _DISCOVERY_SEGMENTS.get(segments[0], len(segments))


def _count_seats(request: Request, route: Route | None) -> int:
    """Return the seats of a request by the number of objects that it can return. Raises ApiStatus (400)."""
    if route is None or route.verb not in ("list", "deletecollection"):
        return 1
    return 1 if 0 < (request.number("limit") or 0) <= LISTED_PER_SEAT else LIST_SEATS
